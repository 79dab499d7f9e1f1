"""Writing an old configuration in the current version, after a backup.

The migrated data is compared with what is in the file and only the keys that
differ are changed, so comments stay where they are.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path as FilePath
from typing import Any

from msgspec import Struct

from hermes.config.atomic import editing, write_atomic
from hermes.config.document import Path, format_key, parse_document
from hermes.config.dotenv import unset_env
from hermes.config.edit import apply_change, read_env_text, read_text, write_checked
from hermes.config.migrations import OBSOLETE_VARIABLES, migrate_data, version_of
from hermes.config.paths import HermesHome
from hermes.domain.settings import CONFIG_VERSION


class Migration(Struct, frozen=True, kw_only=True):
    """What a migration did."""

    version: int
    """The version that was found."""
    changes: tuple[str, ...]
    """Keys and names that were changed, added or removed."""
    backup: FilePath | None
    """The copy of the file as it was."""


def migrate_files(home: HermesHome, now: datetime) -> Migration:
    """Bring `config.yaml` and `.env` of `home` to the current version."""
    with editing(home):
        before = read_text(home)
        data = parse_document(before.encode(), "config.yaml").data
        version = version_of(data)
        if version >= CONFIG_VERSION or (not data and not home.config_file.exists()):
            return Migration(version=version, changes=(), backup=None)
        backup = _backup(home, version, before, now)
        meant = {**migrate_data(data), "_config_version": CONFIG_VERSION}
        text, changes = _rewritten(before, data, meant)
        write_checked(home, before, text, force=True)
        changes += _drop_variables(home, version)
    return Migration(version=version, changes=tuple(changes), backup=backup)


def _backup(home: HermesHome, version: int, text: str, now: datetime) -> FilePath:
    directory = home.subdirectory(home.backups_dir)
    backup = directory / f"config-{now:%Y%m%dT%H%M%S}-v{version}.yaml"
    write_atomic(backup, text)
    return backup


def _rewritten(text: str, data: dict[str, Any], meant: dict[str, Any]) -> tuple[str, list[str]]:
    changes: list[str] = []
    for path, value, remove in _differences(data, meant, ()):
        text = apply_change(text, path, value, remove=remove)
        changes.append(format_key(path))
    return text, changes


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
