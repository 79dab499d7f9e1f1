"""Project notes: the one file in the working tree that speaks to agents.

The first of these wins: `.hermes.md` or `HERMES.md` (looked for upwards to
the repository's root), then `AGENTS.md`, `CLAUDE.md` and `.cursorrules` in
the working directory. Read through the environment, so a sandboxed agent
sees the sandbox's files.
"""

from pathlib import PurePosixPath

from msgspec import Struct

from hermes.domain.ports.execution import Environment

__all__ = ["ContextFile", "find_context_file"]

UPWARD_NAMES = (".hermes.md", "HERMES.md")
LOCAL_NAMES = ("AGENTS.md", "CLAUDE.md", ".cursorrules")
MAX_LEVELS = 24


class ContextFile(Struct, frozen=True):
    """A project file and its (possibly shortened) text."""

    name: str
    text: str


async def find_context_file(environment: Environment, max_chars: int) -> ContextFile | None:
    """Return the project notes for the environment's working directory."""
    here = PurePosixPath(environment.cwd)
    chain = [here, *here.parents][:MAX_LEVELS]
    upward = [directory / name for directory in chain for name in (".git", *UPWARD_NAMES)]
    local = [here / name for name in LOCAL_NAMES]
    there = await environment.present([str(path) for path in (*upward, *local)])
    if not there:
        return None
    places = [d / name for d in _up_to_repository_root(chain, there) for name in UPWARD_NAMES]
    for path in (*places, *local):
        found = await _read(environment, path, max_chars) if str(path) in there else None
        if found:
            return found
    return None


def _up_to_repository_root(
    chain: list[PurePosixPath], there: frozenset[str]
) -> list[PurePosixPath]:
    """Return the directories up to the repository root; only the first one outside one."""
    for depth, directory in enumerate(chain):
        if str(directory / ".git") in there:
            return chain[: depth + 1]
    return chain[:1]


async def _read(
    environment: Environment, path: PurePosixPath, max_chars: int
) -> ContextFile | None:
    stat = await environment.stat(str(path))
    if stat is None or not stat.is_file:
        return None
    data = await environment.read(str(path), limit=max_chars * 4 + 4)
    return ContextFile(path.name, shorten(data.decode("utf-8", "replace"), max_chars))


def shorten(text: str, max_chars: int) -> str:
    """Keep the first 70 % and the last 20 % of a text that is too long."""
    if len(text) <= max_chars:
        return text
    head, tail = int(max_chars * 0.7), int(max_chars * 0.2)
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"
