"""The full-screen chat: the canvas, the input, pickers and keys around one `Talk`."""

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from prompt_toolkit.filters import Condition, Filter, FilterOrBool
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from hermes.control.commands.running import EFFECTS
from hermes.domain.approvals import ApprovalRequest
from hermes.domain.errors import HermesError
from hermes.domain.inbound import Attachment
from hermes.entry.terminal.banner import opening_lines
from hermes.entry.terminal.canvas import Canvas, Panes, chat_layout
from hermes.entry.terminal.chat import ChatParts
from hermes.entry.terminal.chat_session import Talk
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
from hermes.entry.terminal.questions import PickerReply, Questions
from hermes.entry.terminal.skins import Skin, load_skin, skin_names
from hermes.entry.terminal.statusbar import FRAME_SECONDS, spinner_line, status_line
from hermes.entry.terminal.tty import (
    clean_terminal,
    clipboard_image,
    copy_sequence,
    edit,
    image_file,
    on_signals,
)

LAST_WORDS_SECONDS = 2.0
"""How long leaving waits for what was typed just before."""


class TerminalApp:
    """A `TerminalOutput` for the talk and its commands, and what the keys set off."""

    def __init__(self, parts: ChatParts, skin: Skin, kind: TerminalKind) -> None:
        self.talk = Talk(parts, skin, kind, self)
        self._parts = parts
        self._kind = kind
        self._canvas = Canvas(kind, skin, term=parts.environ.get("TERM", ""))
        self._pastes = Pastes()
        self._ctrl_c = InterruptKey()
        self._typed: asyncio.Queue[tuple[str, tuple[Attachment, ...]]] = asyncio.Queue()
        self._command: asyncio.Task[None] | None = None
        self._questions = Questions(self._replied, self._asked_changed)
        self._note = ""
        self._moving = asyncio.Event()
        self._exit_code = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._input = input_buffer(self._sources(), PrivateHistory(parts.paths.history_file))
        self._status_shown = True
        self._attachments: list[Attachment] = []
        """What goes with the next message."""

    def _sources(self) -> CompletionSources:
        specs = self.talk.registry.commands(terminal=True)
        return CompletionSources(
            specs=specs,
            cwd=self._parts.profile.workspace,
            arguments={
                "skin": self.skins,
                "help": lambda: [spec.name for spec in specs],
            },
        )

    # -- the life of the chat ---------------------------------------------

    async def run(self) -> int:
        """Chat until the person leaves; return the exit code."""
        layout = chat_layout(
            self._panes(),
            self._input,
            self._questions.text,
            typing=Condition(lambda: self._questions.typing),
        )
        with (
            clean_terminal(),
            on_signals(self._signalled),
            self._parts.gateway.doors.attached(self.talk),
        ):
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._canvas.show(await opening_lines(self.talk))
                for work in (self._open(), self._take_typed(), self._animate(), _warm_up()):
                    self._spawn(work)
                self._spawn(self.talk.follow_turns())
                try:
                    await self._canvas.run(layout, self._keys())
                finally:
                    await self._wind_up()
        return self._exit_code

    async def _open(self) -> None:
        await self.talk.refresh()
        await self.talk.recap()
        await self.talk.pick_up()
        if self._parts.first_message:
            self._send(self._parts.first_message, ())

    async def _wind_up(self) -> None:
        """Let what was typed reach the inbox, then end everything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._typed.join()
        if not self._exit_code:
            await self.talk.leave()
        for task in self._tasks:
            task.cancel()

    def _signalled(self, number: int) -> None:
        self._exit_code = 128 + number
        self._canvas.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._group is not None
        task = self._group.create_task(self._explained(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _explained(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except HermesError as error:
            self.talk.say(f"{error.message} {error.hint}".rstrip(), "ui_error")

    async def _take_typed(self) -> None:
        while True:
            text, attachments = await self._typed.get()
            self._command = self._spawn(self.talk.typed(text, attachments))
            await asyncio.wait([self._command])
            self._command = None
            self._typed.task_done()

    async def _animate(self) -> None:
        """Repaint while a turn runs; wait without waking up while none does."""
        while True:
            await self._moving.wait()
            await asyncio.sleep(FRAME_SECONDS)
            self._canvas.repaint()
            if not self.talk.working:
                self._moving.clear()

    # -- TerminalOutput ----------------------------------------------------

    @property
    def cells(self) -> int:
        return max(20, self._canvas.size[0])

    def show(self, lines: Sequence[str]) -> None:
        self._canvas.show(lines)

    def ask(self, request: ApprovalRequest) -> None:
        self._questions.ask(request)

    def settle(self, approval_id: str) -> None:
        self._questions.settle(approval_id)

    def changed(self) -> None:
        if self.talk.working:
            self._moving.set()
        self._canvas.repaint()

    def ring(self) -> None:
        self._canvas.ring()

    # -- Screen ------------------------------------------------------------

    def clear(self) -> None:
        self._canvas.clear()

    def prefill(self, text: str) -> None:
        """Put text into the input, unless something is being written there."""
        if not self._input.text:
            self._set_input(text)

    async def compose(self, text: str) -> None:
        """Open the external editor and take what was written into the input."""
        async with self._canvas.outside():
            written = await edit(self._pastes.expand(text), self._parts.environ)
        self._set_input(written)

    def _set_input(self, text: str) -> None:
        self._input.text = text
        self._input.cursor_position = len(text)

    def set_status_bar(self, *, shown: bool | None) -> bool:
        """Show or hide the status bar (None toggles); return whether it shows."""
        self._status_shown = not self._status_shown if shown is None else shown
        return self._status_shown

    def skins(self) -> Sequence[str]:
        return skin_names(self._parts.paths.skins_dir)

    def set_skin(self, name: str) -> None:
        self.talk.skin = load_skin(name, self._parts.paths.skins_dir)
        self._canvas.wear(self.talk.skin)

    def copy(self, text: str) -> None:
        self._canvas.write(copy_sequence(text))

    async def attach_image(self, path: str | None) -> str:
        """Attach a picture from a file or the clipboard; return what to say."""
        parts = self._parts
        picture = (
            await image_file(path, parts.profile.workspace)
            if path
            else await clipboard_image(parts.environ, parts.paths.cache_dir)
        )
        self._attachments.append(picture)
        self._canvas.repaint()
        return f"Attached {picture.name} to the next message."

    async def pick(self, title: str, options: Sequence[str]) -> int | None:
        return await self._questions.pick(title, options)

    # -- panes -------------------------------------------------------------

    def _panes(self) -> Panes:
        return Panes(
            live=self._live,
            spinner=self._spinner,
            picker=self._picker_lines,
            prompt=self._prompt,
            hint=self._hint,
            status=self._status,
        )

    def _glyphs(self, text: str) -> str:
        return text if self._kind.unicode else ascii_text(text)

    def _live(self) -> list[str]:
        renderer = self.talk.renderer
        most = max(3, self._canvas.size[1] // 3)
        return renderer.live(self.cells, most) if renderer else []

    def _spinner(self) -> str:
        renderer = self.talk.renderer
        if renderer is None or self._questions.picker is not None:
            return ""
        line = spinner_line(
            self.talk.skin.spinner,
            self.talk.elapsed(),
            thinking=renderer.thinking,
            unicode=self._kind.unicode,
        )
        return cut(line, self.cells)

    def _picker_lines(self) -> list[tuple[str, str]]:
        picker = self._questions.picker
        if picker is None:
            return []
        lines = picker.lines(self.cells, pointer=self.talk.skin.branding.prompt_symbol)
        return [(style, self._glyphs(text)) for style, text in lines]

    def _prompt(self) -> str:
        branding = self.talk.skin.branding
        symbol = branding.working_symbol if self.talk.working else branding.prompt_symbol
        return self._glyphs(f"{symbol} ")

    def _hint(self) -> str:
        parts = [self._note] if self._note else []
        if self._attachments:
            names = ", ".join(each.name for each in self._attachments)
            parts.append(f"attached: {names}")
        if self.talk.working and self._input.text and not self._questions.picker:
            parts.append(f"Enter: {self.talk.mode.value}, {EFFECTS[self.talk.mode]}")
        return self._glyphs(cut(" · ".join(parts), self.cells))

    def _status(self) -> str:
        if not self._status_shown:
            return ""
        return self._glyphs(status_line(self.talk.status(), self.cells))

    # -- keys --------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys, questions = KeyBindings(), self._questions
        picking = Condition(lambda: questions.picker is not None)
        idle, choosing = ~picking, picking & ~Condition(lambda: questions.typing)

        def bind(when: FilterOrBool, action: Callable[[KeyPressEvent], None], *typed: str) -> None:
            for sequence in typed:
                keys.add(*sequence.split(), filter=when)(action)

        def bind_picker(when: Filter, names: Mapping[str, str]) -> None:
            for key, name in names.items():
                keys.add(key, filter=when, eager=True)(lambda _, name=name: questions.key(name))

        bind(idle, lambda _: self._submit(), "enter")
        bind(idle, lambda event: event.current_buffer.insert_text("\n"), "escape enter", "c-j")
        bind(idle, lambda event: self._paste(event.data), Keys.BracketedPaste.value)
        bind(idle, _complete, "tab")
        bind(idle, lambda _: self._open_editor(), "c-g", "escape g", "c-x c-e")
        bind(idle, lambda _: self._paste_image(), "c-v", "escape v")
        bind(idle, self._delete_or_leave, "c-d")
        # The input is not reachable while something is asked: other keys do nothing.
        bind(choosing, lambda _: None, Keys.Any.value)
        bind_picker(choosing, {"up": "up", "down": "down", "c-p": "up", "c-n": "down"})
        bind_picker(choosing, {digit: digit for digit in "123456789"})
        bind_picker(picking, {"enter": "enter", "escape": "escape"})
        bind(True, lambda _: self._press_ctrl_c(), "c-c", "<sigint>")  # noqa: FBT003 (a filter)
        bind(True, lambda _: self.leave(), "c-q")  # noqa: FBT003
        bind(True, lambda _: self.redraw(), "c-l")  # noqa: FBT003
        bind(True, lambda event: event.app.suspend_to_background(), "c-z")  # noqa: FBT003
        return keys

    def _submit(self) -> None:
        text = self._input.text
        if not text.strip() and not self._attachments:
            return
        self._input.append_to_history()
        self._input.reset()
        attachments, self._attachments = tuple(self._attachments), []
        self._send(text, attachments)

    def _send(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        self._note = ""
        symbol = self.talk.skin.branding.prompt_symbol
        lines = wrap(text.strip(), self.cells - 2)
        marked = [f"{symbol if number == 0 else ' '} {line}" for number, line in enumerate(lines)]
        self.show(["", *(self.talk.paint(line, "prompt") for line in marked)])
        self._typed.put_nowait((self._pastes.expand(text), attachments))

    def _paste(self, text: str) -> None:
        self._input.insert_text(self._pastes.collapse(text))

    def _delete_or_leave(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            self.leave()

    def _press_ctrl_c(self) -> None:
        if self._questions.choosing_from_list:
            self._questions.key("escape")
            return
        action = self._ctrl_c.press(
            self._parts.clock.monotonic(),
            working=self.talk.working,
            command=self._command is not None,
            has_text=bool(self._input.text),
        )
        match action:
            case CtrlC.LEAVE:
                self.leave()
            case CtrlC.STOP_TURN:
                self.talk.interrupt()
                self._notice("stopping the turn; Ctrl+C again leaves")
            case CtrlC.STOP_COMMAND if self._command is not None:
                self._command.cancel()
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

    def leave(self) -> None:
        self._canvas.close()

    def redraw(self) -> None:
        self._canvas.clear()

    def _open_editor(self) -> None:
        self._spawn(self.compose(self._input.text))

    def _paste_image(self) -> None:
        async def attach() -> None:
            self._notice(await self.attach_image(None))

        self._spawn(attach())

    def _asked_changed(self) -> None:
        self._canvas.focus("answer" if self._questions.typing else "input")
        self.changed()

    def _replied(self, request: ApprovalRequest, reply: PickerReply) -> None:
        self._spawn(self.talk.answer(request, reply))


async def _warm_up() -> None:
    """Load what the first answer needs while the person is still typing."""
    await asyncio.to_thread(importlib.import_module, "hermes.entry.terminal.markdown")


def _complete(event: KeyPressEvent) -> None:
    buffer = event.current_buffer
    if buffer.complete_state:
        buffer.complete_next()
    else:
        buffer.start_completion(insert_common_part=True)
