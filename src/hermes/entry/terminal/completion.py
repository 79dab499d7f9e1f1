"""Completion: commands with their descriptions, their choices, and `@` references.

Pure apart from listing one directory: text before the cursor in, suggestions
out. The adapter for the input widget is at the end of `input.py`.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.control.commands.registry import CommandSpec
from hermes.entry.terminal.references import is_secret

__all__ = ["CompletionSources", "Suggestion", "suggest"]

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


class Suggestion(Struct, frozen=True, kw_only=True):
    """One thing that could be meant."""

    text: str
    replaces: int
    """How many characters before the cursor it replaces."""
    shown: str
    about: str = ""


class CompletionSources(Struct, frozen=True, kw_only=True):
    """Where suggestions come from."""

    specs: Sequence[CommandSpec]
    cwd: Path
    arguments: Mapping[str, Callable[[], Sequence[str]]] = {}
    """First arguments of a command that are not known beforehand, e.g. skins."""


def suggest(before: str, sources: CompletionSources) -> list[Suggestion]:
    """Return what could be meant, given the text before the cursor."""
    if before.startswith("/") and "\n" not in before and not before.startswith("//"):
        name, blank, argument = before[1:].partition(" ")
        if not blank:
            return _commands(name, sources.specs)
        return _arguments(name.lower(), argument, sources)
    at = _AT_END.search(before)
    return _references(at[0], sources.cwd) if at else []


def _commands(typed: str, specs: Sequence[CommandSpec]) -> list[Suggestion]:
    found: list[Suggestion] = []
    for spec in specs:
        fitting = [name for name in spec.names if name.startswith(typed.lower())]
        if not fitting:
            continue
        name = spec.name if spec.name in fitting else fitting[0]
        text = f"/{name}" + (" " if spec.args else "")
        found.append(
            Suggestion(
                text=text,
                replaces=len(typed) + 1,
                shown=f"/{name} {spec.args}".rstrip(),
                about=spec.help,
            )
        )
    return sorted(found, key=lambda each: each.text)


def _arguments(name: str, typed: str, sources: CompletionSources) -> list[Suggestion]:
    if " " in typed:
        return []
    spec = next((each for each in sources.specs if name in each.names), None)
    if spec is None:
        return []
    words = sources.arguments.get(spec.name, lambda: spec.choices)()
    return [
        Suggestion(text=word, replaces=len(typed), shown=word)
        for word in words
        if word.startswith(typed)
    ]


def _references(typed: str, cwd: Path) -> list[Suggestion]:
    kind, colon, value = typed.partition(":")
    if colon and kind in ("@file", "@folder"):
        return _paths(value, cwd, folders_only=kind == "@folder")
    return [
        Suggestion(text=text, replaces=len(typed), shown=text, about=about)
        for text, about in REFERENCES
        if text.startswith(typed) and text != typed
    ]


def _paths(typed: str, cwd: Path, *, folders_only: bool) -> list[Suggestion]:
    quoted = typed.startswith('"')
    bare = typed.lstrip('"')
    parent, slash, start = bare.rpartition("/")
    folder = cwd / Path(parent + slash).expanduser()
    found: list[Suggestion] = []
    for name, is_folder in _listing(folder):
        if not name.startswith(start) or (name.startswith(".") and not start.startswith(".")):
            continue
        if not is_folder and (folders_only or is_secret(folder / name)):
            continue
        full = f"{parent}{slash}{name}{'/' if is_folder else ''}"
        text = f'"{full}"' if (quoted or " " in full) and not is_folder else full
        found.append(
            Suggestion(text=text, replaces=len(typed), shown=name + ("/" if is_folder else ""))
        )
    return found[:MAX_PATHS]


def _listing(folder: Path) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.name, entry.is_dir()) for entry in entries)
    except OSError:
        return []
