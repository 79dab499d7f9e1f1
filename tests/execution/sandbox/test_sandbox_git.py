"""Git in a sandbox: what would be left half done is refused before it begins."""

import shutil
from pathlib import Path

import pytest

from fakes.boxes import sh
from fakes.person import Person
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
    outside = await env.run(ShellRun(script=command, outside=True))
    assert outside.exit_code == 0, outside.output
    assert (person.project / CI).read_text() != "on: push\n"


ORDINARY = (
    *("git checkout code", "git switch -c other", "git checkout -b other code", "git merge code"),
    *("git rebase code", "git cherry-pick code", "git reset -q --hard code", "git log -1 ci"),
    *("echo x >> code.py; git stash; git stash pop", "echo x >> code.py; git checkout code.py"),
    *("echo x >> code.py; git commit -qam more; git revert --no-edit HEAD", "git fetch origin"),
    *(
        "git pull origin code",
        "git restore --source=ci code.py",
        "git diff main...ci; git --version",
    ),
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
