"""Files are written freely in a project and asked about elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.command_corpus import Sample, kept_home, read_corpus, strict_policy
from fakes.toolbox import local_environment
from hermes.agent.tools.registry import ToolRegistry
from hermes.domain.approvals import Gate
from hermes.domain.settings.live import LiveSettings
from hermes.execution.policy.host import HostPolicy
from hermes.execution.policy.judge import CommandPolicy


@pytest.mark.parametrize(
    "path",
    [
        "/etc/hosts",
        "/usr/local/bin/x",
        "~/.ssh/authorized_keys",
        "/home/user/.ssh/id_ed25519",
        "/home/user/.bashrc",
        "~/.zshenv",
        "/home/user/.aws/credentials",
        "/home/user/.netrc",
        "/home/user/.hermes/config.yaml",
        "/home/user/.hermes/.env",
        "/home/user/.hermes/agents/other/SOUL.md",
        "/home/user/work/.env",
        "/home/user/work/.git/hooks/pre-commit",
        "/home/user/work/.github/workflows/ci.yml",
        "/home/user/work/../.bashrc",
        "/home/user/work/../../../etc/passwd",
        "/etc/cron.d/x",
        "/home/user/.config/systemd/user/x.service",
        "/home/bob/.profile",
        "/root/.ssh/authorized_keys",
    ],
)
def test_protected_files_ask(path: str) -> None:
    verdict = strict_policy().judge_write(path)
    assert verdict.gate == Gate.ASK
    assert verdict.pattern
    assert strict_policy().judge_write(path, grants={verdict.pattern}).gate == Gate.ALLOW
    assert strict_policy(mode="off").judge_write(path).gate == Gate.ALLOW


@pytest.mark.parametrize(
    "path",
    ["/home/user/.hermes/state.db", "/home/user/.hermes/state.db-wal", "/dev/sda", "/dev/nvme0n1"],
)
def test_the_ledger_and_devices_are_never_written(path: str) -> None:
    policy = strict_policy(mode="off", allowlist=("*", "write device", "write Hermes ledger"))
    assert policy.judge_write(path, grants={"write device"}).gate == Gate.BLOCK


@pytest.mark.parametrize(
    "path",
    [
        "src/main.py",
        "/home/user/work/README.md",
        "/tmp/out.txt",
        "/home/user/work/.env.example",
        "/home/user/.hermes/workspace/notes.md",
        "/home/user/work/etc/hosts",
        "docs/ssh.md",
        "/home/user/work/dotfiles/.bashrc",
        "/dev/null",
    ],
)
def test_ordinary_files_are_written_freely(path: str) -> None:
    assert strict_policy().judge_write(path, cwd="/home/user/work").gate == Gate.ALLOW


def test_a_link_does_not_hide_where_a_write_goes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes").symlink_to(home / ".ssh")
    policy = strict_policy(user_home=str(home), hermes_home=str(home / ".hermes"))
    assert policy.judge_write("notes/authorized_keys", cwd=str(work)).gate == Gate.ASK
    assert policy.judge_write(str(work / "notes" / "config")).gate == Gate.ASK
    assert policy.judge_write("plain.txt", cwd=str(work)).gate == Gate.ALLOW


def test_a_link_before_dots_counts(tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "deep").mkdir(parents=True)
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(tmp_path / ".ssh" / "deep")
    verdict = strict_policy().judge_write("link/../config", cwd=str(work))
    assert verdict.gate == Gate.ASK


def test_relative_paths_are_judged_from_the_working_directory() -> None:
    policy = strict_policy()
    assert policy.judge_write("hosts", cwd="/etc").gate == Gate.ASK
    assert policy.judge_write("authorized_keys", cwd="/home/user/.ssh").gate == Gate.ASK
    assert policy.judge_write("../.bashrc", cwd="/home/user/work").gate == Gate.ASK


def test_a_path_with_a_null_byte_gets_a_verdict() -> None:
    assert strict_policy().judge_write("/etc/x\x00y").gate == Gate.ASK


def test_a_home_behind_a_link_is_protected_where_it_really_is(tmp_path: Path) -> None:
    real = tmp_path / "disk/hermes"
    real.mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    host = HostPolicy(LiveSettings(), {"HOME": "/home/user"}, tmp_path / "link")
    policy = CommandPolicy(host.settings())
    for home in (real, tmp_path / "link"):
        assert policy.judge_write(f"{home}/config.yaml").gate is not Gate.ALLOW
    assert policy.judge_write(f"{real}/state.db").gate is Gate.BLOCK
    assert policy.judge(f"rm -rf {real}").gate is Gate.BLOCK


@pytest.mark.parametrize(
    ("path", "gate"),
    [
        ("~/.hermes/.env", Gate.ASK),
        ("~/.hermes/state.db", Gate.ASK),
        ("~/.ssh/id_ed25519", Gate.ASK),
        ("/proc/1/environ", Gate.ASK),
        ("src/main.py", Gate.ALLOW),
        ("/etc/hosts", Gate.ALLOW),
        ("notes with 'quotes' and $(words).txt", Gate.ALLOW),
    ],
)
async def test_the_file_tools_ask_before_they_show_secrets(
    tmp_path: Path, path: str, gate: Gate
) -> None:
    policy = HostPolicy(LiveSettings(), {"HOME": str(tmp_path)}, tmp_path / ".hermes")
    async with local_environment(tmp_path) as environment:
        spec = ToolRegistry(["file"]).spec("read_file")
        assert spec is not None
        assert spec.intent is not None
        intent = spec.intent({"path": path.replace("~", str(tmp_path))})
        verdict = await policy.judge(intent, environment, grants=(), trusted=False)
    assert verdict.gate is gate


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with kept_home() as folder:
        yield folder


@pytest.mark.parametrize("sample", read_corpus("outside"), ids=lambda sample: sample.command)
def test_what_is_there_outside_of_the_project_is_not_changed_unasked(
    home: Path, sample: Sample
) -> None:
    policy = strict_policy(user_home=str(home), hermes_home=str(home / ".hermes"))
    assert policy.judge(sample.command, cwd=str(home / "work")).gate is not Gate.ALLOW


@pytest.mark.parametrize(
    ("command", "gate"),
    [
        ("cd ../lib && git log", Gate.ALLOW),
        ("cd ../lib && cat README.md", Gate.ALLOW),
        ("cd ../lib && npm test", Gate.ASK),
        ("cd ../lib && npm install", Gate.ASK),
        ("cd ../lib && git commit -am x", Gate.ASK),
        ("cd ../plain && npm test", Gate.ASK),
    ],
)
def test_another_folder_beside_the_project_may_be_looked_at(
    home: Path, command: str, gate: Gate
) -> None:
    (home / "lib" / ".git").mkdir(parents=True, exist_ok=True)
    (home / "lib" / "test").mkdir(exist_ok=True)
    (home / "plain" / "test").mkdir(parents=True, exist_ok=True)
    policy = strict_policy(user_home=str(home), hermes_home=str(home / ".hermes"))
    assert policy.judge(command, cwd=str(home / "work")).gate is gate


@pytest.mark.parametrize(
    "command",
    [
        "mv ~/Documents /tmp/",
        "echo x > ~/notes.txt",
        "mv x ~/.local/bin/git",
        "unzip -o fetched.zip -d ~",
        "rm ~/notes.txt",
    ],
)
def test_a_home_below_the_temporary_directory_is_a_home(tmp_path: Path, command: str) -> None:
    home = tmp_path / "home"
    (home / "Documents").mkdir(parents=True)
    (home / "notes.txt").write_text("kept", encoding="utf-8")
    policy = strict_policy(user_home=str(home), hermes_home=str(home / ".hermes"))
    assert policy.judge(command, cwd=str(home / "work")).gate is Gate.ASK


@pytest.mark.parametrize("command", ["rm -rf ~/.hermes", "mv ~/.hermes /tmp/gone"])
def test_the_usual_home_of_hermes_is_never_lost_wherever_this_one_is(command: str) -> None:
    policy = strict_policy(hermes_home="/srv/hermes")
    assert policy.judge(command, cwd="/home/user/work").gate is Gate.BLOCK


@pytest.mark.parametrize(
    ("command", "gate"),
    [
        ("sed -i s/x/y/ */important.txt", Gate.ASK),
        ("sed -i s/x/y/ */*.txt", Gate.ASK),
        ("gzip s*/l?k/important.txt", Gate.ASK),
        ("sed -i s/x/y/ s*/*.py", Gate.ALLOW),
        ("gzip sub/*/none.txt", Gate.ALLOW),
        ("cp -s ../important.txt .", Gate.ASK),
        ("cp -r --symbolic-link ../lib l", Gate.ASK),
        ("cp -s a.txt b.txt", Gate.ALLOW),
    ],
)
def test_a_glob_does_not_hide_a_link_out_of_the_project(command: str, gate: Gate) -> None:
    with kept_home() as home:
        (home / "work/sub").mkdir()
        (home / "work/a.txt").write_text("own", encoding="utf-8")
        for link in ("link", "sub/lnk"):
            (home / "work" / link).symlink_to(home)
        policy = strict_policy(user_home=str(home), hermes_home=f"{home}/.hermes")
        assert policy.judge(command, cwd=str(home / "work")).gate is gate
