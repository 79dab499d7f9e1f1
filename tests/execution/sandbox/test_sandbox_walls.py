"""Failures that are the sandbox's doing are known for that, and others are not."""

import pytest

from fakes.boxes import Boxes, sh
from fakes.person import Person
from fakes.toolbox import Toolbox
from hermes.domain.ports.execution import ShellRun
from hermes.execution.backends.sandbox.again import is_one_command

pytestmark = pytest.mark.usefixtures("bubblewrap")


WALLED = {
    "git config --add a.b c": "read-only",
    "touch /usr/bin/x": "read-only",
    "cat {home}/letter.txt": "not in the sandbox",
    "cat ../other.txt": "src/other.txt is not in the sandbox",
    "cd .. && cp -r ../origin.git x": "not in the sandbox",
    "git -C ../../lib log": "person/lib is not in the sandbox",
    "git clone -q {home}/origin.git": "not in the sandbox",
    "git push -q ~/origin.git HEAD": "person/origin.git is not in the sandbox",
    "echo 'git@github.com: Permission denied (publickey).'; exit 128": "keys",
    "echo '==8==ERROR: AddressSanitizer failed to allocate 0xdfff bytes'; exit 1": "memory",
    "echo 'FATAL: ThreadSanitizer can not mmap the shadow memory'; exit 1": "memory",
    "echo '==9==LeakSanitizer has encountered a fatal error.'; exit 1": "detect_leaks=0",
    "echo 'ERROR: ../shared is not a valid editable requirement.'; exit 1": "src/shared is not",
    "echo \"like a path. File '../shared' does not exist.\"; exit 1": "src/shared is not in the",
    "npm install --offline ../shared": "src/shared/package.json is not in the sandbox",
    "node -e 'require(\"{home}/src/shared\")'": "src/shared is not in the sandbox",
    "node ../shared/index.js": "src/shared/index.js is not in the sandbox",
    "echo 'require(\"../shared\")' > x.js; node x.js": "src/shared is not in the sandbox",
    "echo 'import \"../shared/x.js\"' > x.mjs; node x.mjs": "src/shared/x.js is not in",
    "echo \"Cannot find module '../../y' from 'a/x.js'\"; exit 1": "src/y is not in the sandbox",
    "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock'; exit 1": "service",
}


@pytest.mark.parametrize("command", WALLED)
async def test_a_failure_of_the_walls_is_known_for_one(person: Person, command: str) -> None:
    env = await person.open()
    result = await sh(env, command.format(home=person.home))
    assert result.exit_code
    assert WALLED[command] in result.walled


ONE = (
    "git push",
    "GIT_TRACE=1 git push origin HEAD 2>&1",
    "cd /tmp && git push",
    "cd ~/src; make > log",
    "git push 2>&1 | tail -3",
    "bash build.sh -c",
    "git push # and that is all",
    "cd /tmp",
)
SEVERAL = (
    "git add f && git commit -qm q && git push",
    "git add f; git push",
    "git add f\ngit push",
    "git fetch || git push",
    "git fetch & git push",
    # What a word has in it might be run.
    'git commit -m "a; b && c" -- "$file"',
    "bash <<'E'\na\nb\nE",
    "bash <<< 'a; b'",
    "csh -c 'a; b'",
    "source steps.sh",
    ". ./steps.sh",
    "script -qec 'a; b' /dev/null",
    "ssh host 'a; b'",
    "find . -exec a {} \\; -exec b \\;",
    "python3 -c \"import os; os.system('a'); os.system('b')\"",
    "perl -e 'system(\"a\")'",
    "git -c 'alias.p=!a; b' p",
    "env -S 'bash -c \"a; b\"'",
    "git push &",
    "cd sub && git push",
    "cd $(make sub) && git push",
    "make >> log",
    "make | tee log",
    "make | python3 count.py",
    "git push $(make remote)",
    "X=$(make x) git push",
    "diff <(make a) b",
    "bash -c 'git commit && git push'",
    "timeout 9 sh -ec 'git commit && git push'",
    "eval 'git commit; git push'",
    "ls | xargs touch",
    "xargs touch < names",
    "for f in a b; do touch $f; done",
    "(git commit; git push)",
    "if make; then git push; fi",
    "! git push",
    "git push ${x:-$(make x)}",
    "git push 'unfinished",
    "f() { git commit; git push; }",
    "",
    "git commit -m " + "x" * 5000,
)


@pytest.mark.parametrize("command", ONE + SEVERAL)
def test_one_command_is_told_from_several(command: str) -> None:
    assert is_one_command(command) is (command in ONE)


