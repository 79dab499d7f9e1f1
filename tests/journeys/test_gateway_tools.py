"""Tools of the gateway's turns: messages to other chats, and a project that goes back."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.asking_child import options
from fakes.command import Hermes
from fakes.gateway import running_gateway
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from hermes.app.build import open_app
from hermes.domain.messages import ToolMessage
from hermes.entry.terminal.oneshot import inbound

ANN, TEAM, STRANGERS = 777, -1005, -1006


async def test_messages_go_to_allowed_chats_and_a_project_goes_back(tmp_path: Path) -> None:
    note = tmp_path / "workspace" / "note.txt"
    sends = [
        Call(name="send_message", arguments={"target": f"telegram:{to}", "message": "hi there"})
        for to in (TEAM, STRANGERS)
    ]
    write = Call(name="write_file", arguments={"path": str(note), "content": "new"})
    script = Script(
        rules=[
            Rule(contains="tell them", steps=[Step(calls=sends), Step(text="Told.")]),
            Rule(contains="write it", steps=[Step(calls=[write]), Step(text="Written.")]),
        ]
    )
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:

        async def said(text: str) -> None:
            await telegram.until(lambda: any(text in r.text for r in telegram.replies(ANN)), 60)

        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text("old")
        async with running_gateway(
            tmp_path,
            model.base_url,
            telegram.base_url,
            gateway={"message_targets": [f"telegram:{TEAM}"]},
            checkpoints={"enabled": True},
            terminal={"backend": "local", "cwd": str(note.parent)},
        ):
            for group in (TEAM, STRANGERS):
                telegram.say(group, ANN, "not for the bot")
            telegram.say(ANN, ANN, "tell them")
            await said("Told.")
            await telegram.until(lambda: bool(telegram.replies(TEAM)), 60)
            assert [each.text for each in telegram.replies(TEAM)] == ["hi there"]
            assert telegram.replies(STRANGERS) == []
            results = [
                m["content"] for m in model.requests[-1].body["messages"] if m["role"] == "tool"
            ]
            assert "cannot be sent to" in str(results)
            telegram.say(ANN, ANN, "write it")
            await said("Written.")
            assert note.read_text() == "new"
            telegram.say(ANN, ANN, "/rollback")
            await said("before write_file")
            telegram.say(ANN, ANN, "/rollback 1")
            await said("1 file changed")
            assert note.read_text() == "old"


@pytest.mark.parametrize("ripgrep", [True, False])
async def test_a_search_shows_nothing_that_reading_would_ask_for(
    tmp_path: Path, ripgrep: bool
) -> None:
    searches: list[dict[str, object]] = [
        {"pattern": "PASSWORD", "path": "."},
        {"pattern": ".", "path": ".", "file_glob": ".env"},
        {"pattern": "PASSWORD", "path": "~"},
        {"pattern": "PASSWORD", "path": "~", "output_mode": "count"},
    ]
    calls = [Call(name="search_files", arguments=each) for each in searches]
    script = Script(steps=[Step(calls=calls)], default=Step(text="done"))
    async with FakeModelServer(script) as model:
        hermes = Hermes(tmp_path, model.base_url, {"terminal": {"backend": "local"}})
        ssh = tmp_path / ".ssh"
        ssh.mkdir()
        (ssh / "id_rsa").write_text("PASSWORD=of-the-key\n")
        (hermes.work / ".env").write_text("DB_PASSWORD=hunter2\n")
        (hermes.work / ".github").mkdir()
        (hermes.work / ".github" / "ci.yml").write_text("PASSWORD: from the vault\n")
        chosen = options(hermes.home, hermes.work)
        if not ripgrep:
            tools = tmp_path / "bin"
            tools.mkdir()
            for name in ("bash", "grep", "head", "tr", "sh", "find", "env", "mkdir", "cat"):
                (tools / name).symlink_to(Path("/usr/bin") / name)
            chosen = replace(chosen, environ={**chosen.environ, "PATH": str(tools)})
        async with open_app(chosen) as app:
            session = await app.gateway.open_session("main", "cli", "ann")
            message = inbound(session, "look", "ann", 0.0)
            await (await app.gateway.submit("main", message, session_id=session.id)).job()
            await app.gateway.drained()
            history = [stored.message for stored in await app.ledger.history(session.id)]
    results = [str(m.content) for m in history if isinstance(m, ToolMessage)]
    assert "from the vault" in results[0]
    assert all("Left out, for they may hold secrets: " in each for each in results), results
    assert "hunter2" not in str(results)
    assert "of-the-key" not in str(results)
    assert "id_rsa: 1" not in results[3]
