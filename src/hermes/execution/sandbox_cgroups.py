"""Limits for all processes of a sandbox together, where cgroups can be written.

Needed above all when Hermes runs as root, whom process limits do not bind. A
group is called after the process that made it, so that a later one can clear
away what a killed one left. Where no group can be made there are none, and
the limits of each single process remain.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

__all__ = ["Cgroup", "make_cgroup"]

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "hermes-sandbox"


class Cgroup(Struct, frozen=True, kw_only=True):
    """Groups, one for each controller, that limit one sandbox."""

    directories: tuple[Path, ...]

    @property
    def join(self) -> str:
        """Shell text that moves the running shell into the groups."""
        return "".join(
            f"echo $$ >{directory}/cgroup.procs || exit 125; " for directory in self.directories
        )

    def remove(self) -> None:
        """Give the groups back; their processes must have ended."""
        for directory in self.directories:
            with contextlib.suppress(OSError):
                directory.rmdir()


def make_cgroup(max_processes: int, max_memory: int) -> Cgroup | None:
    """Make a group; None where that is not possible."""
    made: list[Path] = []
    for controller, settings in (
        ("pids", {"pids.max": max_processes}),
        ("memory", {"memory.max": max_memory, "memory.limit_in_bytes": max_memory}),
    ):
        if any((directory / next(iter(settings))).exists() for directory in made):
            _apply(made[0], settings)  # one hierarchy for all
            continue
        for parent in _parents(controller):
            directory = _make(parent, settings)
            if directory is not None:
                made.append(directory)
                break
    return Cgroup(directories=tuple(made)) if made else None


def _make(parent: Path, settings: dict[str, int]) -> Path | None:
    _sweep(parent)
    directory = parent / f"{_PREFIX}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir()
    except OSError:
        return None
    if not _apply(directory, settings):
        directory.rmdir()
        return None
    return directory


def _apply(directory: Path, settings: dict[str, int]) -> bool:
    done = False
    for name, value in settings.items():
        with contextlib.suppress(OSError):
            if (directory / name).exists():
                (directory / name).write_text(str(value), encoding="ascii")
                done = True
    return done


def _parents(controller: str) -> Iterator[Path]:
    """Name the groups below which ours may be made, nearest first."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, own = line.split(":", 2)
        if controller in controllers.split(","):
            yield _ROOT / controllers / own.lstrip("/")
            return
    unified = next((path for path in (_ROOT / "unified", _ROOT) if _is_unified(path)), None)
    if unified is None:
        return
    own = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("0::")[2].strip()
    # A group with processes of its own gives controllers to no child: try the one above.
    for path in (own, os.path.dirname(own), "/"):  # noqa: PTH120 - text
        yield unified / path.lstrip("/")


def _is_unified(path: Path) -> bool:
    return (path / "cgroup.controllers").exists()


def _sweep(parent: Path) -> None:
    """Remove what processes that are gone have left."""
    with contextlib.suppress(OSError):
        for directory in parent.glob(f"{_PREFIX}-*"):
            owner = directory.name.removeprefix(f"{_PREFIX}-").partition("-")[0]
            if not Path(f"/proc/{owner}").exists():
                with contextlib.suppress(OSError):
                    directory.rmdir()
