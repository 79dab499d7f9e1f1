"""The chat line by line: for terminals without a cursor, and for pipes.

No colours, no redrawing, plain characters. Text typed while a turn runs
follows the busy mode here too; a request is answered with the number of a
choice, or with `/approve` and `/deny`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from hermes.domain.approvals import ApprovalRequest
from hermes.domain.errors import UsageError
from hermes.domain.inbound import Attachment
from hermes.entry.terminal.banner import opening_lines
from hermes.entry.terminal.chat import ChatParts
from hermes.entry.terminal.chat_session import Talk
from hermes.entry.terminal.paint import TerminalKind, ascii_text
from hermes.entry.terminal.questions import Picker, list_picker, request_picker
from hermes.entry.terminal.skins import Skin
from hermes.entry.terminal.tty import image_file, on_signals

CELLS = 80
NO_SCREEN = "That needs a terminal with a movable cursor."


class LineChat:
    """A `TerminalOutput` that only ever adds lines."""

    def __init__(self, parts: ChatParts, skin: Skin, kind: TerminalKind) -> None:
        self.talk = Talk(parts, skin, kind, self)
        self._kind = kind
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._requests: list[tuple[ApprovalRequest, Picker]] = []
        self._attachments: list[Attachment] = []
        self._leaving = False
        self._idle = asyncio.Event()
        self._exit_code = 0
        self._partial = b""

    async def run(self) -> int:
        parts = self.talk.parts
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._ctrl_c)
        with on_signals(self._signalled), parts.gateway.doors.attached(self.talk):
            async with asyncio.TaskGroup() as group:
                self.show(await opening_lines(self.talk))
                await self.talk.refresh()
                await self.talk.recap()
                tasks = [group.create_task(self.talk.follow_turns())]
                await self.talk.pick_up()
                reading = await self._start_reading()
                if parts.first_message:
                    await self.talk.typed(parts.first_message)
                try:
                    await self._take_lines()
                finally:
                    loop.remove_signal_handler(signal.SIGINT)
                    if reading:
                        loop.remove_reader(sys.stdin.fileno())
                    for task in tasks:
                        task.cancel()
        return self._exit_code

    async def _start_reading(self) -> bool:
        """Watch stdin; a regular file, which cannot be watched, is read at once."""
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        try:
            loop.add_reader(descriptor, self._readable, descriptor)
        except PermissionError:
            text = await asyncio.to_thread(sys.stdin.read)
            for line in text.splitlines():
                self._lines.put_nowait(line)
            self._lines.put_nowait(None)
            return False
        return True

    def _readable(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 65536)
        except OSError:
            data = b""
        *whole, self._partial = (self._partial + data).split(b"\n")
        for line in whole:
            self._lines.put_nowait(line.decode(errors="replace").rstrip("\r"))
        if not data:
            asyncio.get_running_loop().remove_reader(descriptor)
            if self._partial:
                self._lines.put_nowait(self._partial.decode(errors="replace"))
            self._lines.put_nowait(None)

    async def _take_lines(self) -> None:
        while not self._leaving:
            self._prompt()
            line = await self._lines.get()
            if line is None:
                await self._finish_work()
                return
            if line.strip():
                await self._take(line)
        if not self._exit_code:
            await self.talk.leave()

    async def _take(self, line: str) -> None:
        if self._requests and not line.startswith("/"):
            await self._answer(line.strip())
            return
        attachments, self._attachments = tuple(self._attachments), []
        await self.talk.typed(line, attachments)

    async def _answer(self, line: str) -> None:
        request, picker = self._requests[0]
        if line.isdecimal() and picker.typing is None:
            picker.press(str(int(line)))
        else:
            own = next((option for option in picker.options if option.asks_text), None)
            picker.typing = picker.typing or own
            picker.press("enter", line)
        if picker.reply is None:
            self.show(["Type the text." if picker.typing else "Type the number of a choice."])
            return
        self._requests.pop(0)
        await self.talk.answer(request, picker.reply)

    async def _finish_work(self) -> None:
        """The input has ended: let what was asked be answered."""
        session = self.talk.session
        while session is not None:
            stream = self.talk.parts.gateway.current_turn(session.id)
            waiting = await self.talk.parts.ledger.waiting(session.id)
            if stream is None and not waiting and not self.talk.working:
                return
            if stream is not None:
                await stream.wait()
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._idle.wait()

    def _prompt(self) -> None:
        if self._kind.cursor or sys.stdin.isatty():
            sys.stdout.write("> ")
            sys.stdout.flush()

    def _ctrl_c(self) -> None:
        if not self.talk.interrupt():
            self.leave()

    def _signalled(self, number: int) -> None:
        self._exit_code = 128 + number
        self.leave()

    # -- TerminalOutput -----------------------------------------------------------

    @property
    def cells(self) -> int:
        return CELLS

    def show(self, lines: Sequence[str]) -> None:
        for line in lines:
            sys.stdout.write((line if self._kind.unicode else ascii_text(line)) + "\n")
        sys.stdout.flush()

    def ask(self, request: ApprovalRequest) -> None:
        picker = request_picker(request)
        self._requests.append((request, picker))
        self.show([text for _, text in picker.lines(CELLS)[:-1]])
        self.show(["Type the number of a choice."])

    def settle(self, approval_id: str) -> None:
        """Take a request away; an empty id takes all away."""
        self._requests = [
            each for each in self._requests if approval_id and each[0].id != approval_id
        ]

    def changed(self) -> None:
        """Nothing is redrawn here; somebody may wait for the end of a turn."""
        if not self.talk.working:
            self._idle.set()

    def ring(self) -> None:
        sys.stdout.write("\a")

    # -- Screen ------------------------------------------------------------

    def clear(self) -> None:
        self.show([""])

    def redraw(self) -> None:
        """Do nothing: lines stay."""

    def leave(self) -> None:
        self._leaving = True
        self._lines.put_nowait("")

    def prefill(self, text: str) -> None:
        self.show([f"> {text}"])

    async def compose(self, text: str) -> None:  # noqa: ARG002 (the port's name)
        raise UsageError(NO_SCREEN)

    def set_status_bar(self, *, shown: bool | None) -> bool:  # noqa: ARG002 (the port's name)
        raise UsageError(NO_SCREEN)

    def skins(self) -> Sequence[str]:
        return ["mono"]

    def set_skin(self, name: str) -> None:  # noqa: ARG002 (the port's name)
        raise UsageError(NO_SCREEN)

    def copy(self, text: str) -> None:  # noqa: ARG002 (the port's name)
        raise UsageError(NO_SCREEN)

    async def attach_image(self, path: str | None) -> str:
        if path is None:
            raise UsageError("Which file?", hint="/image PATH")
        self._attachments.append(await image_file(path, self.talk.parts.profile.workspace))
        return "Attached to the next message."

    async def pick(self, title: str, options: Sequence[str]) -> int | None:
        """Show a numbered list and take the next line as the choice."""
        self.show([text for _, text in list_picker(title, options).lines(CELLS)[:-1]])
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)
            return None
        number = int(line) if line.strip().isdecimal() else 0
        return number - 1 if 1 <= number <= len(options) else None
