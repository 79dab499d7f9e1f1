"""Edits of `config.yaml` and `.env` that keep comments, order and layout.

A change is checked against the schema before anything is written, and the new
text must read back as exactly the data that was meant. Comments, order and
unknown keys stay. Names in capitals are secrets and go to `.env`. A migration is
a series of such changes, after a backup.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from io import StringIO
from pathlib import Path as FilePath
from typing import Any

import yaml
from msgspec import Struct

from hermes.config.atomic import editing, write_atomic
from hermes.config.check import Checker
from hermes.config.document import (
    ConfigProblem,
    InvalidConfig,
    Path,
    format_key,
    parse_document,
    parse_key,
)
from hermes.config.dotenv import set_env, unset_env
from hermes.config.loader import expand, prepare, read_env, read_env_text
from hermes.config.migrations import OBSOLETE_VARIABLES, migrate_data, version_of
from hermes.config.normalize import lookup
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, UsageError
from hermes.domain.settings import CONFIG_VERSION

_LIKE_A_NUMBER = re.compile(r"[-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?")


class _QuotingDumper(yaml.SafeDumper):
    """Quotes words such as `._`, which the editor would read as numbers."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _LIKE_A_NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_QuotingDumper.add_representer(str, _quoted)


def render(value: Any) -> str:
    """Write a value on one line, so that it reads back as the same value."""
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    dumped: str = yaml.dump(
        [value],
        Dumper=_QuotingDumper,
        default_flow_style=True,
        width=float("inf"),
        allow_unicode=True,
        default_style=style,
        sort_keys=False,
    )
    return dumped.strip()[1:-1]


class Renamed(Struct, frozen=True):
    to: str


Change = tuple[Path, Any]

_ENV_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def is_env_name(key: str) -> bool:
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
        changed = apply_change(text, target, value)
        write_checked(home, text, changed, environ=environ, force=force)


def unset_value(home: HermesHome, key: str, *, environ: Mapping[str, str] = {}) -> bool:
    """Remove one key or name, so that its default applies; return whether it was set."""
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
        write_checked(home, text, apply_change(text, path, None, remove=True), environ=environ)
        return True


def change_values(
    home: HermesHome, changes: Iterable[Change], *, environ: Mapping[str, str] = {}
) -> None:
    """Make several changes of `config.yaml`, all or none.

    (key, value) sets, (key, None) removes, (key, Renamed) gives the key another name. The last
    part of a key may be `+N`: the value becomes item N of the list.
    """
    with editing(home):
        before = after = read_text(home)
        for path, value in changes:
            if isinstance(value, Renamed):
                after = _with_renamed_key(after, path, value.to)
            else:
                after = apply_change(after, path, value, remove=value is None)
        write_checked(home, before, after, environ=environ)


def _with_renamed_key(text: str, path: Path, new: str) -> str:
    """Return the text with another name of one key, and nothing else changed."""
    meant = _copied(parse_document(text.encode(), "config.yaml").data)
    parent = lookup(meant, path[:-1])
    items = [(new if key == path[-1] else key, value) for key, value in parent.items()]
    parent.clear()
    parent.update(items)
    key: Any = None
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for name in path:
        key, node = next(pair for pair in node.value if pair[0].value == name)
    changed = text[: key.start_mark.index] + new + text[key.end_mark.index :]
    if not _reads_as(changed, meant):
        raise _unchangeable(path)
    return changed


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
            tuple(ConfigProblem(where="not written", key=p.key, text=p.text) for p in fresh),
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
    model = data.get("model")
    older = isinstance(model, dict) and "default" in model and "model" not in model
    return ("model", "default") if older and path == ("model", "model") else path


def apply_change(text: str, path: Path, value: Any, *, remove: bool = False) -> str:
    """Return the new text; it is proven to read back as the data that was meant."""
    data = parse_document(text.encode(), "config.yaml").data
    if (
        not remove
        and path[:1] == ("model",)
        and len(path) == 2
        and isinstance(data.get("model"), str)
    ):
        merged = {"default": data["model"], ("default" if path[1] == "model" else path[1]): value}
        return apply_change(text, ("model",), merged)
    while remove and len(path) > 1 and len(lookup(data, path[:-1])) == 1:
        path = path[:-1]
    meant = _copied(data)
    _change(meant, path, value, remove=remove)
    for candidate in _candidates(text, path, value, remove=remove):
        if _reads_as(candidate, meant):
            return candidate
    raise _unchangeable(path)


