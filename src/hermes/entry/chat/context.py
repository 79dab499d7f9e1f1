"""Telling the model where it talks: the part of a chat turn's prompt that is never stored."""

import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from hermes.control.admission.resets import AUTO_RESET, ResetReason, model_note
from hermes.control.delivery.home_channel import (
    HomeChannel,
    SessionContext,
    describe,
    hashed_id,
    home_channel,
)
from hermes.control.lanes.batches import is_shared
from hermes.domain.errors import HermesError
from hermes.domain.inbound import InboxEntry
from hermes.domain.ports.ledger import Ledger
from hermes.domain.settings import Settings
from hermes.domain.settings.live import LiveSettings
from hermes.domain.turn import Turn

log = logging.getLogger(__name__)

SALT = "privacy:salt"


class ChatContext(Struct, frozen=True, kw_only=True):
    """Describes the chat of a turn."""

    ledger: Ledger
    prompts: Mapping[str, Callable[[str, str | None], str]]
    """Platform -> (chat, thread) -> what the owner wants the model to know there."""
    settings: LiveSettings

    async def describe(self, turn: Turn, entry: InboxEntry) -> str:
        """Return what the model is told in this turn only."""
        try:
            return describe(await self._context(turn, entry))
        except HermesError as error:
            # The question can be answered without it.
            log.warning("turn %s goes without session context: %s", turn.id, error.message)
            return ""

    async def home(self, platform: str) -> HomeChannel | None:
        """Return the home channel of a platform."""
        return await home_channel(self.ledger, platform, configured_homes(self.settings()))

    async def _context(self, turn: Turn, entry: InboxEntry) -> SessionContext:
        message, ledger, platforms = entry.message, self.ledger, sorted(self.prompts)
        settings = self.settings()
        named = configured_homes(settings)
        found = [await home_channel(ledger, name, named) for name in platforms]
        hidden = settings.privacy.redact_pii
        prompt = self.prompts[message.platform]
        return SessionContext(
            message=message,
            shared=is_shared(entry),
            channel_prompt=prompt(message.chat.id, message.thread_id),
            connected=tuple(platforms),
            homes=tuple(home for home in found if home is not None),
            reset_note=await _reset_note(ledger, turn),
            shown_id=partial(hashed_id, await _salt(ledger)) if hidden else str,
        )


def configured_homes(settings: Settings) -> dict[str, HomeChannel]:
    """Return the home channels that the configuration and the environment name."""
    named = {name: platform.home_channel for name, platform in settings.platforms.items()}
    return {
        name: HomeChannel(
            platform=name, chat_id=home.chat_id, thread_id=home.thread_id, name=home.name
        )
        for name, home in named.items()
        if home is not None and home.chat_id
    }


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
