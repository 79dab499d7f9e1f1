"""What settings of git name, and what links in hooks lead to, stays; none of it takes for ever."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

from fakes.boxes import says, sh
from fakes.person import Person

pytestmark = pytest.mark.usefixtures("bubblewrap")


def script(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine\n")
    path.chmod(0o755)
    return path


async def refused(person: Person, path: str) -> None:
    env = await person.open()
    result = await sh(env, f"d=$(dirname {path}); mv $d away; mkdir -p $d; echo evil >> {path}")
    file = person.project / path
    assert file.read_text() == "mine\n", result.output
    made = await sh(env, "echo made > ordinary; cat ordinary")
    assert made.output == "made\n"


async def test_what_links_in_hooks_lead_to_stays(person: Person) -> None:
    script(person.project / "tools/real")
    (person.project / "scripts").symlink_to("tools")
    script(person.project / "other/post-commit")
    hooks = person.project / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-commit").symlink_to("../../scripts/real")
    (person.project / "other/post-merge").symlink_to("../tools/merge")
    person.git("init", "-q", "sub")
    (person.project / "sub/.git/hooks").rename(person.project / "sub/.git/samples")
    (person.project / "sub/.git/hooks").symlink_to("../../other")
    await refused(person, "tools/real")
    env = await person.open()
    await sh(env, "rm scripts; mkdir scripts; echo evil > scripts/real; echo evil > tools/merge")
    assert (person.project / "scripts").is_symlink()
    assert not (person.project / "tools/merge").exists()
    await refused(person, "other/post-commit")


NAMED = {
    "my-hooks": "~/src/project/my-hooks",
    "my hooks": "my hooks",
    "quoted hooks": '"quoted hooks"',
    ".git/of-mine": ".git/of-mine",
    "split-hooks": "split-\\\nhooks",
}


@pytest.mark.parametrize("folder", NAMED)
async def test_hooks_stay_however_a_setting_names_their_folder(person: Person, folder: str) -> None:
    with (person.project / ".git/config").open("a") as config:
        config.write(f"[core]\n\thooksPath = {NAMED[folder]}\n")
    file = script(person.project / folder / "pre-commit")
    env = await person.open()
    result = await sh(env, f"echo evil >> '{folder}/pre-commit'")
    assert "Read-only" in result.output
    assert file.read_text() == "mine\n"


async def test_hooks_of_a_repository_inside_stay(person: Person) -> None:
    person.git("init", "-q", "sub")
    person.git("-C", "sub", "config", "core.hooksPath", ".githooks")
    script(person.project / "sub/.githooks/pre-commit")
    await refused(person, "sub/.githooks/pre-commit")


async def test_hooks_of_a_submodule_and_of_a_work_tree_stay(person: Person) -> None:
    module = ".git/modules/a/b"
    (person.project / module).parent.mkdir(parents=True)
    person.git("init", "-q", "--separate-git-dir", module, "x")
    person.git("--git-dir", module, "config", "core.worktree", "../../../../x")
    person.git("--git-dir", module, "config", "core.hooksPath", ".githooks")
    person.git("worktree", "add", "-q", "tree")
    person.git("config", "core.hooksPath", ".hooks")
    script(person.project / "x/.githooks/pre-commit")
    script(person.project / "tree/.hooks/pre-commit")
    await refused(person, "x/.githooks/pre-commit")
    await refused(person, "tree/.hooks/pre-commit")


async def test_hooks_that_settings_included_in_your_own_name_stay_in_every_repository(
    person: Person,
) -> None:
    person.file(".gitconfig", "[include]\n\tpath = ~/.gitconfig.local\n")
    person.file(".gitconfig.local", "[core] hooksPath = .githooks\n")
    person.git("init", "-q", "sub")
    script(person.project / "sub/.githooks/pre-commit")
    await refused(person, "sub/.githooks/pre-commit")


OUTSIDE = {
    "home": "printf '[core]\\n\\tworktree = ../../../..\\n' > sub/.git/config",
    "absolute": "printf '[core]\\n\\tworktree = %s\\n' ~ > sub/.git/config",
    "elsewhere": "mkdir w; printf '[core]\\n\\tworktree = ../../w\\n' > sub/.git/config",
    "link": (
        "mkdir .git/modules; git init -q --separate-git-dir .git/modules/m x; ln -s ~ w;"
        " git --git-dir .git/modules/m config core.worktree ../../../w"
    ),
    "another folder": (
        "mkdir .git/modules; git init -q --separate-git-dir .git/modules/m x; mkdir w;"
        " git --git-dir .git/modules/m config core.worktree ../../../w"
    ),
}


@pytest.mark.parametrize("how", OUTSIDE)
async def test_a_new_repository_has_its_own_folder_for_a_work_tree(
    person: Person, how: str
) -> None:
    env = await person.open()
    result = await sh(env, f"git init -q sub; {OUTSIDE[how]}")
    assert "Renamed to *.held" in result.output
    settings = [*person.project.glob("sub/.git/config"), person.project / ".git/modules/m/config"]
    named = [file for file in settings if file.exists() and "worktree" in file.read_text()]
    assert not named or not (person.project / "x/.git").exists()


async def test_a_submodule_is_added_inside(person: Person) -> None:
    person.git("init", "-q", str(person.home / "lib"))
    env = await person.open()
    result = await sh(
        env,
        "git init -q lib && git -C lib -c user.name=a -c user.email=a@b commit -q --allow-empty"
        " -m 1 && git init -q top && cd top"
        " && git -c protocol.file.allow=always submodule --quiet add ../lib deep/lib"
        " && git -C deep/lib log --oneline | wc -l",
    )
    assert result.output == "1\n"
    assert (
        "worktree = ../../../../deep/lib"
        in (person.project / "top/.git/modules/deep/lib/config").read_text()
    )


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 600 << 20)


@pytest.mark.parametrize("make", [os.mkfifo, _sparse, lambda path: path.symlink_to("/dev/zero")])
async def test_what_has_no_end_under_a_name_of_git_holds_up_no_session(
    person: Person, make: Callable[[Path], None]
) -> None:
    names = ("worktrees/x/gitdir", "modules/m/config", "config.worktree")
    for path in (".hold/.git/config", "sub/.git", *(f".git/{name}" for name in names)):
        (person.project / path).parent.mkdir(parents=True, exist_ok=True)
        make(person.project / path)
    most = getrusage(RUSAGE_SELF).ru_maxrss
    env = await person.open()
    assert (await says(env, "echo usable")).startswith("usable")
    assert getrusage(RUSAGE_SELF).ru_maxrss - most < 200_000


async def test_settings_that_include_each_other_without_end_hold_up_no_session(
    person: Person,
) -> None:
    config = person.project / "sub/.git/config"
    config.parent.mkdir(parents=True)
    config.write_text("[include]\n\tpath = ../loop\n")
    itself = (f"\tpath = {'./' * number}loop\n" for number in range(200))
    (person.project / "sub/loop").write_text("[include]\n" + "".join(itself))
    env = await person.open()
    assert await says(env, "echo usable") == "usable"
    assert "Read-only" in (await sh(env, "echo >> sub/loop")).output


async def test_a_line_that_takes_long_to_look_at_is_not_harmless_and_takes_no_time(
    person: Person,
) -> None:
    env = await person.open()
    lines = {
        "d/.git/config": "worktree = " + "../" * 21_000 + "!",
        "e/.git/config": ("worktree = " + "../" * 1_300 + "!\n") * 16,
        "f/.git": "gitdir: " + "/.git/modules/" * 4_500 + "!",
        "g/.git/config": "name = " + "x" * 5_000,
    }
    for path, text in lines.items():
        await env.write(f"/tmp/{path}", text.encode())
    began = time.monotonic()
    result = await sh(env, "cp -r /tmp/[defg] .")
    assert time.monotonic() - began < 2
    assert all(f"{path} " in result.output for path in lines), result.output
