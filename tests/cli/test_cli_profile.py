"""`hermes profile` and `-p`: separate installs, and archives that carry and bring nothing bad."""

import asyncio
import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from fakes import ledgers
from hermes.cli.root import hermes
from hermes.config import profiles
from hermes.config.agents import read_agent
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.control.supervision.instance import hold_home
from hermes.domain.errors import HermesError
from hermes.domain.messages import AssistantMessage, Message, ToolCall, UserMessage
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.session import Lineage, Session
from hermes.state.sqlite.ledger import open_ledger

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


@pytest.mark.parametrize("place", ["../..", "/etc", "~/.hermes", "agents/../../..", "${HOME}"])
def test_an_archive_whose_agent_lives_in_another_install_is_refused(home: Path, place: str) -> None:
    text = f"agents: {{z: {{home: '{place}'}}, y: {{home: z}}, x: {{home: agents/x}}}}\n".encode()
    with tarfile.open("bad.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("config.yaml")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    with pytest.raises(HermesError, match="`z` of the archive has its home outside"):
        run(home, "profile", "import", "bad.tar.gz", "bad")
    assert list((home / "profiles").iterdir()) == []


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


def test_a_copy_works_in_no_home_of_its_source_and_has_no_removed_agents(
    home: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for place in (elsewhere, home / "places" / "inner", home / "agents" / "gone"):
        place.mkdir(parents=True)
        (place / "SOUL.md").write_text(f"I am {place.name}.")
    (elsewhere / ".env").write_text("FAR_API_KEY=sk-of-the-far-one-1234\n")
    (elsewhere / "SOUL.md").write_text("I know sk-of-the-far-one-1234.")
    work = home / "places" / "inner" / "work"
    with (home / "config.yaml").open("a") as file:
        file.write(f"  far: {{home: {elsewhere}}}  # far away\n")
        file.write(f"  inner: {{home: {home}/places/inner, workspace: {work}}}\n")
        file.write("  light: {home: coder}\n  shop: {workspace: /srv/shop}\n")
    run(home, "profile", "clone", "default", "copy")
    run(home, "profile", "export", "default", "-o", "out.tar.gz")
    run(home, "profile", "import", "out.tar.gz", "back")
    for name in ("copy", "back"):
        other = home / "profiles" / name
        loaded = load_config(HermesHome(root=other), {})
        for agent in ("far", "inner", "coder", "light"):
            own = read_agent(agent, loaded, HermesHome(root=other)).home.root
            assert own == other / "agents" / ("coder" if agent == "light" else agent)
        text = (other / "config.yaml").read_text()
        assert str(elsewhere) not in text
        assert str(work) not in text
        assert "/srv/shop" in text
        assert "# far away" in text
        assert (other / "agents" / "inner" / "SOUL.md").read_text() == "I am inner."
        assert not (other / "agents" / "gone").exists()
    assert "sk-of" in (home / "profiles" / "copy" / "agents" / "far" / "SOUL.md").read_text()
    assert "REDACTED" in (home / "profiles" / "back" / "agents" / "far" / "SOUL.md").read_text()


async def talked(home: Path) -> None:
    async with open_ledger(HermesHome(root=home)) as ledger:
        await ledger.create_session(ledgers.session("s1", title="Beds", source="telegram"))
        await ledger.bind_key("agent:main:telegram:dm:7", "s1", 1.0)
        call = ToolCall(id="c1", name="todo", arguments="{}")
        said: list[Message] = [
            UserMessage(content=f"my key is {KEY}"),
            AssistantMessage(text="noted"),
        ]
        await ledger.append_messages("s1", said, 2.0)
        await ledger.append_messages("s1", [AssistantMessage(text="", tool_calls=(call,))], 3.0)
        child = replace(ledgers.session("s2"), parent_id="s1", lineage=Lineage.BRANCH)
        await ledger.create_session(child)
        await ledger.append_messages("s2", said[1:], 4.0)
        await ledger.create_session(ledgers.session("empty"))


async def found(home: Path) -> tuple[list[str], Session, list[Any]]:
    async with open_ledger(HermesHome(root=home)) as ledger:
        first = await ledger.session_for_key("agent:main:telegram:dm:7")
        child = await ledger.session("s2")
        assert first is not None
        assert child is not None
        assert (child.parent_id, child.lineage) == ("s1", Lineage.BRANCH)
        every = [each.id for each in await ledger.sessions(SessionQuery())]
        return every, first, [each.message for each in await ledger.history("s1")]


def test_conversations_are_in_an_archive_if_asked_and_come_back_without_secrets(
    home: Path,
) -> None:
    (home / "state.db").unlink()
    asyncio.run(talked(home))
    told = run(home, "profile", "export", "default", "-o", "out.tar.gz", "--with-sessions")
    assert "It has 2 conversations." in told
    assert "It brings 2 conversations." in run(home, "profile", "import", "out.tar.gz", "back")
    back = home / "profiles" / "back"
    every, session, said = asyncio.run(found(back))
    assert sorted(every) == ["s1", "s2"]
    assert (session.title, session.source, session.message_count) == ("Beds", "telegram", 4)
    assert KEY not in str(said)
    assert "not kept" in str(said[-1].content), "a call without a result gets one"
    assert not (back / "sessions.jsonl").exists()
    assert "Conversations: 2" in run(home, "status", "-p", "back")
    with tarfile.open("bad.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("sessions.jsonl")
        info.size = 9
        archive.addfile(info, io.BytesIO(b'{"a": 1}\n'))
    with pytest.raises(HermesError, match="cannot be read"):
        run(home, "profile", "import", "bad.tar.gz")
    assert not (home / "profiles" / "bad").exists()


def test_the_profile_may_stand_behind_the_command(home: Path) -> None:
    run(home, "profile", "create", "work")
    work = home / "profiles" / "work"
    for words in (
        ["config", "path", "-p", "work"],
        ["config", "-p", "work", "path"],
        ["config", "path", "--profile=work"],
    ):
        assert run(home, *words).strip() == str(work / "config.yaml")
    assert f"home {work}" in run(home, "status", "-p", "work")
    run(home, "config", "set", "-p", "work", "model", "work-1")
    assert "work-1" in run(home, "agent", "list", "-p", "work")
    assert "work-1" not in run(home, "agent", "list")
    with pytest.raises(HermesError, match="no profile `nobody`"):
        run(home, "status", "-p", "nobody")
