"""Widgets at the terminal: a picker (arrow keys, or numbers) and a progress line on stderr."""

import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples

_ROWS: Final = 15
"""Lines shown at once."""


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def pick(title: str, lines: Sequence[str], *, chosen: int = 0) -> int | None:
    """Return the number of the line a person picks, None if they leave."""
    if find_spec("prompt_toolkit") is not None:
        return _Arrows(title, lines, chosen).run()
    click.echo(title)
    for at, line in enumerate(lines, 1):
        click.echo(f"{'*' if at - 1 == chosen else ' '}{at:3}. {line}")
    answer = click.prompt(
        "Number, or 0 to leave it", default=chosen + 1, type=click.IntRange(0, len(lines))
    )
    return None if answer == 0 else int(answer) - 1


class _Arrows:
    def __init__(self, title: str, lines: Sequence[str], at: int) -> None:
        self._title = title
        self._lines = lines
        self._at = at

    def run(self) -> int | None:
        # prompt_toolkit is heavy and optional
        from prompt_toolkit.application import Application  # noqa: PLC0415
        from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415
        from prompt_toolkit.layout import Layout, Window  # noqa: PLC0415
        from prompt_toolkit.layout.controls import FormattedTextControl  # noqa: PLC0415

        keys = KeyBindings()
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_ROWS, "pagedown": _ROWS}
        for key, step in steps.items():
            keys.add(key)(lambda _event, step=step: self._move(step))
        keys.add("enter")(lambda event: event.app.exit(result=self._at))
        for key in ("escape", "q", "c-c", "c-d"):
            keys.add(key, eager=True)(lambda event: event.app.exit(result=None))
        window = Window(FormattedTextControl(self._shown), always_hide_cursor=True)
        app: Any = Application(layout=Layout(window), key_bindings=keys, erase_when_done=True)
        result = app.run()
        return result if isinstance(result, int) else None

    def _move(self, step: int) -> None:
        self._at = (self._at + step) % len(self._lines)

    def _shown(self) -> "StyleAndTextTuples":
        first = max(0, min(self._at - _ROWS // 2, len(self._lines) - _ROWS))
        shown: StyleAndTextTuples = [("bold", f"{self._title}\n")]
        for at in range(first, min(first + _ROWS, len(self._lines))):
            style, mark = ("reverse", "❯") if at == self._at else ("", " ")
            shown.append((style, f"{mark} {self._lines[at]}\n"))
        shown.append(("", f"{self._at + 1}/{len(self._lines)}  ↑↓ move  enter choose  esc leave"))
        return shown


_WIDTH: Final = 30
_EVERY: Final = 0.05
_LABELS: Final = {
    "download": "Downloading the embedded model",
    "unpack": "Unpacking it",
    "load": "Loading the model",
}


class ProgressLine:
    """Shows steps one after the other. Call it with `step, done, total`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar = self._stream.isatty()
        self._step = ""
        self._shown = 0.0

    def __call__(self, step: str, done: int, total: int) -> None:
        now = time.monotonic()
        new = step != self._step
        if new:
            self.finish()
            self._step = step
        if not self._bar:
            if new:
                self._stream.write(f"{_LABELS.get(step, step)} ...\n")
                self._stream.flush()
            return
        if new or done >= total or now - self._shown >= _EVERY:
            self._shown = now
            self._stream.write(f"\r{self._line(done, total)}\x1b[K")
            self._stream.flush()

    def finish(self) -> None:
        if self._step and self._bar:
            self._stream.write("\n")
            self._stream.flush()
        self._step = ""

    def _line(self, done: int, total: int) -> str:
        label = _LABELS.get(self._step, self._step)
        if total <= 0:
            return f"{label} ..."
        share = min(1.0, done / total)
        filled = round(share * _WIDTH)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        return f"{label:<32} {bar} {share:4.0%} {done / 1e6:6.1f} MB"
