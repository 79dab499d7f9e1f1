"""What the person does in the project meanwhile is theirs: no look takes or undoes it."""

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fakes.boxes import Boxes, sh
from fakes.hermes_process import other_process
from fakes.person import Person, saved, until_there
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backend import PooledEnvironment
from hermes.execution.backends.sandbox import guard, patrol

pytestmark = pytest.mark.usefixtures("bubblewrap")

WAITS = "until [ -e {0} ]; do sleep 0.02; done"


async def serving(env: PooledEnvironment, person: Person) -> None:
    """Have something run inside, as a server of the project does."""
    await env.spawn(ShellRun(script="touch serving; exec sleep 600"))
    await until_there(person.project / "serving")


async def looked(env: PooledEnvironment) -> str:
    """Return what is told after a look."""
    return (await sh(env, "true")).output


def there(project: Path) -> set[str]:
    return {str(p.relative_to(project)) for p in project.rglob("*") if ".git/" not in str(p)}


async def test_another_name_of_a_long_file_takes_nothing_away(person: Person) -> None:
    for name in (".idea/workspace.xml", ".github/banner.png", ".vscode/words.json"):
        file = person.project / name
        file.parent.mkdir()
        file.write_bytes(os.urandom(45_000).hex().encode())
    env = await person.open()
    await serving(env, person)
    before = there(person.project)
    shutil.copytree(person.project, person.home / "backup", copy_function=os.link)
    assert "held" not in await looked(env)
    assert there(person.project) == before


async def test_a_long_file_that_was_changed_by_another_name_is_held(person: Person) -> None:
    file = person.project / ".idea/workspace.xml"
    file.parent.mkdir()
    file.write_text("x" * 90_000)
    other = person.project / "other.xml"
    other.hardlink_to(file)
    env = await person.open()
    await looked(env)
    result = await sh(env, f"printf y | dd of={other} conv=notrunc bs=1 seek=80000")
    assert ".idea/workspace.xml" in result.output.partition("Renamed to *.held")[2]


