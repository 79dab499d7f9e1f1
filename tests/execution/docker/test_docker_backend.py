import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.boxes import Boxes, says, sh
from fakes.docker_engine import IMAGE, docker
from fakes.hermes_process import other_process
from fakes.toolbox import gone
from hermes.domain.errors import ConfigError, HermesError
from hermes.testing import FakeClock

pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(55):
        yield


@contextlib.asynccontextmanager
async def boxes_in(tmp_path: Path, engine: str, **settings: object) -> AsyncIterator[Boxes]:
    env = {"DOCKER_HOST": engine, **settings.pop("env_of_hermes", {})}  # type: ignore[dict-item]
    given = {
        "docker_image": IMAGE,
        "docker_network": False,
        "container_memory": 256,
        **settings,
    }
    made = Boxes("docker", tmp_path / "hermes", base_env=env, **given)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.pool.close()


def containers(engine: str, boxes: Boxes) -> list[str]:
    ids = docker(engine, "ps", "-aq", "--filter", f"label=hermes.directory={boxes.directory()}")
    return ids.split()


async def test_the_container_is_locked_down(tmp_path: Path, engine: str) -> None:
    async with boxes_in(tmp_path, engine, container_cpu=0.5, max_processes=77) as boxes:
        await says(await boxes.open(), "true")
        (container,) = containers(engine, boxes)
        wanted = (
            "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}}"
            " {{.HostConfig.PidsLimit}} {{.HostConfig.Memory}} {{.HostConfig.NanoCpus}}"
            " {{.HostConfig.NetworkMode}} {{.HostConfig.Privileged}}"
        )
        shown = docker(engine, "inspect", "--format", wanted, container).strip()
        assert shown == (f"true [ALL] [no-new-privileges] 77 {256 << 20} 500000000 none false")


async def test_nothing_is_started_before_it_is_needed_and_all_goes_when_idle(
    tmp_path: Path, engine: str
) -> None:
    clock = FakeClock()
    async with boxes_in(tmp_path, engine, clock=clock) as boxes:
        env = await boxes.open()
        assert containers(engine, boxes) == []
        await sh(env, "echo kept > f; cd /tmp")
        assert len(containers(engine, boxes)) == 1
        clock.advance(301)
        assert await boxes.pool.reap() == 1
        assert containers(engine, boxes) == []
        assert await says(env, "pwd; cat /workspace/f") == "/tmp\nkept"


async def test_a_container_whose_hermes_was_killed_is_taken_over(
    tmp_path: Path, engine: str
) -> None:
    await killed_hermes(tmp_path, engine, "s1")
    async with boxes_in(tmp_path, engine) as boxes:
        (before,) = containers(engine, boxes)
        assert await says(await boxes.open(), "cat /tmp/mark") == "s1"
        assert containers(engine, boxes) == [before]
    assert docker(engine, "ps", "-aq", "--filter", f"id={before}") == ""


async def test_a_container_nobody_owns_is_removed(tmp_path: Path, engine: str) -> None:
    await killed_hermes(tmp_path, engine, "orphan")
    async with boxes_in(tmp_path, engine) as boxes:
        listed = docker(engine, "ps", "-q", "--filter", "label=hermes.task=main.orphan")
        assert listed
        await says(await boxes.open("other"), "true")
        assert not docker(engine, "ps", "-aq", "--filter", "label=hermes.task=main.orphan")
        still = await boxes.open("second")
        await says(still, "true")
        assert await says(await boxes.open("other"), "echo here") == "here"


async def test_changed_settings_make_a_new_container(tmp_path: Path, engine: str) -> None:
    await killed_hermes(tmp_path, engine, "s1")
    async with boxes_in(tmp_path, engine, docker_env={"MODE": "new"}) as boxes:
        assert await says(await boxes.open(), "echo $MODE; cat /tmp/mark 2>/dev/null") == "new"
        assert len(containers(engine, boxes)) == 1


