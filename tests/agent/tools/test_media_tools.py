"""vision_analyze, image_generate and text_to_speech against services on loopback."""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.toolbox import Toolbox, local_environment
from fakes.web import DOT, web
from hermes.agent.fetch import PageFetcher
from hermes.agent.tools.media.image_generate import IMAGE_SERVICE
from hermes.agent.tools.registry import ToolRegistry
from hermes.domain.messages import Content, ImagePart, TextPart, ToolOutcome
from hermes.domain.settings import Settings
from hermes.domain.settings.models import ImageService, Speech, SpeechEngine, SpeechService
from hermes.domain.tools import Need, ToolCapabilities, ToolContext


async def look(question: str, image: ImagePart) -> Content:
    return (TextPart(question), image)


class MediaBox(Toolbox):
    settings = Settings()

    def context(self, call_id: str = "call_0") -> ToolContext:
        fetch = PageFetcher(lambda address: address == "127.0.0.1").fetch
        return replace(
            super().context(call_id),
            capabilities=ToolCapabilities(
                fetch=fetch,
                look=look,
                settings=lambda: self.settings,
            ),
        )


@asynccontextmanager
async def box(tmp_path: Path) -> AsyncIterator[MediaBox]:
    async with local_environment(tmp_path) as environment:
        names = frozenset({IMAGE_SERVICE})
        sets = ["vision", "image_gen", "tts"]
        granted = frozenset({Need.FETCH})
        yield MediaBox(environment, ToolRegistry(sets, secret_names=names, granted=granted))


async def test_a_picture_is_looked_at_from_a_file_and_from_the_web(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(base64.b64decode(DOT))
    (tmp_path / "text.png").write_text("no picture")
    async with web() as site, box(tmp_path) as tools:
        for source in ("dot.png", f"{site.url}/dot"):
            result = await tools.do("vision_analyze", image_url=source, question="What is it?")
            assert isinstance(result.content, tuple)
            text, image = result.content
            assert text == TextPart("What is it?")
            assert isinstance(image, ImagePart)
            assert image.url == f"data:image/png;base64,{DOT}"
        for source in ("text.png", "none.png", "http://10.0.0.1/x.png"):
            failed = await tools.do("vision_analyze", image_url=source, question="?")
            assert failed.outcome is ToolOutcome.ERROR


async def test_pictures_are_made_and_changed(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(base64.b64decode(DOT))
    async with web() as site, box(tmp_path) as tools:
        service = ImageService(base_url=f"{site.url}/v1", api_key="k1", model="painter")
        tools.settings = Settings(image_gen=service)
        text = await tools.text("image_generate", prompt="A dot", aspect_ratio="square")
        made = Path(text.removeprefix("MEDIA:"))
        assert await asyncio.to_thread(made.read_bytes) == base64.b64decode(DOT)
        sent = site.hits[-1]
        assert sent.headers["authorization"] == "Bearer k1"
        assert json.loads(sent.body) == {
            "model": "painter",
            "prompt": "A dot",
            "size": "1024x1024",
            "n": 1,
        }
        text = await tools.text("image_generate", prompt="Bigger", image_url="dot.png")
        assert text.startswith("MEDIA:/")
        assert base64.b64decode(DOT) in site.hits[-2].body
        assert "authorization" not in site.hits[-1].headers
        # Nothing but pictures goes out.
        (tmp_path / "key.pem").write_text("PRIVATE KEY")
        before = len(site.hits)
        for more in ({"image_url": "key.pem"}, {"reference_image_urls": ["dot.png", "key.pem"]}):
            assert "is not a picture" in await tools.text("image_generate", prompt="x", **more)
        assert len(site.hits) == before


async def test_a_service_speaks(tmp_path: Path) -> None:
    async with web() as site, box(tmp_path) as tools:
        tools.settings = Settings(tts=Speech(openai=SpeechService(base_url=f"{site.url}/v1")))
        text = await tools.text(
            "text_to_speech", text="**Hello** [you](http://x)", output_path="a.ogg"
        )
        assert text == f"[[audio_as_voice]] MEDIA:{tmp_path}/a.ogg"
        assert (tmp_path / "a.ogg").read_bytes() == b"OggS spoken"
        sent = json.loads(site.hits[0].body)
        assert (sent["input"], sent["response_format"]) == ("Hello you", "opus")
        service = SpeechService(base_url=f"{site.url}/v1", api_key="k", model="m", voice="v")
        tools.settings = Settings(tts=Speech(openai=service))
        await tools.text("text_to_speech", text="Hello", output_path="a.mp3")
        sent = json.loads(site.hits[1].body)
        assert (sent["model"], sent["voice"]) == ("m", "v")
        assert site.hits[1].headers["authorization"] == "Bearer k"
        tools.settings = Settings(tts=Speech(provider="gramophone"))
        assert "no speech provider `gramophone`" in await tools.text("text_to_speech", text="x")


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="there is no espeak-ng")
async def test_without_a_service_the_engine_of_the_machine_speaks(tmp_path: Path) -> None:
    async with box(tmp_path) as tools:
        text = await tools.text("text_to_speech", text="Hello", output_path="a.wav")
        assert text == f"MEDIA:{tmp_path}/a.wav"
        assert (tmp_path / "a.wav").read_bytes()[:4] == b"RIFF"
        assert "must end with" in await tools.text("text_to_speech", text="x", output_path="a.txt")
        nowhere = await tools.do("text_to_speech", text="Hello", output_path="/proc/a.wav")
        assert nowhere.outcome is ToolOutcome.ERROR
        tools.settings = Settings(tts=Speech(espeak=SpeechEngine(voice="de")))
        await tools.text("text_to_speech", text="Hello", output_path="b.wav")
        assert (tmp_path / "b.wav").read_bytes() != (tmp_path / "a.wav").read_bytes()


def test_without_a_service_no_picture_tool_is_offered() -> None:
    registry = ToolRegistry(["image_gen"], granted=frozenset({Need.FETCH}))
    assert registry.unavailable == {"image_generate": "it needs OPENAI_API_KEY"}
