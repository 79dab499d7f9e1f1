"""What Ctrl+C means at this moment. Pure."""

from enum import StrEnum

__all__ = ["CtrlC", "InterruptKey"]

AGAIN_SECONDS = 2.0


class CtrlC(StrEnum):
    """What a Ctrl+C does."""

    STOP_TURN = "stop_turn"
    STOP_COMMAND = "stop_command"
    CLEAR_INPUT = "clear_input"
    WARN = "warn"
    """Say that a second one leaves."""
    LEAVE = "leave"


class InterruptKey:
    """Remembers the last Ctrl+C, so that a second one within two seconds leaves."""

    def __init__(self) -> None:
        self._last: float | None = None

    def press(self, now: float, *, working: bool, command: bool, has_text: bool) -> CtrlC:
        """Return what a Ctrl+C at `now` does."""
        again = self._last is not None and now - self._last <= AGAIN_SECONDS
        self._last = now
        if again and not has_text:
            return CtrlC.LEAVE
        if working:
            return CtrlC.STOP_TURN
        if command:
            return CtrlC.STOP_COMMAND
        if has_text:
            self._last = None
            return CtrlC.CLEAR_INPUT
        return CtrlC.WARN
