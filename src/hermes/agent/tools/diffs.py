"""Unified diffs for people, cheap even for large files.

What is equal at both ends is skipped before comparing; a middle that is too
large to compare line by line is shown as replaced.
"""

import difflib

__all__ = ["count_changes", "unified_diff"]

_MAX_COMPARED = 1500
_MAX_CHARS = 60_000
_CONTEXT = 3


def unified_diff(path: str, before: str | None, after: str | None) -> str:
    """Return how `path` changed; None stands for "no such file"."""
    old, new = (before or "").splitlines(), (after or "").splitlines()
    head, tail = _common(old, new)
    start = max(0, head - _CONTEXT)
    stop = max(0, tail - _CONTEXT)
    old_part, new_part = old[start : len(old) - stop], new[start : len(new) - stop]
    if old_part == new_part:
        return ""
    if len(old_part) + len(new_part) > _MAX_COMPARED:
        hunks = [
            f"@@ -{start + 1},{len(old_part)} +{start + 1},{len(new_part)} @@",
            *(f"-{line}" for line in old_part),
            *(f"+{line}" for line in new_part),
        ]
    else:
        compared = difflib.unified_diff(
            [""] * start + old_part, [""] * start + new_part, lineterm="", n=_CONTEXT
        )
        hunks = list(compared)[2:]
    name = path.removeprefix("/")
    text = "\n".join(
        [
            f"--- {'/dev/null' if before is None else f'a/{name}'}",
            f"+++ {'/dev/null' if after is None else f'b/{name}'}",
            *hunks,
        ]
    )
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}\n[diff cut]"


def count_changes(diff: str) -> tuple[int, int]:
    """Return how many lines `diff` adds and removes."""
    lines = diff.splitlines()[2:]
    return sum(line[:1] == "+" for line in lines), sum(line[:1] == "-" for line in lines)


def _common(old: list[str], new: list[str]) -> tuple[int, int]:
    """Return how many lines are equal at the start and at the end."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail
