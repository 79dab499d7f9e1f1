"""The `.env` file: one `NAME=value` a line.

Values may be bare, 'single-quoted' (literal) or "double-quoted" (with
escapes), and quoted values may span lines. `export` and comments are allowed.
Variables that change how programs run are refused: this file is for secrets,
and whoever can write it must not thereby control the process.
"""

import re

from msgspec import Struct

from hermes.domain.errors import UsageError

_REFUSED = frozenset(
    {"PATH", "HOME", "SHELL", "IFS", "ENV", "BASH_ENV", "PROMPT_COMMAND", "HERMES_HOME"}
    | {"EDITOR", "VISUAL", "PAGER", "BROWSER", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS"}
    | {"PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT", "SSH_ASKPASS"}
)
_REFUSED_PREFIXES = ("LD_", "DYLD_", "PYTHON", "GIT_")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEAD = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE = re.compile(r"'([^']*)'", re.DOTALL)
_REST = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_BARE_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class EnvFile(Struct, frozen=True, kw_only=True):
    """What a `.env` file says."""

    values: dict[str, str]
    lines: dict[str, int]
    """Where each name is set."""
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"EnvFile({', '.join(self.values)})"


class _Entry(Struct):
    name: str
    value: str
    line: int
    start: int
    end: int


def is_refused(name: str) -> bool:
    """Tell whether a variable must not come from `.env`."""
    return name in _REFUSED or name.startswith(_REFUSED_PREFIXES)


def is_variable_name(name: str) -> bool:
    """Tell whether `name` can stand in `.env`."""
    return _NAME.fullmatch(name) is not None


def parse_env(text: str, name: str = ".env") -> EnvFile:
    """Read a `.env` file; lines that make no sense are warnings."""
    entries, warnings = _scan(text, name)
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for entry in entries:
        if is_refused(entry.name):
            warnings.append(f"{name}:{entry.line}: {entry.name} may not be set here and is ignored")
            continue
        values[entry.name] = entry.value
        lines[entry.name] = entry.line
    return EnvFile(values=values, lines=lines, warnings=tuple(warnings))


def set_env(text: str, name: str, value: str) -> str:
    """Return `text` with `name` set; everything else stays as it is."""
    if not is_variable_name(name):
        raise UsageError(f"`{name}` is not a variable name.", hint="Use letters, digits and _.")
    if is_refused(name):
        raise UsageError(
            f"{name} may not be set in .env.", hint="Set it where Hermes is started instead."
        )
    if "\0" in value:
        raise UsageError("A value cannot contain a NUL character.")
    line = f"{name}={_format(value)}\n"
    places = [entry for entry in _scan(text, "")[0] if entry.name == name]
    if not places:
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}"
    last = places[-1]
    return text[: last.start] + line + text[last.end :]


def unset_env(text: str, name: str) -> str:
    """Return `text` without `name`."""
    for entry in reversed(_scan(text, "")[0]):
        if entry.name == name:
            text = text[: entry.start] + text[entry.end :]
    return text


def _scan(text: str, name: str) -> tuple[list[_Entry], list[str]]:
    entries: list[_Entry] = []
    warnings: list[str] = []
    position = 0
    while position < len(text):
        end = _end_of_line(text, position)
        line = text.count("\n", 0, position) + 1
        row = text[position:end].strip()
        if not row or row.startswith("#"):
            position = end
            continue
        match = _HEAD.match(text, position)
        if match is None:
            warnings.append(f"{name}:{line}: not of the form NAME=value; the line is ignored")
            position = end
            continue
        value, after = _value(text, match.end(), end)
        entries.append(_Entry(match[1], value, line, position, after))
        position = after
    return entries, warnings


def _value(text: str, start: int, end: int) -> tuple[str, int]:
    quote = text[start : start + 1]
    pattern = _DOUBLE if quote == '"' else _SINGLE
    match = pattern.match(text, start) if quote in {'"', "'"} else None
    rest = _REST.match(text, match.end()) if match else None
    if match and rest:
        value = match[1]
        return (_unescape(value) if quote == '"' else value), rest.end()
    return _BARE_COMMENT.sub("", text[start:end].rstrip("\r\n")).strip(), end


def _end_of_line(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), value, flags=re.DOTALL)


def _format(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return f'"{escaped}"'
