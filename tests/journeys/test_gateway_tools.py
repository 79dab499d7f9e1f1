"""Tools of the gateway's turns: messages to other chats, and a project that goes back."""

from pathlib import Path

from fakes.gateway import running_gateway
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram

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
