"""Git in a sandbox: what would be left half done is refused before it begins."""

import re
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from fakes.boxes import Boxes, sh
from fakes.person import Person, until_there
from hermes.domain.ports.execution import ShellRun

pytestmark = pytest.mark.usefixtures("bubblewrap")

CI = ".github/workflows/ci.yml"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with branches that differ in what CI runs, and in nothing but code."""
    person = Person(tmp_path_factory.mktemp("git"))
    project, git = person.project, person.git
    git("checkout", "-qb", "main")
    (project / CI).parent.mkdir(parents=True)
    (project / CI).write_text("on: push\n")
    (project / "code.py").write_text("one\n")
    git("add", "-A")
    git("commit", "-qm", "begun")
    for branch, files in {"ci": (CI, "code.py", ".vscode/tasks.json"), "code": ("new.py",)}.items():
        git("checkout", "-qb", branch, "main")
        for name in files:
            (project / name).parent.mkdir(exist_ok=True)
            (project / name).write_text(f"of {branch}\n")
        git("add", "-A")
        git("commit", "-qm", f"{branch} changed")
    git("checkout", "-q", "main")
    (project / CI).write_text("stashed\n")
    git("stash", "-q")
    git("clone", "-q", "-b", "ci", str(project), str(project / "upstream"))
    git("-C", "upstream", "branch", "code", "origin/code")
    (project / ".git/info/exclude").write_text("/upstream\n")
    git("config", "alias.over", "checkout -q")
    git("config", "alias.twice", "over")
    git("config", "remote.origin.url", "./upstream")
    git("config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    return project


@pytest.fixture
def checked_out(person: Person, repository: Path) -> Person:
    shutil.rmtree(person.project)
    shutil.copytree(repository, person.project, symlinks=True)
    return person


LEFT_HALF_DONE = (
    *("git checkout ci", "git switch ci", "git checkout -b other ci", "git merge --no-edit ci"),
    *("git merge --ff-only ci", "git rebase ci", "git cherry-pick ci", "git reset -q --hard ci"),
    *(f"git checkout ci -- {CI}", f"git restore --source=ci {CI}", "git restore -s ci ."),
    *("git stash pop", "git pull origin ci", "git pull --rebase origin ci"),
    *("cd /tmp && git -C ~/src/project checkout ci", "echo 'git checkout ci' > it; sh it"),
    *("git bisect start ci HEAD", "git bisect start; git bisect bad ci; git bisect good HEAD"),
    "cd .github; git checkout ci",
    *("GIT_DIR=$PWD/.git GIT_WORK_TREE=$PWD git switch ci", "git --work-tree=. checkout ci"),
    *("git checkout -q -m ci", "git checkout :/ci.changed", "git reset -q --hard ':/ci ch'"),
    *(
        "git rebase main ci",
        "git rebase -q --onto ci HEAD",
        "git rebase -q main~1 ci",
        "git read-tree -m -u HEAD ci",
    ),
    *("git cherry-pick -s ci", "git read-tree -mu ci", "git checkout --conflict merge ci"),
    *(
        "git format-patch -q -1 ci -o /tmp/it; git am -q /tmp/it/*",
        "git diff main ci >/tmp/p; git apply /tmp/p",
    ),
    *("git format-patch -q --stdout -1 ci | git am", "git diff main ci | git apply --index -"),
    "cd .github; git diff main ci >/tmp/p; git apply -p 1 </tmp/p",
    "git diff main ci >.git/p; cd /tmp; git -C ~/src/project/.git -C .. apply .git/p",
    *("git over ci", "git twice -q ci", "ln -s . here; cd here; git checkout ci"),
)


@pytest.mark.parametrize("command", LEFT_HALF_DONE)
async def test_git_does_not_begin_what_would_change_what_is_read_only(
    checked_out: Person, command: str
) -> None:
    person = checked_out
    as_it_was = person.git("log", "-1"), person.git("status", "--porcelain", "-uno")
    env = await person.open()
    result = await sh(env, command)
    assert result.exit_code != 0
    assert CI in result.output
    assert "Nothing was done" in result.output
    assert result.walled
    assert (person.git("log", "-1"), person.git("status", "--porcelain", "-uno")) == as_it_was
    if "bisect" not in command:
        outside = await env.run(ShellRun(script=command, outside=True))
        assert outside.exit_code == 0, outside.output
        assert (person.project / CI).read_text() != "on: push\n"


EMPTYING = (
    *("git rebase --root", "git rebase -q --root -i", "git switch --orphan new"),
    *("git switch --discard-changes --orphan=new", "git rebase --root code"),
)


@pytest.mark.parametrize("command", EMPTYING)
async def test_git_does_not_begin_what_would_first_take_everything_away(
    checked_out: Person, command: str
) -> None:
    person = checked_out
    as_it_was = person.git("log", "-1", "--all"), person.git("status", "-b", "--porcelain")
    env = await person.open()
    result = await sh(env, f"export GIT_EDITOR=true; {command}")
    assert CI in result.output
    assert "Nothing was done" in result.output
    assert (
        person.git("log", "-1", "--all"),
        person.git("status", "-b", "--porcelain"),
    ) == as_it_was
    outside = await env.run(ShellRun(script=f"export GIT_EDITOR=true; {command}", outside=True))
    assert outside.exit_code == 0, outside.output


async def test_there_is_a_way_back_from_a_branch_that_has_not_begun(checked_out: Person) -> None:
    env = await checked_out.open()
    result = await sh(env, "git checkout -q --orphan new; git reset -q --hard")
    assert "Nothing was done" in result.output
    result = await sh(env, "git checkout -q main; git status --porcelain")
    assert (result.exit_code, result.output) == (0, "")


ORDINARY = (
    *("git rebase main~1", "git rebase -q main~1 main", "git switch --orphan || git checkout code"),
    *("git apply <(git diff main code)", "git diff main code | git -C .github/.. apply"),
    *("git checkout code", "git switch -c other", "git checkout -b other code", "git merge code"),
    *("git rebase code", "git cherry-pick code", "git reset -q --hard code", "git log -1 ci"),
    *("echo x >> code.py; git stash; git stash pop", "echo x >> code.py; git checkout code.py"),
    *("echo x >> code.py; git commit -qam more; git revert --no-edit HEAD", "git fetch origin"),
    *(
        "git pull origin code",
        "git restore --source=ci code.py",
        "git diff main...ci; git --version",
    ),
    *("git checkout -m code", "git checkout -q :/code.changed", "git rebase main code"),
    *("git diff main code | git apply", "git format-patch -q --stdout -1 code | git am"),
    *(
        "git diff main ci -- code.py >/tmp/p; git apply /tmp/p",
        "git diff main ci | git apply --stat",
    ),
    *(
        "git read-tree -mu code",
        "git read-tree ci; git read-tree main",
        "git checkout --orphan new",
    ),
    *("git diff main ci | git apply --cached", "git rebase --onto code main main"),
    *("git switch -", "git reset HEAD~1 -q; git branch -v; git show ci:code.py"),
)


@pytest.mark.parametrize("command", ORDINARY)
async def test_git_does_what_changes_nothing_of_that(checked_out: Person, command: str) -> None:
    checked_out.git("checkout", "-q", "code")
    checked_out.git("checkout", "-q", "main")
    env = await checked_out.open()
    result = await sh(env, command)
    assert result.exit_code == 0, result.output
    assert "held" not in result.output
    assert (checked_out.project / CI).read_text() == "on: push\n"


async def test_what_git_could_not_change_in_a_command_that_ended_well_is_told(
    checked_out: Person,
) -> None:
    env = await checked_out.open()
    result = await sh(env, "$(git --exec-path)/git checkout ci")
    assert result.exit_code == 0
    assert "were not changed" in result.output


MADE = {
    "clone": "git clone -q upstream",
    "work tree": "git worktree add -q -b inner",
    "submodule": "git -c protocol.file.allow=always -C outer submodule --quiet add ../upstream",
}
WORK = """
echo 1 >> code.py; git commit -qam one; git status --porcelain
echo 2 > new; git add -A; git commit -qm two; git add .; git add -u
echo 3 >> code.py; git stash -q; git stash pop -q; git status --porcelain
git -c alias.keep='commit -q -a' keep -m three; git rm -q new; git commit -qm four
"""


ODD = 'it\'s "one"\n of $these ü'


@pytest.mark.parametrize(("made", "place"), [*((made, "inner") for made in MADE), ("clone", ODD)])
async def test_what_was_put_aside_in_an_inner_work_tree_is_not_committed_as_deleted(
    checked_out: Person, made: str, place: str
) -> None:
    env = await checked_out.open()
    within = place if made != "submodule" else f"outer/{place}"
    result = await sh(env, f"git init -q outer; {MADE[made]} {shlex.quote(place)}")
    assert ".github" in result.output
    assert not (checked_out.project / within / ".github").exists()
    result = await sh(env, f"cd {shlex.quote(within)}; {WORK}")
    assert result.exit_code == 0, result.output
    assert result.output.strip() == "M code.py", result.output
    assert checked_out.git("-C", within, "diff", "--name-only", "HEAD~4") == "code.py\n"


async def test_what_was_put_aside_in_a_submodule_is_left_out(checked_out: Person) -> None:
    env = await checked_out.open()
    await sh(env, f"git init -q outer; {MADE['submodule']} inner")
    await sh(env, "mkdir outer/inner/.idea; echo > outer/inner/.idea/a")
    assert (checked_out.project / "outer/inner/.idea.held").exists()
    result = await sh(env, "cd outer/inner; git add -A; git status --porcelain")
    assert result.output == ""


@pytest.mark.parametrize("name", ["it's `odd`", 'a "b" $c\\', "one\ntwo ü", "@GUARDED@"])
async def test_the_project_may_have_any_name(repository: Path, tmp_path: Path, name: str) -> None:
    person = Person(tmp_path / name)
    shutil.rmtree(person.project)
    shutil.copytree(repository, person.project, symlinks=True)
    env = await person.open()
    result = await sh(env, "git checkout ci")
    assert "Nothing was done" in result.output
    result = await sh(env, "git clone -q upstream inner; git -C inner checkout -q code")
    assert "Nothing was done" not in result.output
    result = await sh(env, "git checkout -q code; echo 1 > new; git add -A; git commit -qm 1")
    assert result.exit_code == 0, result.output
    await person.boxes.pool.close()


async def test_a_work_tree_of_another_repository_may_be_the_project(
    checked_out: Person, tmp_path: Path
) -> None:
    person = checked_out
    tree = person.home / "tree"
    person.git("worktree", "add", "-q", str(tree), "code")
    settings = {**person.boxes.settings.base_env, "HOME": str(person.home)}
    boxes = Boxes("sandbox", tmp_path / "hermes2", base_env=settings, project=str(tree))
    env = await boxes.pool.get("main", "s1", str(tree))
    for command in ("git checkout ci", "git branch -m ci new", "git rebase -x true HEAD~1"):
        assert "Nothing was done" in (await sh(env, command)).output
    result = await sh(env, "git switch -qc new; echo 1 > it; git add -A; git commit -qm 1; git st")
    assert "Nothing was done" not in result.output
    assert person.git("diff", "--name-only", "code", "new") == "it\n"
    await boxes.pool.close()


async def test_nor_if_it_is_put_aside_while_a_line_runs(checked_out: Person) -> None:
    env = await checked_out.open()
    again = "for n in $(seq 60); do echo $n > n; git add -A; git commit -qm $n; done"
    await sh(env, f"git clone -q upstream inner && cd inner && {again}")
    assert (checked_out.project / "inner/.github.held").exists()
    assert checked_out.git("-C", "inner", "diff", "--name-only", "origin/ci", "HEAD") == "n\n"


REPLACED = (
    "mkdir -p .github/workflows; echo > .github/workflows/new.yml; git add -A",
    "mkdir .github; echo > .github/new.yml; git add .github",
    "rm .git/index; git add -A",
    "git read-tree --empty; git add .",
    "rm .git/index; git add code.py",
    "git rm -rq --cached --sparse .; git add -A",
    "git rm -q --cached --sparse .github/workflows/ci.yml; git add -A",
    "git checkout -q --orphan new; git reset -q; git add -A",
)


@pytest.mark.parametrize("commands", REPLACED)
async def test_nor_if_the_index_or_the_folder_is_another_one(
    checked_out: Person, commands: str
) -> None:
    env = await checked_out.open()
    await sh(env, "git clone -q upstream inner; git -C inner status")
    result = await sh(env, f"cd inner; {commands}; git commit -q --allow-empty -m x")
    assert result.exit_code == 0, result.output
    kept = checked_out.git("-C", "inner", "ls-tree", "-r", "--name-only", "HEAD").split()
    assert {CI, ".vscode/tasks.json", "code.py"} <= set(kept)


TAKING_AWAY = (
    "git merge -q --no-commit --no-ff origin/none; git add -A",
    f"git rm -q --cached --sparse {CI}",
    "rm -rf .github.held; git add -A",
    "git checkout -q --orphan new; git reset -q; git add code.py",
    "export GIT_INDEX_FILE=/tmp/index; git add code.py",
)


@pytest.mark.parametrize("commands", TAKING_AWAY)
async def test_what_is_to_be_deleted_is(checked_out: Person, commands: str) -> None:
    checked_out.git("-C", "upstream", "checkout", "-qb", "none")
    checked_out.git("-C", "upstream", "rm", "-q", CI)
    checked_out.git("-C", "upstream", "commit", "-qm", "none")
    env = await checked_out.open()
    await sh(env, "git clone -q -b ci upstream inner; git -C inner status")
    result = await sh(env, f"cd inner; {commands}; git commit -qm x")
    assert result.exit_code == 0, result.output
    kept = checked_out.git("-C", "inner", "ls-tree", "-r", "--name-only", "HEAD").split()
    assert CI not in kept
    assert "code.py" in kept


def put_aside(tree: Path, name: str) -> None:
    """Leave it as the guard does."""
    (tree / name).rename(tree / f"{name}.held")
    with (tree / ".git/info/exclude").open("a") as file:
        file.write("*.held\n*.held-*\n")


async def test_what_is_in_conflict_and_was_put_aside_is_not_taken_for_deleted(
    checked_out: Person,
) -> None:
    inner, git = checked_out.project / "upstream", partial(checked_out.git, "-C", "upstream")
    for branch in ("one", "two"):
        git("checkout", "-qb", branch, "ci")
        (inner / CI).write_text(branch)
        git("commit", "-qam", branch)
    with pytest.raises(subprocess.CalledProcessError):
        git("merge", "one")
    put_aside(inner, ".github")
    env = await checked_out.open()
    for command in ("git add -A", "git add .", "git commit -qam merged"):
        result = await sh(env, f"cd ~/src/project/upstream; {command}")
        assert f"would delete {CI}" in result.output
    assert (await sh(env, "echo 1 > new; git add new")).exit_code == 0


async def test_a_search_through_changes_of_what_is_read_only_does_not_begin(
    checked_out: Person,
) -> None:
    for name in "abcd":
        checked_out.git("commit", "-q", "--allow-empty", "-m", name)
    checked_out.git("merge", "-q", "--no-edit", "-s", "ours", "ci")
    checked_out.git("commit", "-q", "--allow-empty", "-m", "e")
    env = await checked_out.open()
    for command in ("start HEAD HEAD~6", "start; git bisect bad; git bisect good HEAD~6"):
        result = await sh(env, f"git bisect {command}")
        assert "Nothing was done" in result.output
        await sh(env, "git bisect reset")
    result = await sh(env, "git bisect start HEAD~1^ HEAD~5; git bisect run echo --help")
    assert "first bad commit" in result.output
    assert result.output.count("--help") <= 4


async def test_an_inner_work_tree_goes_to_any_branch_and_back(checked_out: Person) -> None:
    env = await checked_out.open()
    await sh(env, "git clone -q upstream inner; git -C inner branch main origin/main~0")
    for command in (
        *("git checkout -q origin/code", "git checkout -q ci", "git reset -q --hard origin/code"),
        *("git merge -q --no-edit origin/ci", "git checkout -q -b other origin/code"),
        *("git rebase -q origin/ci", "git pull -q --no-rebase origin code", "git switch -q -"),
        *("git bisect start HEAD HEAD~1", "git bisect reset", "git status"),
    ):
        result = await sh(env, f"cd ~/src/project/inner; {command}")
        assert result.exit_code == 0, f"{command}: {result.output}"
        assert not checked_out.git("-C", "inner", "diff", "--cached", "--name-only", "HEAD")


async def test_what_is_back_in_an_inner_work_tree_counts_again(checked_out: Person) -> None:
    env = await checked_out.open()
    await sh(env, "git clone -q upstream inner")
    await sh(env, "git -C inner status")
    inner = checked_out.project / "inner"
    (inner / ".github.held").rename(inner / ".github")
    (inner / CI).write_text("mine\n")
    result = await sh(env, "git -C inner status --porcelain")
    assert result.output == f" M {CI}\n"
    marks = checked_out.git("-C", "inner", "ls-files", "-v", ".github")
    assert marks == f"H {CI}\n"


async def test_what_people_have_marked_themselves_stays_so(checked_out: Person) -> None:
    checked_out.git("-C", "upstream", "update-index", "--skip-worktree", CI)
    env = await checked_out.open()
    await sh(env, "mkdir upstream/.idea")
    await sh(env, "cd upstream; git status; git checkout -q -b new; git add -A")
    assert checked_out.git("-C", "upstream", "ls-files", "-v", ".github") == f"S {CI}\n"


DELETING = (
    "git add -A",
    "git add .",
    "git add -u",
    "git add .idea",
    "git commit -am 1",
    "git keep",
)


async def test_the_project_is_told_of_what_a_commit_would_delete(checked_out: Person) -> None:
    person = checked_out
    person.git("config", "alias.keep", "commit -a -m 'it is'")
    (person.project / ".idea").mkdir()
    (person.project / ".idea/a").touch()
    person.git("add", ".idea")
    person.git("commit", "-qm", "begun")
    put_aside(person.project, ".idea")
    env = await person.open()
    for command in (*DELETING, "git rm -q --cached .idea/a; git commit -m 2"):
        result = await sh(env, command)
        assert result.exit_code != 0
        assert "would delete .idea/a" in result.output
        assert result.walled == ""
    result = await sh(env, "git reset -q; echo 1 > code.py; git add code.py; git commit -qm only")
    assert result.exit_code == 0, result.output
    (person.project / ".idea.held").rename(person.project / ".idea")
    assert person.git("ls-files", "-v", ".idea") == "H .idea/a\n"
    result = await sh(env, "echo 2 > code.py; git add -A; git keep; git show --name-only")
    assert ".idea" not in result.output
    assert result.exit_code == 0
    shutil.rmtree(person.project / ".idea")
    result = await sh(env, "git add -A; git commit -qm gone")
    assert result.exit_code == 0, result.output


async def test_what_came_back_over_the_persons_is_not_committed(person: Person) -> None:
    for text in ("old", "new"):
        person.file("src/project/.gitlab-ci.yml", text)
        person.file("src/project/code.py", text)
        person.git("add", "-A")
        person.git("commit", "-qm", text)
    person.git("checkout", "-q", "-b", "work", "HEAD^")
    env = await person.open()
    await env.spawn(ShellRun(script="touch ready; sleep 600"))
    await until_there(person.project / "ready")
    person.git("checkout", "-q", "-")
    assert ".gitlab-ci.yml (copy" in (await sh(env, "true")).output
    for command in ("git commit -am more", "git add -A", "git add .gitlab-ci.yml"):
        result = await sh(env, f"echo more > code.py; {command}")
        assert result.exit_code != 0
        assert "would commit .gitlab-ci.yml as it was before" in result.output
        assert ".gitlab-ci.yml.held" in result.output
    result = await sh(env, "git add code.py && git commit -qm more && git show --name-only")
    assert (result.exit_code, ".gitlab-ci.yml" in result.output) == (0, False)
    await env.run(ShellRun(script="mv .gitlab-ci.yml.held .gitlab-ci.yml", outside=True))
    assert person.git("status", "--porcelain") == "?? ready\n"
    result = await sh(env, "echo again > code.py; git commit -am again")
    assert result.exit_code == 0, result.output


ELSEWHERE = (
    "git clone -q upstream /tmp/it && cd /tmp/it",
    "git clone -q upstream ~/it && cd ~/it",
    "git clone -q upstream /tmp/it && ln -s /tmp/it it && cd it",
    "git worktree add -q /tmp/it -b new && cd /tmp/it",
    "git init -q it && cd it && git remote add origin ../upstream && git fetch -q",
)


@pytest.mark.parametrize("made", ELSEWHERE)
async def test_where_nothing_is_read_only_nothing_is_refused(
    checked_out: Person, made: str
) -> None:
    checked_out.git("fetch", "-q")
    env = await checked_out.open()
    result = await sh(env, f"{made}; git checkout -q origin/code && git merge -q origin/ci")
    assert result.exit_code == 0, result.output
    assert "Nothing was done" not in result.output


async def test_an_inner_repository_of_the_persons_stays_as_it_is(checked_out: Person) -> None:
    env = await checked_out.open()
    result = await sh(env, "cd upstream; git checkout code")
    assert CI in result.output
    assert "Nothing was done" in result.output
    assert checked_out.git("-C", "upstream", "status", "--porcelain") == ""


SETTINGS = (
    *("git branch -m code renamed", "git branch -M code ci", "git branch -fm code ci"),
    *(
        "git branch -c code copied",
        "git -C . branch --move code renamed",
        "git submodule deinit --all",
    ),
    *("git worktree prune", "git worktree remove tree"),
)


@pytest.mark.parametrize("command", SETTINGS)
async def test_git_does_not_begin_what_needs_settings(checked_out: Person, command: str) -> None:
    person = checked_out
    person.git("config", "submodule.it.url", "./upstream")
    person.git("worktree", "add", "-q", "tree", "-b", "tree")
    person.git("worktree", "add", "-q", "../gone", "-b", "gone")
    as_it_was = person.git("branch", "-v"), person.git("-C", "tree", "status", "--short")
    env = await person.open()
    result = await sh(env, command)
    assert result.exit_code != 0
    assert "Nothing was done" in result.output
    assert "error:" not in result.output
    assert result.walled
    assert (person.git("branch", "-v"), person.git("-C", "tree", "status", "--short")) == as_it_was


TRACKING = (
    *("git checkout -b new origin/code", "git switch -c new --track origin/code"),
    *("git checkout -t origin/new", "git checkout new", "git switch new"),
    *("git branch new origin/code", "git branch --track new origin/code"),
)
WITHOUT = (
    *("git checkout --no-track -b new origin/code", "git branch --no-track new origin/code"),
    *("git checkout -q --detach origin/code; git branch new", "git branch -f new code"),
    "git branch -q new code; git branch -dr origin/code origin/new",
)


@pytest.mark.parametrize("command", WITHOUT)
async def test_a_branch_that_is_to_track_nothing_is_made_without_a_word(
    checked_out: Person, command: str
) -> None:
    checked_out.git("update-ref", "refs/remotes/origin/new", "code")
    checked_out.git("update-ref", "refs/remotes/origin/code", "code")
    env = await checked_out.open()
    result = await sh(env, command)
    assert result.exit_code == 0, result.output
    assert " track" not in result.output
    assert checked_out.git("rev-parse", "new") == checked_out.git("rev-parse", "code")


@pytest.mark.parametrize("command", TRACKING)
async def test_a_branch_that_cannot_be_set_up_to_track_is_told_once(
    checked_out: Person, command: str
) -> None:
    checked_out.git("update-ref", "refs/remotes/origin/new", "code")
    checked_out.git("update-ref", "refs/remotes/origin/code", "code")
    env = await checked_out.open()
    result = await sh(env, command)
    assert result.exit_code == 0, result.output
    assert result.output.count("track") == 1
    assert "config" not in result.output
    assert checked_out.git("rev-parse", "new") == checked_out.git("rev-parse", "code")


RUN_LATER = ("-x true", "--exec true", "--exec=true", "-ixtrue", "-i -x true", "-r --exec=true")


@pytest.mark.parametrize("options", RUN_LATER)
async def test_a_rebase_that_would_run_something_later_does_not_begin(
    checked_out: Person, options: str
) -> None:
    checked_out.git("checkout", "-q", "code")
    env = await checked_out.open()
    result = await sh(env, f"git rebase {options} HEAD")
    assert result.exit_code != 0
    assert "Nothing was done" in result.output
    assert result.walled
    assert not (checked_out.project / ".git/rebase-merge").exists()
    steps = (
        "GIT_SEQUENCE_EDITOR=\"sed -i '/^pick/a break'\" git rebase -q -i HEAD~1",
        "test -e .git/rebase-merge",
        "git rebase --continue",
    )
    for step in steps:
        result = await sh(env, step)
        assert result.exit_code == 0, result.output
    clone = "git clone -q upstream /tmp/it; cd /tmp/it"
    result = await sh(env, f"{clone}; git checkout -q origin/code; git rebase {options} HEAD")
    assert "Nothing was done" not in result.output


UNUSUAL = (
    *("git --version", "git", "git --help", "git help", "git -h", "git checkout -h", "git nothing"),
    *("cd /tmp; git status", "cd /tmp; mkdir -p empty; cd empty; git checkout x; git --version"),
    "git init -q new; cd new; git status; git add -A; git commit -qm x; git checkout -q x",
    "git init -q other; cd other; echo > f; git add f; git commit -qm x; git log --format=%s",
    "git init -q --bare /tmp/bare; cd /tmp/bare; git status; git branch -m a b; git commit",
    *("cd .git; git status; git log --format=%s", "git -C src/none status", "git -C"),
    *("git checkout -b feature/a/b code; git checkout feature/a/b; git branch -a", "git bisect"),
    *("git -c core.pager=cat status", "GIT_DIR=.git git status", "git --git-dir=.git add -n ."),
    "mkdir -p 'a b/ü'; cd 'a b/ü'; echo > $'x\\ny'; git add .; git commit -qm 1; git ls-files",
    *("git st", "git loop", "git sh", "git quoted; git log -1 --format=%s", "git -c a.b=c st -s"),
    *("git commit", "git commit --amend --no-edit", "git commit --allow-empty -m -p", "git add"),
    *("git stash list", "git worktree list", "git worktree add /tmp/x; git worktree remove /tmp/x"),
    *(
        "git submodule",
        "git submodule status",
        "git branch -d code",
        "git branch new",
        "git branch",
    ),
    *("git rebase", "git merge nothing", "git reset nothing", "git pull nothing", "git switch"),
    *("git bisect start HEAD~1 HEAD; git bisect log", "git bisect start; git bisect reset"),
    *("git -C inner status; git diff -- '*.py'; git checkout -- . ; git restore --staged .",),
)


@pytest.mark.parametrize("place", ["~/src/project", "~/src/project/inner", "~/it"])
async def test_git_says_and_does_what_it_would_have_anyway(
    repository: Path, tmp_path: Path, place: str
) -> None:
    aliases = {"st": "status", "loop": "loop", "sh": "!echo it"}
    aliases["quoted"] = "commit --allow-empty -m 'one \"two\" three'"
    date = (
        "export GIT_COMMITTER_DATE='@100000000 +0000' GIT_AUTHOR_DATE='@100000000 +0000' LC_ALL=C"
    )
    said: list[list[str]] = []
    for by in ("/usr/bin/git", "/run/git"):
        person = Person(tmp_path / str(len(said)))
        shutil.rmtree(person.project)
        shutil.copytree(repository, person.project, symlinks=True)
        for name, value in aliases.items():
            person.git("config", f"alias.{name}", value)
        env = await person.open()
        begun = f"{date}; cd {place}; echo > code.py; git add .; git commit -qm 1; git branch code"
        await sh(env, f"git init -q {place}; {begun}")
        await sh(env, f"mkdir {place}/.idea")  # something was held at some time
        said.append([])
        for command in UNUSUAL:
            result = await sh(env, f'{date}; git() {{ {by} "$@"; }}; cd {place}; {command}')
            output = re.sub(r"\n\[(?:In the sandbox|Renamed).*", "", result.output)
            output = output.replace(str(person.home), "~")
            said[-1].append(f"{command}: {result.exit_code} {output}")
        await person.boxes.pool.close()
    for ours, real in zip(*said, strict=True):
        assert ours == real
