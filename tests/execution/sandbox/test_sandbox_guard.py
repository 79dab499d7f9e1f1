"""What the host runs later stays the person's: whatever happens to mounts, modes and Hermes."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from fakes.boxes import Boxes, says, sh
from fakes.hermes_process import other_process
from fakes.person import Person, saved, until_there
from hermes.domain.errors import HermesError
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backends.sandbox import guard, patrol

pytestmark = pytest.mark.usefixtures("bubblewrap")

EVIL = "git config core.fsmonitor ./evil; echo evil >> .envrc"


def _opened_up(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755)


async def test_what_the_person_replaces_stays_guarded(person: Person) -> None:
    envrc, config = person.project / ".envrc", person.project / ".git/config"
    envrc.write_text("as it was\n")
    env = await person.open()
    await sh(env, EVIL)
    for round_ in ("one", "two"):
        person.git("config", "alias.mine", f"!{round_}")
        saved(envrc, f"edited {round_}\n")
        result = await sh(env, EVIL)
        assert "Read-only file system" in result.output
        assert "held" not in result.output
        assert envrc.read_text() == f"edited {round_}\n"
        assert f"!{round_}" in config.read_text()
        assert "fsmonitor" not in config.read_text()


async def test_what_a_command_changed_that_was_let_out_stays_and_is_guarded(
    person: Person,
) -> None:
    env = await person.open()
    await sh(env, "true")
    made = "git config alias.mine '!mine'; mkdir -p sub/.vscode; touch sub/.vscode/x .envrc"
    out = await env.run(ShellRun(script=made, outside=True))
    assert out.exit_code == 0
    result = await sh(env, EVIL)
    assert result.output.count("Read-only file system") == 1
    assert "held" not in result.output
    config = (person.project / ".git/config").read_text()
    assert "mine" in config
    assert "fsmonitor" not in config
    assert (person.project / ".envrc").read_text() == ""
    assert (person.project / "sub/.vscode/x").exists()


async def test_what_changes_while_a_mount_is_down_is_held_and_what_was_there_comes_back(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "EVERY", 0.05)
    envrc, config = person.project / ".envrc", person.project / ".git/config"
    envrc.write_text("as it was\n")
    env = await person.open()
    await env.spawn(
        ShellRun(script="touch ready; until echo evil >> .envrc; do sleep 0.01; done; sleep 60")
    )
    await until_there(person.project / "ready")
    person.git("config", "branch.x.remote", "origin")  # runs nothing: it stays
    saved(envrc, "by the person or not\n")
    await until_there(person.project / ".envrc.held")
    result = await sh(env, EVIL)
    assert ".envrc" in result.output
    assert "held" in result.output
    # Refused by a mount, or held once more where the mount is not back yet.
    assert envrc.read_text() == "as it was\n"
    assert 'branch "x"' in config.read_text()
    assert "fsmonitor" not in config.read_text()


MODES = {
    "sub/.envrc": "mkdir sub; echo x > sub/.envrc; chmod 555 sub",
    "dir/.vscode": "mkdir -p dir/.vscode; chmod 555 dir/.vscode dir",
    ".envrc": "echo x > .envrc; chmod 555 .",
    "none/.envrc": "mkdir none; echo x > none/.envrc; chmod 0 none/.envrc",
    "no/.vscode": "mkdir -p no/.vscode; echo x > no/.vscode/x; chmod 0 no/.vscode/x no/.vscode",
    "r/.git/config": "git init -q r; git -C r config core.fsmonitor ./evil; chmod 111 r",
    "s/.git/hooks/pre-commit": (
        "git init -q s; mkdir -p s/.git/hooks; echo evil > s/.git/hooks/pre-commit;"
        " chmod 111 s/.git/hooks s/.git"
    ),
    "t/.git/modules/m/config": (
        "git init -q t; mkdir -p t/.git/modules/m; printf '[core]\\nfsmonitor=./e\\n'"
        " > t/.git/modules/m/config; chmod 111 t/.git/modules"
    ),
}
_AS_A_USER = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
"""Root whom modes bind, as they bind users."""


async def test_modes_do_not_switch_the_guard_off(tmp_path: Path) -> None:
    script = f"""
        import asyncio, os
        from pathlib import Path
        from fakes.boxes import sh
        from fakes.person import Person, saved, until_there
        async def main():
            person = Person(Path({str(tmp_path)!r}))
            env = await person.open()
            for path, plant in {MODES!r}.items():
                result = await sh(env, plant)
                os.chmod(person.project, 0o755)
                print(path, os.path.lexists(person.project / path), " (copy " in result.output)
            await sh(env, "mkdir mine; touch mine/f; chmod 311 mine")
            print(oct((person.project / "mine").stat().st_mode))
            await person.boxes.pool.close()
        asyncio.run(main())
    """
    before = _AS_A_USER if os.geteuid() == 0 else ()
    with other_process(script, before=before) as child:
        output, _ = await asyncio.to_thread(child.communicate)
    _opened_up(tmp_path)  # pytest clears it away
    expected = [f"{path} False True" for path in MODES]
    said = [line for line in output.decode().splitlines() if not line.startswith("held in")]
    assert said == [*expected, "0o40311"]


async def test_a_forged_work_tree_leads_to_no_other_repository(person: Person) -> None:
    other = person.home / "other"
    other.mkdir()
    person.git("init", "-q", str(other))
    common = other / ".git"
    shutil.rmtree(person.project / ".git")
    forged = person.project / "worktrees/own"
    forged.mkdir(parents=True)
    (forged / "gitdir").write_text(f"{person.project}/.git")
    (person.project / ".git").write_text("gitdir: worktrees/own\n")
    for target in (str(common), f"{person.project}/link"):
        (forged / "commondir").write_text(target)
        (person.project / "link").unlink(missing_ok=True)
        (person.project / "link").symlink_to(common)
        env = await person.open(target[-4:])
        assert env.exposed == (str(person.project),)
        assert (await sh(env, f"cat {common}/config")).exit_code != 0
        await env.close()


@pytest.mark.parametrize("late", [False, True])
async def test_what_a_killed_hermes_left_is_held_by_the_next(person: Person, late: bool) -> None:
    (person.project / ".github").mkdir()
    (person.project / ".github/ci.yml").write_text("as it was")
    plant = "echo evil > .envrc; mkdir -p sub/.vscode; touch planted; sleep 60"
    script = f"""
        import asyncio
        from pathlib import Path
        from fakes.boxes import Boxes
        from hermes.domain.ports.execution import ShellRun
        from hermes.execution.backends.sandbox import guard, patrol
        patrol.EVERY = 60.0
        async def main():
            boxes = Boxes("sandbox", Path({str(person.boxes.home)!r}),
                base_env={{"HOME": {str(person.home)!r}}}, project={str(person.project)!r})
            env = await boxes.pool.get("main", "s0", {str(person.project)!r})
            await env.run(ShellRun(script={plant!r}))
        asyncio.run(main())
    """
    with other_process(script) as child:
        await until_there(person.project / "planted")
        child.kill()
    if late:  # as if it had been long ago, and all of this made since then
        for record in person.boxes.home.glob("sandboxes/sandbox/.projects/*/*/before"):
            os.utime(record, (1.0, 1.0))
    env = await person.open()
    assert (person.project / ".envrc").exists() is late
    assert (person.project / "sub/.vscode").exists() is late
    result = await sh(env, "true")
    assert ("held" in result.output) is not late
    assert (person.project / ".github/ci.yml").read_text() == "as it was"
    (person.project / ".envrc").write_text("of the person")
    assert "held" not in (await sh(env, "true")).output or late


OF_GIT = """
    sub/.git sub/.git/config sub/.git/hooks/pre-commit .git/modules/a/config
    .git/rebase-merge/git-rebase-todo .git/worktrees/x/commondir new/.git/config
