import json
from pathlib import Path

import pytest

from fakes.ledgers import reply, result, session, turn
from hermes.domain.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hermes.domain.ports.ledger import Ledger
from hermes.state.transcripts import (
    TranscriptMirror,
    openai_message,
    transcript_path,
)

CALL = ToolCall(id="c1", name="read", arguments='{"path":"x"}')


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (UserMessage(content="hi"), {"role": "user", "content": "hi"}),
        (
            UserMessage(content="hi", sender="Ada"),
            {"role": "user", "name": "Ada", "content": "hi"},
        ),
        (
            UserMessage(
                content=(
                    TextPart("see"),
                    ImagePart(url="https://x/y.png", detail="low"),
                    FilePart(path="/tmp/a.txt", name="a.txt"),
                )
            ),
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
                    {"type": "text", "text": "[file: /tmp/a.txt]"},
                ],
            },
        ),
        (AssistantMessage(text="ok"), {"role": "assistant", "content": "ok"}),
        (
            AssistantMessage(tool_calls=(CALL,)),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "read", "arguments": '{"path":"x"}'},
                    }
                ],
            },
        ),
        (
            ToolMessage(call_id="c1", name="read", content=(TextPart("a"), TextPart("b"))),
            {"role": "tool", "tool_call_id": "c1", "content": "a\nb"},
        ),
    ],
)
def test_messages_take_the_openai_form(message: Message, expected: dict[str, object]) -> None:
    assert openai_message(message) == expected


async def test_the_mirror_grows_by_one_line_a_message(ledger: Ledger, tmp_path: Path) -> None:
    mirror = TranscriptMirror(tmp_path / "sessions")
    await ledger.create_session(session())
    begun = await ledger.begin_turn(turn(says="line\nbreak \u2028 ü \ud800"))
    await mirror.append("s1", begun.inputs)
    await mirror.append("s1", [])
    await mirror.append("s1", [await ledger.record_reply("t1", reply("", "c1"), None, 3.0)])
    await mirror.append("s1", [await ledger.record_result("t1", result("c1"), 4.0)])
    path = tmp_path / "sessions" / "s1.jsonl"
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line)["role"] for line in lines] == ["user", "assistant", "tool"]
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["../../x", "a/b", "/etc/passwd", ".", "..", "é" * 300, "a\0b"])
def test_no_session_id_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    path = transcript_path(tmp_path, name)
    assert path.parent == tmp_path
    assert len(path.name) < 255
    path.touch()
