import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.package import install
from fakes.toolbox import PATH
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError
from hermes.domain.ports.execution import ShellRun
from hermes.domain.settings.execution import Terminal
from hermes.execution.backend import EnvironmentSettings, child_environment
from hermes.execution.pool import EnvironmentPool, sweep_leftovers
from hermes.testing import FakeClock


def pool_in(
    directory: Path, clock: FakeClock, backend: str = "local", **terminal: Any
) -> EnvironmentPool:
    made = EnvironmentSettings(
        home=HermesHome(root=directory / "hermes"),
        backend=backend,
        default_cwd=str(directory),
        base_env={"PATH": PATH, "OPENAI_API_KEY": "sk-1", "MY_SECRET_NAME": "s", "KEPT_TOKEN": "t"},
        secret_names=frozenset({"MY_SECRET_NAME"}),
        terminal=Terminal(env_passthrough=("KEPT_TOKEN",), **terminal),
    )
    return EnvironmentPool(lambda agent_id: made, clock)


async def test_sessions_never_share_an_environment(tmp_path: Path) -> None:
    pool = pool_in(tmp_path, FakeClock())
    one = await pool.get("main", "s1", None)
    assert await pool.get("main", "s1", "/usr") is one
    two = await pool.get("main", "s2", "/usr")
    other_agent = await pool.get("coder", "s1", None)
    assert len({id(one), id(two), id(other_agent)}) == 3
    await one.run(ShellRun(script="export A=1; cd /"))
    started = await one.spawn(ShellRun(script="sleep 60"))
    assert (await two.run(ShellRun(script="echo ${A-none} $PWD"))).output == "none /usr\n"
    assert await two.processes() == []
    await pool.close()
    assert not (await one.processes()), started


async def test_two_calls_at_once_get_the_same_environment(tmp_path: Path) -> None:
    pool = pool_in(tmp_path, FakeClock())
    one, two = await asyncio.gather(pool.get("main", "s", None), pool.get("main", "s", None))
    assert one is two


async def test_a_session_that_comes_back_while_it_is_closed_gets_a_working_environment(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    pool = pool_in(tmp_path, clock)
    env = await pool.get("main", "s", None)
    await env.run(ShellRun(script="cd /usr"))
    clock.advance(1000)
    _, again = await asyncio.gather(pool.reap(), pool.get("main", "s", None))
    assert len(pool) == 1
    assert (await again.run(ShellRun(script="pwd"))).output == "/usr\n"
    await pool.close()
    assert len(pool) == 0


async def test_secrets_do_not_reach_commands(tmp_path: Path) -> None:
    pool = pool_in(tmp_path, FakeClock())
    env = await pool.get("main", "s", None)
    for _ in range(2):  # the second command gets its variables from the snapshot
        output = (await env.run(ShellRun(script="env"))).output
        assert "sk-1" not in output
        assert "MY_SECRET_NAME" not in output
        assert "KEPT_TOKEN=t" in output
    await pool.close()


async def test_idle_environments_are_closed_and_the_directory_is_remembered(tmp_path: Path) -> None:
    clock = FakeClock()
    pool = pool_in(tmp_path, clock, lifetime_seconds=300.0)
    env = await pool.get("main", "s", None)
    await env.run(ShellRun(script="cd /usr"))
    clock.advance(299)
    assert await pool.reap() == 0
    clock.advance(1)
    assert await pool.reap() == 1
    assert len(pool) == 0
    assert await pool.get("main", "s", None) is env, "somebody still holds it"
    clock.advance(300)
    await pool.reap()
    del env
    gc.collect()
    assert (await pool.get("main", "s", "/tmp")).cwd == "/usr"
    await pool.release("s")
    assert (await pool.get("main", "s", None)).cwd == str(tmp_path)
    await pool.close()


async def test_an_environment_in_which_something_runs_is_not_idle(tmp_path: Path) -> None:
    clock = FakeClock()
    pool = pool_in(tmp_path, clock)
    env = await pool.get("main", "s", None)
    started = await env.spawn(ShellRun(script="sleep 60"))
    clock.advance(10_000)
    assert await pool.reap() == 0
    await env.kill(started.id)
    clock.advance(10_000)
    assert await pool.reap() == 1
    await pool.close()


async def test_the_reaper_runs_on_the_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    pool = pool_in(tmp_path, clock)
    await pool.get("main", "s", None)
    task = asyncio.ensure_future(pool.keep_reaping(every=30))
    async with asyncio.timeout(10):
        await clock.until_sleeping()
        clock.advance(301)
        await clock.until_sleeping()
    assert len(pool) == 0
    task.cancel()


async def test_notices_carry_the_session_they_belong_to(tmp_path: Path) -> None:
    pool = pool_in(tmp_path, FakeClock())
    env = await pool.get("coder", "s9", None)
    started = await env.spawn(ShellRun(script="echo hi", notify_on_complete=True))
    async with asyncio.timeout(10):
        notice = await pool.next_notice()
    assert (notice.agent_id, notice.session_id, notice.process_id) == ("coder", "s9", started.id)
    await pool.close()


BACKEND_OF_SOMEBODY_ELSE = """
from msgspec import Struct
from hermes.execution.backend import Backend
from hermes.execution.backends.local import LocalEnvironment

class Options(Struct):
    greeting: str = "hello"

async def open_environment(request):
    env = {**request.env, "GREETING": request.options(Options).greeting}
    return LocalEnvironment(cwd=request.cwd, env=env, clock=request.clock)

BACKEND = Backend(open=open_environment)
"""


async def test_a_backend_of_another_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = "[other]\nx = y:z\n[hermes.backends]\nelsewhere = somebody_else:BACKEND\n"
    install(tmp_path, "somebody_else", BACKEND_OF_SOMEBODY_ELSE, points)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "somebody_else", raising=False)
    pool = pool_in(tmp_path, FakeClock(), backend="elsewhere", backend_options={"greeting": "moin"})
    env = await pool.get("main", "s", None)
    assert (await env.run(ShellRun(script="echo $GREETING"))).output == "moin\n"
    await pool.close()


