"""YAML files as plain data, with the line of each value.

Events of the C parser are turned into dicts, lists and scalars directly: one
pass, no recursion into C (its composer overflows the stack on deep nesting),
and each value's line and literal text are kept. The text matters because YAML
reads `off` as a boolean and `0123` as a number where a name was meant.
"""

import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import yaml
from msgspec import Struct, field

from hermes.domain.errors import ConfigError, UsageError
from hermes.domain.settings.section import is_secret_name

Path = tuple[str, ...]

_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|([^."]+)')
_PLAIN = re.compile(r'[^."\\]+')


def parse_key(text: str) -> Path:
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


class ConfigProblem(Struct, frozen=True, kw_only=True):
    where: str
    """`config.yaml:12`, `env TERMINAL_LIFETIME_SECONDS`, ..."""
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key} {self.text}" if self.key else f"{self.where}: {self.text}"


class InvalidConfig(ConfigError):
    """The configuration has errors; all of them are listed."""

    def __init__(self, problems: tuple[ConfigProblem, ...], *, hint: str = "") -> None:
        if len(problems) == 1:
            message = f"{problems[0]}."
        else:
            listed = "".join(f"\n  {problem}" for problem in problems)
            message = f"The configuration has {len(problems)} errors:{listed}"
        super().__init__(message, hint=hint or _hint(problems))
        self.problems = problems


def _hint(problems: tuple[ConfigProblem, ...]) -> str:
    if all(problem.where.startswith("env ") for problem in problems):
        return "Change or unset the environment variable."
    if all(problem.where.startswith(".env") for problem in problems):
        return "Fix it with: hermes config set NAME VALUE"
    return f"Fix {'it' if len(problems) == 1 else 'them'} with: hermes config edit"


_MAX_DEPTH = 64
_MAX_NODES = 200_000
"""Limit on values, because aliases can make a small file enormous."""


class Mark(Struct, frozen=True):
    origin: str
    """`config.yaml:12`, `env NAME`, ..."""
    text: str | None = None
    """The scalar as it was written."""

    def __repr__(self) -> str:
        return f"Mark({self.origin})"


class Document(Struct, kw_only=True):
    """A mapping read from a file, with marks and warnings.

    It may hold secrets, hence the short `repr`.
    """

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Path, Mark] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Document({self.name}, {len(self.marks)} values)"

    def origin(self, path: Path) -> str:
        """Return where the value at `path`, or its nearest parent, came from."""
        for length in range(len(path), -1, -1):
            mark = self.marks.get(path[:length])
            if mark is not None:
                return mark.origin
        return self.name

    def forget(self, path: Path) -> None:
        """Drop the marks of `path` and of everything below it."""
        for known in [known for known in self.marks if known[: len(path)] == path]:
            del self.marks[known]


def read_document(file: FilePath, name: str) -> Document:
    """Read and parse `file`; a missing file is an empty document."""
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        document = Document(name=name)
        if file.is_symlink():
            document.warnings.append(f"{name}: is a link to a file that does not exist")
        return document
    except OSError as error:
        raise _broken(str(file), f"cannot be read: {error.strerror}") from error
    return parse_document(content, name)


def parse_document(content: bytes, name: str) -> Document:
    text = _decode(content, name)
    document = Document(name=name)
    loader = yaml.CSafeLoader(text)
    try:
        root = _Builder(loader, document).root()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, name) from error
    except (yaml.YAMLError, ValueError, KeyError, OverflowError) as error:
        raise _broken(name, f"is not valid YAML: {error}") from error
    finally:
        loader.dispose()
    if root is None:
        return document
    if not isinstance(root, dict):
        found = "a list" if isinstance(root, list) else "a single value"
        raise _broken(name, f"should be a mapping of keys to values but is {found}")
    document.data = root
    return document


