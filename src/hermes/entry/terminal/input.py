"""The input line: its history on disk, and its completion menu."""

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory

from hermes.entry.terminal.completion import CompletionSources, suggest

__all__ = [
    "PASTE_CHARS",
    "PASTE_LINES",
    "CtrlC",
    "InterruptKey",
    "PasteShelf",
    "PrivateHistory",
    "SuggestionCompleter",
    "input_buffer",
]


MAX_HISTORY_BYTES = 1_000_000


class PrivateHistory(FileHistory):
    """History in a file only its owner can read; lines that begin with a blank stay out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(str(path))

    def load_history_strings(self) -> Iterable[str]:
        """Return what was typed before, newest first; an unreadable file is an empty one."""
        try:
            if self._path.exists() and self._path.stat().st_size > MAX_HISTORY_BYTES:
                self._halve()
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Append a line; a disk that refuses it costs the history, not the chat."""
        if string.startswith(" "):
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600, exist_ok=True)
            super().store_string(string)
        except OSError:
            return

    def _halve(self) -> None:
        """Keep the newer half, beginning with a whole entry."""
        data = self._path.read_bytes()
        entry = data.find(b"\n# ", len(data) // 2)
        if entry >= 0:
            self._path.write_bytes(data[entry:])


class SuggestionCompleter(Completer):
    """Shows suggestions in the menu of the input."""

    def __init__(self, sources: CompletionSources) -> None:
        self._sources = sources

    def get_completions(
        self, document: Document, _complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Return what could be meant."""
        for suggestion in suggest(document.text_before_cursor, self._sources):
            yield Completion(
                suggestion.text,
                start_position=-suggestion.replaces,
                display=suggestion.shown,
                display_meta=suggestion.about,
            )


def input_buffer(sources: CompletionSources, history: PrivateHistory) -> Buffer:
    """Make the buffer that a person types into."""

    def worth_completing() -> bool:
        before = buffer.document.text_before_cursor
        return before.startswith("/") or "@" in before.rpartition(" ")[2]

    buffer = Buffer(
        name="input",
        multiline=True,
        history=history,
        completer=ThreadedCompleter(SuggestionCompleter(sources)),
        complete_while_typing=Condition(worth_completing),
    )
    return buffer


PASTE_LINES = 5
PASTE_CHARS = 2000
_PLACEHOLDER = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")


class PasteShelf:
    """Keeps what long pastes stand for, until the chat ends."""

    def __init__(self) -> None:
        self._pastes: dict[int, str] = {}

    def collapse(self, text: str) -> str:
        """Return what to put into the input for a paste: itself, or a placeholder."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.rstrip("\n").count("\n") + 1
        if lines < PASTE_LINES and len(text) < PASTE_CHARS:
            return text
        number = len(self._pastes) + 1
        self._pastes[number] = text
        return f"[pasted #{number}: {lines} lines, {len(text)} characters]"

    def expand(self, text: str) -> str:
        """Return `text` with every placeholder replaced by what was pasted."""
        return _PLACEHOLDER.sub(self._original, text)

    def _original(self, match: re.Match[str]) -> str:
        return self._pastes.get(int(match[1]), match[0])


AGAIN_SECONDS = 2.0


class CtrlC(StrEnum):
    """What a Ctrl+C does."""

    STOP_TURN = "stop_turn"
    STOP_COMMAND = "stop_command"
    CLEAR_INPUT = "clear_input"
    WARN = "warn"
    """Say that a second one leaves."""
    LEAVE = "leave"


class InterruptKey:
    """Remembers the last Ctrl+C, so that a second one within two seconds leaves."""

    def __init__(self) -> None:
        self._last: float | None = None

    def press(self, now: float, *, working: bool, command: bool, has_text: bool) -> CtrlC:
        """Return what a Ctrl+C at `now` does."""
        again = self._last is not None and now - self._last <= AGAIN_SECONDS
        self._last = now
        if again and not has_text:
            return CtrlC.LEAVE
        if working:
            return CtrlC.STOP_TURN
        if command:
            return CtrlC.STOP_COMMAND
        if has_text:
            self._last = None
            return CtrlC.CLEAR_INPUT
        return CtrlC.WARN
