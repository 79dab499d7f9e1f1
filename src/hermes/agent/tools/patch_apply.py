"""Applies parsed changes to text, without touching files."""

from hermes.agent.tools.fuzzy import find_lines, nearest_line, reindent
from hermes.agent.tools.patch_parse import FileChange, Hunk
from hermes.domain.errors import UsageError

__all__ = ["added_text", "apply_hunks"]


def added_text(change: FileChange) -> str:
    """Return the content of an added file."""
    lines = [text for hunk in change.hunks for _, text in hunk.lines]
    return "\n".join(lines) + "\n" if lines else ""


def apply_hunks(path: str, text: str, hunks: list[Hunk]) -> str:
    """Return `text` with all hunks applied, in order; `UsageError` if one has no clear place."""
    closed = text.endswith("\n") or not text
    lines = text.split("\n")
    if closed:
        lines.pop()
    cursor = 0
    for number, hunk in enumerate(hunks, 1):
        label = f"hunk {number} of {path}"
        start, clear = _after_anchors(lines, hunk, cursor, label)
        old = hunk.old
        at = _place(lines, hunk, start, label, clear=clear)
        new = _replacement(hunk, lines[at : at + len(old)])
        lines[at : at + len(old)] = new
        cursor = at + len(new)
    return "\n".join(lines) + ("\n" if closed and lines else "")


def _after_anchors(lines: list[str], hunk: Hunk, cursor: int, label: str) -> tuple[int, bool]:
    """Return where to look, and whether the anchors name one place only."""
    start, clear = cursor, False
    for number, anchor in enumerate(hunk.anchors):
        _, hits = find_lines(lines, [anchor], start)
        if not hits:
            hits = [i for i in range(start, len(lines)) if anchor in lines[i]]
        if not hits:
            raise UsageError(f"{label}: there is no line `{anchor}`{_near(lines, anchor)}.")
        start = hits[0] + 1
        if number == 0:
            clear = len(hits) == 1
    # The anchor may itself be the first kept line of the hunk.
    if hunk.anchors and hunk.old and hunk.old[0].strip() == hunk.anchors[-1].strip():
        start -= 1
    return start, clear


def _place(lines: list[str], hunk: Hunk, start: int, label: str, *, clear: bool) -> int:
    old = hunk.old
    if not old:
        return start if hunk.anchors and not hunk.at_end else len(lines)
    hits = _hits(lines, old, start)
    if not hits and not hunk.anchors:
        hits = _hits(lines, old, 0)  # hunks in another order than the file's
    if hunk.at_end:
        hits = [hit for hit in hits if hit + len(old) == len(lines)]
    if not hits:
        raise UsageError(
            f"{label}: the kept and removed lines are not in the file as given"
            f"{_near(lines, next((o for o in old if o.strip()), ''))}.",
            hint="Read the file again and quote it exactly.",
        )
    if len(hits) > 1 and not clear:
        places = ", ".join(str(hit + 1) for hit in hits[:8])
        raise UsageError(
            f"{label} fits in {len(hits)} places (lines {places}).",
            hint="Add kept lines around it, or name the place with @@.",
        )
    return hits[0]


def _hits(lines: list[str], old: list[str], start: int) -> list[int]:
    count = len(old)
    exact = [i for i in range(start, len(lines) - count + 1) if lines[i : i + count] == old]
    return exact or find_lines(lines, old, start)[1]


def _replacement(hunk: Hunk, matched: list[str]) -> list[str]:
    """Return the new lines: kept ones as the file has them, added ones shifted to fit."""
    added = iter(reindent([t for m, t in hunk.lines if m == "+"], hunk.old, matched))
    kept = iter(matched)
    result: list[str] = []
    for mark, _ in hunk.lines:
        if mark == "+":
            result.append(next(added))
            continue
        line = next(kept)
        if mark == " ":
            result.append(line)
    return result


def _near(lines: list[str], wanted: str) -> str:
    near = nearest_line("\n".join(lines), wanted)
    return f" (nearest: line {near[0]}: `{near[1].strip()[:120]}`)" if near else ""
