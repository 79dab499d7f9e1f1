"""Widgets at the terminal: a picker and a progress line on stderr."""

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def pick(title: str, lines: Sequence[str], *, chosen: int = 0) -> int | None:
    """Return the number of the line a person picks, None if they leave."""
    # prompt_toolkit is heavy: most commands ask nothing.
    from prompt_toolkit.application import Application  # noqa: PLC0415
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415
    from prompt_toolkit.layout import Layout, Window  # noqa: PLC0415
    from prompt_toolkit.layout.controls import FormattedTextControl  # noqa: PLC0415

    from hermes.entry.terminal.questions import list_picker  # noqa: PLC0415

    picker, keys = list_picker(title, lines), KeyBindings()
    picker.selected = chosen
    styles = {"title": "bold", "selected": "reverse"}

    def press(key: str) -> None:
        picker.press(key)
        if picker.chosen is not None or key == "escape":
            app.exit()

    def shown() -> "StyleAndTextTuples":
        cells = shutil.get_terminal_size().columns
        found = picker.lines(cells, "↑↓ digit, Enter, Esc")
        return [(styles.get(style, ""), f"{text}\n") for style, text in found]

    pressed = {"k": "up", "j": "down", "q": "escape", "c-c": "escape", "c-d": "escape"}
    names = ("up", "down", "pageup", "pagedown", "enter", "escape", *"123456789")
    for key, name in {**pressed, **{name: name for name in names}}.items():
        keys.add(key, eager=True)(lambda _event, name=name: press(name))
    window = Window(FormattedTextControl(shown), always_hide_cursor=True)
    app: Any = Application(layout=Layout(window), key_bindings=keys, erase_when_done=True)
    app.run()
    return int(picker.chosen.value) if picker.chosen else None


_LABELS: Final = {
    "download": "Downloading the embedded model",
    "unpack": "Unpacking the embedded model",
    "load": "Loading the model",
}


class ProgressLine:
    """Shows steps one after the other on stderr. Call it with `step, done, total`."""

    def __init__(self) -> None:
        self._step = ""
        self._bar: Any = None

    def __call__(self, step: str, done: int, total: int) -> None:
        if step != self._step:
            self.finish()
            self._step = step
            label = _LABELS.get(step, step)
            self._bar = click.progressbar(length=total or None, label=label, file=sys.stderr)
            self._bar.render_progress()
        self._bar.update(done - self._bar.pos)

    def finish(self) -> None:
        if self._step:
            self._bar.render_finish()
        self._step = ""
