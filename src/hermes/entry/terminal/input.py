"""The input line: completion, history on disk, long pastes, Ctrl+C.

Completion offers commands with their descriptions, their choices, and `@`
references; it reads nothing but one directory.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory

from hermes.control.commands.registry import SlashCommand
from hermes.entry.terminal.references import is_secret

MAX_PATHS = 100
REFERENCES = (
    ("@file:", "put a file into the message"),
    ("@folder:", "list a directory"),
    ("@diff", "changes in the working tree"),
    ("@staged", "changes to be committed"),
    ("@git:", "the last N commits"),
    ("@url:", "a web page"),
)
_AT_END = re.compile(r"(?:^|(?<=\s))@\S*$")


class CompletionSources(Struct, frozen=True, kw_only=True):
    specs: Sequence[SlashCommand]
    cwd: Callable[[], Path]
    arguments: Mapping[str, Callable[[], Sequence[str]]] = {}
    """First arguments of a command that are not known beforehand, e.g. skins."""


def suggest(before: str, sources: CompletionSources) -> list[Completion]:
    """Return what could be meant, given the text before the cursor."""
    if before.startswith("/") and "\n" not in before and not before.startswith("//"):
        name, blank, argument = before[1:].partition(" ")
        if not blank:
            return _commands(name, sources.specs)
        return _arguments(name.lower(), argument, sources)
    at = _AT_END.search(before)
    return _references(at[0], sources.cwd()) if at else []


def _commands(typed: str, specs: Sequence[SlashCommand]) -> list[Completion]:
    found: list[Completion] = []
    for spec in specs:
        fitting = [name for name in spec.names if name.startswith(typed.lower())]
        if not fitting:
            continue
        name = spec.name if spec.name in fitting else fitting[0]
        text = f"/{name}" + (" " if spec.args else "")
        shown = f"/{name} {spec.args}".rstrip()
        found.append(Completion(text, -len(typed) - 1, display=shown, display_meta=spec.help))
    return sorted(found, key=lambda each: each.text)


def _arguments(name: str, typed: str, sources: CompletionSources) -> list[Completion]:
    if " " in typed:
        return []
    spec = next((each for each in sources.specs if name in each.names), None)
    if spec is None:
        return []
    words = sources.arguments.get(spec.name, lambda: spec.choices)()
    return [Completion(word, -len(typed)) for word in words if word.startswith(typed)]


def _references(typed: str, cwd: Path) -> list[Completion]:
    kind, colon, value = typed.partition(":")
    if colon and kind in ("@file", "@folder"):
        return _paths(value, cwd, folders_only=kind == "@folder")
    return [
        Completion(text, -len(typed), display_meta=about)
        for text, about in REFERENCES
        if text.startswith(typed) and text != typed
    ]


def _paths(typed: str, cwd: Path, *, folders_only: bool) -> list[Completion]:
    quoted = typed.startswith('"')
    bare = typed.lstrip('"')
    parent, slash, start = bare.rpartition("/")
    folder = cwd / Path(parent + slash).expanduser()
    found: list[Completion] = []
    for name, is_folder in _listing(folder):
        if not name.startswith(start) or (name.startswith(".") and not start.startswith(".")):
            continue
        if not is_folder and (folders_only or is_secret(folder / name)):
            continue
        full = f"{parent}{slash}{name}{'/' if is_folder else ''}"
        text = f'"{full}"' if (quoted or " " in full) and not is_folder else full
        shown = name + ("/" if is_folder else "")
        found.append(Completion(text, -len(typed), display=shown))
    return found[:MAX_PATHS]


def _listing(folder: Path) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.name, entry.is_dir()) for entry in entries)
    except OSError:
        return []


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


def input_buffer(sources: CompletionSources, history: PrivateHistory) -> Buffer:
    class ChatCompleter(Completer):
        def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
            return suggest(document.text_before_cursor, sources)

    def worth_completing() -> bool:
        before = buffer.document.text_before_cursor
        return before.startswith("/") or "@" in before.rpartition(" ")[2]

    buffer = Buffer(
        name="input",
        multiline=True,
        history=history,
        completer=ThreadedCompleter(ChatCompleter()),
        complete_while_typing=Condition(worth_completing),
    )
    return buffer


PASTE_LINES = 5
PASTE_CHARS = 2000
_PLACEHOLDER = re.compile(r"\[pasted #(\d+): [^\]\n]*\]")


class Pastes:
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
        return _PLACEHOLDER.sub(lambda found: self._pastes.get(int(found[1]), found[0]), text)


AGAIN_SECONDS = 2.0


class CtrlC(StrEnum):
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