"""


@pytest.mark.parametrize("path", OF_GIT.split())
async def test_the_file_tools_write_nothing_of_git(person: Person, path: str) -> None:
    env = await person.open()
    if path.startswith("sub/.git/"):
        await sh(env, "git init -q sub")
    with pytest.raises(HermesError, match="read-only"):
        await env.write(path, b"exec touch x\n")
    with pytest.raises(HermesError):
        await env.remove(path)
    file = person.project / path
    assert not file.is_file() or "exec" not in file.read_text()


async def test_a_crowd_of_repositories_leaves_none_unguarded(person: Person) -> None:
    for number in range(260):
        git = person.project / f"r{number}/.git"
        (git / "hooks").mkdir(parents=True)
        (git / "config").write_text("[core]\n\tbare = false\n[alias]\n\tmine = !mine\n")
        (git / "hooks/pre-commit").write_text("mine\n")
    env = await person.open()
    plant = "printf '[core]\\n\\tfsmonitor = ./e\\n' >> $r/.git/config; echo >> $r/.git/hooks/new"
    await sh(env, f"for r in r*; do {plant}; echo evil >> $r/.git/hooks/pre-commit; done")
    gits = list(person.project.glob("r*/.git"))
    assert len(gits) == 260
    assert {(git / "config").read_text() for git in gits} == {
        "[core]\n\tbare = false\n[alias]\n\tmine = !mine\n"
    }
    assert {(git / "hooks/pre-commit").read_text() for git in gits} == {"mine\n"}
    assert [git for git in gits if (git / "hooks/new").exists()] == []


async def test_a_rebase_under_way_gets_nothing_to_run(person: Person) -> None:
    todo = person.project / ".git/rebase-merge/git-rebase-todo"
    todo.parent.mkdir()
    todo.write_text("exec make test\npick abc first\npick def second\n")
    env = await person.open()
    trees = ".git/worktrees/tree/rebase-merge"
    await sh(
        env,
        "echo 'exec touch /tmp/x' >> .git/rebase-merge/git-rebase-todo; git worktree add -q tree;"
        f" mkdir {trees}; echo 'exec touch /tmp/x' > {trees}/git-rebase-todo",
    )
    assert todo.read_text() == "exec make test\npick abc first\npick def second\n"
    assert not (person.project / trees / "git-rebase-todo").exists()
    shorter = "exec make test\npick def second\n"
    assert "held" not in (await sh(env, f"printf '{shorter}' > {todo}")).output
    assert todo.read_text() == shorter


async def test_names_that_are_no_text_neither_stop_the_sandbox_nor_mislead(
    person: Person,
) -> None:
    env = await person.open()
    made = await sh(env, r"d=$'\xff\x1b[31m\nX'; mkdir -p $'old\xff/.vscode' $d; touch $d/.envrc")
    made.output.encode()
    assert "\x1b" not in made.output
    assert "X/.envrc" in made.output
    await env.close()
    (person.project / os.fsdecode(b"d\xff") / ".vscode").mkdir(parents=True)
    again = await person.open("s2")
    assert await says(again, "echo usable") == "usable"
    assert (await sh(again, r"touch $'d\xff/.vscode/x'")).exit_code != 0


async def test_what_was_planted_before_a_sandbox_ended_is_not_taken_for_the_persons(
    person: Person,
) -> None:
    boxes = Boxes(
        "sandbox",
        person.boxes.home,
        base_env={"HOME": str(person.home)},
        project=str(person.project),
        max_processes=40,
    )
    env = await boxes.pool.get("main", "full", str(person.project))
    filling = "for i in $(seq 35); do sleep 60 >/dev/null & done; (sleep 0.1; touch .envrc) &"
    await sh(env, filling)
    await sh(env, "true")
    await boxes.pool.close()
    assert not (person.project / ".envrc").exists()


async def test_a_repository_of_the_sandbox_becomes_the_persons_when_they_change_it(
    person: Person,
) -> None:
    env = await person.open()
    await sh(env, "git init -q sub && sleep 0.2")
    person.git("-C", "sub", "config", "alias.mine", "!mine")
    result = await sh(env, "git -C sub config core.fsmonitor ./evil; true")
    assert (person.project / "sub/.git/config.held").exists(), result.output
    config = (person.project / "sub/.git/config").read_text()
    assert "mine" in config
    assert "fsmonitor" not in config


async def test_settings_that_name_others_in_turn_stay_and_so_do_hooks_of_all_repositories(
    person: Person,
) -> None:
    config = person.project / ".git/config"
    config.write_text(config.read_text() + "[include]\n\tpath = ../shared\n")
    person.file(".gitconfig", "[core]\n\thooksPath = .githooks\n[alias]\n\tst = status\n")
    (person.project / "shared").write_text("[include]\n\tpath = more.cfg\n")
    (person.project / "more.cfg").write_text("[user]\n")
    (person.project / ".githooks").mkdir()
    env = await person.open()
    await sh(env, "echo evil >> more.cfg; echo evil > .githooks/pre-commit")
    assert (person.project / "more.cfg").read_text() == "[user]\n"
    assert not (person.project / ".githooks/pre-commit").exists()
    assert "held" not in (await sh(env, "touch status")).output


@pytest.mark.parametrize("name", [".config/mise.toml", "sub/.git/modules/m/config"])
async def test_a_link_on_the_way_is_held_itself(person: Person, name: str) -> None:
    env = await person.open()
    folder, file = name.rsplit("/", 1) if name[0] == "." else ("sub/.git/modules", "m/config")
    make = f"mkdir -p $(dirname {folder}) conf/m; printf '[core]\nfsmonitor = x\n' > conf/{file}"
    result = await sh(env, f"{make}; ln -s $PWD/conf {folder}")
    assert "held" in result.output
    assert not (person.project / folder).is_symlink()


PLANTS = (
    "while :; do [ -e .envrc ] || echo evil >.envrc;"
    " [ -e .git/commondir ] || echo x >.git/commondir; done"
)


async def test_what_comes_back_each_time_it_is_held_ends_the_sandbox(person: Person) -> None:
    env = await person.open()
    process = await env.spawn(ShellRun(script=f"touch ready; {PLANTS}"))
    await until_there(person.project / "ready")
    ended = await env.wait(process.id, 20.0)
    assert not ended.running
    result = await sh(env, "echo usable")
    planted = [person.project / name for name in (".envrc", ".git/commondir")]
    assert not any(path.exists() for path in planted)
    assert result.output.startswith("usable\n")
    assert "It came back" in result.output
    assert "everything that ran in the sandbox was ended" in result.output
    assert (await sh(env, "echo usable")).output == "usable\n"


async def test_a_command_that_finds_the_sandbox_ended_by_a_look_runs_and_is_guarded(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "EVERY", 60.0)
    env = await person.open()
    await env.spawn(ShellRun(script=f"touch ready; {PLANTS}"))
    await until_there(person.project / "ready")
    await until_there(person.project / ".envrc")
    notes = (await sh(env, "true")).output
    async with asyncio.timeout(60):  # what puts it back may not have had its turn
        while "ran" not in notes or "It came back" not in notes:
            again = await sh(env, "echo ran; echo evil > .exrc")
            assert "ran" in again.output
            assert ".exrc" in again.output
            notes += again.output
    assert not (person.project / ".envrc").exists()


async def test_the_same_made_twice_by_commands_ends_nothing(person: Person) -> None:
    env = await person.open()
    for _ in range(2):
        result = await sh(env, "echo mine > .envrc")
        assert ".envrc" in result.output
        assert "ended" not in result.output


async def test_a_save_gives_commands_no_chance_to_keep_another_file_there(person: Person) -> None:
    envrc = person.project / ".envrc"
    envrc.write_text("as it was\n")
    env = await person.open()
    tries = "while :; do echo evil >.envrc; done 2>/dev/null"
    process = await env.spawn(ShellRun(script=f"touch ready; {tries}"))
    await until_there(person.project / "ready")
    saved(envrc, "by the person\n")
    assert not (await env.wait(process.id, 20.0)).running
    result = await sh(env, "cat .envrc")
    assert result.output.startswith("as it was\n")
    assert "everything that ran in the sandbox was ended" in result.output


async def test_what_hides_when_somebody_looks_is_found(person: Person) -> None:
    hides = """
