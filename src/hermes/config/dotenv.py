"""The `.env` file: one `NAME=value` a line.

Values may be bare, 'single-quoted' (literal) or "double-quoted" (with
escapes), and quoted values may span lines. `export` and comments are allowed.
Variables that change how programs run are refused: this file is for secrets,
and write access to it must not give control of the process.
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
_LINE = re.compile(
    r"""
    [ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*
        (?: "(?P<double>(?:[^"\\]|\\.)*)" [ \t]*(?:\#[^\n]*)?\r?(?:\n|\Z)
          | '(?P<single>[^']*)'             [ \t]*(?:\#[^\n]*)?\r?(?:\n|\Z)
          | (?P<bare>[^\n]*)(?:\n|\Z) )
    | (?P<other>[^\n]*)(?:\n|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_BARE_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class EnvFile(Struct, frozen=True, kw_only=True):
    values: dict[str, str]
    lines: dict[str, int]
    """Where each name is set."""
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"EnvFile({', '.join(self.values)})"


def is_refused(name: str) -> bool:
    return name in _REFUSED or name.startswith(_REFUSED_PREFIXES)


def is_variable_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def parse_env(text: str, name: str = ".env") -> EnvFile:
    """Read a `.env` file; lines that are not `NAME=value` are warnings."""
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    warnings: list[str] = []
    for found in _LINE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        variable, other = found["name"], (found["other"] or "").strip()
        if variable and is_refused(variable):
            warnings.append(f"{name}:{line}: {variable} may not be set here and is ignored")
        elif variable:
            values[variable], lines[variable] = _value(found), line
        elif other and not other.startswith("#"):
            warnings.append(f"{name}:{line}: not of the form NAME=value; the line is ignored")
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
    places = [found for found in _LINE.finditer(text) if found["name"] == name]
    if not places:
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}"
    return text[: places[-1].start()] + line + text[places[-1].end() :]


def unset_env(text: str, name: str) -> str:
    return _LINE.sub(lambda found: "" if found["name"] == name else found[0], text)


def _value(found: re.Match[str]) -> str:
    if found["double"] is not None:
        return re.sub(
            r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), found["double"], flags=re.DOTALL
        )
    return found["single"] or _BARE_COMMENT.sub("", found["bare"] or "").strip()


def _format(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return f'"{escaped}"'
