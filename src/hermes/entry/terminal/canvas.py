"""Printing above panes that are redrawn.

Finished text goes into the terminal's own scrollback; only the panes are
repainted. Everything happens on the event loop, so a print is: take the panes
away, write, paint them again.
"""

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import to_filter
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import BaseStyle, DynamicStyle

from hermes.entry.terminal.capabilities import Colours, TerminalKind
from hermes.entry.terminal.layout import chat_style
from hermes.entry.terminal.paint import Painter
from hermes.entry.terminal.skins import Skin

__all__ = ["Canvas"]

DEPTHS = {
    Colours.NONE: ColorDepth.DEPTH_1_BIT,
    Colours.SIXTEEN: ColorDepth.DEPTH_4_BIT,
    Colours.MANY: ColorDepth.DEPTH_8_BIT,
    Colours.TRUE: ColorDepth.DEPTH_24_BIT,
}
REPAINT_SECONDS = 0.04
ESCAPE_SECONDS = 0.05


class _Output(Vt100_Output):
    """Output that can be held back, so that a change of the screen is one write."""

    batching = False

    def flush(self) -> None:
        """Write what was collected, unless more belongs to it."""
        if not self.batching:
            super().flush()


class Canvas:
    """The terminal: scrollback above, panes below."""

    def __init__(self, kind: TerminalKind, skin: Skin, *, term: str) -> None:
        self._kind = kind
        self._style: BaseStyle = chat_style(Painter(skin, kind))
        # Asking for the cursor position is of no use here: the panes have no floats.
        self._output = _Output(sys.stdout, _size, term=term, enable_cpr=False)
        self._app: Application[None] | None = None
        self._held: list[str] = []
        self._outside = False

    def wear(self, skin: Skin) -> None:
        """Use the colours of a skin."""
        self._style = chat_style(Painter(skin, self._kind))

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows) of the terminal."""
        size = self._output.get_size()
        return size.columns, size.rows

    async def run(self, layout: Layout, keys: KeyBindings) -> None:
        """Show the panes until `close`."""
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
            before_render=self._shrink,
        )
        app.ttimeoutlen = ESCAPE_SECONDS
        self._app = app
        try:
            await app.run_async(set_exception_handler=False)
        finally:
            self._app = None
            self._flush()

    def close(self) -> None:
        """Take the panes away and end `run`."""
        if self._app is not None and self._app.is_running and not self._app.is_done:
            self._app.exit()

    def repaint(self) -> None:
        """Have the panes painted soon."""
        if self._app is not None:
            self._app.invalidate()

    def show(self, lines: Sequence[str]) -> None:
        """Print lines above the panes; while another program has the terminal, later."""
        self._held += lines
        if not self._outside:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        text, self._held = "\r\n".join(self._held) + "\r\n", []
        app = self._app
        if app is None or not app.is_running or app.is_done:
            self.write(text)
            return
        self._output.batching = True
        app.renderer.erase()
        self._output.write_raw(text)
        app.renderer.render(app, app.layout)
        self._output.batching = False
        self._output.flush()

    def write(self, text: str) -> None:
        """Write to the terminal as it is."""
        self._output.write_raw(text)
        self._output.flush()

    def clear(self) -> None:
        """Empty the screen."""
        if self._app is not None:
            self._app.renderer.clear()
            self._app.invalidate()

    def ring(self) -> None:
        """Ring the bell."""
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
            self._flush()

    def focus(self, name: str) -> None:
        """Let keys go to the buffer of that name."""
        if self._app is not None:
            self._app.layout.focus(name)

    def _shrink(self, app: Application[None]) -> None:
        """Take lines away that are no longer needed, instead of leaving them blank."""
        columns, rows = self.size
        last = app.renderer.last_rendered_screen
        wanted = app.layout.container.preferred_height(columns, rows).preferred
        if last is not None and wanted < last.height:
            app.renderer.erase()


def _size() -> Size:
    """Return the size of the terminal; some serial lines do not know theirs."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return Size(rows=24, columns=80)
    return Size(rows=size.lines or 24, columns=size.columns or 80)
