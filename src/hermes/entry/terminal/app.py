"""The full-screen chat: the canvas, the input, pickers and keys around one conversation."""

import asyncio
import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, FilterOrBool
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

from hermes.control.commands.registry import Invocation, parse
from hermes.control.commands.turns import EFFECTS
from hermes.domain.approvals import ApprovalKind, ApprovalRequest
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
from hermes.entry.terminal.overview import FRAME_SECONDS, spinner_line, status_line
from hermes.entry.terminal.paint import TerminalKind, ascii_text, cut
from hermes.entry.terminal.skins import Skin, load_skin, skin_names
from hermes.entry.terminal.tty import (
    clean_terminal,
    clipboard_image,
    copy_sequence,
    edit,
)
from hermes.streaming.units import width

INPUT_LINES = 10
WAITING_LINES = 3
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
        self._typed: asyncio.Queue[tuple[str, tuple[Attachment, ...], str, bool]] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None
        self._note = ""
        self._moving = asyncio.Event()
        self._resting = asyncio.Event()
        self._input = input_buffer(self._sources(), PrivateHistory(parts.home.root / "history"))
        self._answer = Buffer(name="answer", multiline=False)
        self._status_shown = True
        self._leaving = False
        self._in_sight: ApprovalRequest | None = None
        """The request that could be read before the text in the input was begun."""

    def _sources(self) -> CompletionSources:
        specs = self.registry.commands(terminal=True)
        return CompletionSources(
            specs=specs,
            cwd=lambda: self.directory,
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
                await self._canvas.run(self._layout(), self._keys(), self._key_pressed)
            finally:
                await self._wind_up()

    async def _wind_up(self) -> None:
        """Let what was typed reach the inbox, then stop the turn."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._typed.join()
        if not self.exit_code:
            self._resting.clear()
            await self.hold()
            if self.working:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_WORDS_SECONDS):
                        await self._resting.wait()

    async def _take_typed(self) -> None:
        while True:
            text, attachments, seen, shown = await self._typed.get()
            self._running = self.spawn(self.typed(text, attachments, seen, shown=shown))
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
        (self._moving if self.working else self._resting).set()
        if not self.questions.typing and self._answer.text:
            # The question has gone, or its list is back: what was written stays.
            self._input.insert_text(self._answer.text)
            self._answer.reset()
        self._canvas.focus("answer" if self.questions.typing else "input")
        self._canvas.repaint()

    def ring(self) -> None:
        self._canvas.ring()

    def clear(self) -> None:
        self._canvas.clear()

    def leave(self) -> None:
        if self.exit_code or self._leaving:
            self._canvas.close()
        else:
            self._leaving = True
            self.spawn(self._leave())

    async def _leave(self) -> None:
        if await self.may_leave():
            self._canvas.close()
        else:
            self._leaving = False

    def prefill(self, text: str) -> None:
        """Put text into the input, unless something is being written there."""
        if not self._input.text:
            self._set_input(text)

    async def compose(self, text: str) -> None:
        async with self._canvas.outside():
            written = await edit(self._pastes.expand(text), self.parts.environ)
        self._set_input(written)

    def _set_input(self, text: str) -> None:
        self._in_sight = None
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
        answering = Condition(lambda: questions.typing)
        choosing = Condition(lambda: questions.focused)
        text = text_window(self._input, INPUT_LINES, self._prompt, no_cursor=choosing)
        answer = text_window(self._answer, ANSWER_LINES, lambda: "  > ")
        gap = ConditionalContainer(Window(height=1), filter=Condition(lambda: not self._live()))
        body: list[Container] = [
            pane(lambda: ANSI("\n".join(self._live())) if self._live() else ""),
            gap,
            pane(lambda: styled("spinner", self._spinner())),
            pane(lambda: styled("hint", self._waiting())),
            pane(self._picker),
            ConditionalContainer(answer, filter=answering),
            text,
            pane(lambda: styled("hint", self._hint())),
            completion_menu(~choosing),
            pane(lambda: styled("status", self._status())),
        ]
        return Layout(HSplit(body, align=VerticalAlign.TOP), focused_element=text)

    def _glyphs(self, text: str) -> str:
        return text if self.kind.unicode else ascii_text(text)

    def _live(self) -> list[str]:
        renderer = self.renderer
        rows = self._canvas.size[1]
        most = max(1, rows // 8) if self.questions.picker else max(3, rows // 3)
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

    def _waiting(self) -> str:
        """Return what was said meanwhile, until its answer begins."""
        said = self.waiting[:WAITING_LINES] if self.working and not self.questions.picker else ()
        symbol = self.skin.branding.prompt_symbol
        return self._glyphs("\n".join(cut(f"{symbol} {text}", self.cells) for text in said))

    def _picker(self) -> StyleAndTextTuples:
        columns, rows = self._canvas.size
        written = sum(1 + width(line) // max(1, columns - 2) for line in self._shown_text())
        # Beside the question: the live text or a gap, the input, its hint and the status.
        rows -= max(1, len(self._live())) + min(written, INPUT_LINES) + 2
        symbol = self.skin.branding.prompt_symbol
        lines = self.questions.lines(self.cells, max(6, rows), symbol)
        return [
            (f"class:picker.{style}", self._glyphs(text) + "\n" * (number < len(lines)))
            for number, (style, text) in enumerate(lines, 1)
        ]

    def _shown_text(self) -> list[str]:
        answer = self._answer.text.split("\n") if self.questions.typing else []
        return [*answer, *self._input.text.split("\n")]

    def _prompt(self) -> str:
        branding = self.skin.branding
        symbol = branding.working_symbol if self.working else branding.prompt_symbol
        return self._glyphs(f"{symbol} ")

    def _hint(self) -> str:
        parts = [self._note] if self._note else []
        if self.attachments:
            names = ", ".join(each.name for each in self.attachments)
            parts.append(f"attached: {names}")
        if self._answers(self._input.text):
            parts.append("Enter: answers the question")
        elif self.working and self._input.text and not self.questions.focused:
            parts.append(f"Enter: {self.mode.value}, {EFFECTS[self.mode]}")
        return self._glyphs(cut(" · ".join(parts), self.cells))

    def _status(self) -> str:
        if not self._status_shown:
            return ""
        return self._glyphs(status_line(self.status(), self.cells))

    # -- keys --------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys, questions = KeyBindings(), self.questions
        asked = Condition(lambda: questions.request is not None)
        picking = Condition(lambda: questions.picker is not None)
        typing = Condition(lambda: questions.typing)
        focused = Condition(lambda: questions.focused)
        idle, choosing = ~focused, focused & ~typing
        completing = Condition(self._input.complete_while_typing)

        def bind(when: FilterOrBool, action: Callable[[KeyPressEvent], None], *typed: str) -> None:
            for sequence in typed:
                keys.add(*sequence.split(), filter=when)(action)

        def press(when: FilterOrBool, name: str, *typed: str) -> None:
            for key in typed:
                keys.add(key, filter=when, eager=True)(lambda _: self._press(name))

        bind(idle, lambda _: self._submit(), "enter")
        bind(idle, lambda event: event.current_buffer.insert_text("\n"), "escape enter", "c-j")
        bind(~typing, lambda event: self._paste(event.data), Keys.BracketedPaste.value)
        bind(idle, generate_completions, "tab")
        bind(idle & asked & ~completing, lambda _: self._enter_picker(), "tab")
        bind(idle & asked, lambda _: self._enter_picker(), "s-tab")
        bind(idle, lambda _: self._open_editor(), "c-g", "escape g", "c-x c-e")
        bind(idle, lambda _: self._paste_image(), "c-v", "escape v")
        bind(idle, self._delete_or_leave, "c-d")
        bind(choosing, lambda event: self._write(event.data), Keys.Any.value)
        press(choosing, "up", "up", "c-p", "s-tab")
        press(choosing, "down", "down", "c-n", "tab")
        for page in ("pageup", "pagedown"):
            press(picking, page, page)
        for digit in "123456789":
            press(choosing & ~Condition(lambda: questions.burst), digit, digit)
        press(focused, "enter", "enter")
        press(focused, "escape", "escape")
        bind(True, lambda _: self._press_ctrl_c(), "c-c", "<sigint>")  # noqa: FBT003 (a filter)
        bind(True, lambda _: self.leave(), "c-q")  # noqa: FBT003
        bind(True, lambda _: self.clear(), "c-l")  # noqa: FBT003
        bind(True, lambda event: event.app.suspend_to_background(), "c-z")  # noqa: FBT003
        return keys

    def _key_pressed(self) -> None:
        """Note, before a key is acted on, which request whoever presses it has seen."""
        self.questions.key_pressed()
        request = self.questions.request
        if not self._input.text and (self.questions.still or request is not self._in_sight):
            self._in_sight = request if self.questions.still else None

    def _answers(self, text: str) -> bool:
        """Whether Enter makes the text the answer to the question on the screen."""
        request = self.questions.request
        return (
            request is not None
            and request is self._in_sight
            and request.kind is ApprovalKind.QUESTION
            and bool(text.strip())
            and not isinstance(parse(text), Invocation)
        )

    def _enter_picker(self) -> None:
        if self.questions.enter():
            self._note = ""
        else:
            self._notice("a moment, then Tab")

    def _write(self, text: str) -> None:
        """Put what is not meant for the picker into the input line."""
        if text.isprintable():
            if self.questions.request is not None:
                self.questions.focus(on=False)
            self._input.insert_text(text)

    def _submit(self) -> None:
        text = self._input.text
        if not text.strip() and not self.attachments:
            return
        answers = self._answers(text)
        self._input.append_to_history()
        self._input.reset()
        if answers and (answered := self.questions.reply(self._pastes.expand(text))):
            self.spawn(self.answer(*answered))
            return
        attachments, self.attachments = tuple(self.attachments), []
        self._send(text, attachments)

    def _send(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        self._note = ""
        command = isinstance(parse(text), Invocation) and not attachments
        shown = command or not (self.busy or self._running or not self._typed.empty())
        if shown:
            self.show_question(text)
        seen = self._in_sight.id if self._in_sight else ""
        self._typed.put_nowait((self._pastes.expand(text), attachments, seen, shown))

    def how_to_answer(self) -> str:
        return "Read it, then Tab and Enter, or type it again."

    def _paste(self, text: str) -> None:
        if self.questions.request is not None:
            self.questions.focus(on=False)
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
        text = self._answer.text
        if name == "enter":
            self._answer.reset()
        answered = self.questions.key(name, text)
        if answered is not None:
            self.spawn(self.answer(*answered))


async def _warm_up() -> None:
    """Load what the first answer needs while the person is still typing."""
    await asyncio.to_thread(importlib.import_module, "hermes.entry.terminal.markdown")
