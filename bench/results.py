"""Saved results: one JSON file per day and commit, and the table of one of them."""

import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.budgets import BUDGETS, judge
from bench.harness import Figure
from bench.machine import Machine

__all__ = ["Result", "commit", "load_all", "merged", "save", "table"]

COLUMNS = ("what", "measured", "baseline", "ratio", "budget", "stretch", "verdict")


class Result(Struct, frozen=True, kw_only=True):
    """One run."""

    date: str
    commit: str
    machine: Machine
    figures: tuple[Figure, ...]


def commit(root: Path) -> str:
    """Return the commit in short form, with `-dirty` if the tree differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def merged(old: Result, new: Result) -> Result:
    """Return `new` with the figures that only `old` has."""
    fresh = {figure.key for figure in new.figures}
    kept = [figure for figure in old.figures if figure.key not in fresh]
    order = list(BUDGETS)
    figures = sorted((*kept, *new.figures), key=lambda figure: order.index(figure.key))
    return msgspec.structs.replace(new, figures=tuple(figures))


def save(folder: Path, result: Result) -> Path:
    """Write `result`; a further run of the same day and commit adds to its file."""
    path = folder / f"{result.date}-{result.commit}.json"
    if path.exists():
        result = merged(_read(path), result)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    return path


def load_all(folder: Path) -> list[Result]:
    """Return all saved results, oldest first."""
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.name[:10], path.stat().st_mtime))
    return [_read(path) for path in paths]


def today() -> str:
    """Return the date that results are filed under."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as a table for people."""
    rows = [COLUMNS, *map(_row, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [_line(row, widths) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _line(row: Sequence[str], widths: list[int]) -> str:
    first, *middle, last = zip(row, widths, strict=True)
    cells = [f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in middle), last[0]]
    return "  ".join(cells)


def _row(figure: Figure) -> tuple[str, ...]:
    budget = BUDGETS[figure.key]
    ratio = figure.measured / figure.baseline if figure.baseline else None
    return (
        budget.what,
        f"{_number(figure.measured)} {budget.unit}".strip(),
        _number(figure.baseline),
        "" if ratio is None else f"{_number(ratio)}x",
        _number(budget.limit),
        _number(budget.stretch),
        f"{judge(figure).value}{'  ' + figure.note if figure.note else ''}",
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _read(path: Path) -> Result:
    return msgspec.json.decode(path.read_bytes(), type=Result)
