"""The chat line by line: for terminals without a cursor, and for pipes.

No colours, no redrawing, plain characters. Text typed while a turn runs
follows the busy mode here too. A request is answered with a code that is shown
with it and the number of a choice: a line that was typed, or begun, before the
request was shown cannot contain it, and stays a message.
"""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Sequence

from hermes.domain.approvals import INPUT_ENDED, ApprovalKind, Choice
from hermes.domain.errors import UsageError
from hermes.entry.terminal.chat import ChatParts
from hermes.entry.terminal.chat_session import TerminalChat
from hermes.entry.terminal.paint import TerminalKind, ascii_text
from hermes.entry.terminal.questions import NO_ANSWER, Picker, PickerReply, list_picker
from hermes.entry.terminal.skins import Skin

CELLS = 80
CODE = ("bcdfghjkmnpqrstvwxz", "23456789", "bcdfghjkmnpqrstvwxz")
NO_SCREEN = "That needs a terminal with a movable cursor."


class LineChat(TerminalChat):
    def __init__(
        self, parts: ChatParts, skin: Skin, kind: TerminalKind, group: asyncio.TaskGroup
    ) -> None:
        super().__init__(parts, skin, kind, group)
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._asked: Picker | None = None
        """The question that was shown last."""
        self._code = ""
        """What an answer to it begins with."""
        self._ended = False
        self._leaving = False
        self._idle = asyncio.Event()
        self._partial = b""
        self._reading = False
        self._prompted = False
        """The prompt stands on the last line."""

    async def chat(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._ctrl_c)
        watched = await self._start_reading()
        try:
            await self._take_lines()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            if watched:
                loop.remove_reader(sys.stdin.fileno())

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
        while True:
            if self._leaving:
                if self.exit_code or await self.may_leave() or self.exit_code:
                    break
                self._leaving = False
            line = await self._line()
            if line is None:
                self._ended = True
                self.changed()
                await self._finish_work()
                return
            if line.strip():
                await self._take_line(line)
        if not self.exit_code:
            await self.hold()

    async def _line(self) -> str | None:
        self._reading = True
        self._prompt()
        try:
            return await self._lines.get()
        finally:
            self._reading = self._prompted = False

    async def may_leave(self) -> bool:
        return not sys.stdin.isatty() or await super().may_leave()

    async def _take_line(self, line: str) -> None:
        picker = self.questions.picker
        code, _, rest = line.strip().partition(" ")
        if picker is not None and picker is self._asked and code == self._code:
            await self._reply_to(picker, rest.strip())
            return
        attachments, self.attachments = tuple(self.attachments), []
        await self.typed(line, attachments, shown=not self.busy)

    async def _reply_to(self, picker: Picker, line: str) -> None:
        number, _, text = line.partition(" ")
        options = picker.options
        chosen = int(number) if number.isdecimal() and len(number) < 4 else 0
        if not 1 <= chosen <= len(options) or (text and not options[chosen - 1].asks_text):
            chosen, text = next((n for n, each in enumerate(options, 1) if not each.value), 0), line
        if not chosen or (
            options[chosen - 1].asks_text and not (text or options[chosen - 1].value)
        ):
            self.show([self.how_to_answer()])
        elif answered := self.questions.choose(chosen, text.strip()):
            await self.answer(*answered)

    def how_to_answer(self) -> str:
        request = self.questions.request
        words = ", or your own words" if request and request.kind is ApprovalKind.QUESTION else ""
        return f"To answer, type {self._code} and the number of a choice{words}."

    async def _finish_work(self) -> None:
        """The input has ended: let what was asked be answered."""
        if self.session is not None:
            await self.host.gateway.idle(self.session.id)
        while self.working or not self._jobs.empty():
            self._idle.clear()
            await self._idle.wait()

    def _prompt(self) -> None:
        """Ask for the next line, unless something is still to be said before it."""
        waits = self._reading and not (self._prompted or self.busy)
        if waits and (self.kind.cursor or sys.stdin.isatty()):
            sys.stdout.write("> ")
            sys.stdout.flush()
            self._prompted = True

    def _ctrl_c(self) -> None:
        if not self.interrupt():
            self.leave()

    # -- the screen ----------------------------------------------------------

    @property
    def cells(self) -> int:
        return CELLS

    def show(self, lines: Sequence[str]) -> None:
        if self._prompted:
            lines, self._prompted = ["", *lines], False
        for line in lines:
            sys.stdout.write((line if self.kind.unicode else ascii_text(line)) + "\n")
        sys.stdout.flush()

    def changed(self) -> None:
        """Nothing is redrawn; show a new question, wake who waits for the end of a turn."""
        if not self.working:
            self._idle.set()
        picker = self.questions.picker
        if picker is not None and picker is not self._asked:
            self._code = "".join(secrets.choice(letters) for letters in CODE)
            left = self.questions.time_left().capitalize()
            hint = f"{self.how_to_answer()} {left and left + '.'}".rstrip()
            self.show([text for _, text in picker.lines(CELLS, hint, pointer="")])
        self._asked = picker
        if self._ended and (request := self.questions.request) is not None:
            self.questions.settle(request.id)
            none = Choice.DENY if request.kind is ApprovalKind.APPROVAL else NO_ANSWER
            self.spawn(self.answer(request, PickerReply(value=none, text=INPUT_ENDED)))
        self._prompt()

    def ring(self) -> None:
        sys.stdout.write("\a")

    def clear(self) -> None:
        self.show([""])

    def leave(self) -> None:
        self._leaving = True
        if self._reading:
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

    async def pick(self, title: str, options: Sequence[str]) -> int | None:
        """Show a numbered list and take the next line as the choice."""
        picker = list_picker(title, options)
        self.show([text for _, text in picker.lines(CELLS, "Type the number.", pointer="")])
        line = await self._line()
        if line is None:
            self._lines.put_nowait(None)
            return None
        number = int(line) if line.strip().isdecimal() else 0
        return number - 1 if 1 <= number <= len(options) else None