async def test_what_comes_back_as_it_was_stays_while_something_runs(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a branch is left and gone back to."""
    monkeypatch.setattr(patrol, "EVERY", 0.05)
    for name in (".envrc", ".github/ci.yml", "sub/.vscode/tasks.json", "sub/.envrc"):
        person.file(f"src/project/{name}", "# 1\n")
    person.git("add", "-A")
    person.git("commit", "-qm", "two")
    env = await person.open()
    await serving(env, person)
    before = there(person.project)
    for _ in range(2):
        person.git("checkout", "-q", "HEAD^")
        await looked(env)
        person.git("checkout", "-q", "-")
        assert "held" not in await looked(env)
        assert there(person.project) == before
    result = await sh(env, "echo evil > sub/.envrc; echo evil > .github/ci.yml; mkdir .idea")
    assert ".idea" in result.output
    person.git("checkout", "-q", "HEAD^")
    await looked(env)
    made = "mkdir -p .github sub; echo evil > .github/ci.yml;"
    result = await sh(env, f"{made} echo '# 1' > .envrc; chmod +x .envrc")
    assert ".github/ci.yml" in result.output
    assert ".envrc" in result.output, "it has another mode"


async def test_what_is_saved_between_two_commands_stays(person: Person) -> None:
    env = await person.open()
    await looked(env)
    (person.project / "sub/.vscode").mkdir(parents=True)
    (person.project / "sub/.envrc").write_text("export A=1\n")
    (person.project / "sub/.vscode/settings.json").write_text("{}")
    assert "held" not in await looked(env)
    assert {"sub/.envrc", "sub/.vscode/settings.json"} <= there(person.project)


async def test_what_is_done_while_nothing_runs_outlives_the_session(person: Person) -> None:
    (person.project / ".envrc").write_text("old\n")
    env = await person.open()
    await looked(env)
    (person.project / "sub").mkdir()
    (person.project / "sub/.envrc").write_text("export MINE=1\n")
    saved(person.project / ".envrc", "new\n")
    person.git("config", "core.editor", "vim")
    before = there(person.project)
    await person.boxes.pool.close()
    assert there(person.project) == before
    assert (person.project / ".envrc").read_text() == "new\n"
    assert "vim" in (person.project / ".git/config").read_text()


async def test_a_mended_file_of_what_was_held_is_not_replaced(person: Person) -> None:
    env = await person.open()
    await sh(env, "echo a > .envrc")
    saved(person.project / ".envrc.held", "mended by the person\n")
    await sh(env, "echo b > .envrc")
    assert (person.project / ".envrc.held").read_text() == "mended by the person\n"
    first, second = await sh(env, "true"), await sh(env, "echo c > .envrc")
    assert "held" not in first.output
    assert ".envrc" in second.output
    assert (person.project / ".envrc.held").read_text() == "mended by the person\n"


async def test_what_editors_and_git_note_by_themselves_stays(person: Person) -> None:
    env = await person.open()
    await serving(env, person)
    for key, value in {
        "branch.x.vscode-merge-base": "origin/main",
        "branch.x.gk-last-accessed": "2026-01-01",
        "branch.x.github-pr-owner-number": "a#b#1",
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "lfs.repositoryformatversion": "0",
        "branch.x.remote": "origin",
    }.items():
        person.git("config", key, value)
        assert "held" not in await looked(env)
        assert person.git("config", key).strip() == value


async def test_no_list_of_an_earlier_rebase_comes_back_into_a_later_one(person: Person) -> None:
    for number in range(6):
        (person.project / f"f{number}").write_text(str(number))
        person.git("add", f"f{number}")
        person.git("commit", "-qm", f"commit {number}")
    commits = person.git("log", "--format=%s")
    env = await person.open()
    await serving(env, person)
    go, at, todo = person.home / "go", person.home / "at", ".git/rebase-merge/git-rebase-todo"
    editor = person.file("editor", f"#!/bin/sh\n{WAITS.format(go)}\n")
    editor.chmod(0o755)
    person.git("config", "--global", "sequence.editor", str(editor))
    first = asyncio.create_task(asyncio.to_thread(person.git, "rebase", "-i", "HEAD~2"))
    await until_there(person.project / todo)
    assert "held" not in await looked(env)
    go.touch()
    await first
    await looked(env)

    go.unlink()
    command = f"touch {at}; {WAITS.format(go)}"
    rebase = asyncio.to_thread(person.git, "rebase", "--exec", command, "HEAD~4")
    second = asyncio.create_task(rebase)
    await until_there(at)
    assert todo in await looked(env)
    assert not (person.project / todo).exists()
    go.touch()
    with pytest.raises(subprocess.CalledProcessError):  # it stops, and does not end early
        await second
    person.git("rebase", "--abort")
    assert person.git("log", "--format=%s") == commits


async def test_settings_of_one_repository_do_not_come_back_into_another(person: Person) -> None:
    env = await person.open()
    await sh(env, "git init -q lib; git -C lib remote add origin https://example.org/a")
    await serving(env, person)
    await sh(env, "rm -rf lib")
    result = await sh(env, "git init -q lib; git -C lib config core.fsmonitor ./evil")
    assert "lib/.git/config" in result.output
    assert not (person.project / "lib/.git/config").exists()


async def test_a_kill_while_something_is_put_back_leaves_all_of_it(person: Person) -> None:
    person.git("remote", "add", "origin", "https://example.org/x.git")
    script = f"""
        import asyncio, os, signal
        from pathlib import Path
        from fakes.boxes import Boxes, sh
        from hermes.domain.ports.execution import ShellRun
        from hermes.execution.backends.sandbox import patrol
        patrol.EVERY = 0.05
        real = os.fchmod
        def killed(fd, mode):
            if "/.git/config" in os.readlink(f"/proc/self/fd/{{fd}}"):
                os.kill(os.getpid(), signal.SIGKILL)
            real(fd, mode)
        os.fchmod = killed
        async def main():
            home = Path({str(person.boxes.home)!r})
            env = {{"HOME": {str(person.home)!r}}}
            boxes = Boxes("sandbox", home, base_env=env, project={str(person.project)!r})
            env = await boxes.pool.get("main", "s0", {str(person.project)!r})
            await sh(env, "true")
            await env.run(ShellRun(script="touch ready; sleep 60"))
        asyncio.run(main())
    """
    with other_process(script) as child:
        await until_there(person.project / "ready")
        person.git("config", "core.editor", "vim")
        await asyncio.to_thread(child.wait)
    await looked(await person.open())
    assert person.git("config", "remote.origin.url").strip() == "https://example.org/x.git"


async def test_files_beyond_what_is_remembered_are_not_taken_for_new_ones(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_IN_FOLDERS", 60)
    for number in range(12):
        folder = person.project / f".claude/worktrees/w/d{number}"
        folder.mkdir(parents=True)
        for name in range(10):
            (folder / f"f{name}").write_text("x")
        settings = person.project / f"pkg{number}/.vscode/settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text("{}")
    one, two = await person.open("one"), await person.open("two")
    await looked(one)
    await serving(two, person)
    await looked(one)
    shutil.rmtree(person.project / ".claude/worktrees/w/d3")
    before = there(person.project)
    for env in (one, two, one):
        assert "held" not in await looked(env)
    assert there(person.project) == before


RETURNS = r"""
import ctypes, os, struct, time
libc, body = ctypes.CDLL(None), b"#" * (4 << 20)
ino = libc.inotify_init1(0)
MOVED, CLOSED = 0x800, 0x10
def put():
    with open("draft", "wb") as file:
        file.write(body)
    watch = libc.inotify_add_watch(ino, b"draft", MOVED | CLOSED)
    os.rename("draft", ".envrc")
    return watch
watch, moves = put(), 0
while True:
    data, at = os.read(ino, 4096), 0
    while at < len(data):
        w, mask, _, size = struct.unpack_from("iIII", data, at)
        at += 16 + size
        if w != watch:
            continue
        moves += bool(mask & MOVED)
        if mask & CLOSED and moves == 2:
            for name in os.listdir("."):
                if name.startswith(".envrc.held"):
                    os.unlink(name)
            time.sleep(0.1)
            watch, moves = put(), 0
            break
"""


async def test_what_is_taken_away_right_after_it_was_held_was_held_all_the_same(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "EVERY", 0.1)
    (person.project / "returns.py").write_text(RETURNS)
    env = await person.open()
    result = await sh(env, "exec python3 returns.py", timeout=45)
    assert "It came back at once" in result.output
    assert not (person.project / ".envrc").exists()


async def test_a_file_call_that_waits_does_not_reach_the_next_sandbox(tmp_path: Path) -> None:
    boxes = Boxes("sandbox", tmp_path)
    one, two = await boxes.open("one"), await boxes.open("two")
    lock = "import fcntl, os, time; f = os.open('d', 0); fcntl.flock(f, fcntl.LOCK_EX);"
    await sh(one, "mkdir d")
    await one.spawn(ShellRun(script=f"python3 -c \"{lock} open('locked', 'w'); time.sleep(60)\""))
    await until_there(boxes.directory("one") / "workspace/locked")
    waiting = [asyncio.create_task(one.write(f"/workspace/d/{n}", b"x")) for n in range(2)]
    await asyncio.sleep(0)
    late = asyncio.create_task(one.write("/workspace/planted", b"x"))
    read = asyncio.create_task(one.read("/workspace/diary"))
    await asyncio.sleep(0)
    full = await sh(one, "for i in $(seq 505); do sleep 60 & done")
    assert "sandbox was full" in full.output
    await sh(two, "echo private > diary")
    done = await asyncio.gather(*waiting, late, read, return_exceptions=True)
    assert b"private\n" not in done
    assert (await sh(two, "ls")).output == "diary\n"
    await boxes.pool.close()


@pytest.mark.parametrize("name", ["remotes", "branches"])
async def test_a_remote_in_the_old_form_is_held(person: Person, name: str) -> None:
    env = await person.open()
    result = await sh(env, f"mkdir -p .git/{name}; echo 'URL: ./evil' > .git/{name}/origin")
    assert f".git/{name}" in result.output
    assert not (person.project / f".git/{name}/origin").exists()


@pytest.mark.parametrize("url", ["{0}", "file://{0}", "../.git/objects/zz", "../link"])
async def test_no_remote_is_hidden_where_no_look_goes(person: Person, url: str) -> None:
    env = await person.open()
    hidden = person.project / ".git/objects/zz"
    await sh(env, f"git init -q --bare {hidden}; ln -s {hidden} link; git init -q lib")
    result = await sh(env, f"git -C lib remote add origin {url.format(hidden)}")
    assert "lib/.git/config" in result.output
    remote = (person.project / "lib/.git/config").read_text()
    assert "zz" not in remote
    assert "link" not in remote


async def test_a_remote_in_plain_sight_stays(person: Person) -> None:
    env = await person.open()
    await sh(env, "git init -q lib")
    for url in ("https://example.org/objects/x", "git@example.org:a/target/x", "../x", "/srv/x"):
        await sh(env, f"git -C lib remote add r{abs(hash(url))} {url}")
        assert url in (person.project / "lib/.git/config").read_text()


async def test_the_person_checks_out_other_versions_of_guarded_files(person: Person) -> None:
    ci = person.project / ".github/workflows/ci.yml"
    ci.parent.mkdir(parents=True)
    for branch, text in (("main2", "one\n"), ("feature", "two\n")):
        person.git("checkout", "-q", "-b", branch)
        ci.write_text(text)
        (ci.parent / f"{branch}.yml").write_text(text)
        person.git("add", ".github")
        person.git("commit", "-qm", branch)
    env = await person.open()
    await serving(env, person)
    for branch, text in (("main2", "one\n"), ("feature", "two\n"), ("main2", "one\n")) * 2:
        person.git("checkout", "-q", branch)
        assert "held" not in await looked(env)
        assert ci.read_text() == text
    saved(ci, "of the person\n")
    assert "held" not in await looked(env)
    ci.write_text("of the person, too\n")  # in place, as some editors save
    assert "held" not in await looked(env)
    assert person.git("status", "--short", ".github").split() == ["M", ".github/workflows/ci.yml"]
    assert "Read-only" in (await sh(env, "echo evil >> .github/workflows/ci.yml")).output


async def test_a_file_that_commands_have_open_is_compared_where_the_person_moved_it(
    person: Person,
) -> None:
    (person.project / ".github").mkdir()
    (person.project / ".github/a.yml").write_text("a\n")
    env = await person.open()
    keeps = "echo good > b.yml; exec 5>>b.yml; touch opened; until [ -e go ]; do sleep 0.02; done"
    await env.spawn(ShellRun(script=f"{keeps}; echo evil >&5; touch written; exec sleep 600"))
    await until_there(person.project / "opened")
    made = time.monotonic()
    while time.monotonic() < made + 0.2:  # longer than clocks of file systems are behind
        await looked(env)
    (person.project / "b.yml").rename(person.project / ".github/b.yml")
    assert "held" not in await looked(env)
    (person.project / "go").touch()
    await until_there(person.project / "written")
    assert ".github/b.yml" in await looked(env)
    assert (person.project / ".github/b.yml").read_text() == "good\n"


async def test_a_repository_without_a_work_tree_stays_one(person: Person) -> None:
    person.git("branch", "feature")
    env = await person.open()
    made = await sh(env, "git clone -q --mirror . mirror.git; git init -q --bare sub/server.git")
    assert "held" not in made.output
    used = await sh(
        env,
        "git push -q sub/server.git HEAD:refs/heads/main && cd mirror.git"
        " && git branch -D feature && git rev-parse --absolute-git-dir",
    )
    assert used.output.endswith(f"{person.project}/mirror.git\n")
    assert "feature" in person.git("branch")


@pytest.mark.parametrize(
    "plant",
    [
        "git -C r.git config core.fsmonitor ./evil",
        "echo evil > r.git/hooks/post-update",
        "echo '[core] fsmonitor=./evil' > r.git/config.worktree",
        "mkdir -p r.git/remotes; echo 'URL: ./evil' > r.git/remotes/origin",
    ],
)
async def test_such_a_repository_says_nothing_to_run(person: Person, plant: str) -> None:
    env = await person.open()
    await sh(env, "git init -q --bare r.git")
    result = await sh(env, plant)
    assert "Renamed to *.held: r.git/" in result.output
    at_once = await sh(env, f"rm -rf r.git; git init -q --bare r.git; {plant}")
    assert "Renamed to *.held: r.git/" in at_once.output


async def test_ordinary_settings_of_git_stay(person: Person) -> None:
    env = await person.open()
    for command in (
        "git init -q a; cd a; git sparse-checkout set sub; git sparse-checkout list",
        "git init -q b; git -C b remote add --no-tags x https://x/y",
        "git -C b remote add --mirror=fetch y https://x/y",
        "git init -q --object-format=sha256 c; git -C c config user.name n",
        "git init -q d; git -C d config blame.ignoreRevsFile f",
        "git init -q e; git -C e commit -q --allow-empty -m x; git -C e worktree add -q ../e2",
    ):
        result = await sh(env, f"cd {person.project} && {{ {command}; }}")
        assert result.exit_code == 0, result.output
        assert "held" not in result.output


async def test_the_person_is_told_at_once_of_what_was_held_while_no_command_is_asked_for(
    person: Person,
) -> None:
    env = await person.open()
    await serving(env, person)
    (person.project / ".vscode").mkdir()
    (person.project / ".vscode/settings.json").write_text("{}")
    notice = await person.boxes.pool.next_notice()
    assert (notice.session_id, notice.exit_code) == ("s1", None)
    assert "Renamed to *.held: .vscode (copy" in notice.text
    assert ".vscode (copy" in await looked(env)


HIDDEN_REMOTES = {
    "the home of the sandbox": "git -C lib remote add o {kept}/evil.git",
    "a folder of git": "git -C lib remote add o ./.git/evil.git",
    "a branch": "git -C lib config branch.main.pushremote ../node_modules/evil.git",
    "a link": "ln -s node_modules/evil.git link; git -C lib remote add o ../link",
}


@pytest.mark.parametrize("command", HIDDEN_REMOTES.values(), ids=HIDDEN_REMOTES)
async def test_no_way_leads_to_a_repository_that_no_look_reaches(
    person: Person, command: str
) -> None:
    env = await person.open()
    await sh(env, "git init -q lib; mkdir node_modules; git init -q --bare node_modules/evil.git")
    kept = next(person.boxes.home.glob("sandboxes/sandbox/.projects/*/0/home"))
    result = await sh(env, command.format(kept=kept))
    assert "lib/.git/config" in result.output


async def test_what_leads_elsewhere_by_now_is_held_and_does_not_come_back(person: Person) -> None:
    env = await person.open()
    made = "git init -q lib; git init -q --bare way; git -C lib remote add o ../way"
    assert "held" not in (await sh(env, made)).output
    moved = "mkdir node_modules; mv way node_modules/evil; ln -s node_modules/evil way"
    assert "lib/.git/config" in (await sh(env, moved)).output
    assert not (person.project / "lib/.git/config").exists()


PLANTS = {
    "sub/worktrees/x/HEAD": (
        "git init -q --bare r; mkdir -p sub/worktrees/x; cp -r r/objects r/refs sub;"
        " cp r/HEAD sub/worktrees/x; echo ../.. > sub/worktrees/x/commondir"
    ),
    "deep/.git": (
        "git init -q sub; mkdir -p sub/.git/evil/objects sub/.git/evil/refs sub/.git/modules deep;"
        " cp sub/.git/HEAD sub/.git/evil; echo gitdir: $PWD/sub/.git/modules/../evil > deep/.git"
    ),
}


@pytest.mark.parametrize("path", PLANTS)
async def test_nothing_leads_git_to_settings_that_no_look_reaches(
    person: Person, path: str
) -> None:
    result = await sh(await person.open(), PLANTS[path])
    assert path in result.output
    assert not (person.project / path).exists()


async def committed(person: Person, **files: str) -> None:
    for name, text in files.items():
        file = person.project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    person.git("add", "-A")
    person.git("commit", "-qm", "made")


@pytest.mark.parametrize("opened", ["before", "after"])
async def test_two_sessions_leave_alone_what_the_person_edits(person: Person, opened: str) -> None:
    names = (".github/workflows/ci.yml", ".gitlab-ci.yml", ".vscode/words.json")
    await committed(person, **dict.fromkeys(names, "old\n"))
    one = await person.open("s1")
    await serving(one, person)
    two = await person.open("s2")
    if opened == "before":
        await two.spawn(ShellRun(script="touch two; exec sleep 600"))
        await until_there(person.project / "two")
    for name in names:
        (person.project / name).write_text("new\n" * 30_000)
    (person.project / ".github/workflows/second.yml").write_text("another\n")
    before = there(person.project)
    for env in (one, two, one, two):
        assert "held" not in await looked(env)
    assert there(person.project) == before
    assert {(person.project / name).read_text() for name in names} == {"new\n" * 30_000}


async def test_what_the_person_renames_under_a_mount_stays_theirs(person: Person) -> None:
    await committed(person, **{".github/workflows/ci.yml": "old\n"})
    hooks = person.project / ".git/hooks"
    env = await person.open()
    await serving(env, person)
    made = time.monotonic()
    while time.monotonic() < made + 0.2:  # longer than clocks of file systems are behind
        await looked(env)
    person.git("mv", ".github/workflows/ci.yml", ".github/workflows/build.yml")
    (hooks / "pre-commit.sample").rename(hooks / "pre-commit")
    for text in ("new\n", "newer\n"):
        assert "held" not in await looked(env)
        (person.project / ".github/workflows/build.yml").write_text(text)
        (hooks / "pre-commit").write_text(f"#!/bin/sh\n# {text}")
        assert "held" not in await looked(env)
    assert (hooks / "pre-commit").read_text() == "#!/bin/sh\n# newer\n"


@pytest.mark.parametrize("link", ["way", "sub/way"])
async def test_no_link_leads_to_places_of_the_sandbox_itself(person: Person, link: str) -> None:
    env = await person.open()
    await sh(env, "git init -q ~/r; mkdir sub")
    kept = next(person.boxes.home.glob("sandboxes/sandbox/.projects/*/0/home"))
    result = await sh(env, f"ln -s {kept}/r {link}; ln -s ~/r own; ln -s /tmp other")
    assert f"Renamed to *.held: {link} (copy" in result.output
    assert not (person.project / link).is_symlink()