class _Builder:
    def __init__(self, loader: Any, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    def root(self) -> Any:
        self._next()
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        value = self._node(self._next(), (), 0)
        self._next()
        event = self._next()
        if not isinstance(event, yaml.StreamEndEvent):
            raise _broken(
                self._where(event), "a second document (`---`) begins here; only one is read"
            )
        return value

    def _next(self) -> Any:
        return self._loader.get_event()

    def _where(self, event: Any) -> str:
        return f"{self._document.name}:{event.start_mark.line + 1}"

    def _count(self, event: Any, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_NODES:
            raise _broken(self._where(event), "the file holds far too many values")

    def _node(self, event: Any, path: Path, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise _broken(self._where(event), f"nested more than {_MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        before = self._nodes
        self._count(event, 1)
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, path)
        else:
            self._document.marks[path] = Mark(self._where(event))
            inside = self._sequence if isinstance(event, yaml.SequenceStartEvent) else self._mapping
            value = inside(path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._nodes - before)
        return value

    def _alias(self, event: Any, path: Path) -> Any:
        if event.anchor not in self._anchors:
            raise _broken(self._where(event), f"`*{event.anchor}` refers to nothing before it")
        value, size = self._anchors[event.anchor]
        self._count(event, size)
        self._document.marks[path] = Mark(self._where(event))
        return value

    def _scalar(self, event: Any, path: Path) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        self._document.marks[path] = Mark(self._where(event), event.value)
        return self._construct(tag, event)

    def _construct(self, tag: str, event: Any) -> Any:
        node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        kind = tag.removeprefix("tag:yaml.org,2002:")
        if kind in {"null", "bool", "float"} or (kind == "int" and ":" not in event.value):
            construct = yaml.SafeLoader.yaml_constructors[tag]
            return construct(self._loader, node)
        return event.value

    def _sequence(self, path: Path, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, str(len(items))), depth + 1))
        return items

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        merged: list[Any] = []
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, path)
            inside = (*path, key)
            if key in items:
                self._document.warnings.append(
                    f"{self._where(event)}: {format_key(inside)} is given twice;"
                    " the later value is used"
                )
                self._document.forget(inside)
            value = self._node(self._next(), inside, depth + 1)
            if key == "<<" and event.implicit[0]:
                merged.extend(value if isinstance(value, list) else [value])
                self._document.forget(inside)
            else:
                items[key] = value
        for base in merged:
            if isinstance(base, Mapping):
                items = {**base, **items}
        return items

    def _key(self, event: Any, path: Path) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise _broken(
                self._where(event), f"a key of {format_key(path) or 'the file'} is not text"
            )
        value: str = event.value
        return value


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _broken(
            f"{name}:{line}",
            f"byte 0x{content[error.start]:02x} is not UTF-8",
            hint="Save the file in the encoding UTF-8.",
        ) from error


def _syntax_error(error: yaml.MarkedYAMLError, text: str, name: str) -> InvalidConfig:
    lines = text.splitlines()
    for mark in (error.problem_mark, error.context_mark):
        line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
        if mark is None or not line.strip():
            continue
        where = f"{name}:{mark.line + 1}:{mark.column + 1}"
        if "\t" in line[: len(line) - len(line.lstrip())]:
            what = "the line is indented with a tab, which YAML does not allow"
            return _broken(where, what, hint="Use spaces.")
        return _broken(where, f"{error.problem or error.context}, at `{_shown(line)}`")
    mark = error.problem_mark or error.context_mark
    where = name if mark is None else f"{name}:{mark.line + 1}:{mark.column + 1}"
    return _broken(where, error.problem or error.context or "not valid YAML")


def _shown(line: str) -> str:
    key, colon, _ = line.strip().partition(":")
    return f"{key}: ***" if colon and is_secret_name(key.strip(" -'\"")) else line.strip()


def _broken(where: str, text: str, *, hint: str = "") -> InvalidConfig:
    return InvalidConfig((ConfigProblem(where=where, key="", text=text),), hint=hint)
