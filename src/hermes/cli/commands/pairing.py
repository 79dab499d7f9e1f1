"""`hermes pairing`: let people in who were shown a code."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime

import click

from hermes.config.environment import process_environ
from hermes.config.paths import HermesHome
from hermes.control.admission.pairing import Pairing
from hermes.domain.errors import NotFound
from hermes.execution.clock import SystemClock
from hermes.state.pairing import PairingFiles


@click.group("pairing")
def command() -> None:
    """Let people in who were shown a pairing code."""


@command.command("list")
def list_command() -> None:
    """List who waits and who was let in."""

    async def work(pairing: Pairing) -> None:
        waiting, paired = await pairing.waiting(), await pairing.paired()
        if not waiting and not paired:
            _say("Nobody waits and nobody is paired.")
        if waiting:
            _say("Waiting for a person to confirm their code:")
        for each in waiting:
            left = f"{each.minutes_left} min left"
            _say(f"  {each.platform}  {each.user_id}  {each.user_name}  ({left})")
        if paired:
            _say("Paired:")
        for user in paired:
            day = datetime.fromtimestamp(user.approved_at).astimezone()
            _say(f"  {user.platform}  {user.user_id}  {user.user_name}  (since {day:%Y-%m-%d})")

    _with_pairing(work)


@command.command("approve")
@click.argument("platform")
@click.argument("code")
def approve_command(platform: str, code: str) -> None:
    """Let in whoever was shown CODE on PLATFORM."""

    async def work(pairing: Pairing) -> None:
        newcomer = await pairing.approve(platform.lower(), code)
        name = f" ({newcomer.user_name})" if newcomer.user_name else ""
        _say(f"{newcomer.user_id}{name} may now talk to the agent on {newcomer.platform}.")

    _with_pairing(work)


@command.command("revoke")
@click.argument("platform")
@click.argument("user")
def revoke_command(platform: str, user: str) -> None:
    """Take back what `approve` gave to USER on PLATFORM."""

    async def work(pairing: Pairing) -> None:
        if not await pairing.revoke(platform.lower(), user):
            raise NotFound(
                f"{user} is not paired on {platform}.", hint="See who is with: hermes pairing list"
            )
        _say(f"{user} may no longer talk to the agent on {platform}, unless a list allows it.")

    _with_pairing(work)


@command.command("clear-pending")
@click.argument("platform", required=False)
def clear_command(platform: str | None) -> None:
    """Make the codes that nobody has confirmed worthless, on PLATFORM or everywhere."""

    async def work(pairing: Pairing) -> None:
        names = [platform.lower()] if platform else {w.platform for w in await pairing.waiting()}
        count = sum([await pairing.clear_pending(name) for name in names])
        _say(f"{count} pending codes cleared.")

    _with_pairing(work)


def _with_pairing(work: Callable[[Pairing], Awaitable[None]]) -> None:
    home = HermesHome.from_environ(process_environ())

    async def main() -> None:
        await work(Pairing(PairingFiles(home.platforms_dir / "pairing"), SystemClock()))

    asyncio.run(main())


def _say(text: str) -> None:
    """Print a line; names were chosen by strangers and may hold anything."""
    shown = "".join(c for c in text if c.isprintable())
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(shown.encode(encoding, "backslashreplace").decode(encoding).rstrip())