THERE_OR_NOT = {
    "{home}/letter.txt": "{home}/latter.txt",
    "{home}/.ssh/id_ed25519": "{home}/.ssh/id_rsa",
    "{home}/link": "{home}/lonk",
    "{home}/src/other/file": "{home}/src/third/file",
    "/var/lib": "/var/lab",
    "/etc/shadow": "/etc/shodow",
}


@pytest.mark.parametrize("path", THERE_OR_NOT)
async def test_whether_the_host_has_a_file_makes_no_difference(person: Person, path: str) -> None:
    (person.home / "link").symlink_to(person.project)
    person.file("src/other/file", "x")
    env = await person.open()
    there, not_there = (each.format(home=person.home) for each in (path, THERE_OR_NOT[path]))
    one, other = await sh(env, f"cat {there}"), await sh(env, f"cat {not_there}")
    assert one.exit_code
    assert one.output.replace(there, "") == other.output.replace(not_there, "")
    assert one.walled.replace(there, "") == other.walled.replace(not_there, "")
    assert bool(one.walled) is not path.startswith("/etc")


OUTSIDE = ("{home}/letter.txt", "~/latter.txt", "../other/x", "/srv/data.csv", "/etc/nginx/x.conf")


@pytest.mark.parametrize("path", OUTSIDE)
async def test_the_file_tools_say_that_a_place_is_not_shown(person: Person, path: str) -> None:
    box = Toolbox(await person.open())
    path = path.format(home=person.home)
    told = f"The sandbox does not show the place where {path} is. A command with `escalate`"
    assert told in await box.text("read_file", path=path)
    assert told in await box.text("patch", path=path, old_string="a", new_string="b")
    assert told in await box.text("search_files", path=path, pattern="x")


@pytest.mark.parametrize("path", ["f", "~/.cargo/none", "/tmp/none", "/usr/none"])
async def test_what_is_missing_where_the_sandbox_looks_is_missing(
    person: Person, path: str
) -> None:
    box = Toolbox(await person.open())
    assert f"There is no file at {path}" in await box.text("read_file", path=path)


async def test_a_search_of_the_home_says_whose_it_is(person: Person) -> None:
    box = Toolbox(await person.open())
    text = await box.text("search_files", path="~", pattern="*.txt", target="files")
    assert text == "Nothing found.\n[The sandbox does not show what the machine has there.]"


async def test_in_a_folder_of_a_repository_git_is_offered_the_way_out(person: Person) -> None:
    package = person.project / "package"
    package.mkdir()
    boxes = Boxes(
        "sandbox", person.boxes.home, base_env={"HOME": str(person.home)}, project=str(package)
    )
    env = await boxes.pool.get("main", "package", str(package))
    assert "a folder of a repository" in (await sh(env, "git status")).walled
    out = await env.run(ShellRun(script="git status --short .", outside=True))
    assert out.exit_code == 0
    assert "repository" in env.about
    await boxes.pool.close()


@pytest.mark.parametrize("place", ["~/Report", "../report.html", "../../other/report"])
async def test_what_the_user_cannot_see_is_told(person: Person, place: str) -> None:
    env = await person.open()
    write = f"mkdir -p $(dirname {place}); echo x > {place}"
    assert "the user cannot see it" in (await sh(env, write)).output
    assert "cannot see" not in (await sh(env, f"{write}; echo x > code; touch ~/.cache")).output


async def test_a_setting_of_git_that_was_not_written_is_told(person: Person) -> None:
    person.git("config", "branch.side.remote", "origin")
    env = await person.open()
    result = await sh(env, "git branch side && git branch -d side")
    assert result.exit_code == 0
    assert "read-only in the sandbox" in result.output
    assert "read-only" not in (await sh(env, "git branch other")).output


ORDINARY = (
    *("false", "cat nothing", "ls /nowhere", "ls /tmp/x", "ls ~/.cargo/x", "grep x /etc/hostnames"),
    "mkdir a; echo 'require(\"../shared\")' > a/x.js; node a/x.js",
    "node -e 'require(\"lodash\")'",
    "echo \"Cannot find module '../shared'\"; exit 1",
    "echo \"Cannot find module '../y' from 'a/x.js'\"; exit 1",
    "echo \"File './shared' does not exist.\"; exit 1",
)


@pytest.mark.parametrize("command", ORDINARY)
async def test_an_ordinary_failure_is_not_blamed_on_the_walls(person: Person, command: str) -> None:
    env = await person.open()
    assert (await sh(env, command)).walled == ""
