"""Voice messages through a whole gateway: heard and answered, or the person is told."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gateway import running_gateway
from fakes.model import FakeModelServer, Script, Step
from fakes.telegram import FakeTelegram
from fakes.transcriber import FakeTranscriber

ANN = 777


def said(model: FakeModelServer) -> str:
    return str([m["content"] for m in model.requests[-1].body["messages"] if m["role"] == "user"])


def replies(telegram: FakeTelegram) -> list[str]:
    return [each.text for each in telegram.replies(ANN)]


async def test_what_was_said_is_the_message_and_is_shown_to_the_person(tmp_path: Path) -> None:
    async with (
        FakeTranscriber() as service,
        FakeModelServer(Script(default=Step(text="Hello!"))) as model,
        FakeTelegram() as telegram,
    ):
        stt = {"provider": "openai", "openai": {"base_url": f"{service.origin}/v1"}}
        key = {"VOICE_TOOLS_OPENAI_KEY": "sk-voice"}
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, environ=key, stt=stt
        ):
            telegram.world.say_file(ANN, ANN, "voice", b"OggS-hello")
            await telegram.until(lambda: len(replies(telegram)) == 2, 60)
            await telegram.until(lambda: "Hello!" in replies(telegram), 60)
            assert "[Voice message] heard OggS-hello" in said(model)
            assert "[file:" not in said(model)
            assert sum("heard OggS-hello" in text for text in replies(telegram)) == 1
            assert service.asked[0].headers["authorization"] == "Bearer sk-voice"
            assert service.asked[0].file_name == "voice.ogg"


@pytest.mark.parametrize(
    ("stt", "why"),
    [
        ({"enabled": False}, "switched off"),
        ({"provider": "openai", "openai": {"base_url": "http://127.0.0.1:9"}}, "reached"),
    ],
)
async def test_a_recording_that_is_not_transcribed_is_a_file_and_the_person_is_told(
    tmp_path: Path, stt: dict[str, Any], why: str
) -> None:
    async with (
        FakeModelServer(Script(default=Step(text="Hello!"))) as model,
        FakeTelegram() as telegram,
    ):
        async with running_gateway(tmp_path, model.base_url, telegram.base_url, stt=stt):
            telegram.world.say_file(ANN, ANN, "voice", b"OggS-hello")
            await telegram.until(lambda: len(replies(telegram)) == 2, 60)
            await telegram.until(lambda: "Hello!" in replies(telegram), 60)
            (told,) = [text for text in replies(telegram) if text != "Hello!"]
            assert why in told
            assert "127.0.0.1" not in told
            assert "[file: voice.ogg" in said(model)
            assert "not transcribed" in said(model)
