"""Against a stand-in for apptainer that executes through bubblewrap."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fakes.machines import environment, request_for
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backend import PooledEnvironment, load_backend
from hermes.execution.backends.singularity import SingularityLink


async def sh(machine: PooledEnvironment, script: str) -> str:
    return (await machine.run(ShellRun(script=script, timeout=30))).output


def instances(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the stand-in knows of running instances."""
    state = Path(options["program"]).parent / "instances"
    return [json.loads(path.read_text()) for path in sorted(state.glob("*.json"))]


async def test_an_instance_is_contained_and_limited(
    singularity_options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/f").write_text("given")
    options = {
        **singularity_options,
        "container_memory": 512,
        "container_cpu": 1.5,
        "docker_network": False,
        "binds": [f"{tmp_path}/data:/data:ro"],
    }
    async with environment("singularity", options) as machine:
        assert machine.exposed == ()
        (instance,) = instances(options)
        flags = instance["flags"]
        assert {"--containall", "--no-home", "--net"} <= set(flags)
        assert (flags["--memory"], flags["--cpus"]) == (["512M"], ["1.5"])
        assert flags["--overlay"][0].startswith(f"{tmp_path}/sandboxes/singularity/main/")
        assert await sh(machine, "cat /data/f; touch /data/x 2>/dev/null || echo ro") == "givenro\n"
        assert await sh(machine, f"ls {tmp_path} 2>/dev/null; echo $HOME") == "/root\n"
    assert instances(options) == []


async def test_files_survive_in_the_overlay_of_the_session(
    singularity_options: dict[str, Any],
) -> None:
    async with environment("singularity", singularity_options) as machine:
        await sh(machine, "echo kept >~/f")
    async with environment("apptainer", singularity_options) as machine:
        assert await sh(machine, "cat ~/f") == "kept\n"
    async with environment("singularity", singularity_options, session_id="other") as machine:
        assert await machine.stat("~/f") is None


async def test_without_persistence_nothing_is_kept(singularity_options: dict[str, Any]) -> None:
    options = {**singularity_options, "container_persistent": False}
    async with environment("singularity", options) as machine:
        await sh(machine, "echo gone >~/f")
        assert "--writable-tmpfs" in instances(options)[0]["flags"]
    async with environment("singularity", options) as machine:
        assert await machine.stat("~/f") is None
    assert not await asyncio.to_thread(Path(options["sandbox_dir"]).exists)


async def test_an_instance_that_a_killed_hermes_left_behind_is_replaced(
    singularity_options: dict[str, Any],
) -> None:
    left = SingularityLink(request_for("singularity", singularity_options))
    await left.open()
    (before,) = instances(singularity_options)
    async with environment("singularity", singularity_options) as machine:
        (after,) = instances(singularity_options)
        assert after["pid"] != before["pid"]
        assert await sh(machine, "echo works") == "works\n"


async def test_an_instance_that_died_is_told_and_started_again(
    singularity_options: dict[str, Any],
) -> None:
    async with environment("singularity", singularity_options) as machine:
        await sh(machine, "cd /usr; export A=1; echo kept >~/f")
        begun = asyncio.Event()
        running = asyncio.ensure_future(
            machine.run(ShellRun(script="echo begun; sleep 60"), lambda _: begun.set())
        )
        await begun.wait()
        os.kill(instances(singularity_options)[0]["pid"], signal.SIGKILL)
        result = await running
        assert result.exit_code == 255
        assert "whether the command took effect is unknown" in result.output
        assert await sh(machine, "echo $PWD ${A-none} $(cat ~/f); command -v ls") == (
            "/usr none kept\n/usr/bin/ls\n"
        )


async def test_a_terminal_is_given_on_request(singularity_options: dict[str, Any]) -> None:
    async with environment("singularity", singularity_options) as machine:
        result = await machine.run(ShellRun(script="test -t 0 && echo yes; cd /usr", pty=True))
        assert (result.output, result.cwd) == ("yes\n", "/usr")


async def test_an_image_that_cannot_be_had_is_named(singularity_options: dict[str, Any]) -> None:
    with pytest.raises(HermesError, match=r"docker://missing.*manifest unknown") as caught:
        async with environment(
            "singularity", {**singularity_options, "singularity_image": "docker://missing/x"}
        ):
            pass
    assert "singularity_image" in caught.value.hint


async def test_a_missing_program_is_explained(tmp_path: Path) -> None:
    request = request_for("singularity", {}, env={"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match="needs the program `apptainer`"):
        await load_backend("singularity").open(request)


async def test_a_missing_image_is_explained() -> None:
    with pytest.raises(ConfigError, match="no image"):
        await load_backend("singularity").open(
            request_for("singularity", {"singularity_image": ""})
        )
