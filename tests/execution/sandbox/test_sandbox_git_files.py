"""What git goes on with and writes to among its own files stays; looks at them take no time."""

from pathlib import Path

import pytest

from fakes.boxes import says, sh
from fakes.cpu import least_cpu
from fakes.person import Person
from hermes.execution.backends.sandbox.later import Look, found

pytestmark = pytest.mark.usefixtures("bubblewrap")

WORK = "echo a > f; git add f; git commit -qm work; git worktree add -q tree"
LINKS = """
    COMMIT_EDITMSG FETCH_HEAD packed-refs logs/HEAD logs/refs/heads/deep/new info/refs
    refs/remotes/origin rebase-merge/message rebase-apply/msg sequencer/todo rr-cache/1/preimage
    logs/hooks/x.sample worktrees/tree/COMMIT_EDITMSG worktrees/tree/logs/HEAD worktrees/other
    modules/a/b/COMMIT_EDITMSG modules/a/b/logs/HEAD modules/link
"""


async def test_links_among_files_of_git_are_held_and_nothing_is_written_through_them(
    person: Person,
) -> None:
    letter = person.file("letter", "mine\n")
    env = await person.open()
    await sh(env, f"{WORK}; mkdir .git/modules; git init -q --separate-git-dir .git/modules/m m")
    await sh(env, "git init -q sub; cp -r .git/modules/m sub/.git/x; mkdir -p .git/modules/a/b")
    made = (
        f"mkdir -p $(dirname .git/{path}); ln -sfn {letter} .git/{path}" for path in LINKS.split()
    )
    result = await sh(env, "; ".join([*made, f"ln -s {letter} sub/.git/ORIG_HEAD"]))
    left = [path for path in LINKS.split() if (person.project / ".git" / path).is_symlink()]
    assert left == [], result.output
    assert not (person.project / "sub/.git/ORIG_HEAD").is_symlink()
    assert "held" not in (await sh(env, "true")).output
    person.git("commit", "-q", "--amend", "--no-edit")
    assert letter.read_text() == "mine\n"


async def test_a_link_is_found_in_a_very_full_folder_of_git(person: Person) -> None:
    letter = person.file("letter", "mine\n")
    env = await person.open()
    await sh(env, f"cd .git; seq 21000 | xargs touch; ln -sfn {letter} COMMIT_EDITMSG")
    assert not (person.project / ".git/COMMIT_EDITMSG").is_symlink()


async def test_a_link_of_the_persons_among_files_of_git_stays(person: Person) -> None:
    shared = person.project / "shared"
    shared.mkdir()
    link = person.project / ".git/rr-cache"
    link.symlink_to("../shared")
    env = await person.open()
    assert (await sh(env, WORK)).output == ""
    result = await sh(env, f"ln -sfn {person.home} .git/rr-cache")
    assert ".git/rr-cache" in result.output
    assert link.readlink() == Path("../shared")


RUN = {
    "rebase-merge/strategy": "x/y",
    "rebase-merge/strategy_opts": " '--index-output=HEAD'",
    "rebase-apply/apply-opt": " '--build-fake-ancestor=../letter'",
    "rebase-apply/gpg_sign_opt": "--directory=x",
    "sequencer/opts": "[options]\n\tstrategy = x/y",
    "BISECT_NAMES": " 'a' $(touch x)",
    "lazygit.yml": "os: {}",
}
OWN = {
    "rebase-merge/strategy": "ours",
    "rebase-merge/strategy_opts": " '--patience' --find-renames=50%",
    "rebase-apply/apply-opt": " '--whitespace=fix' '-C3'",
    "rebase-apply/gpg_sign_opt": "-S",
    "sequencer/opts": "[options]\n\tno-commit = true\n\tstrategy = ours\n\tgpg-sign = ",
    "BISECT_NAMES": " 'src/it'\\''s'",
}


async def test_what_git_goes_on_with_names_no_program_and_no_file(person: Person) -> None:
    env = await person.open()
    await sh(env, WORK)
    for git in (".git", ".git/worktrees/tree", ".git/modules/a/b"):
        for name, text in RUN.items():
            await env.write("/tmp/text", f"{text}\n".encode())
            result = await sh(env, f"mkdir -p $(dirname {git}/{name}); cp /tmp/text {git}/{name}")
            assert f"{git}/{name}" in result.output
            assert not (person.project / git / name).exists()
        for name, text in OWN.items():
            await env.write("/tmp/text", f"{text}\n".encode())
            result = await sh(env, f"cp /tmp/text {git}/{name}")
            assert result.output == ""
            assert (person.project / git / name).read_text() == f"{text}\n"


async def test_what_git_remembers_of_conflicts_names_files_of_the_project_only(
    person: Person,
) -> None:
    letter = person.file("letter", "mine\n")
    known = "a" * 40
    env = await person.open()
    await sh(env, f"{WORK}; ln -s {letter} link")
    for path in (str(letter), "../../letter", "x/../../letter", "link"):
        made = await sh(
            env,
            f"mkdir -p .git/rr-cache/{known}; echo > .git/rr-cache/{known}/preimage;"
            f" printf '{known}\\tf\\0{known}\\t{path}\\0' > .git/MERGE_RR",
        )
        assert ".git/MERGE_RR" in made.output
        person.git("commit", "-q", "--allow-empty", "-m", "theirs")
        assert not (person.project / f".git/rr-cache/{known}/postimage").exists()
    result = await sh(env, f"printf '{known}\\tf\\0' > .git/MERGE_RR")
    assert result.output == ""
    assert (person.project / ".git/MERGE_RR").exists()


