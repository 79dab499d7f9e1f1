"""The full-screen chat: the canvas, the input, pickers and keys around one conversation."""

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, Filter, FilterOrBool
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.completion import generate_completions
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    ConditionalContainer,
    Container,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)

from hermes.control.commands.turns import EFFECTS
from hermes.domain.inbound import Attachment
from hermes.entry.terminal.canvas import Canvas, completion_menu, pane, styled, text_window
from hermes.entry.terminal.chat import ChatParts
from hermes.entry.terminal.chat_session import TerminalChat
from hermes.entry.terminal.input import (
    AGAIN_SECONDS,
    CompletionSources,
    CtrlC,
    InterruptKey,
    Pastes,
    PrivateHistory,
    input_buffer,
)
from hermes.entry.terminal.paint import TerminalKind, ascii_text, cut, wrap
from hermes.entry.terminal.questions import STEPS
from hermes.entry.terminal.skins import Skin, load_skin, skin_names
from hermes.entry.terminal.statusbar import FRAME_SECONDS, spinner_line, status_line
from hermes.entry.terminal.tty import (
    clean_terminal,
    clipboard_image,
    copy_sequence,
    edit,
)

INPUT_LINES = 10
ANSWER_LINES = 4
LAST_WORDS_SECONDS = 2.0
"""How long leaving waits for what was typed just before."""


