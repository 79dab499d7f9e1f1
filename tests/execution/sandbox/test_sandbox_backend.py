import asyncio
import contextlib
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

import hermes
from fakes.boxes import Boxes, says, sh
from fakes.hermes_process import other_process, processes_with
from fakes.machines import until
from fakes.toolbox import gone, local_environment
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.ports.execution import Environment, ShellRun
from hermes.execution.backends.sandbox import backend as sandbox
from hermes.execution.backends.sandbox.holder import missing_tools
from hermes.testing import FakeClock

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(55):
        yield


@contextlib.asynccontextmanager
async def boxes_in(tmp_path: Path, **settings: object) -> AsyncIterator[Boxes]:
    made = Boxes("sandbox", tmp_path / "hermes", **settings)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.pool.close()


def _is_ours(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False  # of another test, and over
    return int(status.rpartition(") ")[2].split()[1]) == os.getpid()


async def test_two_hundred_sessions_at_once_never_meet(tmp_path: Path) -> None:
    few = asyncio.Semaphore(8)

    async def session(boxes: Boxes, number: int) -> None:
        name = f"session-{number}"
        async with few:
            env = await boxes.open(name)
            await sh(env, f"mkdir {name}; cd {name}; export NAME={name}; echo {name} > /tmp/name")
        async with few:
            seen = await says(env, "echo $NAME $(basename $PWD) $(cat /tmp/name) $(ls /workspace)")
            assert seen.split() == [name] * 4
            await env.write("file", name.encode())
        async with few:
            assert await env.read(f"/workspace/{name}/file") == name.encode()
            assert len(await env.list_dir("/workspace")) == 1
            await env.close()

    async with boxes_in(tmp_path) as boxes, asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(session(boxes, number))


async def test_a_project_directory_is_worked_on_at_its_own_path(tmp_path: Path) -> None:
    project = tmp_path / "work/project"
    project.mkdir(parents=True)
    (tmp_path / "work/beside").write_text("not yours")
    async with boxes_in(tmp_path, project=str(project)) as boxes:
        env = await boxes.pool.get("main", "s", str(project))
        assert await says(env, "pwd; echo made > f; ls ..") == f"{project}\nproject"
        assert (project / "f").read_text() == "made\n"
        assert (project / "f").stat().st_uid == os.geteuid()
        await env.write(f"{project}/g", b"x")
        with pytest.raises(HermesError):
            await env.read(f"{tmp_path}/work/beside")


async def test_secrets_inside_a_project_directory_are_covered(tmp_path: Path) -> None:
    project = tmp_path / "person"
    (project / ".ssh").mkdir(parents=True)
    (project / ".ssh/id_ed25519").write_text("PRIVATE")
    (project / ".netrc").write_text("PRIVATE")
    home = project / "hermes"
    home.mkdir()
    (home / ".env").write_text("PRIVATE")
    made = Boxes("sandbox", home, project=str(project), base_env={"HOME": str(tmp_path)})
    env = await made.pool.get("main", "s", str(project))
    assert "PRIVATE" not in await says(env, "cat .ssh/* .netrc hermes/.env; grep -rs PRIVATE .")
    assert (await sh(env, "rm -rf hermes .ssh .netrc; echo x > hermes/.env")).exit_code != 0
    for path in (".ssh/id_ed25519", "hermes/.env"):
        with pytest.raises(HermesError):
            await env.read(path)
    assert await says(env, "echo ok > mine; cat mine") == "ok"
    await made.pool.close()
    assert (project / ".ssh/id_ed25519").read_text() == "PRIVATE"


@pytest.mark.parametrize(
    "place",
    [
        *("/", "/etc", "/root", "/usr/lib", "hermes", ".", ".ssh", ".config", "bin", ".docker"),
        *(".cargo/bin", ".nvm", ".oh-my-zsh/custom", ".vim", ".ipython/profile_default/startup"),
    ],
)
async def test_some_directories_are_no_projects(tmp_path: Path, place: str) -> None:
    """Started in a home or in the system, commands work in a place of their own."""
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    project = str(tmp_path / place)
    async with boxes_in(tmp_path, project=project) as boxes:
        env = await boxes.pool.get("main", "s1", project)
        assert env.exposed == ()
        assert env.can_leave
        assert await says(env, "pwd; ls -A; echo mine > f; cat f") == "/workspace\nmine"
        assert not (Path(project) / "f").exists()


async def test_a_directory_to_work_on_must_exist(tmp_path: Path) -> None:
    async with boxes_in(tmp_path, project="/no/such/place") as boxes:
        with pytest.raises(ConfigError) as caught:
            await boxes.open()
        assert caught.value.hint


async def test_an_idle_sandbox_is_closed_and_comes_back(tmp_path: Path) -> None:
    clock = FakeClock()
    async with boxes_in(tmp_path, clock=clock) as boxes:
        env = await boxes.open()
        await sh(env, "echo kept > f; cd /tmp; (sleep 302 >/dev/null &)")
        clock.advance(301)
        assert await boxes.pool.reap() == 1
        left = "ps -e -o args | grep -c '[s]leep 302'"
        assert await says(env, f"pwd; cat /workspace/f; {left}") == "/tmp\nkept\n0"


async def test_a_sandbox_that_nothing_was_put_into_leaves_nothing(tmp_path: Path) -> None:
    async with boxes_in(tmp_path) as boxes:
        env = await boxes.open()
        await says(env, "true")
        await env.close()
        assert not boxes.directory().exists()


async def test_a_sandbox_that_was_killed_is_started_again(tmp_path: Path) -> None:
    async with boxes_in(tmp_path) as boxes:
        env = await boxes.open()
        await sh(env, "export A=1; cd /tmp")
        holders = [pid for pid in processes_with("bwrap\0--args") if _is_ours(pid)]
        assert holders
        for pid in holders:
            os.kill(pid, signal.SIGKILL)
            await gone(pid)
        await sh(env, "true")
        assert await says(env, "echo back $A $PWD") == "back 1 /tmp"


async def test_everything_inside_dies_with_hermes(tmp_path: Path) -> None:
    script = f"""
        import asyncio, sys
        from pathlib import Path
        from fakes.boxes import Boxes, sh
        from hermes.domain.ports.execution import ShellRun
        async def main():
            boxes = Boxes("sandbox", Path({str(tmp_path / "hermes")!r}))
            env = await boxes.open()
            await env.spawn(ShellRun(script="bash -c ': hermes-orphan; sleep 303; true'"))
            await sh(env, "(setsid bash -c ': hermes-orphan; sleep 303; true' >/dev/null &)")
            print("up", flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """
    with other_process(script) as child:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == b"up\n"
        inside = processes_with(": hermes-orphan; sleep")
        assert inside
        child.kill()
    for pid in inside:
        await gone(pid)


async def test_the_network_is_there_when_it_is_allowed(tmp_path: Path) -> None:
    async with boxes_in(tmp_path, sandbox_network=True) as boxes:
        env = await boxes.open()
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert (await sh(env, f"echo hi >/dev/tcp/127.0.0.1/{port}")).exit_code == 0


async def test_further_places_can_be_shown_read_only(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/f").write_text("readable")
    async with boxes_in(tmp_path, sandbox_read_only_paths=(str(tmp_path / "shared"),)) as boxes:
        env = await boxes.open()
        assert await says(env, f"cat {tmp_path}/shared/f") == "readable"
        assert await env.read(f"{tmp_path}/shared/f") == b"readable"
        assert (await sh(env, f"touch {tmp_path}/shared/g")).exit_code != 0
        with pytest.raises(HermesError):
            await env.write(f"{tmp_path}/shared/g", b"x")


async def test_a_full_sandbox_is_emptied_and_says_so(tmp_path: Path) -> None:
    async with boxes_in(tmp_path, max_processes=40) as boxes:
        env = await boxes.open()
        result = await sh(env, "for i in $(seq 35); do sleep 304 >/dev/null & done")
        assert "sandbox was full" in result.output
        assert await says(env, "ps -eo args | grep -c '[s]leep 304'") == "0"


async def test_only_named_variables_come_along(tmp_path: Path) -> None:
    env = {"LANG": "C.UTF-8", "EDITOR": "vi", "SSH_AUTH_SOCK": "/tmp/agent", "LC_ALL": "C"}
    async with boxes_in(tmp_path, base_env=env) as boxes:
        seen = await says(await boxes.open(), "env -0 | tr '\\0' '\\n' | cut -d= -f1 | sort")
        assert set(seen.split()) <= {
            *("HOME", "LANG", "LC_ALL", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL"),
            *("TERM", "USER", "_"),
        }


async def test_wrong_options_are_named(tmp_path: Path) -> None:
    async with boxes_in(tmp_path, max_processes="many") as boxes:
        with pytest.raises(ConfigError, match="max_processes"):
            await boxes.open()


def test_a_machine_without_bubblewrap_is_told_apart(tmp_path: Path) -> None:
    assert missing_tools(str(tmp_path)) == ["bwrap", "nsenter", "setpriv"]
    assert sandbox.unavailable() == ""


async def test_a_command_costs_little_more_than_on_the_host(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def quickest(environment: Environment) -> float:
        times = []
        for _ in range(20):
            before = loop.time()
            await environment.run(ShellRun(script="echo hi"))
            times.append(loop.time() - before)
        return min(times)

    async with boxes_in(tmp_path) as boxes, local_environment(tmp_path) as host:
        inside = await boxes.open()
        await says(inside, "true")
        assert await quickest(inside) < 25 * await quickest(host)


async def test_hermes_need_not_be_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("every test here runs without root already")
    python = shutil.which("python3", path="/usr/bin")
    site = Path(msgspec.__file__).parents[1]
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with tempfile.TemporaryDirectory() as directory:
        shutil.chown(directory, 65534, 65534)
        script = f"""
            import asyncio
            from pathlib import Path
            from fakes.boxes import Boxes, says, sh
            async def main():
                boxes = Boxes("sandbox", Path({directory!r}, "hermes"), max_processes=64,
                    container_memory=256)
                env = await boxes.open()
                print("user", await says(env, "id -u; grep CapEff /proc/self/status"))
                print("unshare", (await sh(env, "unshare -Ur true")).exit_code)
                await env.write("f", b"text")
                print("file", await says(env, "cat f"))
                await sh(env, "b() {{ b | b & }}; b; sleep 20", timeout=1)
                print("usable", await says(env, "echo yes"))
                await sh(env, "x=$(head -c 600m /dev/zero | tr '\\\\0' x); echo survived")
                print("usable", await says(env, "echo yes"))
                await boxes.pool.close()
            asyncio.run(main())
        """
        with other_process(
            script,
            python=python or "python3",
            before=nobody,
            path=f"{Path(hermes.__file__).parents[1]}:{site}",
        ) as child:
            output, _ = await asyncio.to_thread(child.communicate)
    if b"No module named" in output or b"Permission denied" in output:
        pytest.skip("another user cannot run this code")
    assert output.decode().splitlines() == [
        "user 1000",
        "CapEff:\t0000000000000000",
        "unshare 1",
        "file text",
        "usable yes",
        "usable yes",
    ]


async def test_files_of_one_session_do_not_take_all_threads(tmp_path: Path) -> None:
    async with boxes_in(tmp_path) as boxes:
        env, other = await boxes.open(), await boxes.open("other")
        workspace = boxes.directory() / "workspace"

        async def writing() -> bool:
            return len(list(workspace.glob(".*.tmp"))) > 1

        async def locked() -> bool:
            return (workspace / "locked").exists()

        await sh(other, "true")
        await env.spawn(ShellRun(script="flock . -c 'touch locked; sleep 50'"))
        await until(locked)
        writes = [asyncio.ensure_future(env.write(f"f{number}", b"x")) for number in range(100)]
        await until(writing)
        async with asyncio.timeout(4):
            assert await says(other, "echo fine") == "fine"
        for write in writes:
            write.cancel()
        async with asyncio.timeout(4):
            assert await says(other, "echo fine") == "fine"
        await env.close()
