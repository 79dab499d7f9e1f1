"""Voice messages as text: by a service over HTTP, by an engine of this machine, or not at all."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.transcriber import FakeTranscriber, engine
from hermes.domain.errors import HermesError
from hermes.domain.settings.models import Transcription, TranscriptionService
from hermes.models import transcription
from hermes.models.transcription import Transcriber
from hermes.models.transport import Transport
from hermes.testing import FakeClock

Service = TranscriptionService


class QuickClock(FakeClock):
    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "5_1_0_voice.oga"
    path.write_bytes(b"OggS")
    return path


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)


async def heard(settings: Transcription, recording: Path, **variables: str) -> str:
    transport = Transport()
    try:
        made = Transcriber(transport, lambda: settings, variables.get, QuickClock())
        return await made.transcribe(recording, "audio/ogg")
    finally:
        await transport.close()


@pytest.mark.parametrize("path", ["", "/v1", "/v1/", "/v1/audio/transcriptions"])
async def test_the_recording_goes_as_it_is_in_a_form(recording: Path, path: str) -> None:
    async with FakeTranscriber() as service:
        own = Service(base_url=f"{service.origin}{path}", api_key="sk-voice", model="w-2")
        settings = Transcription(provider="openai", language="de", openai=own)
        assert "heard OggS" in await heard(settings, recording)
        (asked,) = service.asked
    assert asked.path == "/v1/audio/transcriptions"
    assert asked.form == {"model": "w-2", "response_format": "json", "language": "de"}
    assert (asked.file, asked.file_name, asked.file_type) == (b"OggS", "voice.oga", "audio/ogg")
    assert asked.headers["authorization"] == "Bearer sk-voice"


async def test_a_key_of_the_environment_does_not_go_to_another_address(recording: Path) -> None:
    async with FakeTranscriber() as service:
        settings = Transcription(provider="openai", openai=Service(base_url=service.origin))
        assert "no key" in await heard(settings, recording, OPENAI_API_KEY="sk-openai")


async def test_without_an_engine_a_service_that_is_set_up_takes_its_place(recording: Path) -> None:
    async with FakeTranscriber() as service:
        settings = Transcription(groq=Service(base_url=service.origin))
        assert "whisper-large-v3-turbo" in await heard(settings, recording)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Transcription(), "not set up"),
        (Transcription(enabled=False), "switched off"),
        (Transcription(provider="openai"), "not set up"),
        (Transcription(provider="unheard-of"), "not set up"),
    ],
)
async def test_what_cannot_be_done_is_said(
    recording: Path, settings: Transcription, why: str
) -> None:
    with pytest.raises(HermesError, match=why):
        await heard(settings, recording)


@pytest.mark.parametrize(
    ("statuses", "why"),
    [((401,), "refused"), ((503, 503), "cannot be reached"), ((429, 500), "cannot be reached")],
)
async def test_failures_of_the_service_name_no_address(
    recording: Path, statuses: tuple[int, ...], why: str
) -> None:
    async with FakeTranscriber(statuses) as service:
        settings = Transcription(provider="openai", openai=Service(base_url=service.origin))
        with pytest.raises(HermesError, match=why) as failure:
            await heard(settings, recording)
        assert "127.0.0.1" not in str(failure.value)
        assert len(service.asked) == len(statuses)


async def test_a_service_that_recovers_is_asked_once_more(recording: Path) -> None:
    async with FakeTranscriber((503,)) as service:
        settings = Transcription(provider="openai", openai=Service(base_url=service.origin))
        assert "heard" in await heard(settings, recording)
    with pytest.raises(HermesError, match="cannot be reached"):
        await heard(settings, recording)


async def test_a_recording_has_a_size_limit(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcription, "MAX_BYTES", 3)
    with pytest.raises(HermesError, match="larger"):
        await heard(Transcription(), recording)


async def test_the_engine_of_this_machine_is_used_if_it_is_installed(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", engine())
    settings = Transcription()
    assert await heard(settings, recording) == "OggS base on cpu"
    settings = replace(settings, local=replace(settings.local, model="tiny"))
    assert await heard(settings, recording) == "OggS tiny on cpu"
    with pytest.raises(HermesError, match="failed"):
        await heard(settings, recording.parent)
