"""`hermes pairing`: let people in who were shown a code."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import click

from hermes.cli.home import given, say, this_home
from hermes.control.admission.pairing import Pairing
from hermes.control.commands.wording import count
from hermes.domain.errors import NotFound
from hermes.execution.clock import SystemClock
from hermes.state.pairing import PairingFiles


@asynccontextmanager
async def _pairing() -> AsyncIterator[Pairing]:
    yield Pairing(PairingFiles(this_home().platforms_dir / "pairing"), SystemClock())


with_pairing = given(_pairing)


@click.group("pairing")
def command() -> None:
    """Let people in who were shown a pairing code."""


@command.command("list")
@with_pairing
async def list_command(pairing: Pairing) -> None:
    """List who is waiting and who is paired."""
    waiting, paired = await pairing.waiting(), await pairing.paired()
    if not waiting and not paired:
        say("No pending pairing codes, no paired users.")
    if waiting:
        say("Waiting for a person to confirm their code:")
    for each in waiting:
        left = f"{each.minutes_left} min left"
        say(f"  {each.platform}  {each.user_id}  {each.user_name}  ({left})")
    if paired:
        say("Paired:")
    for user in paired:
        day = datetime.fromtimestamp(user.approved_at).astimezone()
        say(f"  {user.platform}  {user.user_id}  {user.user_name}  (since {day:%Y-%m-%d})")


@command.command("approve")
@click.argument("platform")
@click.argument("code")
@with_pairing
async def approve_command(pairing: Pairing, platform: str, code: str) -> None:
    """Let in the person who was shown CODE on PLATFORM."""
    newcomer = await pairing.approve(platform.lower(), code)
    name = f" ({newcomer.user_name})" if newcomer.user_name else ""
    say(f"{newcomer.user_id}{name} may now talk to the agent on {newcomer.platform}.")


@command.command("revoke")
@click.argument("platform")
@click.argument("user")
@with_pairing
async def revoke_command(pairing: Pairing, platform: str, user: str) -> None:
    """Revoke the access that `approve` gave USER on PLATFORM."""
    if not await pairing.revoke(platform.lower(), user):
        raise NotFound(
            f"{user} is not paired on {platform}.", hint="See who is with: hermes pairing list"
        )
    say(f"{user} may no longer talk to the agent on {platform}, unless a list allows it.")


@command.command("clear-pending")
@click.argument("platform", required=False)
@with_pairing
async def clear_command(pairing: Pairing, platform: str | None) -> None:
    """Cancel the codes that nobody has confirmed, on PLATFORM or everywhere."""
    names = [platform.lower()] if platform else {w.platform for w in await pairing.waiting()}
    cleared = sum([await pairing.clear_pending(name) for name in names])
    say(f"{count(cleared, 'pending code')} cleared.")
