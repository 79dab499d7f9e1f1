"""`python -m bench`: run the benches, print the table, save the result, draw the history.

Each bench runs in a process of its own, so that none measures another's memory.
"""

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.budgets import Verdict, judge
from bench.harness import Figure
from bench.machine import describe
from bench.plot import draw
from bench.results import Result, commit, load_all, save, table, today

__all__: list[str] = []

BENCHES = (
    "cold_start",
    "gateway",
    "http_door",
    "first_token",
    "tool_loop",
    "many_sessions",
    "growth",
    "memory",
    "agents",
    "model_calls",
    "ledger",
)
ROOT = Path(__file__).resolve().parent.parent
PATHS = (str(ROOT / "src"), str(ROOT), str(ROOT / "tests"))
LONGEST = 1800
"""Seconds after which a bench counts as broken."""
RESULTS = ROOT / "bench" / "results"


def main() -> int:
    """Run what the command line asks for; 1 if a bench broke or, with --strict, missed."""
    options = _options()
    # A first turn is not to include the compiler, wherever PYTHONDONTWRITEBYTECODE is set.
    compileall.compile_dir(ROOT / "src", quiet=2)
    machine = describe()
    figures: list[Figure] = []
    broken: list[str] = []
    for name in options.only or BENCHES:
        print(f"· {name}", file=sys.stderr, flush=True)
        found = _run(name, quick=options.quick)
        figures += found or []
        if found is None:
            broken.append(name)
    print(table(figures))
    print(f"\n{machine.cpu}, {machine.cores} cores, load {machine.load} at the start")
    folder = options.results or (None if options.quick else RESULTS)
    if folder is not None and figures:
        result = Result(date=today(), commit=commit(ROOT), machine=machine, figures=tuple(figures))
        print(f"saved as {save(folder, result).name}")
        draw(load_all(folder), folder / "history.svg")
    missed = any(judge(figure) is Verdict.MISSED for figure in figures)
    return 1 if broken or (options.strict and missed) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure Hermes.")
    parser.add_argument("--quick", action="store_true", help="few samples; not saved")
    parser.add_argument("--only", action="append", choices=BENCHES, help="this bench; repeatable")
    parser.add_argument("--results", type=Path, help="save here (also with --quick)")
    parser.add_argument("--strict", action="store_true", help="fail if a budget is missed")
    return parser.parse_args()


def _run(name: str, *, quick: bool) -> list[Figure] | None:
    """Run one bench; None if it broke."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        try:
            done = _child(name, folder, quick=quick)
        except subprocess.TimeoutExpired:
            return None
    if done.returncode != 0:
        return None
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[Figure])


def _child(name: str, folder: str, *, quick: bool) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "bench.one", name, folder, *(["quick"] if quick else [])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)},
        stdout=subprocess.PIPE,
        timeout=LONGEST,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
