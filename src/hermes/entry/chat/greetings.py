"""Greetings: a welcome to somebody who was let in, and "I'm back" after `/restart`.

Both are promised in the ledger before they can be kept: the place of a stranger when a
pairing code is shown, the place of `/restart` before the gateway stops. Each has one delivery
id, so that it is said once, however often the process dies on the way.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from hermes.control.admission.pairing import Pairing, welcome_name
from hermes.control.commands.info import ABOUT
from hermes.control.commands.turns import RESTARTED
from hermes.domain.errors import HermesError
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
FRESH_SECONDS = 2 * 3600.0
"""After so long nobody waits for it any more."""
WELCOME = f"Welcome, you're in! {ABOUT}"
DONE = ""
BACK = "♻️ I'm back."


class Greetings(Struct, kw_only=True):
    ledger: Ledger
    clock: Clock
    owner: str
    """The id of this process: what it promises itself is for the next one."""
    pairing: Pairing
    deliver: Callable[[Target, str, str], Awaitable[None]]
    announces: Callable[[str], bool]
    """Tells whether a platform's chats are told that the gateway is back."""
    _welcomed: frozenset[tuple[str, str]] = frozenset()
    """Those who were let in and have been looked at."""

    async def run(self) -> None:
        while True:
            await self._say_back()
            await self._welcome()
            await self.clock.sleep(LOOK_SECONDS)

    async def _say_back(self) -> None:
        promised: Any = await self.ledger.kept(RESTARTED)
        if not isinstance(promised, dict) or promised["owner"] in (self.owner, DONE):
            return
        target = msgspec.convert(promised["target"], Target)
        if self.announces(target.platform) and not await self._said(target, BACK, promised):
            return
        # What was asked for stays on record: a command that comes again must not restart again.
        await self.ledger.keep(RESTARTED, {**promised, "owner": DONE})

    async def _welcome(self) -> None:
        await self.pairing.refresh()
        people = frozenset(self.pairing.people())
        for platform, user_id in people - self._welcomed:
            name = welcome_name(platform, user_id)
            promised: Any = await self.ledger.kept(name)
            if isinstance(promised, dict):
                target = msgspec.convert(promised["target"], Target)
                if not await self._said(target, WELCOME, promised):
                    people -= {(platform, user_id)}
                    continue
                await self.ledger.keep(name, None)
        self._welcomed = people

    async def _said(self, target: Target, text: str, promised: Any) -> bool:
        """Say what was promised; False if it is worth another try."""
        if self.clock.now() - promised["at"] > FRESH_SECONDS:
            return True
        try:
            await self.deliver(target, text, promised["id"])
        except HermesError as error:
            log.warning("%s waits: %s", promised["id"], error.message)
            return False
        return True
