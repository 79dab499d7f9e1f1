"""`python -m bench`: runs a bench in its own process, judges, saves and draws."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_a_quick_run_prints_a_table_with_a_verdict(tmp_path: Path) -> None:
    done = bench("--quick", "--only", "model_calls")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "nobody asked for" in line)
    assert line.split()[-1] == "stretch"
    assert "saved" not in done.stdout


def test_a_result_says_where_it_was_measured_and_nothing_that_identifies_the_machine(
    tmp_path: Path,
) -> None:
    done = bench("--quick", "--only", "model_calls", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    text = path.read_text(encoding="utf-8")
    result = json.loads(text)
    assert set(result["machine"]) == {
        "cpu", "cores", "memory_gb", "kernel", "python", "sqlite", "load",
    }  # fmt: skip
    assert {figure["key"] for figure in result["figures"]} == {"prompt_tokens", "unasked_calls"}
    assert os.uname().nodename not in json.dumps(result["machine"])
    assert str(ROOT) not in text


def test_the_history_has_a_panel_for_each_figure_and_a_point_for_each_commit(
    tmp_path: Path,
) -> None:
    machine = {"cpu": "c", "cores": 2, "memory_gb": 1, "kernel": "k", "python": "3", "sqlite": "3"}
    for day, value in ((1, 2000), (2, 1800)):
        figures = [{"key": "prompt_tokens", "measured": value}]
        document = {
            "date": f"2020-01-0{day}",
            "commit": f"old{day}",
            "machine": machine,
            "figures": figures,
        }
        path = tmp_path / f"2020-01-0{day}-old{day}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
    assert bench("--quick", "--only", "model_calls", "--results", str(tmp_path)).returncode == 0
    picture = ET.parse(tmp_path / "history.svg")
    panels = [group for group in picture.iter() if group.tag.endswith("}g")]
    circles = [sum(item.tag.endswith("circle") for item in panel) for panel in panels]
    assert circles == [3, 1]


def test_a_bench_that_breaks_ends_with_an_error_and_reports_no_figures() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.one", "no_such_bench", "."],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == ""
