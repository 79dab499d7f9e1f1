"""`hermes profile` and `-p`: separate installs, and archives that carry and bring nothing bad."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes.cli.root import hermes
from hermes.config import profiles
from hermes.config.paths import HermesHome
from hermes.control.supervision.instance import hold_home
from hermes.domain.errors import HermesError

TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1"
KEY = "sk-of-the-coder-123456"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / ".hermes"
    for name in ("memories", "skills/review", "agents/coder/memories", "logs", "hooks/h"):
        (home / name).mkdir(parents=True)
    (home / "config.yaml").write_text(
        f"# mine\nmodel: fake-1\nplatforms:\n  telegram:\n    token: {TOKEN}  # the bot\n"
        "agents:\n  coder: {}\n"
    )
    (home / ".env").write_text("OPENAI_API_KEY=sk-of-main-5678901\nMAIL_PASSWORD=main\n")
    (home / "SOUL.md").write_text("I am main.")
    (home / "memories" / "MEMORY.md").write_text("The key is sk-of-main-5678901, keep it.")
    (home / "skills" / "review" / "SKILL.md").write_text("look twice")
    (home / "skills" / "outside").symlink_to("/etc")
    (home / "hooks" / "h" / "handler.py").write_text("pass")
    (home / "agents" / "coder" / ".env").write_text(f"CODER_API_KEY={KEY}\n")
    (home / "agents" / "coder" / "memories" / "MEMORY.md").write_text(f"tabs, {KEY}")
    (home / "state.db").write_text("history")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return home


def run(home: Path, *args: str) -> str:
    done = CliRunner(env={"HERMES_HOME": str(home)}).invoke(hermes, args)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_profiles_are_made_used_shown_and_deleted(home: Path, tmp_path: Path) -> None:
    run(home, "profile", "create", "work")
    work = home / "profiles" / "work"
    assert work.stat().st_mode & 0o777 == 0o700
    run(home, "-p", "work", "config", "set", "model", "work-1")
    assert "work-1" in (work / "config.yaml").read_text()
    assert "fake-1" in (home / "config.yaml").read_text()
    assert f"* default  fake-1  {home}" in run(home, "profile", "list")
    assert "* work" in run(home, "-p", "work", "profile", "list")

    run(home, "profile", "use", "work")
    assert HermesHome.from_environ({"HERMES_HOME": str(home)}).root == work
    assert HermesHome.from_environ({"HOME": str(tmp_path)}).root == work
    assert "Home: " + str(work) in run(home, "profile", "show")
    assert "Profile: default" in run(home, "-p", "default", "profile", "show", "default")

    run(home, "profile", "alias", "work", "--name", "hermes-work")
    launcher = tmp_path / ".local" / "bin" / "hermes-work"
    told = subprocess.run([launcher, "config", "path"], capture_output=True, text=True, check=True)
    assert str(work) in told.stdout
    with pytest.raises(HermesError, match="already"):
        run(home, "profile", "alias", "work", "--name", "sh")

    with hold_home(work), pytest.raises(HermesError, match="is running"):
        run(home, "profile", "delete", "work", "--yes")
    run(home, "profile", "delete", "work", "--yes")
    assert not work.exists()
    assert not launcher.exists()
    assert HermesHome.from_environ({"HERMES_HOME": str(home)}).root == home
    for wrong in (
        ["use", "work"],
        ["create", "../x"],
        ["create", "default"],
        ["delete", "default"],
    ):
        with pytest.raises(HermesError):
            run(home, "profile", *wrong)
    with pytest.raises(HermesError, match="no profile `nobody`"):
        run(home, "-p", "nobody", "status")


def test_a_profile_in_use_that_is_missing_can_be_left(home: Path) -> None:
    run(home, "profile", "create", "work")
    run(home, "profile", "use", "work")
    (home / "profiles" / "work" / "skills").rmdir()
    (home / "profiles" / "work" / "memories").rmdir()
    (home / "profiles" / "work").rmdir()
    with pytest.raises(HermesError, match="is missing") as refused:
        HermesHome.from_environ({"HERMES_HOME": str(home)})
    assert "profile use default" in refused.value.hint
    run(home, "profile", "use", "default")
    assert HermesHome.from_environ({"HERMES_HOME": str(home)}).root == home


def test_a_copy_has_no_history_and_no_env_unless_asked(home: Path) -> None:
    run(home, "profile", "clone", "default", "copy")
    copy = home / "profiles" / "copy"
    found = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert found == {
        *("config.yaml", "SOUL.md", "memories/MEMORY.md", "skills/review/SKILL.md"),
        *("hooks/h/handler.py", "agents/coder/memories/MEMORY.md"),
    }
    run(home, "profile", "create", "full", "--clone", "--with-env")
    assert "sk-of-main" in (home / "profiles" / "full" / ".env").read_text()


def test_an_archive_has_no_secret_unless_asked_and_comes_back(home: Path, tmp_path: Path) -> None:
    run(home, "profile", "export", "default", "-o", "out.tar.gz")
    with tarfile.open("out.tar.gz") as archive:
        texts = {m.name: archive.extractfile(m).read().decode() for m in archive}  # type: ignore[union-attr]
    for secret in (TOKEN, KEY, "sk-of-main-5678901"):
        assert not any(secret in text for text in texts.values())
    assert not any(".env" in name or "state.db" in name or "outside" in name for name in texts)
    assert "# the bot" in texts["config.yaml"]
    assert texts["SOUL.md"] == "I am main.", "a short password may be a word"
    assert "tabs" in texts["agents/coder/memories/MEMORY.md"]
    assert (tmp_path / "out.tar.gz").stat().st_mode & 0o777 == 0o600

    told = run(home, "profile", "import", "out.tar.gz", "back")
    back = home / "profiles" / "back"
    assert "It brings hooks" in told
    assert (back / "SOUL.md").read_text() == "I am main."
    assert (back / "config.yaml").stat().st_mode & 0o777 == 0o600
    with pytest.raises(HermesError, match="already"):
        run(home, "profile", "import", "out.tar.gz", "back")
    run(home, "profile", "export", "default", "-o", "full.tar.gz", "--with-secrets")
    run(home, "profile", "import", "full.tar.gz")
    assert KEY in (home / "profiles" / "full" / "agents" / "coder" / ".env").read_text()
    assert TOKEN in (home / "profiles" / "full" / "config.yaml").read_text()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 0 if link else 3
    return info


@pytest.mark.parametrize(
    "wrong",
    [
        member("../evil"),
        member("/etc/evil"),
        member("skills/../../evil"),
        member("skills/x", tarfile.SYMTYPE, "/etc/passwd"),
        member("skills/x", tarfile.LNKTYPE, "SOUL.md"),
        member("skills/pipe", tarfile.FIFOTYPE),
        member("state.db"),
        member("agents/../../x/SOUL.md"),
        member("SOUL.md"),
    ],
    ids=lambda info: f"{info.name} {info.type!r}",
)
def test_what_leads_out_of_an_archive_is_refused_and_nothing_stays(
    home: Path, tmp_path: Path, wrong: tarfile.TarInfo
) -> None:
    with tarfile.open("bad.tar.gz", "w:gz") as archive:
        for info in (member("SOUL.md"), wrong):
            archive.addfile(info, io.BytesIO(b"abc"))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(HermesError):
        run(home, "profile", "import", "bad.tar.gz", "bad")
    assert list((home / "profiles").iterdir()) == []
    assert sorted(tmp_path.iterdir()) == before


def test_a_bomb_and_a_file_that_is_no_archive_are_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MAX_BYTES", 1_000_000)
    with tarfile.open("bomb.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("skills/zeros")
        info.size = 5_000_000
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(HermesError, match="more than"):
        run(home, "profile", "import", "bomb.tar.gz")
    Path("text.tar.gz").write_text("no archive")
    with pytest.raises(HermesError, match="cannot be read"):
        run(home, "profile", "import", "text.tar.gz")
    assert profiles.profile_names(HermesHome(root=home)) == []
