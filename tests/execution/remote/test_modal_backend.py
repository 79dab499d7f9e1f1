"""Against a stand-in for the SDK that runs real processes."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.machines import environment, request_for
from hermes.domain.errors import ConfigError, MissingExtra, StoreError, UsageError
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backend import PooledEnvironment, load_backend


@pytest.fixture
def options(modal_sdk: Any, tmp_path: Path) -> dict[str, Any]:
    return {"modal_image": "debian", "home": str(tmp_path / "home")}


async def sh(machine: PooledEnvironment, script: str) -> str:
    return (await machine.run(ShellRun(script=script, timeout=30))).output


async def test_the_missing_sdk_is_named_with_the_command_that_installs_it() -> None:
    assert "modal" not in sys.modules
    with pytest.raises(MissingExtra, match="`modal`") as caught:
        await load_backend("modal").open(request_for("modal", {}))
    assert caught.value.hint == "Install it with: pip install 'hermes-gateway[modal]'"


async def test_a_sandbox_gets_what_was_configured(modal_sdk: Any, options: dict[str, Any]) -> None:
    modal_sdk.CLOUD.tokens = {("ak-1", "as-1")}
    given = {"container_cpu": 2.0, "container_memory": 1024, "lifetime": 600, "app": "mine"}
    tokens = {"MODAL_TOKEN_ID": "ak-1", "MODAL_TOKEN_SECRET": "as-1"}
    async with environment("modal", {**options, **given, **tokens}) as machine:
        assert machine.exposed == ()
        (sandbox,) = modal_sdk.CLOUD.sandboxes
        made = {name: sandbox.options[name] for name in ("cpu", "memory", "timeout", "image")}
        assert made == {"cpu": 2.0, "memory": 1024, "timeout": 600, "image": "debian"}
        assert modal_sdk.CLOUD.apps == ["mine"]
    assert not sandbox.alive


async def test_a_refused_token_is_explained(modal_sdk: Any, options: dict[str, Any]) -> None:
    modal_sdk.CLOUD.tokens = set()
    for tokens in ({}, {"MODAL_TOKEN_ID": "ak-bad", "MODAL_TOKEN_SECRET": "x"}):
        with pytest.raises(ConfigError, match="refuses the token") as caught:
            async with environment("modal", {**options, **tokens}):
                pass
        assert "MODAL_TOKEN_ID" in caught.value.hint


async def test_files_survive_through_a_snapshot(modal_sdk: Any, options: dict[str, Any]) -> None:
    async with environment("modal", options) as machine:
        await sh(machine, "echo kept >~/f")
    kept = json.loads(
        await asyncio.to_thread(Path(options["home"], "modal_snapshots.json").read_text)
    )
    assert list(kept.values()) == ["im-2"]
    async with environment("modal", options) as machine:
        assert await sh(machine, "cat ~/f") == "kept\n"
    async with environment("modal", options, session_id="other") as machine:
        assert await machine.stat("~/f") is None


async def test_an_expired_snapshot_means_the_image(modal_sdk: Any, options: dict[str, Any]) -> None:
    async with environment("modal", options):
        pass
    modal_sdk.CLOUD.images.clear()
    async with environment("modal", options) as machine:
        assert await sh(machine, "echo works") == "works\n"


async def test_without_persistence_there_is_no_snapshot(
    modal_sdk: Any, options: dict[str, Any]
) -> None:
    async with environment("modal", {**options, "container_persistent": False}):
        pass
    assert modal_sdk.CLOUD.images == {}
    assert not modal_sdk.CLOUD.sandboxes[0].alive


async def test_a_sandbox_that_ended_is_told_and_replaced(
    modal_sdk: Any, options: dict[str, Any]
) -> None:
    async with environment("modal", options) as machine:
        begun = asyncio.Event()
        running = asyncio.ensure_future(
            machine.run(ShellRun(script="echo begun; sleep 60"), lambda _: begun.set())
        )
        await begun.wait()
        await modal_sdk.CLOUD.sandboxes[0].die()
        result = await running
        assert result.exit_code == 255
        assert "whether the command took effect is unknown" in result.output
        assert await sh(machine, "echo works; command -v ls") == "works\n/usr/bin/ls\n"
        assert len(modal_sdk.CLOUD.sandboxes) == 2


async def test_a_failing_snapshot_keeps_nobody_from_closing(
    modal_sdk: Any, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with environment("modal", options) as machine:
        await sh(machine, "true")
        await modal_sdk.CLOUD.sandboxes[0].die()
    assert "Sandbox has already finished" in caplog.text
    assert machine.idle_since is not None


async def test_arguments_stay_small_whatever_the_script(
    modal_sdk: Any, options: dict[str, Any]
) -> None:
    async with environment("modal", options) as machine:
        await machine.run(ShellRun(script=f": {'x' * 300_000}", env={"TOKEN": "sk-secret"}))
        shown = [word for words in modal_sdk.CLOUD.sandboxes[0].execs for word in words]
    assert max(len(word) for word in shown) < 2_000
    assert not [word for word in shown if "sk-secret" in word]


async def test_files_are_synchronised(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "home/skills").mkdir(parents=True)
    (tmp_path / "home/skills/one").write_text("skill")
    async with environment("modal", options) as machine:
        assert await machine.read("~/.hermes/skills/one") == b"skill"


async def test_snapshot_ids_of_many_sessions_do_not_get_lost(options: dict[str, Any]) -> None:
    async def session(number: int) -> None:
        async with environment("modal", options, session_id=f"s{number}"):
            pass

    await asyncio.gather(*(session(number) for number in range(8)))
    file = Path(options["home"], "modal_snapshots.json")
    assert len(json.loads(await asyncio.to_thread(file.read_text))) == 8


async def test_a_damaged_snapshot_file_is_explained(options: dict[str, Any]) -> None:
    file = Path(options["home"], "modal_snapshots.json")
    file.parent.mkdir()
    await asyncio.to_thread(file.write_text, "{")
    with pytest.raises(StoreError, match="modal_snapshots") as caught:
        async with environment("modal", options):
            pass
    assert "move it away" in caught.value.hint


async def test_a_backend_without_image_is_explained(modal_sdk: Any) -> None:
    with pytest.raises(ConfigError, match="no image"):
        await load_backend("modal").open(request_for("modal", {"modal_image": ""}))


async def test_a_terminal_is_refused(options: dict[str, Any]) -> None:
    async with environment("modal", options) as machine:
        with pytest.raises(UsageError, match="no terminals"):
            await machine.run(ShellRun(script="true", pty=True))
