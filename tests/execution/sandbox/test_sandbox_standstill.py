"""What a command changes that was let out stays, also while something runs inside."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from fakes.boxes import sh
from fakes.hermes_process import other_process, processes_with
from fakes.person import Person, saved, until_there
from hermes.domain.ports.execution import CommandResult, ShellRun
from hermes.execution.backend import PooledEnvironment
from hermes.execution.backends.sandbox import patrol
from hermes.execution.backends.sandbox.standstill import is_file_work

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patrol, "EVERY", 0.05)


@pytest.fixture
def project(person: Person) -> Path:
    """A repository whose two branches differ in what the host runs later."""
    for branch, text in (("other", "2"), ("main", "1")):
        person.git("checkout", "-q", "--orphan", branch)
        files = [".gitlab-ci.yml", ".envrc", "sub/.github/ci.yml", "code.py"]
        files += ["sub/.envrc", ".husky/pre-commit"] if branch == "other" else []
        for name in files:
            person.file(f"src/project/{name}", f"# {text}\n")
        person.git("add", "-A")
        person.git("commit", "-q", "-m", branch)
        if branch == "other":
            person.git("rm", "-q", "-r", "--cached", ".")
            person.git("clean", "-q", "-f", "-d", "-x")
    return person.project


async def out(env: PooledEnvironment, script: str, timeout: float = 30.0) -> CommandResult:
    return await env.run(ShellRun(script=script, outside=True, timeout=timeout))


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[0]


async def begun(env: PooledEnvironment, project: Path, script: str) -> None:
    await env.spawn(ShellRun(script=f"touch begun; {script}"))
    await until_there(project / "begun")


def on_other(project: Path) -> bool:
    names = (".gitlab-ci.yml", ".envrc", "sub/.github/ci.yml", "sub/.envrc", ".husky/pre-commit")
    return {(project / name).read_text() for name in names} == {"# 2\n"}


async def test_a_checkout_that_was_let_out_stays_and_is_guarded(
    person: Person, project: Path
) -> None:
    env = await person.open()
    await begun(env, project, "while :; do date >> log; sleep 0.01; done")
    moved = await out(env, "git checkout -q other")
    assert (moved.exit_code, moved.output) == (0, "")
    assert "held" not in (await sh(env, "sleep 0.5")).output
    told = (await sh(env, "echo x >> .gitlab-ci.yml; echo x >> sub/.envrc")).output
    assert "Read-only file system" in told
    assert "Renamed to *.held: sub/.envrc (" in told
    assert on_other(project)
    size = (project / "log").stat().st_size
    await sh(env, "sleep 0.2")
    assert (project / "log").stat().st_size > size, "what ran goes on"
    await out(env, "git checkout -q main && git status")
    assert "held" not in (await sh(env, "true")).output
    assert (project / ".envrc").read_text() == "# 1\n"
    assert not (project / "sub/.envrc").exists()


async def test_what_waits_for_it_inside_comes_too_late(person: Person, project: Path) -> None:
    env = await person.open()
    evil = "until [ -e sub/.envrc ]; do :; done; echo evil > sub/.envrc; touch late"
    await begun(env, project, f"({evil}) & ({evil}) & sleep 600")
    await out(env, "git checkout -q other")
    await until_there(project / "late")
    await sh(env, "true")
    assert on_other(project)


async def test_a_copy_of_what_was_held_is_put_back(person: Person) -> None:
    env = await person.open()
    await begun(env, person.project, "sleep 600")
    saved(person.project / ".envrc", "of the person\n")
    told = (await sh(env, "true")).output
    assert "Renamed to *.held: .envrc (copy " in told
    assert "`cp` with `escalate`" in told
    mark = told.partition("(copy ")[2].partition(")")[0]
    (kept,) = person.boxes.home.glob(f"sandboxes/sandbox/.projects/*/held/{mark}/.envrc")
    await out(env, f"cp {kept} .envrc")
    assert "held" not in (await sh(env, "sleep 0.3")).output
    assert (person.project / ".envrc").read_text() == "of the person\n"


async def test_a_file_that_was_open_inside_is_compared_from_then_on(person: Person) -> None:
    env = await person.open()
    draft, envrc = person.project / "draft", person.project / ".envrc"
    await begun(env, person.project, "exec 7>>draft; until [ -e go ]; do :; done; echo evil >&7; :")
    draft.write_text("of the person\n")
    await out(env, "mv draft .envrc")
    (person.project / "go").touch()
    await until_there(person.project / ".envrc.held")
    assert "Renamed to *.held: .envrc" in (await sh(env, "true")).output
    assert envrc.read_text() == "of the person\n"


async def test_what_stands_in_a_folder_that_is_covered_then_is_compared(
    person: Person, project: Path
) -> None:
    """It sees the folder below the mounts."""
    person.git("checkout", "-q", "other")
    for name in ("lib/.envrc", "lib/.vscode/tasks.json"):
        person.file(f"src/project/{name}", "# 2\n")
    person.git("add", "-A")
    person.git("commit", "-q", "-m", "lib")
    env = await person.open()
    waits = "until [ ! -e lib ]; do :; done; mkdir lib; cd lib; touch ../in"
    evil = "echo evil > .envrc; echo evil > .vscode/tasks.json; echo evil > .vscode/new.json"
    await begun(env, project, f"{waits}; until [ -e ../go ]; do :; done; {evil}; touch ../gone")
    await out(env, "git checkout -q main")
    await until_there(project / "in")
    await out(env, "git checkout -q other")
    (project / "go").touch()
    await until_there(project / "gone")
    told = (await sh(env, "true")).output
    assert all(name in told for name in ("lib/.envrc (", "tasks.json (", "new.json ("))
    assert on_other(project)
    assert (project / "lib/.envrc").read_text() == "# 2\n"
    assert (project / "lib/.vscode/tasks.json").read_text() == "# 2\n"
    assert not (project / "lib/.vscode/new.json").exists()


async def test_another_session_does_not_pass_what_it_made_for_the_persons(
    person: Person, project: Path
) -> None:
    """Git makes a file anew, which may get the number of the one that a mount was over."""
    one, other = await person.open("s1"), await person.open("s2")
    await begun(one, project, "sleep 600")
    writes = "until read x < .envrc && [[ $x == *2 ]]; do :; done 2>/dev/null; echo evil > .envrc"
    await other.spawn(ShellRun(script=f"touch waits; {writes}; sleep 600"))
    await until_there(project / "waits")
    result = await out(one, "git checkout -q other")
    assert "Another session has something running" in result.output
    await sh(one, "sleep 0.5")
    await sh(other, "true")
    assert (project / ".envrc").read_text() in {"# 1\n", "# 2\n"}
    before = (await sh(one, "ls -A")).output
    assert (await sh(one, "sleep 1; ls -A")).output == before, "they do not fight"


async def test_what_asks_a_server_inside_waits_only_so_long(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = await person.open()
    os.mkfifo(person.project / "pipe")
    await begun(env, person.project, "while :; do echo hello > pipe; sleep 0.1; done")
    asked = await out(env, "timeout 8 cat pipe", timeout=10)  # it is not waited for at all
    assert asked.output == "hello\n"
    monkeypatch.setattr(patrol, "LONGEST", 0.3)
    asked = await out(env, "cat pipe", timeout=10)
    assert asked.output == "hello\n"


async def test_what_was_woken_meanwhile_has_not_stood_still(person: Person, project: Path) -> None:
    env = await person.open()
    await begun(env, project, "while :; do sleep 0.04242; done")
    hook = project / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    woken = " ".join(map(str, processes_with("sleep 0.04242")))
    hook.write_text(f"#!/bin/sh\nkill -CONT {woken}; sleep 0.2\n")
    hook.chmod(0o755)
    assert "held" not in (await sh(env, "true")).output
    await out(env, "git checkout -q other")
    assert ".envrc" in (await sh(env, "true")).output.partition("Renamed to *.held")[2]
    assert (project / ".envrc").read_text() == "# 1\n"


async def test_what_it_had_changed_when_it_was_stopped_stays(person: Person, project: Path) -> None:
    hook = project / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch done; sleep 60\n")
    hook.chmod(0o755)
    env = await person.open()
    await begun(env, project, "sleep 600")
    moving = asyncio.ensure_future(out(env, "git checkout -q other"))
    await until_there(project / "done")
    moving.cancel()
    await asyncio.wait([moving])
    assert moving.cancelled()
    assert "held" not in (await sh(env, "sleep 0.3")).output
    assert on_other(project)


async def test_what_was_stopped_ends_as_it_would_have(person: Person) -> None:
    env = await person.open()
    process = await env.spawn(ShellRun(script="sleep 1; exit 3"))
    front = asyncio.ensure_future(sh(env, "touch begun; sleep 1; echo done"))
    await until_there(person.project / "begun")
    await out(env, "git status")
    result = await front
    assert (result.output, result.timed_out) == ("done\n", False)
    assert (await env.wait(process.id, 20.0)).exit_code == 3


async def test_nothing_stands_still_for_longer_than_the_command(person: Person) -> None:
    """Not if it fails, is ended, or ends everything inside."""
    env = await person.open()
    await begun(env, person.project, "while :; do date >> log; sleep 0.01; done")
    assert (await out(env, "git no-such-thing")).exit_code
    assert (await out(env, "tail -f log", timeout=0.5)).timed_out
    size = (person.project / "log").stat().st_size
    await sh(env, "sleep 0.2")
    assert (person.project / "log").stat().st_size > size
    for process in processes_with("date >> log"):
        os.kill(process, signal.SIGKILL)
    assert (await out(env, "git status")).exit_code == 0


async def test_what_a_kill_leaves_standing_still_is_ended_by_the_next(person: Person) -> None:
    script = f"""
        import asyncio, os
        from pathlib import Path
        from fakes.boxes import Boxes
        from fakes.person import until_there
        from hermes.domain.ports.execution import ShellRun

        async def main():
            home, project = Path({str(person.boxes.home)!r}), {str(person.project)!r}
            environ = {{"HOME": {str(person.home)!r}}}
            boxes = Boxes("sandbox", home, base_env=environ, project=project)
            env = await boxes.pool.get("main", "s1", project)
            await env.spawn(ShellRun(script="touch begun; exec sleep 0777"))
            await until_there(Path(project, "begun"))
            kill = f"touch {{project}}/.killed; kill -9 {{os.getpid()}}; sleep 1"
            Path(project, ".git/hooks/pre-commit").write_text(f"#!/bin/sh\\n{{kill}}")
            Path(project, ".git/hooks/pre-commit").chmod(0o755)
            await env.run(ShellRun(script="git commit --allow-empty -m x", outside=True))

        asyncio.run(main())
    """
    (person.project / ".git/hooks").mkdir(exist_ok=True)
    process = other_process(script)
    await asyncio.to_thread(process.communicate, timeout=30)
    assert (person.project / ".killed").exists()
    left = [p for p in processes_with("sleep 0777") if "T" in state_of(p)]
    await sh(await person.open("s2"), "true")
    assert left
    assert not set(left) & set(processes_with("sleep 0777"))


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("git checkout other", True),
        ("cd sub && git pull --rebase 2>&1 | tail -3", True),
        ("/usr/bin/git status; cp a .envrc", True),
        ("curl localhost:3000", False),
        ("git pull && npm test", False),
        ("for f in *; do git add $f; done", False),
        ("git log $(curl localhost:3000)", False),
        ("$GIT status", False),
        ("X=1", False),
        ("", False),
        ("git 'unfinished", False),
        ("(" * 3000, False),
    ],
)
def test_only_what_works_on_files_is_waited_for(text: str, waits: bool) -> None:
    assert is_file_work(text) is waits