import ctypes, os, time
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_NONBLOCK)
libc.inotify_add_watch(watch, b".", 0x20 | 0x01000000)  # IN_OPEN, IN_ONLYDIR
open("ready", "w").close()
while True:
    try:
        data = os.read(watch, 65536)
    except BlockingIOError:
        data = b""
    looked = False
    while data:
        mask, length = (int.from_bytes(data[at : at + 4], "little") for at in (4, 12))
        looked = looked or (mask & 0x40000000 and not length)  # IN_ISDIR: the folder itself
        data = data[16 + length :]
    if looked and os.path.exists(".envrc"):
        os.unlink(".envrc")
        time.sleep(0.06)
    elif not looked and not os.path.exists(".envrc"):
        open(".envrc", "w").close()
"""
    env = await person.open()
    await env.write("/tmp/hides.py", hides.encode())
    process = await env.spawn(ShellRun(script="python3 /tmp/hides.py"))
    await until_there(person.project / "ready")
    assert not (await env.wait(process.id, 20.0)).running
    assert ".envrc" in (await sh(env, "true")).output
    assert not (person.project / ".envrc").exists()


async def test_another_name_of_a_guarded_file_changes_nothing_in_it(person: Person) -> None:
    envrc = person.project / ".envrc"
    envrc.write_text("as it was\n")
    os.link(envrc, person.project / "other")
    env = await person.open()
    result = await sh(env, "echo evil >> other")
    assert ".envrc" in result.output
    assert envrc.read_text() == "as it was\n"


async def test_another_name_from_an_earlier_session_changes_nothing_either(person: Person) -> None:
    config = person.project / "sub/.git/config"
    env = await person.open()
    await sh(env, "git init -q sub; ln sub/.git/config other")
    as_it_was = config.read_text()
    await person.boxes.pool.close()
    env = await person.open("s2")
    result = await sh(env, "printf '[core]\\nfsmonitor = ./evil\\n' >> other")
    assert "sub/.git/config" in result.output
    assert config.read_text() == as_it_was


HOLDS_OPEN = """
import errno, os, time
held = os.open("ready", os.O_RDONLY)
rounds = 0
while rounds < 200:  # until no look puts another file there
    try:
        file = os.open(".envrc", os.O_RDWR)
    except OSError as error:
        assert error.errno in (errno.EROFS, errno.ENOENT), error
        there = error.errno == errno.EROFS and os.stat(".envrc")
        rounds = rounds + 1 if there and os.path.samestat(os.fstat(held), there) else 0
    else:
        rounds = 0
        if os.path.samestat(os.fstat(held), os.fstat(file)):
            os.close(file)
        else:
            os.close(held)
            held = file
    time.sleep(0.01)
