"""Telling the model where it talks: configuration and ledger behind `session_context`."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hermes.app.platforms import PlatformKit
from hermes.config.loader import LoadedConfig
from hermes.control.admission.resets import AUTO_RESET, ResetReason, model_note
from hermes.control.delivery.home_channel import (
    HomeChannel,
    SessionContext,
    describe,
    hashed_id,
    home_channel,
)
from hermes.control.lanes.turn_input import is_shared
from hermes.domain.errors import HermesError
from hermes.domain.inbound import InboxEntry
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import Turn
from hermes.entry.chat.door import entry_of_turn

__all__ = ["ChatContext", "configured_homes"]

log = logging.getLogger(__name__)

SALT = "privacy:salt"


class ChatContext:
    """Writes the part of a chat turn's prompt that is never stored."""

    def __init__(self, loaded: LoadedConfig, kits: Sequence[PlatformKit]) -> None:
        self._kits = {kit.manifest.name: kit for kit in kits}
        self._homes = configured_homes(loaded)
        self._redact_ids = loaded.config.privacy.redact_pii
        self._ledger: Ledger | None = None

    def use(self, ledger: Ledger) -> None:
        """Take the ledger, which is opened after the wiring is made."""
        self._ledger = ledger

    async def ephemeral(self, turn: Turn, entry: InboxEntry | None) -> str:
        """Return what the model is told in this turn only; nothing for other doors."""
        if self._ledger is None:
            return ""
        try:
            entry = entry or await entry_of_turn(self._ledger, tuple(self._kits), turn.id)
            kit = self._kits.get(entry.message.platform) if entry is not None else None
            if entry is None or kit is None:
                return ""
            return describe(await self._context(self._ledger, turn, entry, kit))
        except HermesError as error:
            # The question can be answered without it.
            log.warning("turn %s goes without session context: %s", turn.id, error.message)
            return ""

    async def _context(
        self, ledger: Ledger, turn: Turn, entry: InboxEntry, kit: PlatformKit
    ) -> SessionContext:
        message = entry.message
        found = [await home_channel(ledger, name, self._homes) for name in sorted(self._kits)]
        shown_id = partial(hashed_id, await _salt(ledger)) if self._redact_ids else str
        return SessionContext(
            message=message,
            shared=is_shared(entry),
            channel_prompt=kit.channel_prompt(message.chat.id, message.thread_id),
            connected=tuple(sorted(self._kits)),
            homes=tuple(home for home in found if home is not None),
            reset_note=await _reset_note(ledger, turn),
            shown_id=shown_id,
        )


def configured_homes(loaded: LoadedConfig) -> Mapping[str, HomeChannel]:
    """Return the home channels that the configuration and the environment name."""
    homes = {}
    for name, platform in loaded.config.platforms.items():
        home = platform.home_channel
        if home is not None and home.chat_id:
            homes[name] = HomeChannel(
                platform=name, chat_id=home.chat_id, thread_id=home.thread_id, name=home.name
            )
    return homes


async def _reset_note(ledger: Ledger, turn: Turn) -> str:
    """Return the note about an automatic reset, for the first turn after it."""
    kept: Any = await ledger.recall(turn.session_id, AUTO_RESET)
    if not isinstance(kept, dict):
        return ""
    first = kept.get("turn_id")
    if first is None:
        await ledger.remember(turn.session_id, AUTO_RESET, {**kept, "turn_id": turn.id})
    elif first != turn.id:
        return ""
    return model_note(ResetReason(kept["reason"]))


async def _salt(ledger: Ledger) -> str:
    """Return this home's own salt: ids are short, and plain hashes of them can be guessed."""
    kept: Any = await ledger.kept(SALT)
    if isinstance(kept, str):
        return kept
    salt = secrets.token_hex(16)
    await ledger.keep(SALT, salt)
    return salt
