"""Changing one value in YAML text and leaving every other character alone.

Works on mappings, which is what configuration consists of: the text of one
value is replaced, or the line of a key is added or removed. Anything else
returns None and is left to a full round trip (`edit`), which keeps comments but
may move them.
"""

from typing import Any

import yaml

from hermes.config.document import Path


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
