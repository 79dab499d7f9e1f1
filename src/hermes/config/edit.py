"""Changing `config.yaml` and `.env` without disturbing what people wrote.

A change is checked against the schema before anything is written, and the new
text must read back as exactly the data that was meant. Comments, order and
unknown keys stay. Names in capitals are secrets and go to `.env`.
"""

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

import yaml

from hermes.config.atomic import editing, write_atomic
from hermes.config.check import Checker
from hermes.config.document import (
    InvalidConfig,
    Path,
    Problem,
    format_key,
    parse_document,
    parse_key,
)
from hermes.config.dotenv import set_env, unset_env
from hermes.config.loader import expand, prepare, read_env
from hermes.config.normalize import lookup
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, UsageError


def splice_set(text: str, path: Path, value: Any) -> str | None:
    """Return `text` with the value at `path` set, or None if that is not simple."""
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    if root is None:
        body = "".join(_lines(path, value, 0))
        return text + ("\n" if text and not text.endswith("\n") else "") + body
    if not _is_mapping(root):
        return None
    node, depth = root, 0
    while depth < len(path) - 1:
        child = _child(node, path[depth])
        if child is None or not _is_mapping(child[1]):
            break
        node, depth = child[1], depth + 1
    found = _child(node, path[depth])
    if found is None:
        return _inserted(text, node, path[depth:], value)
    inner = path[depth + 1 :]
    if not inner:
        return _replaced(text, found, value)
    if _is_null(found[1]) and not node.flow_style:
        return _filled(text, found, inner, value)
    return _replaced(text, found, _nested(inner, value)) if _is_empty(found[1]) else None


def splice_unset(text: str, path: Path) -> str | None:
    """Return `text` without the key at `path`, or None if that is not simple."""
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    for name in path[:-1]:
        child = _child(node, name) if _is_block(node) else None
        if child is None:
            return None
        node = child[1]
    found = _child(node, path[-1]) if _is_block(node) else None
    if found is None:
        return None
    lines = text.splitlines(keepends=True)
    first, last = found[0].start_mark.line, _last_line(found[1])
    if lines[first][: found[0].start_mark.column].strip():
        return None
    return "".join(lines[:first] + lines[last + 1 :])


def render(value: Any) -> str:
    """Write a value on one line, so that it reads back as the same value."""
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    dumped: str = yaml.safe_dump(
        [value],
        default_flow_style=True,
        width=float("inf"),
        allow_unicode=True,
        default_style=style,
        sort_keys=False,
    )
    return dumped.strip()[1:-1]


def _inserted(text: str, node: Any, path: Path, value: Any) -> str:
    if node.flow_style:
        at = _index(text, _last_mark(node.value[-1][1]))
        inner = _nested(path[1:], value) if len(path) > 1 else value
        return f"{text[:at]}, {render(path[0])}: {render(inner)}{text[at:]}"
    column = node.value[0][0].start_mark.column
    lines = text.splitlines(keepends=True)
    after = _last_line(node)
    if not lines[after].endswith("\n"):
        lines[after] += "\n"
    return "".join(lines[: after + 1] + _lines(path, value, column) + lines[after + 1 :])


def _filled(text: str, found: Any, path: Path, value: Any) -> str:
    """Put the first key below a heading that has none yet."""
    lines = text.splitlines(keepends=True)
    at = found[0].start_mark.line
    if not lines[at].endswith("\n"):
        lines[at] += "\n"
    inner = _lines(path, value, found[0].start_mark.column + 2)
    return "".join([*lines[: at + 1], *inner, *lines[at + 1 :]])


def _replaced(text: str, found: Any, value: Any) -> str | None:
    key, old = found
    colon = text.index(":", _index(text, key.end_mark)) + 1
    if _is_null(old) and not old.value:
        return f"{text[:colon]} {render(value)}{text[colon:]}"
    if isinstance(old, yaml.ScalarNode) and old.style in {"|", ">"}:
        return None
    start, end = _index(text, old.start_mark), _index(text, _last_mark(old))
    if old.start_mark.line == key.end_mark.line:
        return f"{text[:start]}{render(value)}{text[end:]}"
    # The old value begins on a later line; a comment in between must stay.
    return None if text[colon:start].strip() else f"{text[:colon]} {render(value)}{text[end:]}"


def _lines(path: Path, value: Any, column: int) -> list[str]:
    lines = [
        f"{' ' * (column + 2 * depth)}{render(name)}:\n" for depth, name in enumerate(path[:-1])
    ]
    indent = " " * (column + 2 * (len(path) - 1))
    return [*lines, f"{indent}{render(path[-1])}: {render(value)}\n"]