STOPPED = """
git commit -q --allow-empty -m 0; echo 1 > f; git add f; git commit -qm 1
git checkout -qb side; echo 2 > f; git commit -qam 2; echo 4 > g; git add g; git commit -qm 4
git checkout -q -; echo 3 > f; git commit -qam 3
"""


@pytest.mark.parametrize(
    ("stops", "goes_on"),
    [
        ("git checkout -q side; git rebase -Xpatience -", "rebase --continue"),
        ("git checkout -q side; git rebase --apply --whitespace=fix -", "rebase --continue"),
        ("git cherry-pick -s -Xpatience side~1 side", "cherry-pick --continue"),
    ],
)
async def test_a_rebase_and_a_cherry_pick_go_on_inside(
    person: Person, stops: str, goes_on: str
) -> None:
    env = await person.open()
    stopped = await sh(env, f"{STOPPED}{stops} >/dev/null 2>&1; git status --short")
    assert stopped.output.startswith(("AA", "UU"))
    assert "held" not in stopped.output
    result = await sh(env, f"echo 5 > f; git add f; GIT_EDITOR=true git {goes_on}")
    assert "held" not in result.output
    assert (person.project / "g").exists(), result.output


@pytest.mark.parametrize("again", [False, True])
async def test_a_git_file_leads_to_nothing_that_no_look_reaches(
    person: Person, again: bool
) -> None:
    for number in range(1100):
        (person.project / f"data/d{number}/x").mkdir(parents=True)
    env = await person.open()
    deep = person.project / "data/d7/x/y/z"
    made = await sh(
        env,
        f"mkdir -p {deep}; cd {deep}; git init -q .; git commit -q --allow-empty -m x;"
        f" git worktree add -q {person.project}/tool",
    )
    assert made.output == ""
    if again:
        await env.close()
        env = await person.open("s2")
    await sh(env, f"printf '[core]\\n\\tfsmonitor = ./evil\\n' >> {deep}/.git/config")
    config = deep / ".git/config"
    assert not config.exists() or "fsmonitor" not in config.read_text()


NOT_HARMLESS = {
    "NUL in a comment": r"# ] worktree = a\0b\n",
    "NUL in a value": r"[user]\n\tname = a\0b\n",
    "two work trees": r"[core]\n\tworktree = ..\n\tworktree = ../\n",
    "very many lines": "$(seq -f 'name = %g' 1001)",
}


@pytest.mark.parametrize("what", NOT_HARMLESS)
async def test_settings_that_cannot_be_looked_at_are_held_with_all_else(
    person: Person, what: str
) -> None:
    env = await person.open()
    plant = f'git init -q sub; printf "{NOT_HARMLESS[what]}" >> sub/.git/config; echo > sub/.envrc'
    result = await sh(env, plant)
    assert "sub/.git/config" in result.output
    assert "sub/.envrc" in result.output
    assert await says(env, "echo usable") == "usable"


async def test_comments_set_no_work_tree(person: Person) -> None:
    env = await person.open()
    plant = "printf '[core] # ] worktree = ../x\\n# ] worktree = /\\n; a ] worktree=/\\n'"
    result = await sh(env, f"git init -q sub; {plant} >> sub/.git/config")
    assert "sub/.git/config" in result.output  # a section and more in one line
    result = await sh(env, "git init -q b; printf '# ] worktree = /\\n' >> b/.git/config")
    assert result.output == ""


async def test_what_sections_and_values_are_called_hides_no_folder_of_hooks(
    person: Person,
) -> None:
    with (person.project / ".git/config").open("a") as config:
        config.write('[a "x]=#"] [core] hooksPath = my-hooks # ]\n')
    (person.project / "my-hooks").mkdir()
    env = await person.open()
    assert "Read-only" in (await sh(env, "echo evil > my-hooks/pre-commit")).output


async def test_more_than_there_are_mounts_for_keeps_no_session_from_starting(
    person: Person,
) -> None:
    env = await person.open()
    made = (
        "for i in $(seq 20); do git init -q r$i; mkdir r$i/.git/worktrees;"
        " (cd r$i/.git/worktrees; mkdir $(seq 200)); done"
    )
    assert (await sh(env, made)).output == ""
    await person.boxes.pool.close()
    env = await person.open("s2")
    assert await says(env, "echo usable") == "usable"
    result = await sh(env, "echo evil >> .git/config; echo evil >> r9/.git/config")
    assert result.output.count("Read-only") == 2


def _trees(project: Path, repositories: int) -> None:
    for number in range(repositories):
        folder = project / f"r{number}/.git/worktrees"
        folder.mkdir(parents=True)
        for tree in range(500):
            (folder / str(tree)).mkdir()


def test_the_cost_of_a_look_does_not_grow_with_what_repositories_are_full_of(
    tmp_path: Path,
) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    _trees(few, 2)
    _trees(many, 12)

    def look(project: Path) -> None:
        with Look() as each:
            found(project, (), each)

    assert least_cpu(lambda: look(many)) < 3 * least_cpu(lambda: look(few))
