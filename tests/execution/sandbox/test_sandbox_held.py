"""What the person saved while something ran is held, and never lost: whatever is killed when."""

import asyncio
import re
from pathlib import Path

import pytest

from fakes.boxes import sh
from fakes.hermes_process import other_process
from fakes.person import Person, saved, until_there
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backends.sandbox import patrol

pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch, person: Person) -> None:
    """Have the guard look often, at a project that has something to guard."""
    monkeypatch.setattr(patrol, "EVERY", 0.05)
    (person.project / ".envrc").write_text("as it was\n")


def told(output: str, name: str) -> list[str]:
    """Return what is in the copies of a file that a note names."""
    place = re.search(r"Copies are in (\S+)/<number>", output)
    marks = re.findall(rf"[ ,:]{re.escape(name)} \(copy (\w+)\)", output)
    return [Path(place[1], mark, Path(name).name).read_text() for mark in marks] if place else []


RUNS = "touch ready; sleep 60"


def another_hermes(person: Person, then: str = "") -> str:
    return f"""
        import asyncio, os, signal
        from pathlib import Path
        from fakes.boxes import Boxes
        from hermes.domain.ports.execution import ShellRun
        from hermes.execution.backends.sandbox import guard, held, patrol
        patrol.EVERY = 0.05
        def killed(*_):
            os.kill(os.getpid(), signal.SIGKILL)
        async def main():
            boxes = Boxes("sandbox", Path({str(person.boxes.home)!r}),
                base_env={{"HOME": {str(person.home)!r}}}, project={str(person.project)!r})
            env = await boxes.pool.get("main", "s0", {str(person.project)!r})
            await env.run(ShellRun(script="true"))
            {then}
            await env.run(ShellRun(script={RUNS!r}))
        asyncio.run(main())
    """


async def test_each_save_is_kept_whatever_commands_do_to_what_was_held(person: Person) -> None:
    envrc, gone = person.project / ".envrc", person.project / ".envrc.held"
    env = await person.open()
    await env.spawn(ShellRun(script=RUNS))
    await until_there(person.project / "ready")
    for text in ("first\n", "second\n", "second\n"):
        saved(envrc, text)
        await until_there(gone)
        assert envrc.read_text() == "as it was\n"
        gone.unlink()
        assert told((await sh(env, "true")).output, ".envrc") == [text]
    (person.project / "sub/.vscode").mkdir(parents=True)
    (person.project / "sub/.vscode/tasks.json").write_text("mine")
    await until_there(person.project / "sub/.vscode.held")
    result = await sh(env, "rm -rf sub")
    copy = re.search(r"sub/\.vscode \(copy (\w+)\)", result.output)
    assert copy, result.output
    (kept,) = person.boxes.home.glob(f"sandboxes/sandbox/.projects/*/held/{copy[1]}")
    assert (kept / ".vscode/tasks.json").read_text() == "mine"
    assert "held" not in (await sh(env, "true")).output


async def test_one_that_is_too_large_for_a_copy_keeps_a_name_of_its_own(person: Person) -> None:
    env = await person.open()
    await env.spawn(ShellRun(script=RUNS))
    await until_there(person.project / "ready")
    sizes = [9 << 20, 10 << 20]
    for size in sizes:
        saved(person.project / ".envrc", "x" * size)
        assert "Renamed to *.held: .envrc." in (await sh(env, "true")).output
    held = person.project.glob(".envrc.held*")
    assert sorted(path.stat().st_size for path in held) == sizes


