"""The prompt of a chat: what holds for the session stands in its system part and stays there."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.gateway import running_gateway
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from hermes.execution.backends.sandbox import backend as sandbox

ANN = 777


def _more(telegram: FakeTelegram, than: int) -> bool:
    return len(telegram.replies(ANN)) > than


@pytest.mark.skipif(bool(sandbox.unavailable()), reason="no sandboxes here")
async def test_platform_place_and_sandbox_are_told_once_and_nothing_comes_behind(
    tmp_path: Path,
) -> None:
    look = Step(calls=[Call(name="terminal", arguments={"command": "pwd"})])
    script = Script(
        rules=[Rule(contains="look", steps=[look, Step(text="Done.")])],
        default=Step(text="Done."),
    )
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            for text in ("hello", "look around", "bye"):
                before = len(telegram.replies(ANN))
                telegram.say(ANN, ANN, text)
                await telegram.until(partial(_more, telegram, before), 60)
            await telegram.until(lambda: len(model.requests) == 4, 60)
    bodies: list[dict[str, Any]] = [each.body for each in model.requests]
    system = bodies[0]["messages"][0]["content"]
    for word in ("MEDIA:/", "[[audio_as_voice]]", "NO_REPLY", "4,096"):
        assert word in system
    assert "Platform: telegram; a private chat" in system
    assert "(id 777)" in system
    assert "/workspace" in system
    assert "There is no network." in system
    assert "escalate" not in system
    assert {body["messages"][0]["content"] for body in bodies} == {system}, "the same bytes"
    assert [m["content"] for m in bodies[-1]["messages"] if m["role"] == "user"] == [
        "hello",
        "look around",
        "bye",
    ]
    assert bodies[2]["messages"][-1]["role"] == "tool", "nothing is placed behind a result"
