"""Dotted keys: `terminal.backend`, `agent.reasoning_overrides."gpt-5.5"`.

A key is a tuple of names. Names that contain a dot are quoted. Items of a list
are numbered from 0.
"""

import re

from hermes.domain.errors import UsageError

__all__ = ["Path", "format_key", "parse_key"]

Path = tuple[str, ...]

_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|([^."]+)')
_PLAIN = re.compile(r'[^."\\]+')


def parse_key(text: str) -> Path:
    """Split a dotted key into its names."""
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            break
        quoted, plain = match.groups()
        parts.append(plain or re.sub(r"\\(.)", r"\1", quoted or "", flags=re.DOTALL))
        position = match.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            break
        position += 1
    raise UsageError(
        f"`{text}` is not a configuration key.",
        hint='Keys look like terminal.backend; quote names with dots: a."b.c".',
    )


def format_key(path: Path) -> str:
    """Join names into a dotted key that `parse_key` understands."""
    return ".".join(name if _PLAIN.fullmatch(name) else _quoted(name) for name in path)


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