async def test_what_was_held_is_told_by_the_next_hermes_if_this_one_is_killed(
    person: Person,
) -> None:
    with other_process(another_hermes(person)) as child:
        await until_there(person.project / "ready")
        saved(person.project / ".envrc", "of the person\n")
        await until_there(person.project / ".envrc.held")
        child.kill()
    (person.project / ".envrc.held").unlink()
    one, two = await person.open("s1"), await person.open("s2")
    for env in (one, two):  # the first one may have been killed before it was shown
        assert told((await sh(env, "true")).output, ".envrc") == ["of the person\n"]
    assert "held" not in (await sh(one, "true")).output
    await person.boxes.pool.close()
    assert "held" not in (await sh(await person.open("s3"), "true")).output
    assert (person.project / ".envrc").read_text() == "as it was\n"


@pytest.mark.parametrize("step", ["guard._restore", "held.Copies.keep", "guard.Guard._settle"])
async def test_a_kill_in_between_loses_neither_what_was_saved_nor_what_was_there(
    person: Person, step: str
) -> None:
    with other_process(another_hermes(person, f"{step} = killed")) as child:
        await until_there(person.project / "ready")
        saved(person.project / ".envrc", "of the person\n")
        await asyncio.to_thread(child.wait)
    held = [path.read_text() for path in person.project.glob(".envrc.held*")]
    assert held == ["of the person\n"]
    result = await sh(await person.open(), "true")
    assert re.search(r"Renamed to \*\.held: \.envrc\b", result.output), result.output
    assert (person.project / ".envrc").read_text() == "as it was\n"


async def test_what_was_held_when_a_session_ended_is_told_in_the_next(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "EVERY", 60.0)
    env = await person.open()
    await env.spawn(ShellRun(script=RUNS))
    await until_there(person.project / "ready")
    saved(person.project / ".envrc", "of the person\n")
    await env.close()
    assert (person.project / ".envrc").read_text() == "as it was\n"
    result = await sh(await person.open("s2"), "true")
    assert told(result.output, ".envrc") == ["of the person\n"]


async def test_the_person_is_told_at_once_while_a_command_runs_that_the_model_waits_for(
    person: Person,
) -> None:
    env = await person.open()
    command = asyncio.create_task(sh(env, RUNS))
    await until_there(person.project / "ready")
    for text in ("first\n", "second\n"):
        saved(person.project / ".envrc", text)
        notice = await person.boxes.pool.next_notice()
        assert notice.aside
        assert notice.text.startswith("Renamed to *.held: .envrc (copy ")
        assert told(notice.text.partition("\n")[0], ".envrc") == [text]
    command.cancel()
    result = await sh(env, "true")
    assert len(re.findall(r"\.envrc \(copies \w{10}, \w{10}\)\.", result.output)) == 1
    await sh(env, "echo evil > .exrc")
    assert (await person.boxes.pool.next_notice()).text.startswith("Renamed to *.held: .exrc")


async def test_that_everything_inside_was_ended_is_told_at_once(person: Person) -> None:
    env = await person.open()
    await env.spawn(ShellRun(script=RUNS))
    await until_there(person.project / "ready")
    saved(person.project / ".envrc", "first\n")
    first = (await person.boxes.pool.next_notice()).text
    await env.spawn(ShellRun(script="while :; do echo evil >.envrc; done 2>/dev/null"))
    saved(person.project / ".envrc", "second\n")
    ended = await person.boxes.pool.next_notice()
    assert "while something runs" in first
    assert "all processes there were ended: it can be saved or put back now" in ended.text
    assert "while something runs" not in ended.text
    assert not ended.aside


async def test_what_a_session_has_been_told_is_not_told_by_the_next_hermes(person: Person) -> None:
    env = await person.open()
    await env.spawn(ShellRun(script=RUNS))
    await until_there(person.project / "ready")
    untold = person.boxes.home.glob("sandboxes/sandbox/.projects/*/held/*.untold")
    saved(person.project / ".envrc", "of the person\n")
    notice = await person.boxes.pool.next_notice()
    assert told(notice.text, ".envrc") == ["of the person\n"]
    assert [path.read_text() for path in untold] == [".envrc"]
    notice.admitted()
    await env.close()
    assert "held" not in (await sh(await person.open("s2"), "true")).output