def _nested(path: Path, value: Any) -> dict[str, Any]:
    return {path[0]: value if len(path) == 1 else _nested(path[1:], value)}


def _child(node: Any, name: str) -> Any:
    found = None
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == name:
            found = (key, value)
    return found


def _is_mapping(node: Any) -> bool:
    return isinstance(node, yaml.MappingNode) and bool(node.value)


def _is_block(node: Any) -> bool:
    return _is_mapping(node) and not node.flow_style


def _is_empty(node: Any) -> bool:
    return isinstance(node, yaml.MappingNode) and not node.value


def _is_null(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _last_mark(node: Any) -> Any:
    """Return where a value's own text ends; block collections end at their last item."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node.end_mark


def _last_line(node: Any) -> int:
    mark = _last_mark(node)
    line: int = mark.line
    # A block scalar ends at the start of the line after it.
    return line - 1 if mark.column == 0 and line > node.start_mark.line else line


def _index(text: str, mark: Any) -> int:
    # Marks of the C parser count lines and columns in characters.
    position = 0
    for _ in range(mark.line):
        position = text.index("\n", position) + 1
    return position + int(mark.column)


_ENV_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def is_env_name(key: str) -> bool:
    """Tell whether `key` names a variable of `.env` and not a key of the file."""
    return _ENV_NAME.fullmatch(key) is not None


def set_value(
    home: HermesHome, key: str, value: Any, *, force: bool = False, environ: Mapping[str, str] = {}
) -> None:
    """Set one key of `config.yaml`, or one name of `.env`."""
    if is_env_name(key):
        with editing(home):
            write_atomic(home.env_file, set_env(read_env_text(home), key, str(value)))
        return
    path = parse_key(key)
    with editing(home):
        text = read_text(home)
        data = parse_document(text.encode(), "config.yaml").data
        target = _place(data, path)
        changed = _apply(text, data, target, value)
        write_checked(home, text, changed, environ=environ, force=force)


def append_value(home: HermesHome, key: str, item: Any) -> None:
    """Add an item to a list of the configuration unless it is there already."""
    path = parse_key(key)
    with editing(home):
        text = read_text(home)
        data = parse_document(text.encode(), "config.yaml").data
        present = lookup(data, path) or []
        if not isinstance(present, list):
            raise ConfigError(f"{key} in config.yaml is not a list.")
        if item not in present:
            write_checked(home, text, _apply(text, data, path, [*present, item]))


def unset_value(home: HermesHome, key: str, *, environ: Mapping[str, str] = {}) -> bool:
    """Remove one key or name, so that its default holds; tell whether it was there."""
    with editing(home):
        if is_env_name(key):
            before = read_env_text(home)
            after = unset_env(before, key)
            if after != before:
                write_atomic(home.env_file, after)
            return after != before
        path = parse_key(key)
        text = read_text(home)
        data = parse_document(text.encode(), "config.yaml").data
        if not _contains(data, path):
            return False
        write_checked(home, text, _apply(text, data, path, None, remove=True), environ=environ)
        return True


def read_text(home: HermesHome) -> str:
    """Return the text of `config.yaml` with plain line ends; empty if there is none."""
    try:
        content = home.config_file.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(
            f"{home.config_file} cannot be read: {error.strerror}.",
            hint="Check the file's permissions.",
        ) from error
    parse_document(content, "config.yaml")
    return content.decode("utf-8-sig").replace("\r\n", "\n")


def write_checked(
    home: HermesHome,
    before: str,
    after: str,
    *,
    environ: Mapping[str, str] = {},
    force: bool = False,
) -> None:
    """Write `after` unless it brings errors or unknown keys that `before` had not."""
    variables = {**read_env(home).values, **environ}
    old, new = _checked(before, variables), _checked(after, variables)
    known = {(problem.key, problem.text) for problem in old.errors}
    fresh = tuple(p for p in new.errors if (p.key, p.text) not in known)
    if fresh:
        raise InvalidConfig(
            tuple(Problem(where="not written", key=p.key, text=p.text) for p in fresh),
            hint="See what a key accepts with: hermes config explain KEY",
        )
    unknown = [p for p in new.warnings if p.key in set(new.unknown) - set(old.unknown)]
    if unknown and not force:
        raise UsageError(f"{unknown[0].key} {unknown[0].text}", hint="Write it anyway: --force")
    write_atomic(home.config_file, _with_line_ends(home, after))


def _checked(text: str, variables: Mapping[str, str]) -> Checker:
    document = parse_document(text.encode(), "config.yaml")
    prepare(document)
    document.data = expand(document, variables, [])
    checker = Checker(document)
    checker.config()
    return checker


def _place(data: dict[str, Any], path: Path) -> Path:
    """Return where a key is written, which for `model` depends on its form."""
    if path[:1] == ("model",) and len(path) == 2:
        model = data.get("model")
        if not isinstance(model, dict):
            return path
        if path[1] == "model" and "default" in model and "model" not in model:
            return ("model", "default")
    return path


def apply_change(text: str, path: Path, value: Any, *, remove: bool = False) -> str:
    """Return `text` with one key set or removed."""
    data = parse_document(text.encode(), "config.yaml").data
    return _apply(text, data, path, value, remove=remove)


def _apply(text: str, data: dict[str, Any], path: Path, value: Any, *, remove: bool = False) -> str:
    """Return the new text; it is proven to read back as the data that was meant."""
    if (
        not remove
        and path[:1] == ("model",)
        and len(path) == 2
        and isinstance(data.get("model"), str)
    ):
        merged = {"default": data["model"], ("default" if path[1] == "model" else path[1]): value}
        return _apply(text, data, ("model",), merged)
    while remove and len(path) > 1 and len(lookup(data, path[:-1])) == 1:
        path = path[:-1]
    meant = _copied(data)
    _change(meant, path, value, remove=remove)
    spliced = splice_unset(text, path) if remove else splice_set(text, path, value)
    if spliced is not None and _reads_as(spliced, meant):
        return spliced
    rewritten = _round_trip(text, path, value, remove=remove)
    if _reads_as(rewritten, meant):
        return rewritten
    raise ConfigError(
        f"{format_key(path)} cannot be changed without disturbing the rest of config.yaml.",
        hint="Change it by hand: hermes config edit",
    )


def _copied(value: Any) -> Any:
    # Unlike deepcopy this separates values that share an anchor.
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _reads_as(text: str, meant: dict[str, Any]) -> bool:
    try:
        return parse_document(text.encode(), "config.yaml").data == meant
    except ConfigError:
        return False


def _change(data: Any, path: Path, value: Any, *, remove: bool) -> None:
    for name in path[:-1]:
        inside: Any = _position(data, name, path) if isinstance(data, list) else name
        child = data[inside] if isinstance(data, list) else data.get(name)
        if child is None:
            child = data[inside] = {}
        elif not isinstance(child, dict | list):
            raise UsageError(f"{format_key(path)}: `{name}` is a single value, not a mapping.")
        data = child
    last = path[-1]
    at: Any = _position(data, last, path) if isinstance(data, list) else last
    if remove:
        del data[at]
    else:
        data[at] = value


def _position(data: list[Any], name: str, path: Path) -> int:
    if name.isdecimal() and int(name) < len(data):
        return int(name)
    raise UsageError(f"{format_key(path)}: the list has no item `{name}`.")


def _contains(data: Any, path: Path) -> bool:
    parent = lookup(data, path[:-1])
    if isinstance(parent, list):
        return path[-1].isdecimal() and int(path[-1]) < len(parent)
    return isinstance(parent, dict) and path[-1] in parent


def _round_trip(text: str, path: Path, value: Any, *, remove: bool) -> str:
    from ruamel.yaml import YAML  # noqa: PLC0415 - heavy, and seldom needed

    editor = YAML()
    editor.preserve_quotes = True
    editor.allow_duplicate_keys = True
    editor.width = 1_000_000
    if re.search(r"^( *)[^\s#-][^\n]*:[ \t]*\n\1 +- ", text, re.MULTILINE):
        editor.indent(mapping=2, sequence=4, offset=2)
    root = editor.load(text)
    written = value if remove else editor.load(render(value))
    _change(root, path, written, remove=remove)
    stream = StringIO()
    editor.dump(root, stream)
    return stream.getvalue()


def read_env_text(home: HermesHome) -> str:
    """Return the text of `.env`; empty if there is none."""
    try:
        return home.env_file.read_text("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{home.env_file} cannot be read.", hint="Check its permissions and encoding."
        ) from error


def _with_line_ends(home: HermesHome, text: str) -> str:
    try:
        windows = b"\r\n" in home.config_file.read_bytes()
    except OSError:
        return text
    return text.replace("\n", "\r\n") if windows else text