async def killed_hermes(tmp_path: Path, engine: str, session: str) -> None:
    """Let a Hermes start a container and die."""
    script = f"""
        import asyncio
        from pathlib import Path
        from fakes.boxes import Boxes, sh
        async def main():
            boxes = Boxes("docker", Path({str(tmp_path / "hermes")!r}), docker_image={IMAGE!r},
                base_env={{"DOCKER_HOST": {engine!r}}}, docker_network=False,
                container_memory=256)
            await sh(await boxes.open({session!r}), "echo {session} > /tmp/mark")
            print("up", flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """
    with other_process(script) as child:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == b"up\n"
        child.kill()
    await gone(child.pid)


async def test_a_container_that_does_not_persist_leaves_nothing(
    tmp_path: Path, engine: str
) -> None:
    async with boxes_in(tmp_path, engine, container_persistent=False) as boxes:
        env = await boxes.open()
        assert await says(env, "echo x > f; echo y > ~/g; cat f ~/g") == "x\ny"
        await env.close()
        assert not boxes.directory().exists()
        assert await says(env, "ls -A /workspace ~ | grep -c '[fg]'") == "0"


async def test_variables_volumes_and_user_are_as_configured(tmp_path: Path, engine: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/f").write_text("from a volume")
    async with boxes_in(
        tmp_path,
        engine,
        env_of_hermes={"GITHUB_TOKEN": "gh-1", "OTHER_TOKEN": "no"},
        docker_env={"MODE": "a b"},
        docker_forward_env=("GITHUB_TOKEN", "NOT_SET"),
        docker_volumes=(f"{tmp_path}/data:/data:ro",),
        docker_extra_args=("--hostname", "named"),
        docker_run_as_host_user=True,
    ) as boxes:
        env = await boxes.open()
        assert await says(env, 'echo "$GITHUB_TOKEN|$MODE|${OTHER_TOKEN-none}"') == "gh-1|a b|none"
        assert await env.read("/data/f") == b"from a volume"
        assert (await sh(env, "touch /data/g")).exit_code != 0
        assert await says(env, "id -u; hostname") == f"{os.geteuid()}\nnamed"
        (container,) = containers(engine, boxes)
        process = docker(engine, "inspect", "--format", "{{.Path}} {{.Args}}", container)
        assert "gh-1" not in process


async def test_a_project_is_mounted_as_the_workspace(tmp_path: Path, engine: str) -> None:
    (tmp_path / "project").mkdir()
    project = {"docker_mount_cwd_to_workspace": True, "project": str(tmp_path / "project")}
    async with boxes_in(tmp_path, engine, **project) as boxes:
        assert await says(await boxes.open(), "pwd; echo made > f") == "/workspace"
        assert (tmp_path / "project/f").read_text() == "made\n"
    project["project"] = str(tmp_path / "hermes")
    async with boxes_in(tmp_path, engine, **project) as boxes:
        with pytest.raises(ConfigError):
            await boxes.open()


async def test_a_container_that_was_removed_by_hand_comes_back(tmp_path: Path, engine: str) -> None:
    async with boxes_in(tmp_path, engine) as boxes:
        env = await boxes.open()
        await sh(env, "export A=1; echo kept > f")
        docker(engine, "rm", "-f", *containers(engine, boxes))
        broken = await sh(env, "echo hi")
        assert "container had stopped" in broken.output
        assert await says(env, "cat f; echo $A") == "kept\n1"
        docker(engine, "rm", "-f", *containers(engine, boxes))
        with pytest.raises(HermesError, match="container had stopped"):
            await env.read("f")
        assert await env.read("f") == b"kept\n"


async def test_an_engine_that_does_not_answer_is_explained(tmp_path: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    async with boxes_in(tmp_path, f"unix://{tmp_path}/none.sock") as boxes:
        with pytest.raises(HermesError, match="docker ps") as caught:
            await says(await boxes.open(), "true")
        assert "docker version" in caught.value.hint


async def test_an_image_that_is_not_there_is_explained(tmp_path: Path, engine: str) -> None:
    async with boxes_in(
        tmp_path, engine, docker_extra_args=("--pull", "never"), docker_image="no-such"
    ) as boxes:
        with pytest.raises(HermesError, match="no-such"):
            await says(await boxes.open(), "true")