def _unchangeable(path: Path) -> ConfigError:
    return ConfigError(
        f"{format_key(path)} cannot be changed without changing the rest of config.yaml.",
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
    if isinstance(data, list) and last.startswith("+") and last[1:].isdecimal():
        data.insert(int(last[1:]), value)
        return
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


def _candidates(text: str, path: Path, value: Any, *, remove: bool) -> Iterator[str]:
    """Yield the changed text, as close to the old one as possible, then reformatted.

    The round trip of a YAML editor moves comments and evens out spaces. So the editor works on
    the lines that are not comments, and only the lines that its change made different are taken.
    """
    from difflib import SequenceMatcher  # noqa: PLC0415 - for changes only

    text += "" if text.endswith("\n") or not text else "\n"
    lines = text.splitlines(keepends=True)
    kept = _lines_of_data(text, lines)
    bare = "".join(lines[at] for at in kept)
    old, new = _round_trip(bare, path, value, remove=remove)
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if len(before) == len(kept):
        changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        for tag, start, end, first, last in reversed(changes):
            if tag != "equal":
                for at in reversed(kept[start:end]):
                    del lines[at]
                place = kept[start] if start < end else kept[start - 1] + 1 if start else len(lines)
                lines[place:place] = after[first:last]
        yield "".join(lines)
    yield _round_trip(text, path, value, remove=remove)[1]


def _lines_of_data(text: str, lines: list[str]) -> list[int]:
    """Return the numbers of the lines that are not blank and not a comment."""
    inside = {
        line
        for token in yaml.scan(text, Loader=yaml.CSafeLoader)
        if isinstance(token, yaml.ScalarToken)
        for line in range(token.start_mark.line + 1, token.end_mark.line)
    }
    return [
        at
        for at, line in enumerate(lines)
        if at in inside or (line.strip() and not line.lstrip().startswith("#"))
    ]


def _round_trip(text: str, path: Path, value: Any, *, remove: bool) -> tuple[str, str]:
    """Return the text as the editor writes it, without the change and with it."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - heavy, and seldom needed

    editor = YAML()
    editor.preserve_quotes = True
    editor.allow_duplicate_keys = True
    editor.width = 1_000_000
    editor.explicit_start = text.startswith("---")
    inner = re.search(r"^[^\s#-][^\n]*:[ \t]*\n( +)[^\s#-]", text, re.MULTILINE)
    items = re.search(r"^( *)[^\s#-][^\n]*:[ \t]*\n\1( +)- ", text, re.MULTILINE)
    offset = len(items[2]) if items else 0
    editor.indent(mapping=len(inner[1]) if inner else 2, sequence=offset + 2, offset=offset)
    try:
        loaded = editor.load(text)
    except ValueError as error:
        raise ConfigError(
            f"config.yaml has a word that looks like a number: {error}.", hint="Quote it."
        ) from error
    root = {} if loaded is None else loaded
    before, after = StringIO(), StringIO()
    if root:
        editor.dump(root, before)
    _change(root, path, value if remove else editor.load(render(value)), remove=remove)
    if root:
        editor.dump(root, after)
    return before.getvalue(), after.getvalue()


def _with_line_ends(home: HermesHome, text: str) -> str:
    try:
        windows = b"\r\n" in home.config_file.read_bytes()
    except OSError:
        return text
    return text.replace("\n", "\r\n") if windows else text


class Migration(Struct, frozen=True, kw_only=True):
    version: int
    """The version that was found."""
    changes: tuple[str, ...]
    """Keys and names that were changed, added or removed."""
    backup: FilePath | None
    """The copy of the file as it was."""


def migrate_files(home: HermesHome, now: datetime) -> Migration:
    with editing(home):
        before = read_text(home)
        data = parse_document(before.encode(), "config.yaml").data
        version = version_of(data)
        if version >= CONFIG_VERSION or (not data and not home.config_file.exists()):
            return Migration(version=version, changes=(), backup=None)
        backup = home.subdirectory(home.backups_dir) / f"config-{now:%Y%m%dT%H%M%S}-v{version}.yaml"
        write_atomic(backup, before)
        meant = {**migrate_data(data), "_config_version": CONFIG_VERSION}
        text, changes = before, []
        for path, value, remove in _differences(data, meant, ()):
            text = apply_change(text, path, value, remove=remove)
            changes.append(format_key(path))
        write_checked(home, before, text, force=True)
        changes += _drop_variables(home, version)
    return Migration(version=version, changes=tuple(changes), backup=backup)


def _differences(old: Any, new: Any, path: Path) -> Iterator[tuple[Path, Any, bool]]:
    """Yield (key, value, remove), additions before removals."""
    for key, value in new.items():
        inside = (*path, key)
        if key not in old:
            yield inside, value, False
        elif isinstance(value, dict) and isinstance(old[key], dict) and value and old[key]:
            yield from _differences(old[key], value, inside)
        elif value != old[key]:
            yield inside, value, False
    for key in old:
        if key not in new:
            yield (*path, key), None, True


def _drop_variables(home: HermesHome, version: int) -> list[str]:
    text = read_env_text(home)
    after, dropped = text, []
    for since, names in OBSOLETE_VARIABLES.items():
        for name in names if since > version else ():
            shorter = unset_env(after, name)
            if shorter != after:
                after = shorter
                dropped.append(f".env {name}")
    if dropped:
        write_atomic(home.env_file, after)
    return dropped
