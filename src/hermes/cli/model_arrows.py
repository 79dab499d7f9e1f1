"""Choosing one of several lines with the arrow keys."""

from collections.abc import Sequence
from typing import Any, Final

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import Layout
from prompt_toolkit.layout.containers import Window
from prompt_toolkit.layout.controls import FormattedTextControl

__all__ = ["pick_with_arrows"]

_ROWS: Final = 15
"""Lines shown at once."""


def pick_with_arrows(title: str, lines: Sequence[str], chosen: int) -> int | None:
    """Return the number of the line that is picked, None if the person leaves."""
    state = _Cursor(title, lines, chosen)
    window = Window(FormattedTextControl(state.fragments), always_hide_cursor=True)
    app: Any = Application(
        layout=Layout(window), key_bindings=_bindings(state), erase_when_done=True
    )
    result = app.run()
    return result if isinstance(result, int) else None


class _Cursor:
    """Which line is marked, and what of the list is in view."""

    def __init__(self, title: str, lines: Sequence[str], at: int) -> None:
        self._title = title
        self._lines = lines
        self.at = at

    def move(self, steps: int) -> None:
        """Move the mark, around the ends."""
        self.at = (self.at + steps) % len(self._lines)

    def fragments(self) -> StyleAndTextTuples:
        """Return the visible part of the list."""
        first = max(0, min(self.at - _ROWS // 2, len(self._lines) - _ROWS))
        shown: StyleAndTextTuples = [("bold", f"{self._title}\n")]
        for at in range(first, min(first + _ROWS, len(self._lines))):
            style, mark = ("reverse", "❯") if at == self.at else ("", " ")
            shown.append((style, f"{mark} {self._lines[at]}\n"))
        shown.append(("", f"{self.at + 1}/{len(self._lines)}  ↑↓ move  enter choose  esc leave"))
        return shown


def _bindings(state: _Cursor) -> KeyBindings:
    bindings = KeyBindings()

    def leave(event: Any) -> None:
        event.app.exit(result=None)

    def choose(event: Any) -> None:
        event.app.exit(result=state.at)

    for keys, steps in ((("up", "k"), -1), (("down", "j"), 1), (("pageup",), -_ROWS)):
        for key in keys:
            bindings.add(key)(lambda _event, steps=steps: state.move(steps))
    bindings.add("pagedown")(lambda _event: state.move(_ROWS))
    bindings.add("enter")(choose)
    for key in ("escape", "q", "c-c", "c-d"):
        bindings.add(key, eager=True)(leave)
    return bindings
