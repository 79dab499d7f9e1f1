"""A text file as the editing tools see it.

Editing happens on text with plain line feeds; the byte order mark, the line
endings and bytes that are not UTF-8 come back as they were.
"""

import ast
import contextlib
import difflib
import json
import warnings
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from hermes.domain.errors import Conflict, NotFound, UsageError
from hermes.domain.ports.execution import Environment, digest

T = TypeVar("T")
MAX_EDITABLE = 10 * 1024 * 1024
_ATTEMPTS = 50
_BOM = b"\xef\xbb\xbf"


class TextFile(Struct, frozen=True, kw_only=True):
    """Text, and how it is written."""

    text: str
    crlf: bool = False
    bom: bool = False
    digest: str = ""
    """Of the file as it was read, to replace nothing else."""

    @classmethod
    def from_bytes(cls, data: bytes) -> "TextFile":
        bom = data.startswith(_BOM)
        text = data.removeprefix(_BOM).decode("utf-8", "surrogateescape")
        endings = text.count("\n")
        crlf = endings > 0 and text.count("\r\n") == endings
        text = text.replace("\r\n", "\n") if crlf else text
        return cls(text=text, crlf=crlf, bom=bom, digest=digest(data))

    def encode(self, text: str) -> bytes:
        """Return `text` written the way this file is."""
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return (_BOM if self.bom else b"") + text.encode("utf-8", "surrogateescape")


async def load(environment: Environment, path: str) -> TextFile:
    data = await environment.read(path, limit=MAX_EDITABLE + 1)
    if len(data) > MAX_EDITABLE:
        raise UsageError(f"{path} is too large to edit here.", hint="Use the terminal.")
    if b"\0" in data[:8192]:
        raise UsageError(f"{path} is a binary file and cannot be edited as text.")
    return TextFile.from_bytes(data)


async def load_if_there(environment: Environment, path: str) -> TextFile | None:
    """Read a file to edit; None if it does not exist."""
    try:
        return await load(environment, path)
    except NotFound:
        return None


async def until_settled(change: Callable[[], Awaitable[T]]) -> T:
    """Read and change files again if somebody else changed them in between."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(Conflict):
            return await change()
    return await change()


_MAX_CHARS = 500_000
_MAX_YAML = 50_000
"""Its parser is slow."""


def _yaml_problem(text: str) -> str:
    import yaml  # noqa: PLC0415 - few files are YAML

    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        return f"line {line}: {error.problem}"
    except yaml.YAMLError as error:
        return str(error)
    return ""


def syntax_problem(path: str, text: str) -> str:
    """Return what keeps `text` from being parsed, or nothing."""
    if len(text) > _MAX_CHARS:
        return ""
    text = text.removeprefix("\ufeff")
    try:
        if path.endswith(".py"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(text)
        elif path.endswith(".json"):
            json.loads(text)
        elif path.endswith(".toml"):
            import tomllib  # noqa: PLC0415 - takes a while to load

            tomllib.loads(text)
        elif path.endswith((".yaml", ".yml")) and len(text) < _MAX_YAML:
            return _yaml_problem(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


_MAX_COMPARED = 1500
_MAX_DIFF_CHARS = 60_000
_CONTEXT = 3


def unified_diff(path: str, before: str | None, after: str | None) -> str:
    """Return how `path` changed; None stands for "no such file"."""
    old, new = (before or "").splitlines(), (after or "").splitlines()
    head, tail = _common(old, new)
    start = max(0, head - _CONTEXT)
    stop = max(0, tail - _CONTEXT)
    old_part, new_part = old[start : len(old) - stop], new[start : len(new) - stop]
    if old_part == new_part:
        return ""
    if len(old_part) + len(new_part) > _MAX_COMPARED:
        hunks = [
            f"@@ -{start + 1},{len(old_part)} +{start + 1},{len(new_part)} @@",
            *(f"-{line}" for line in old_part),
            *(f"+{line}" for line in new_part),
        ]
    else:
        compared = difflib.unified_diff(
            [""] * start + old_part, [""] * start + new_part, lineterm="", n=_CONTEXT
        )
        hunks = list(compared)[2:]
    name = path.removeprefix("/")
    text = "\n".join(
        [
            f"--- {'/dev/null' if before is None else f'a/{name}'}",
            f"+++ {'/dev/null' if after is None else f'b/{name}'}",
            *hunks,
        ]
    )
    return text if len(text) <= _MAX_DIFF_CHARS else f"{text[:_MAX_DIFF_CHARS]}\n[diff cut]"


def count_changes(diff: str) -> tuple[int, int]:
    """Return how many lines `diff` adds and removes."""
    lines = diff.splitlines()[2:]
    return sum(line[:1] == "+" for line in lines), sum(line[:1] == "-" for line in lines)


def _common(old: list[str], new: list[str]) -> tuple[int, int]:
    """Return how many lines are equal at the start and at the end."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail
