"""What a person chose for one session, kept with it in the ledger."""

from enum import StrEnum
from typing import Any

from hermes.control.busy import BusyMode
from hermes.domain.ports.state import Ledger

__all__ = ["SessionChoice", "ToolDetail", "busy_mode", "recalled_flag", "recalled_word"]


class SessionChoice(StrEnum):
    """Names under which the ledger remembers choices."""

    BUSY = "busy_mode"
    REASONING = "reasoning_effort"
    SHOW_REASONING = "show_reasoning"
    TOOL_DETAIL = "tool_progress"
    YOLO = "yolo"


class ToolDetail(StrEnum):
    """Which tool calls are shown."""

    OFF = "off"
    NEW = "new"
    """One line when another tool begins than the last time."""
    ALL = "all"
    VERBOSE = "verbose"
    """Also what the tool gave back."""


async def busy_mode(ledger: Ledger, session_id: str | None, default: BusyMode) -> BusyMode:
    """Return the session's busy mode."""
    word = await recalled_word(ledger, session_id, SessionChoice.BUSY)
    return BusyMode(word) if word in set(BusyMode) else default


async def recalled_word(
    ledger: Ledger, session_id: str | None, choice: SessionChoice
) -> str | None:
    """Return a remembered word, or None."""
    value = await _recall(ledger, session_id, choice)
    return value if isinstance(value, str) else None


async def recalled_flag(
    ledger: Ledger, session_id: str | None, choice: SessionChoice
) -> bool | None:
    """Return a remembered yes or no, or None if nothing was chosen."""
    value = await _recall(ledger, session_id, choice)
    return value if isinstance(value, bool) else None


async def _recall(ledger: Ledger, session_id: str | None, choice: SessionChoice) -> Any:
    return None if session_id is None else await ledger.recall(session_id, choice.value)
