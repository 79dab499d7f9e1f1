"""Entry points: the parts of Hermes that installed packages bring, ours included.

A distribution declares them in `pyproject.toml`, for instance

    [project.entry-points."hermes.backends"]
    docker = "hermes.execution.backends.docker:BACKEND"

and code asks for one by group and name; only that module is then imported.
`importlib.metadata` does the same, but costs 40 ms of import at each start;
reading the installed `entry_points.txt` files takes two.
"""

import contextlib
import importlib
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from hermes.domain.errors import ConfigError


def entry_points(group: str) -> Mapping[str, str]:
    """Return a group: name -> `module:attribute`, by name; the first on the path wins."""
    found: dict[str, str] = {}
    for folder in map(Path, sys.path):
        # A package that comes or goes changes the folder.
        with contextlib.suppress(OSError):
            for name, target in _installed(folder, folder.stat().st_mtime_ns).get(group, ()):
                found.setdefault(name, target)
    return dict(sorted(found.items()))


def load_entry_point(target: str) -> Any:
    """Import what an entry point leads to: an attribute, or a module as a whole."""
    name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(name)
        return getattr(module, attribute) if attribute else module
    except Exception as error:  # the boundary of a plugin: its code runs while it is imported
        raise ConfigError(
            f"The entry point `{target}` cannot be loaded: {error}.",
            hint="Repair or remove the installed package that declares it.",
        ) from error


@lru_cache(maxsize=64)
def _installed(folder: Path, _changed: int) -> dict[str, list[tuple[str, str]]]:
    """Return what the packages in a folder declare, by group."""
    found: dict[str, list[tuple[str, str]]] = {}
    for file in folder.glob("*.*-info/entry_points.txt"):
        section = ""
        for line in file.read_text(encoding="utf-8").splitlines():
            text = line.strip()
            if text.startswith("["):
                section = text.strip("[] ")
            elif "=" in text and not text.startswith(("#", ";")):
                name, _, target = text.partition("=")
                found.setdefault(section, []).append((name.strip(), target.strip()))
    return found
