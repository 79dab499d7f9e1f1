"""Changing `config.yaml` and `.env` without disturbing what people wrote.

A change is checked against the schema before anything is written, and the new
text must read back as exactly the data that was meant. Comments, order and
unknown keys stay. Names in capitals are secrets and go to `.env`.
"""

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

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
from hermes.config.splice import render, splice_set, splice_unset
from hermes.domain.errors import ConfigError, UsageError

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
