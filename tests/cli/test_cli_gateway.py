"""`hermes gateway`, with real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fakes.hermes_cli import hermes
from hermes.control.supervision.instance import running_gateway

TESTS = Path(__file__).parents[1]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    yield home
    left = running_gateway(home)
    if left is not None and left.pid:
        with suppress(ProcessLookupError):
            os.kill(left.pid, signal.SIGKILL)


@contextmanager
def holder(home: Path, manner: str = "polite") -> Iterator[subprocess.Popen[str]]:
    """Run a process that is the gateway of `home`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fakes.gateway_holder", str(home), manner],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def write_state(home: Path, pid: int, age: float = 0.0, state: str = "running") -> None:
    at = datetime.fromtimestamp(time.time() - age, UTC).isoformat()
    facts = {
        "pid": pid,
        "gateway_state": state,
        "start_time": time.time() - 7200,
        "active_agents": 2,
        "updated_at": at,
        "exit_reason": "SIGTERM",
        "platforms": {
            "telegram": {"state": "connected", "account": "bot-1", "last_alive_at": at},
            "discord": {"state": "fatal", "error_message": "The token is wrong."},
        },
        "warnings": ["The configuration on disk does not load."],
    }
    (home / "gateway_state.json").write_text(json.dumps(facts))


def test_nothing_runs_in_a_fresh_home(home: Path) -> None:
    status = hermes(home, "gateway", "status")
    assert status.returncode == 3
    assert status.stdout == "Gateway: not running\n"
    assert "No gateway is running" in hermes(home, "gateway", "stop").stdout
    assert hermes(home, "gateway", "list").stdout == "default\tnot running\n"
    assert not home.exists()


def test_status_shows_adapters_errors_and_warnings(home: Path) -> None:
    with holder(home) as process:
        write_state(home, process.pid)
        done = hermes(home, "gateway", "status")
        assert done.returncode == 0
        assert f"Gateway: running (process {process.pid})" in done.stdout
        assert "telegram: connected, as bot-1, alive" in done.stdout
        assert "discord: fatal\n    The token is wrong." in done.stdout
        assert "Warning: The configuration on disk does not load." in done.stdout
        facts = json.loads(hermes(home, "gateway", "status", "--json").stdout)
        assert facts["running"]
        assert facts["responding"]
        assert facts["platforms"]["discord"]["state"] == "fatal"
        assert "default\trunning" in hermes(home, "gateway", "list").stdout


def test_a_gateway_that_looks_healthy_but_does_not_turn_is_called_out(home: Path) -> None:
    with holder(home) as process:
        write_state(home, process.pid, age=600)
        done = hermes(home, "gateway", "status")
        assert "does not respond" in done.stdout
        assert "It last reported 10 min ago" in done.stdout
        facts = json.loads(hermes(home, "gateway", "status", "--json").stdout)
        assert facts["responding"] is False


def test_the_state_of_an_earlier_process_is_not_taken_for_this_ones(home: Path) -> None:
    with holder(home) as process:
        write_state(home, process.pid + 1)
        assert "telegram" not in hermes(home, "gateway", "status").stdout


def test_after_a_crash_the_file_does_not_claim_that_it_runs(home: Path) -> None:
    with holder(home) as process:
        write_state(home, process.pid)
        process.kill()
        process.wait()
        done = hermes(home, "gateway", "status")
    assert done.returncode == 3
    assert "Gateway: not running" in done.stdout
    assert "connected" not in done.stdout


def test_stop_asks_waits_and_kills_only_when_told_to(home: Path) -> None:
    with holder(home) as polite:
        done = hermes(home, "gateway", "stop")
        assert "has stopped" in done.stdout
        assert polite.wait(10) == 0
    with holder(home, "stubborn") as stubborn:
        refused = hermes(home, "gateway", "stop", "--timeout", "0.2")
        assert refused.returncode == 5
        assert "--force" in refused.stderr
        assert stubborn.poll() is None
        assert hermes(home, "gateway", "stop", "--timeout", "0.2", "--force").returncode == 0
        assert stubborn.wait(10) == -signal.SIGKILL


def test_gateways_of_profiles_are_listed(home: Path) -> None:
    work = home / "profiles" / "work"
    work.mkdir(parents=True)
    with holder(work):
        lines = hermes(home, "gateway", "list").stdout.splitlines()
    assert lines[0] == "default\tnot running"
    assert lines[1].startswith("work\tstarting (process ")


def test_start_is_refused_while_one_runs(home: Path) -> None:
    with holder(home) as process:
        done = hermes(home, "gateway", "start")
    assert done.returncode == 5
    assert f"process {process.pid}" in done.stderr


def test_a_gateway_without_a_platform_ends_with_78(home: Path) -> None:
    done = hermes(home, "gateway", "run")
    assert done.returncode == 78, done.stdout + done.stderr
    assert "platform" in done.stderr


def test_a_configuration_with_mistakes_ends_with_78(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("agent: {max_turns: many}\n")
    done = hermes(home, "gateway", "run")
    assert done.returncode == 78
    assert "agent.max_turns" in done.stderr


def test_a_start_in_the_background_that_fails_says_why(home: Path) -> None:
    done = hermes(home, "gateway", "start")
    assert done.returncode == 78
    assert "platform" in done.stderr
    assert (home / "logs" / "gateway.log").stat().st_mode & 0o077 == 0


def test_restart_lets_the_old_one_finish_and_starts_a_new_one(home: Path) -> None:
    home.mkdir()
    key = "a-key-that-is-long-enough-1234"
    config = f"platforms: {{api_server: {{enabled: true, extra: {{key: {key}, port: 0}}}}}}\n"
    (home / "config.yaml").write_text(config)
    with holder(home) as old:
        done = hermes(home, "gateway", "restart")
        assert old.wait(10) == 75
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        assert hermes(home, "gateway", "status").returncode == 0
    finally:
        assert hermes(home, "gateway", "stop").returncode == 0


def test_restart_with_a_configuration_that_cannot_work_keeps_the_old_one(home: Path) -> None:
    with holder(home) as old:
        done = hermes(home, "gateway", "restart")
        assert done.returncode == 78
        assert "platform" in done.stderr
        assert old.poll() is None


def test_a_second_run_is_refused_and_names_the_first(home: Path) -> None:
    home.mkdir()
    config = "platforms: {telegram: {enabled: true, token: '1:x'}}\nmodel: {default: m}\n"
    (home / "config.yaml").write_text(config)
    with holder(home) as process:
        done = hermes(home, "gateway", "run")
        assert done.returncode == 5, done.stderr
        assert f"process {process.pid}" in done.stderr
        assert "--replace" in done.stderr
