"""Printing above panes that are redrawn.

Finished text goes into the terminal's own scrollback; only the panes are
repainted. Everything happens on the event loop, so a print is: take the panes
away, write, paint them again. Lines that come in quick succession are printed
together, with the next repaint.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import (
    Condition,
    Filter,
    FilterOrBool,
    has_completions,
    is_done,
    to_filter,
)
from prompt_toolkit.formatted_text import AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Container,
    Dimension,
    FormattedTextControl,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenuControl
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import BaseStyle, DynamicStyle, Style

from hermes.entry.terminal.paint import Colours, Painter, TerminalKind
from hermes.entry.terminal.skins import Skin

MENU_LINES = 8


def text_window(
    buffer: Buffer,
    most: int,
    prompt: Callable[[], str],
    no_cursor: FilterOrBool = False,  # noqa: FBT002 (a filter, not a flag)
) -> Window:
    """Make a window to write in, as high as its text but at most so many lines."""

    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", prompt())] if line == 0 == wrapped else [("", "  ")]

    return Window(
        BufferControl(buffer=buffer),
        height=Dimension(min=1, max=most),
        wrap_lines=True,
        dont_extend_height=True,
        always_hide_cursor=no_cursor,
        get_line_prefix=prefix,
    )


def completion_menu(shown: Filter) -> Container:
    menu = Window(
        CompletionsMenuControl(),
        height=Dimension(min=1, max=MENU_LINES),
        dont_extend_height=True,
        style="class:completion-menu",
    )
    return ConditionalContainer(menu, filter=has_completions & ~is_done & shown)


def pane(text: Callable[[], AnyFormattedText]) -> Container:
    """Make a pane that is there while it has something to show."""
    window = Window(
        FormattedTextControl(text),
        dont_extend_height=True,
        wrap_lines=False,
        always_hide_cursor=True,
    )
    return ConditionalContainer(window, filter=Condition(lambda: bool(text())))


def styled(style: str, text: str) -> StyleAndTextTuples:
    return [(f"class:{style}", text)] if text else []


def chat_style(paint: Painter) -> Style:
    """Make the style sheet of a skin; without colours only weight remains."""

    def fg(name: str, *more: str) -> str:
        return " ".join([*([paint.hex(name)] if paint.hex(name) else []), *more])

    back = paint.hex("status_bar_bg")
    bar = " ".join([fg("status_bar_text"), f"bg:{back}" if back else ""]).strip()
    return Style.from_dict(
        {
            "prompt": fg("prompt", "bold"),
            "spinner": fg("ui_accent"),
            "hint": fg("banner_dim"),
            "status": bar or "noreverse",
            "picker.title": fg("ui_warn", "bold"),
            "picker.body": "",
            "picker.option": "",
            "picker.selected": fg("ui_accent", "bold"),
            "picker.hint": fg("banner_dim"),
            "completion-menu": "noreverse",
            "completion-menu.completion": fg("banner_dim", "bg:default"),
            "completion-menu.completion.current": fg(
                "ui_accent", "bold", "bg:default", "noreverse"
            ),
            "completion-menu.meta.completion": fg("banner_dim", "bg:default"),
            "completion-menu.meta.completion.current": fg("ui_accent", "bg:default"),
        }
    )


DEPTHS = {
    Colours.NONE: ColorDepth.DEPTH_1_BIT,
    Colours.STANDARD: ColorDepth.DEPTH_4_BIT,
    Colours.EIGHT_BIT: ColorDepth.DEPTH_8_BIT,
    Colours.TRUECOLOR: ColorDepth.DEPTH_24_BIT,
}
REPAINT_SECONDS = 0.04
ESCAPE_SECONDS = 0.05


class _Output(Vt100_Output):
    """Output that can be held back, so that a change of the screen is one write."""

    batching = False

    def flush(self) -> None:
        if not self.batching:
            super().flush()


class Canvas:
    def __init__(self, kind: TerminalKind, skin: Skin, *, term: str) -> None:
        self._kind = kind
        self._style: BaseStyle = chat_style(Painter(skin, kind))
        # Asking for the cursor position is of no use here: the panes have no floats.
        self._output = _Output(sys.stdout, _size, term=term, enable_cpr=False)
        self._app: Application[None] | None = None
        self._held: list[str] = []
        self._outside = False

    def wear(self, skin: Skin) -> None:
        self._style = chat_style(Painter(skin, self._kind))

    @property
    def size(self) -> tuple[int, int]:
        size = self._output.get_size()
        return size.columns, size.rows

    async def run(self, layout: Layout, keys: KeyBindings, on_key: Callable[[], None]) -> None:
        app: Application[None] = Application(
            layout=layout,
            key_bindings=keys,
            style=DynamicStyle(lambda: self._style),
            output=self._output,
            color_depth=DEPTHS[self._kind.colours],
            erase_when_done=True,
            enable_page_navigation_bindings=to_filter(False),  # noqa: FBT003 (a filter, not a flag)
            min_redraw_interval=REPAINT_SECONDS,
            terminal_size_polling_interval=None,
            before_render=self._before_render,
            after_render=self._after_render,
        )
        app.ttimeoutlen = ESCAPE_SECONDS
        app.key_processor.before_key_press += lambda _: on_key()
        self._app = app
        _take_typed_before(app.input)
        try:
            await app.run_async(set_exception_handler=False)
        finally:
            self._app = None
            self._flush()

    def close(self) -> None:
        if self._app is not None and self._app.is_running and not self._app.is_done:
            self._app.exit()

    def repaint(self) -> None:
        if self._app is not None:
            self._app.invalidate()

    def show(self, lines: Sequence[str]) -> None:
        """Print lines above the panes with their next repaint, or when they are back."""
        self._held += lines
        app = self._app
        if app is None or not app.is_running or app.is_done:
            self._flush()
        elif not self._outside:
            app.invalidate()

    def _flush(self) -> None:
        if self._held:
            text, self._held = "\r\n".join(self._held) + "\r\n", []
            self.write(text)

    def _before_render(self, app: Application[None]) -> None:
        """Print what is held where the panes were, in one write with painting them again."""
        if self._held and not self._outside and not app.is_done:
            self._output.batching = True
            app.renderer.erase()
            self._flush()
        else:
            self._shrink(app)

    def _after_render(self, _app: Application[None]) -> None:
        if self._output.batching:
            self._output.batching = False
            self._output.flush()

    def write(self, text: str) -> None:
        self._output.write_raw(text)
        self._output.flush()

    def clear(self) -> None:
        if self._app is not None:
            self._app.renderer.clear()
            self._app.invalidate()

    def ring(self) -> None:
        self._output.bell()

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Give the terminal to another program for the body of the `with`."""
        self._outside = True
        try:
            async with in_terminal():
                yield
        finally:
            self._outside = False
            self.repaint()

    def focus(self, name: str) -> None:
        if self._app is not None and not self._app.layout.has_focus(name):
            self._app.layout.focus(name)

    def _shrink(self, app: Application[None]) -> None:
        """Take lines away that are no longer needed, instead of leaving them blank."""
        columns, rows = self.size
        last = app.renderer.last_rendered_screen
        wanted = app.layout.container.preferred_height(columns, rows).preferred
        if last is not None and wanted < last.height:
            app.renderer.erase()


def _take_typed_before(source: Input) -> None:
    """Take what was typed before the chat could read, when Enter was still a line feed.

    Several lines are rather a paste: they stay lines.
    """
    with source.raw_mode():
        keys = source.read_keys()
    if [each.key for each in keys].count(Keys.ControlJ) == 1 and keys[-1].key == Keys.ControlJ:
        keys[-1] = KeyPress(Keys.Enter, "\r")
    store_typeahead(source, keys)


def _size() -> Size:
    """Return the size of the terminal; some serial lines do not know theirs."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return Size(rows=24, columns=80)
    return Size(rows=size.lines or 24, columns=size.columns or 80)