class TerminalApp(TerminalChat):
    """The chat on a screen, and what the keys set off."""

    def __init__(
        self, parts: ChatParts, skin: Skin, kind: TerminalKind, group: asyncio.TaskGroup
    ) -> None:
        self._canvas = Canvas(kind, skin, term=parts.environ.get("TERM", ""))
        super().__init__(parts, skin, kind, group)
        self._pastes = Pastes()
        self._ctrl_c = InterruptKey()
        self._typed: asyncio.Queue[tuple[str, tuple[Attachment, ...]]] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None
        self._note = ""
        self._moving = asyncio.Event()
        self._input = input_buffer(self._sources(), PrivateHistory(parts.home.root / "history"))
        self._answer = Buffer(name="answer", multiline=False)
        self._status_shown = True

    def _sources(self) -> CompletionSources:
        specs = self.registry.commands(terminal=True)
        return CompletionSources(
            specs=specs,
            cwd=self.parts.profile.workspace,
            arguments={
                "skin": self.skins,
                "help": lambda: [spec.name for spec in specs],
            },
        )

    # -- its life ------------------------------------------------------------

    async def chat(self) -> None:
        with clean_terminal():
            for work in (self._take_typed(), self._animate(), _warm_up()):
                self.spawn(work)
            try:
                await self._canvas.run(self._layout(), self._keys())
            finally:
                await self._wind_up()

    async def _wind_up(self) -> None:
        """Let what was typed reach the inbox, then stop the turn."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._typed.join()
        if not self.exit_code:
            await self.hold()

    async def _take_typed(self) -> None:
        while True:
            text, attachments = await self._typed.get()
            self._running = self.spawn(self.typed(text, attachments))
            await asyncio.wait([self._running])
            self._running = None
            self._typed.task_done()

    async def _animate(self) -> None:
        """Repaint while a turn runs; wait without waking up while none does."""
        while True:
            await self._moving.wait()
            await asyncio.sleep(FRAME_SECONDS)
            self._canvas.repaint()
            if not self.working:
                self._moving.clear()

    # -- the screen ------------------------------------------------------------

    @property
    def cells(self) -> int:
        return max(20, self._canvas.size[0])

    def show(self, lines: Sequence[str]) -> None:
        self._canvas.show(lines)

    def changed(self) -> None:
        if self.working:
            self._moving.set()
        if not self.questions.typing:
            self._answer.reset()
        self._canvas.focus("answer" if self.questions.typing else "input")
        self._canvas.repaint()

    def ring(self) -> None:
        self._canvas.ring()

    def clear(self) -> None:
        self._canvas.clear()

    def leave(self) -> None:
        self._canvas.close()

    def prefill(self, text: str) -> None:
        """Put text into the input, unless something is being written there."""
        if not self._input.text:
            self._set_input(text)

    async def compose(self, text: str) -> None:
        async with self._canvas.outside():
            written = await edit(self._pastes.expand(text), self.parts.environ)
        self._set_input(written)

    def _set_input(self, text: str) -> None:
        self._input.text = text
        self._input.cursor_position = len(text)

    def set_status_bar(self, *, shown: bool | None) -> bool:
        self._status_shown = not self._status_shown if shown is None else shown
        return self._status_shown

    def skins(self) -> Sequence[str]:
        return skin_names(self.parts.home.skins_dir)

    def set_skin(self, name: str) -> None:
        self.skin = load_skin(name, self.parts.home.skins_dir)
        self._canvas.wear(self.skin)

    def copy(self, text: str) -> None:
        self._canvas.write(copy_sequence(text))

    async def picture(self, path: str | None) -> Attachment:
        if path is None:
            return await clipboard_image(self.parts.environ, self.parts.home.cache_dir)
        return await super().picture(path)

    async def pick(self, title: str, options: Sequence[str]) -> int | None:
        return await self.questions.pick(title, options)

    # -- panes -------------------------------------------------------------

    def _layout(self) -> Layout:
        """Put the panes together, input last but for the status bar."""
        questions = self.questions
        picking = Condition(lambda: questions.picker is not None)
        answering = picking & Condition(lambda: questions.typing)
        text = text_window(self._input, INPUT_LINES, self._prompt)
        answer = text_window(self._answer, ANSWER_LINES, lambda: "  > ")
        gap = ConditionalContainer(Window(height=1), filter=Condition(lambda: not self._live()))
        body: list[Container] = [
            pane(lambda: ANSI("\n".join(self._live())) if self._live() else ""),
            gap,
            pane(lambda: styled("spinner", self._spinner())),
            pane(self._picker),
            ConditionalContainer(answer, filter=answering),
            ConditionalContainer(text, filter=~picking),
            pane(lambda: styled("hint", self._hint())),
            completion_menu(~picking),
            pane(lambda: styled("status", self._status())),
        ]
        return Layout(HSplit(body, align=VerticalAlign.TOP), focused_element=text)

    def _glyphs(self, text: str) -> str:
        return text if self.kind.unicode else ascii_text(text)

    def _live(self) -> list[str]:
        renderer = self.renderer
        most = max(3, self._canvas.size[1] // 3)
        return renderer.live(self.cells, most) if renderer else []

    def _spinner(self) -> str:
        renderer = self.renderer
        if renderer is None or self.questions.picker is not None:
            return ""
        line = spinner_line(
            self.skin.spinner,
            self.elapsed(),
            thinking=renderer.thinking,
            unicode=self.kind.unicode,
        )
        return cut(line, self.cells)

    def _picker(self) -> StyleAndTextTuples:
        picker = self.questions.picker
        if picker is None:
            return []
        lines = picker.lines(self.cells, pointer=self.skin.branding.prompt_symbol)
        return [
            (f"class:picker.{style}", self._glyphs(text) + "\n" * (number < len(lines)))
            for number, (style, text) in enumerate(lines, 1)
        ]

    def _prompt(self) -> str:
        branding = self.skin.branding
        symbol = branding.working_symbol if self.working else branding.prompt_symbol
        return self._glyphs(f"{symbol} ")

    def _hint(self) -> str:
        parts = [self._note] if self._note else []
        if self.attachments:
            names = ", ".join(each.name for each in self.attachments)
            parts.append(f"attached: {names}")
        if self.working and self._input.text and not self.questions.picker:
            parts.append(f"Enter: {self.mode.value}, {EFFECTS[self.mode]}")
        return self._glyphs(cut(" · ".join(parts), self.cells))

    def _status(self) -> str:
        if not self._status_shown:
            return ""
        return self._glyphs(status_line(self.status(), self.cells))

    # -- keys --------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys, questions = KeyBindings(), self.questions
        picking = Condition(lambda: questions.picker is not None)
        idle, choosing = ~picking, picking & ~Condition(lambda: questions.typing)

        def bind(when: FilterOrBool, action: Callable[[KeyPressEvent], None], *typed: str) -> None:
            for sequence in typed:
                keys.add(*sequence.split(), filter=when)(action)

        def bind_picker(when: Filter, names: Mapping[str, str]) -> None:
            for key, name in names.items():
                keys.add(key, filter=when, eager=True)(lambda _, name=name: self._press(name))

        bind(idle, lambda _: self._submit(), "enter")
        bind(idle, lambda event: event.current_buffer.insert_text("\n"), "escape enter", "c-j")
        bind(idle, lambda event: self._paste(event.data), Keys.BracketedPaste.value)
        bind(idle, generate_completions, "tab")
        bind(idle, lambda _: self._open_editor(), "c-g", "escape g", "c-x c-e")
        bind(idle, lambda _: self._paste_image(), "c-v", "escape v")
        bind(idle, self._delete_or_leave, "c-d")
        # The input is not reachable while something is asked: other keys do nothing.
        bind(choosing, lambda _: None, Keys.Any.value)
        bind_picker(choosing, {**{step: step for step in STEPS}, "c-p": "up", "c-n": "down"})
        bind_picker(choosing, {digit: digit for digit in "123456789"})
        bind_picker(picking, {"enter": "enter", "escape": "escape"})
        bind(True, lambda _: self._press_ctrl_c(), "c-c", "<sigint>")  # noqa: FBT003 (a filter)
        bind(True, lambda _: self.leave(), "c-q")  # noqa: FBT003
        bind(True, lambda _: self.clear(), "c-l")  # noqa: FBT003
        bind(True, lambda event: event.app.suspend_to_background(), "c-z")  # noqa: FBT003
        return keys

    def _submit(self) -> None:
        text = self._input.text
        if not text.strip() and not self.attachments:
            return
        self._input.append_to_history()
        self._input.reset()
        attachments, self.attachments = tuple(self.attachments), []
        self._send(text, attachments)

    def _send(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        self._note = ""
        symbol = self.skin.branding.prompt_symbol
        lines = wrap(text.strip(), self.cells - 2)
        marked = [f"{symbol if number == 0 else ' '} {line}" for number, line in enumerate(lines)]
        self.show(["", *(self.paint(line, "prompt") for line in marked)])
        self._typed.put_nowait((self._pastes.expand(text), attachments))

    def _paste(self, text: str) -> None:
        self._input.insert_text(self._pastes.collapse(text))

    def _delete_or_leave(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            self.leave()

    def _press_ctrl_c(self) -> None:
        if self.questions.choosing_from_list:
            self._press("escape")
            return
        action = self._ctrl_c.press(
            self.host.gateway.clock.monotonic(),
            working=self.working,
            command=self._running is not None,
            has_text=bool(self._input.text),
        )
        match action:
            case CtrlC.LEAVE:
                self.leave()
            case CtrlC.STOP_TURN:
                self.interrupt()
                self._notice("stopping the turn; Ctrl+C again leaves")
            case CtrlC.STOP_COMMAND if self._running is not None:
                self._running.cancel()
            case CtrlC.CLEAR_INPUT:
                self._input.reset()
            case _:
                self._notice("Ctrl+C again or Ctrl+D leaves")

    def _notice(self, text: str) -> None:
        self._note = text
        self.changed()
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._forget_notice, text)

    def _forget_notice(self, text: str) -> None:
        if self._note == text:
            self._note = ""
            self.changed()

    def _open_editor(self) -> None:
        self.spawn(self.compose(self._input.text))

    def _paste_image(self) -> None:
        async def attach() -> None:
            self._notice(await self.attach_image(None))

        self.spawn(attach())

    def _press(self, name: str) -> None:
        answered = self.questions.key(name, self._answer.text)
        if answered is not None:
            self.spawn(self.answer(*answered))


async def _warm_up() -> None:
    """Load what the first answer needs while the person is still typing."""
    await asyncio.to_thread(importlib.import_module, "hermes.entry.terminal.markdown")