open("is-go", "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
os.pwrite(held, b"evil\\n", 0)
open("is-end", "w").close()
time.sleep(600)
"""


async def test_what_opened_a_file_while_its_mount_was_down_changes_nothing_later(
    person: Person,
) -> None:
    envrc = person.project / ".envrc"
    envrc.write_text("as it was\n")
    env = await person.open()
    await env.write("/tmp/holds.py", HOLDS_OPEN.encode())
    await env.spawn(ShellRun(script="touch ready; python3 /tmp/holds.py"))
    await until_there(person.project / "ready")
    while not (person.project / "is-go").exists():
        saved(envrc, "by the person\n")
        await sh(env, "for n in $(seq 50); do [ -e is-go ] || sleep 0.1; done")
    as_it_was = envrc.read_text()
    (person.project / "go").touch()
    await until_there(person.project / "is-end")
    result = await sh(env, "true")
    assert ".envrc" in result.output
    assert envrc.read_text() == as_it_was


KEEPS_BUSY = """
import os
held = os.dup(0)
while True:
    try:
        file = os.open(".envrc", os.O_RDWR)
    except OSError:
        continue
    os.close(held)
    held = file
"""


async def test_what_opens_a_file_all_the_time_keeps_no_mount_from_being_made(
    person: Person,
) -> None:
    envrc = person.project / ".envrc"
    envrc.write_text("as it was\n")
    env = await person.open()
    await env.write("/tmp/busy.py", KEEPS_BUSY.encode())
    process = await env.spawn(ShellRun(script="touch ready; python3 /tmp/busy.py"))
    await until_there(person.project / "ready")
    for _ in range(3):
        saved(envrc, "by the person\n")
        await sh(env, "true")
    await env.kill(process.id)
    as_it_was = envrc.read_text()
    for _ in range(5):
        await sh(env, "true")
    assert "Read-only" in (await sh(env, "echo evil >> .envrc")).output
    assert envrc.read_text() == as_it_was


HOLDS_MAPPED = """
import mmap, os, time
with open(".tool-versions", "r+b") as file:
    map = mmap.mmap(file.fileno(), 0)
map[:1] = map[:1]
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
map[:] = b"python path:./evil".ljust(len(map) - 1) + b"\\n"
open("is-end", "w").close()
time.sleep(600)
"""


async def test_what_is_written_through_a_mapping_leaves_no_time_and_is_found(
    person: Person,
) -> None:
    versions = person.project / ".tool-versions"
    versions.write_text("python 3.12.1\nnodejs 20.1.0\n")
    env = await person.open()
    await env.write("/tmp/holds.py", HOLDS_MAPPED.encode())
    await env.spawn(ShellRun(script="python3 /tmp/holds.py"))
    await until_there(person.project / "ready")
    await sh(env, "sleep 0.2")
    assert ".tool-versions" not in (await sh(env, "true")).output
    (person.project / "go").touch()
    await until_there(person.project / "is-end")
    result = await sh(env, "true")
    assert ".tool-versions" in result.output
    assert versions.read_text() == "python 3.12.1\nnodejs 20.1.0\n"


async def test_a_file_in_a_guarded_folder_changes_by_no_other_name(person: Person) -> None:
    hook = person.file("src/project/scripts/pre-commit", "as it was\n")
    os.link(hook, person.project / ".git/hooks/pre-commit")
    env = await person.open()
    result = await sh(env, "echo evil >> scripts/pre-commit")
    assert ".git/hooks/pre-commit" in result.output
    assert (person.project / ".git/hooks/pre-commit").read_text() == "as it was\n"


HOLDS_FOLDER = """
import os, time
held = None
open("ready", "w").close()
while not os.path.exists("go"):
    try:
        folder = os.open(".vscode", os.O_RDONLY)
    except OSError:
        continue
    try:
        os.utime(".", dir_fd=folder)
    except OSError:
        os.close(folder)
    else:
        held = folder
    time.sleep(0.01)
os.close(os.open("tasks.json", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=held))
open("is-end", "w").close()
time.sleep(600)
"""


def _with_branches(person: Person) -> None:
    """Commit a guarded folder, and have a branch without it."""
    person.file("src/project/.vscode/settings.json", "{}\n")
    person.git("add", ".")
    person.git("commit", "-qm", "with")
    person.git("checkout", "-qb", "without")
    person.git("rm", "-rq", ".vscode")
    person.git("commit", "-qm", "without")
    person.git("checkout", "-q", "-")


async def test_who_stands_in_a_guarded_folder_since_its_mount_was_down_makes_nothing_there(
    person: Person,
) -> None:
    _with_branches(person)
    env = await person.open()
    await env.write("/tmp/holds.py", HOLDS_FOLDER.encode())
    await env.spawn(ShellRun(script="python3 /tmp/holds.py"))
    await until_there(person.project / "ready")
    for branch in ("without", "-"):
        person.git("checkout", "-fq", branch)
    await sh(env, "sleep 0.5")
    await sh(env, "true")
    (person.project / "go").touch()
    await until_there(person.project / "is-end")
    result = await sh(env, "true")
    assert "tasks.json" in result.output
    assert not (person.project / ".vscode/tasks.json").exists()


async def test_the_person_switches_branches_and_back_while_something_runs(person: Person) -> None:
    _with_branches(person)
    env = await person.open()
    await env.spawn(ShellRun(script="touch ready; sleep 600"))
    await until_there(person.project / "ready")
    for branch in ("without", "-"):
        person.git("checkout", "-q", branch)
    result = await sh(env, "true")
    assert "held" not in result.output
    assert person.git("status", "--porcelain") == "?? ready\n"


async def test_what_was_held_is_left_out_of_commits(person: Person) -> None:
    env = await person.open()
    result = await sh(env, "mkdir .vscode; echo {} > .vscode/x; touch .envrc code")
    assert "held" in result.output
    await sh(env, "git add -A; git commit -qm all")
    assert person.git("ls-files") == "code\n"


async def test_a_file_of_the_person_named_like_what_was_held_stays(person: Person) -> None:
    own = person.file("src/project/.envrc.held", "of the person\n")
    env = await person.open()
    for _ in range(2):
        assert ".envrc" in (await sh(env, "echo evil > .envrc")).output
    assert own.read_text() == "of the person\n"
    assert not (person.project / ".envrc").exists()


async def test_no_byte_in_a_setting_ends_the_looks(person: Person) -> None:
    env = await person.open()
    bad = "printf '# ] worktree = a\\0b\\n' >> aa/.git/config"
    result = await sh(env, f"git init -q aa; {bad}; echo evil > .envrc; echo done")
    assert "done" in result.output
    assert ".envrc" in result.output
    assert not (person.project / ".envrc").exists()


async def test_a_look_that_fails_ends_what_runs(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "EVERY", 0.05)
    env = await person.open()
    process = await env.spawn(ShellRun(script="touch ready; sleep 600"))
    await until_there(person.project / "ready")
    monkeypatch.setattr(guard.Guard, "check", lambda *_, **__: 1 / 0)
    assert not (await env.wait(process.id, 20.0)).running
    monkeypatch.undo()
    assert (await sh(env, "echo usable")).output == "usable\n"


async def test_a_name_with_any_byte_keeps_no_sandbox_from_starting(person: Person) -> None:
    env = await person.open()
    await sh(
        env,
        "for c in '\\r' '\\v' '\\f' '\\034' '\\n'; do git init -q \"$(printf \"a${c}b\")\"; done",
    )
    await person.boxes.pool.close()
    assert (await sh(await person.open("s2"), "echo works")).output == "works\n"


async def test_another_sandbox_takes_nothing_for_the_persons_that_was_made_inside(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "EVERY", 60.0)
    one, two = await person.open("s1"), await person.open("s2")
    for env in (one, two):
        await sh(env, "true")
    process = await one.spawn(ShellRun(script="mkdir sub; echo evil > sub/.envrc; sleep 600"))
    await until_there(person.project / "sub/.envrc")
    await sh(two, "true")
    await sh(two, "echo evil > sub/.envrc")
    assert not (person.project / "sub/.envrc").exists()
    await one.kill(process.id)
    await sh(one, "true")
    assert not (person.project / "sub/.envrc").exists()


async def test_two_sandboxes_put_back_the_same(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "EVERY", 60.0)
    envrc = person.project / ".envrc"
    envrc.write_text("as it was\n")
    one, two = await person.open("s1"), await person.open("s2")
    for env in (one, two):
        await sh(env, "true")
    changes = (
        "touch ready; until echo evil > .envrc; do sleep 0.005; done 2>/dev/null; touch is-done"
    )
    await one.spawn(ShellRun(script=f"{changes}; sleep 600"))
    await until_there(person.project / "ready")
    saved(envrc, "by the person\n")
    await until_there(person.project / "is-done")
    await two.spawn(ShellRun(script="sleep 600"))
    for env in (one, two, one, two):
        await sh(env, "true")
    assert envrc.read_text() == "as it was\n"


async def test_nobody_inside_writes_to_the_memory_of_what_holds_the_sandbox(person: Person) -> None:
    env = await person.open()
    result = await sh(env, "python3 -c \"open('/proc/1/mem', 'r+b', buffering=0)\"")
    assert "Permission denied" in result.output
