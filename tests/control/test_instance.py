"""One gateway per home and per bot, with real processes."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes.control.supervision.instance import (
    credential_locks_dir,
    end_gateway,
    hold_credential,
    hold_home,
    is_supervised,
    running_gateway,
    starts_too_often,
)
from hermes.domain.errors import ConfigError, Conflict
from hermes.execution.clock import SystemClock

TESTS = Path(__file__).parents[1]
CLOCK = SystemClock()


@asynccontextmanager
async def holder(root: Path, manner: str = "polite") -> AsyncIterator[asyncio.subprocess.Process]:
    """Run another process that is the gateway of `root`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fakes.gateway_holder", str(root), manner),
        cwd=TESTS,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def test_a_home_has_one_gateway_at_a_time(tmp_path: Path) -> None:
    assert running_gateway(tmp_path) is None
    with hold_home(tmp_path, ["hermes", "gateway", "run"], supervised=True):
        found = running_gateway(tmp_path)
        assert found is not None
        assert found.argv == ("hermes", "gateway", "run")
        assert found.supervised
        with pytest.raises(Conflict, match="already running") as refused:
            hold_home(tmp_path).__enter__()
        assert "--replace" in refused.value.hint
    assert running_gateway(tmp_path) is None
    assert not (tmp_path / "gateway.pid").exists()
    with hold_home(tmp_path):
        pass


async def test_another_process_is_seen_and_its_death_frees_the_home(tmp_path: Path) -> None:
    async with holder(tmp_path) as process:
        found = running_gateway(tmp_path)
        assert found is not None
        assert found.pid == process.pid
        with pytest.raises(Conflict, match=f"process {process.pid}"):
            hold_home(tmp_path).__enter__()
        process.kill()
        await process.wait()
        assert running_gateway(tmp_path) is None, "the file of the dead one does not count"
        with hold_home(tmp_path):
            pass


async def test_a_gateway_is_asked_to_end(tmp_path: Path) -> None:
    async with holder(tmp_path) as process:
        assert await end_gateway(tmp_path, CLOCK, patience=10)
        assert await process.wait() == 0
    assert not await end_gateway(tmp_path, CLOCK)


async def test_a_gateway_that_does_not_listen_is_killed_if_that_is_wanted(tmp_path: Path) -> None:
    async with holder(tmp_path, "stubborn") as process:
        with pytest.raises(Conflict, match="did not stop"):
            await end_gateway(tmp_path, CLOCK, patience=0.2, force=False)
        assert process.returncode is None
        assert await end_gateway(tmp_path, CLOCK, patience=0.2)
        assert await process.wait() == -9


def test_a_pid_that_now_means_another_process_is_not_believed(tmp_path: Path) -> None:
    with hold_home(tmp_path):
        (tmp_path / "gateway.pid").write_text('{"pid": 1, "start_time": 12345678}')
        found = running_gateway(tmp_path)
        assert found is not None
        assert found.pid == 0


def test_one_bot_is_used_by_one_home_and_its_secret_is_not_written(tmp_path: Path) -> None:
    locks = credential_locks_dir({"XDG_STATE_HOME": str(tmp_path)})
    with hold_credential(locks, "telegram", "123:secret", tmp_path / "one"):
        with (
            pytest.raises(Conflict, match="same telegram account") as refused,
            hold_credential(locks, "telegram", "123:secret", tmp_path / "two"),
        ):
            pass
        assert str(tmp_path / "one") in refused.value.message
        with hold_credential(locks, "telegram", "456:other", tmp_path / "two"):
            pass
        for path in locks.iterdir():
            assert "secret" not in path.name + path.read_text(encoding="utf-8")
    with hold_credential(locks, "telegram", "123:secret", tmp_path / "two"):
        pass


def test_accounts_that_share_one_of_their_credentials_exclude_each_other(tmp_path: Path) -> None:
    home, other = tmp_path / "profiles" / "work", tmp_path / "other"
    with hold_credential(tmp_path, "slack", "xoxb-1\nxapp-1", home, "slack:team"):
        for secrets in ("xoxb-2\nxapp-1", "xoxb-1\nxapp-2"):
            with (
                pytest.raises(Conflict) as refused,
                hold_credential(tmp_path, "slack", secrets, other),
            ):
                pass
            assert f"process {os.getpid()}, home {home}, profile work" in refused.value.message
            assert "slack:team" in refused.value.message
        with hold_credential(tmp_path, "slack", "xoxb-2\nxapp-2", other):
            pass
    with hold_credential(tmp_path, "slack", "xoxb-2\nxapp-1", other):
        pass
    # Two that have none yet do not exclude each other: each is told what it lacks.
    with (
        hold_credential(tmp_path, "slack", "", home),
        hold_credential(tmp_path, "slack", "", other),
    ):
        pass


def test_locks_are_below_the_users_state_directory(tmp_path: Path) -> None:
    assert credential_locks_dir({"HOME": "/home/x"}) == Path(
        "/home/x/.local/state/hermes/gateway-locks"
    )


def test_a_home_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be opened"):
        hold_home(tmp_path / "file").__enter__()


def test_the_fourth_start_within_a_minute_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "gateway" / "restart_loop.json"

    def start(now: float) -> bool:
        return starts_too_often(path, now)

    assert [start(now) for now in (0, 10, 20, 30)] == [False, False, False, True]
    assert not start(85), "only 30 and 85 are within the last minute"
    path.write_text("{broken")
    assert not start(86)


def test_who_is_supervised_is_told_by_the_supervisor() -> None:
    assert not is_supervised({"INVOCATION_ID": "inherited by every terminal"})
    assert not is_supervised({"SYSTEMD_EXEC_PID": "1"})
    assert is_supervised({"SYSTEMD_EXEC_PID": str(os.getpid())})
    assert is_supervised({"HERMES_SUPERVISED": "1"})
