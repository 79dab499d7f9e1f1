"""Links and moved folders lead no mount, no library and no second session anywhere else."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fakes.boxes import Boxes, says, sh
from fakes.person import KEY, Person, until_there
from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backend import PooledEnvironment
from hermes.execution.backends.sandbox.backend import unavailable

pytestmark = pytest.mark.skipif(unavailable() != "", reason=unavailable())

Reopen = Callable[..., Awaitable[PooledEnvironment]]


@pytest.fixture
def reopen(person: Person, tmp_path: Path) -> Reopen:
    async def open_(project: Path = person.project, **variables: str) -> PooledEnvironment:
        """End all sessions, and begin one as the next Hermes would."""
        await person.boxes.pool.close()
        env = {"HOME": str(person.home), "PATH": "/usr/bin:/bin", **variables}
        person.boxes = Boxes("sandbox", tmp_path / "hermes", base_env=env, project=str(project))
        return await person.boxes.pool.get("main", "next", str(project))

    return open_


async def test_a_library_path_into_the_project_loads_nothing_outside(
    person: Person, reopen: Reopen
) -> None:
    libraries = person.project / "lib"
    env = await reopen(LD_LIBRARY_PATH=str(libraries))
    assert (await sh(env, "exec true")).exit_code == 0  # leaves no variables behind
    # Whoever loads one of these says so and ends.
    await sh(env, "mkdir lib; cd lib; for name in selinux c; do echo no >lib$name.so.1; done")
    await sh(env, "cp lib/libc.so.1 lib/libc.so.6")
    assert await says(env, "echo $LD_LIBRARY_PATH") == str(libraries)
    again = await reopen(LD_LIBRARY_PATH=str(libraries))
    assert await says(again, "echo hello") == "hello"


async def test_a_command_that_was_let_out_loads_nothing_of_the_project(
    person: Person, reopen: Reopen
) -> None:
    (person.project / "sitecustomize.py").write_text("print('of the project')\n")
    env = await reopen(PYTHONPATH=str(person.project), MANPATH="/usr/share/man")
    assert await says(env, "python3 -c 'print(1)'") == "of the project\n1"
    outside = await env.run(ShellRun(script="python3 -c 'print(1)'; echo $MANPATH", outside=True))
    assert outside.output.strip() == "1\n/usr/share/man"


async def test_a_link_in_the_project_shows_no_file_of_the_home(
    person: Person, reopen: Reopen
) -> None:
    person.file(".kube/config", KEY)
    assert await says(await person.open(), "mkdir -p ~/.kube; echo made") == "made"
    await person.boxes.pool.close()
    (person.project / ".pijul").symlink_to("../../.kube")
    env = await reopen()
    assert KEY not in await says(env, "cat ~/.kube/* .pijul/*; true")


async def test_links_in_the_kept_home_lead_no_mount_elsewhere(
    person: Person, reopen: Reopen, tmp_path: Path
) -> None:
    person.file(".local/share/uv/credentials/credentials.toml", KEY)
    victim = tmp_path / "victim"
    victim.mkdir()
    for target in (f"/newroot{person.home}/a", f"/oldroot{victim}", "/nowhere"):
        env = await reopen()
        await sh(
            env,
            f"mkdir -p ~/a; cd; mv .local old.$RANDOM; mkdir .local; ln -s {target} .local/share",
        )
        env = await reopen()
        shown = await says(env, "cat ~/a/*/*/* ~/.local/share/*/*/*; echo here")
        assert KEY not in shown
        assert shown.endswith("here")
    assert list(victim.iterdir()) == []


async def test_a_project_that_another_one_took_the_path_of_is_not_worked_on(
    person: Person,
) -> None:
    inner = person.project / "app"
    inner.mkdir()
    env = await person.boxes.pool.get("main", "inner", str(inner))
    person.file("Documents/letter.txt", "dear")
    await says(env, "true")
    await env.close()
    inner.rename(person.project / "app2")
    inner.symlink_to(person.home / "Documents")
    with pytest.raises(HermesError, match="another directory"):
        await sh(env, "echo taken > letter.txt")
    assert (person.home / "Documents/letter.txt").read_text() == "dear"


async def test_what_a_new_clone_has_in_the_place_of_the_project_stays(person: Person) -> None:
    env = await person.open()
    await sh(env, "(setsid sleep 30 >/dev/null 2>&1 &)")
    person.project.rename(person.project.with_name("old"))
    person.project.mkdir()
    (person.project / ".envrc").write_text("mine")
    with pytest.raises(HermesError, match="another directory"):
        await sh(env, "true")
    await env.close()
    assert [path.name for path in person.project.iterdir()] == [".envrc"]


async def test_what_is_covered_in_the_project_cannot_be_moved_with_its_folder(
    person: Person, reopen: Reopen
) -> None:
    (person.project / ".config/gh").mkdir(parents=True)
    (person.project / ".config/gh/hosts.yml").write_text(KEY)
    env = await person.open()
    assert (await sh(env, "mv .config x")).exit_code != 0
    env = await reopen()
    assert KEY not in await says(env, "cat */gh/* .config/gh/*; true")


async def test_what_was_installed_in_the_home_is_there_when_a_session_is_opened_again(
    person: Person,
) -> None:
    env = await person.open()
    await sh(env, "echo installed > ~/thing")
    for _ in range(2):
        await env.close()
        assert await says(env, "cat ~/thing") == "installed"


async def test_a_chain_of_short_processes_is_something_that_runs(person: Person) -> None:
    env = await person.open()
    chain = """
#include <unistd.h>
#include <time.h>
int main(void) {
  time_t end = time(0) + 4;
  while (time(0) < end) if (fork()) _exit(0);
  close(open(".envrc", 0));
  execl("/bin/sh", "sh", "-c", "echo evil > .envrc; touch done", (char *) 0);
}
"""
    await env.write("chain.c", chain.encode())
    if (await sh(env, "gcc -w -include fcntl.h -o chain chain.c")).exit_code:
        pytest.skip("there is no C compiler")
    await sh(env, "(setsid ./chain >/dev/null 2>&1 &)")
    async with asyncio.timeout(30):
        await until_there(person.project / "done")
    # What it made is held, whenever the next command comes.
    await sh(env, "true")
    assert not (person.project / ".envrc").exists()