async def test_an_unknown_backend_is_a_config_error_that_lists_the_known(tmp_path: Path) -> None:
    pool = pool_in(tmp_path, FakeClock(), backend="dockr")
    with pytest.raises(ConfigError, match="dockr") as caught:
        await pool.get("main", "s", None)
    assert "local" in caught.value.hint
    assert len(pool) == 0


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("PATH", True),
        ("EDITOR", True),
        ("LC_TIME", True),
        ("VIRTUAL_ENV", True),
        ("https_proxy", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("OPENAI_API_KEY", False),
        ("OPENROUTER_API_KEY_2", False),
        ("DB_PASS", False),
        ("SECRET_KEY_BASE", False),
        ("REDIS_URL", False),
        ("github_token", False),
        ("AWS_SECRET_ACCESS_KEY", False),
        ("NAMED", False),
    ],
)
def test_only_ordinary_and_named_variables_reach_commands(name: str, passed: bool) -> None:
    assert (name in child_environment({name: "v"}, {"NAMED"})) is passed
    assert child_environment({name: "v"}, {"NAMED"}, {name}) == {name: "v"}
    assert child_environment({name: "v"}, {"NAMED"}, {f"{name[:3]}*"}) == {name: "v"}


def test_an_ordinary_variable_with_a_password_in_it_stays_here() -> None:
    kept = {"HTTP_PROXY": "http://proxy:3128", "CFLAGS": "-DMAX_TOKENS=128000"}
    given = {"HTTPS_PROXY": "http://me:pass@proxy:3128", "MAVEN_OPTS": "-Xmx1g -Drepo.token=abc123"}
    assert child_environment({**kept, **given}) == kept


async def test_the_pool_knows_how_long_background_work_has_run(tmp_path: Path) -> None:
    clock = FakeClock()
    pool = pool_in(tmp_path, clock)
    try:
        environment = await pool.get("main", "s1", None)
        assert pool.background_age("s1") is None
        started = await environment.spawn(ShellRun(script="sleep 300"))
        clock.advance(60)
        assert pool.background_age("s1") == 60
        assert pool.background_age("s2") is None
        await environment.kill(started.id)
        assert pool.background_age("s1") is None
    finally:
        await pool.close()


async def test_what_dead_processes_left_is_swept_and_what_live_ones_hold_is_not(
    tmp_path: Path,
) -> None:
    own = f"hermes-shell-{os.getpid()}-abcd1234"
    gone = [f"hermes-{kind}-4194305-abcd1234" for kind in ("shell", "code", "browser")]
    old = ("hermes-shell-older", "hermes-results/forgotten")
    others = ("hermes-dockerd-abcd1234", "hermes-results/recent")
    for name in (own, *gone, *old, *others):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "hermes-shell-4194305-link").symlink_to(tmp_path / own)
    for name in old:
        os.utime(tmp_path / name, (0, 0))
    await sweep_leftovers(str(tmp_path))
    found = sorted(tmp_path.rglob("*"))  # noqa: ASYNC240 - a small directory
    kept = {str(path.relative_to(tmp_path)) for path in found}
    assert kept == {own, *others, "hermes-results", "hermes-shell-4194305-link"}
