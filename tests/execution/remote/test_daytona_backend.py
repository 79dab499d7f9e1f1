"""Against a loopback stand-in for the HTTP API that runs real processes."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.daytona import FakeDaytona, daytona_options
from fakes.machines import environment, request_for
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backend import PooledEnvironment, load_backend
from hermes.execution.backends.daytona import LabelFilter

NAME = "hermes-main.20261115_120000_abcd1234"


async def sh(machine: PooledEnvironment, script: str) -> str:
    return (await machine.run(ShellRun(script=script, timeout=30))).output


async def test_a_sandbox_is_made_under_its_name_with_the_disk_capped(daytona: FakeDaytona) -> None:
    options = {**daytona_options(daytona), "container_cpu": 1.5, "container_memory": 2500}
    async with environment("daytona", options) as machine:
        assert machine.exposed == ()
        wanted = daytona.sandboxes[NAME].wanted
        assert (wanted["cpu"], wanted["memory"], wanted["disk"]) == (2, 3, 10)
        assert wanted["buildInfo"] == {"dockerfileContent": "FROM debian\n"}
        assert wanted["autoStopInterval"] == 15


async def test_the_same_sandbox_is_stopped_and_started_again(daytona: FakeDaytona) -> None:
    options = daytona_options(daytona)
    async with environment("daytona", options) as machine:
        await sh(machine, "echo kept >~/f")
    assert daytona.sandboxes[NAME].state == "stopped"
    async with environment("daytona", options) as machine:
        assert await sh(machine, "cat ~/f") == "kept\n"
    assert len(daytona.sandboxes) == 1
    async with environment("daytona", options, session_id="other") as machine:
        assert await machine.stat("~/f") is None


async def test_without_persistence_the_sandbox_is_deleted(daytona: FakeDaytona) -> None:
    async with environment("daytona", {**daytona_options(daytona), "container_persistent": False}):
        assert daytona.sandboxes[NAME].wanted["autoDeleteInterval"] == 0
    assert daytona.sandboxes == {}


async def test_a_refused_key_is_explained(daytona: FakeDaytona) -> None:
    with pytest.raises(ConfigError, match="refuses the API key") as caught:
        async with environment("daytona", {**daytona_options(daytona), "DAYTONA_API_KEY": "wrong"}):
            pass
    assert "DAYTONA_API_KEY" in caught.value.hint


async def test_an_image_that_cannot_be_built_is_explained(daytona: FakeDaytona) -> None:
    daytona.fail_builds = True
    with pytest.raises(HermesError, match="cannot be started: manifest unknown"):
        async with environment("daytona", daytona_options(daytona)):
            pass


async def test_a_service_that_is_not_there_is_explained() -> None:
    options = {"DAYTONA_API_KEY": "k", "DAYTONA_API_URL": "http://127.0.0.1:9/api"}
    with pytest.raises(HermesError, match="No connection to Daytona"):
        async with environment("daytona", options):
            pass


async def test_what_must_be_configured_is_named() -> None:
    for options, hint in (({"daytona_image": ""}, "daytona_image"), ({}, "DAYTONA_API_KEY")):
        with pytest.raises(ConfigError) as caught:
            await load_backend("daytona").open(request_for("daytona", dict(options)))
        assert hint in caught.value.hint


async def test_a_log_that_breaks_off_is_told_and_the_session_goes_on(daytona: FakeDaytona) -> None:
    async with environment("daytona", daytona_options(daytona)) as machine:
        begun = asyncio.Event()
        running = asyncio.ensure_future(
            machine.run(ShellRun(script="echo begun; sleep 60"), lambda _: begun.set())
        )
        await begun.wait()
        daytona.cut_logs.set()
        result = await running
        assert result.exit_code == 255
        assert result.output.startswith("begun\n")
        assert "whether the command took effect is unknown" in result.output
        daytona.cut_logs.clear()
        assert await sh(machine, "echo works") == "works\n"


async def test_a_sandbox_that_was_stopped_meanwhile_is_started_again(
    daytona: FakeDaytona,
) -> None:
    async with environment("daytona", daytona_options(daytona)) as machine:
        await sh(machine, "cd /usr")
        sandbox = daytona.sandboxes[NAME]
        begun = asyncio.Event()
        running = asyncio.ensure_future(
            machine.run(ShellRun(script="echo begun; sleep 60"), lambda _: begun.set())
        )
        await begun.wait()
        sandbox.state = "stopped"
        daytona.cut_logs.set()
        assert (await running).exit_code == 255
        daytona.cut_logs.clear()
        assert await sh(machine, "pwd") == "/usr\n"
        await daytona.kill(sandbox)


async def test_process_sessions_do_not_pile_up(daytona: FakeDaytona) -> None:
    async with environment("daytona", daytona_options(daytona)) as machine:
        for _ in range(3):
            await sh(machine, "true")
        assert daytona.sandboxes[NAME].sessions == {}


async def test_files_are_synchronised(daytona: FakeDaytona, tmp_path: Path) -> None:
    (tmp_path / "home/skills").mkdir(parents=True)
    (tmp_path / "home/skills/one").write_bytes(b"\0old" * 30_000)
    options = {**daytona_options(daytona), "home": str(tmp_path / "home")}
    async with environment("daytona", options) as machine:
        assert await machine.read("~/.hermes/skills/one") == b"\0old" * 30_000


@given(
    lines=st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\n", b"")), max_size=6),
    cuts=st.lists(st.integers(1, 4), max_size=40),
)
def test_labels_vanish_wherever_the_log_was_cut(lines: list[bytes], cuts: list[int]) -> None:
    log = b"".join(b"\x01\x01\x01" + line + b"\n" for line in lines)
    heard: list[bytes] = []
    label = LabelFilter(heard.append)
    for cut in [*cuts, len(log)]:
        label.feed(log[:cut])
        log = log[cut:]
    assert b"".join(heard) == b"".join(line + b"\n" for line in lines)
