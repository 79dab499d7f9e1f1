"""Transcription: recordings of speech as text, by a service or by an engine of this machine.

Services speak OpenAI's `/v1/audio/transcriptions`: the recording goes as it is (ogg/opus included)
in a multipart form. The local engine is faster-whisper, an extra that is imported with first use.
A key is sent to the address it belongs to: one from the environment never goes to another
`base_url`. What goes wrong has a sentence that anybody may read; addresses are for the log.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.ports.clock import Clock
from hermes.domain.settings.models import Transcription, TranscriptionService
from hermes.domain.wording import one_line
from hermes.models.transport import Transport
from hermes.models.wire import WireCall, WireFault

log = logging.getLogger(__name__)

MAX_BYTES = 25 * 1024 * 1024
SECONDS = 120.0
_PAUSE = 1.0


class _Known(Struct, frozen=True):
    base_url: str
    model: str
    variable: str


_SERVICES = {
    "openai": _Known("https://api.openai.com/v1", "whisper-1", "OPENAI_API_KEY"),
    "groq": _Known("https://api.groq.com/openai/v1", "whisper-large-v3-turbo", "GROQ_API_KEY"),
    "mistral": _Known("https://api.mistral.ai/v1", "voxtral-mini-latest", "MISTRAL_API_KEY"),
}


class _Answer(Struct):
    text: str


class Transcriber:
    def __init__(
        self,
        transport: Transport,
        settings: Callable[[], Transcription],
        variable: Callable[[str], str | None],
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._variable = variable
        self._clock = clock
        self._engine: tuple[str, Any] | None = None
        """Name of the local model, and the model."""
        self._busy = asyncio.Lock()

    async def transcribe(self, path: Path, media_type: str) -> str:
        """Return what is said in a recording; `HermesError` says why not, fit for anybody."""
        settings = self._settings()
        if not settings.enabled:
            raise ConfigError("that is switched off here")
        try:
            if (await asyncio.to_thread(path.stat)).st_size > MAX_BYTES:
                raise HermesError(f"it is larger than {MAX_BYTES >> 20} MB")
            async with asyncio.timeout(SECONDS):
                text = await self._by(settings.provider, settings, path, media_type)
        except TimeoutError as error:
            raise HermesError("it took too long") from error
        except OSError as error:
            raise HermesError("the recording cannot be read") from error
        if not text.strip():
            raise HermesError("nothing was understood")
        return text.strip()

    async def _by(self, provider: str, settings: Transcription, path: Path, media_type: str) -> str:
        if provider == "local":
            engine = await asyncio.to_thread(_faster_whisper)
            if engine is not None:
                return await self._local(engine, settings, path)
            provider = next(filter(lambda name: _is_set_up(settings, name), _SERVICES), "")
        if provider not in _SERVICES:
            log.warning(
                "no voice message can be transcribed: install faster-whisper"
                " (pip install 'hermes-gateway[stt]') or set up stt.openai (provider: %s)",
                settings.provider,
            )
            raise ConfigError("that is not set up here")
        data = await asyncio.to_thread(path.read_bytes)
        call = self._call(provider, settings, _recording(path, media_type, data))
        try:
            return await self._ask(call)
        except WireFault as fault:
            log.info("transcription is tried once more: %s", fault.message)
            await self._clock.sleep(_PAUSE)
        try:
            return await self._ask(call)
        except WireFault as fault:
            log.warning("the transcription service at %s failed: %s", call.url, fault.message)
            raise HermesError("the service that does it cannot be reached") from fault

    def _call(self, provider: str, settings: Transcription, recording: bytes) -> WireCall:
        known, own = _SERVICES[provider], _service(settings, provider)
        key = own.api_key or ("" if own.base_url else self._variable(known.variable) or "")
        if not key and not own.base_url:
            log.warning("stt.provider is %s, and there is no %s", provider, known.variable)
            raise ConfigError("that is not set up here")
        form = {"model": own.model or known.model, "response_format": "json"}
        form |= {"language": settings.language} if settings.language else {}
        boundary = secrets.token_hex(16)
        headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "accept": "application/json",
            "user-agent": "hermes",
        }
        return WireCall(
            url=_address(own.base_url or known.base_url),
            headers=headers | ({"authorization": f"Bearer {key}"} if key else {}),
            body=_multipart(boundary, form, recording),
            stream=False,
        )

    async def _ask(self, call: WireCall) -> str:
        status, body = await self._transport.document(call)
        if status == 429 or status >= 500:
            raise WireFault(f"HTTP {status}", status=status)
        said = one_line(body.decode("utf-8", "replace"), 300)
        if status >= 400:
            log.warning("the transcription service at %s: HTTP %s: %s", call.url, status, said)
            raise HermesError("the service that does it refused it")
        try:
            return msgspec.json.decode(body, type=_Answer).text
        except msgspec.MsgspecError as error:
            log.warning("the transcription service at %s answers: %s", call.url, said)
            raise HermesError("the service that does it gave no usable answer") from error

    async def _local(self, engine: Any, settings: Transcription, path: Path) -> str:
        """Let the engine listen, to one recording at a time."""
        name, language = settings.local.model, settings.language or None

        def listen() -> str:
            if self._engine is None or self._engine[0] != name:
                self._engine = name, _loaded(engine, name)
            segments, _ = self._engine[1].transcribe(str(path), language=language, vad_filter=True)
            return " ".join(segment.text.strip() for segment in segments)

        try:
            async with self._busy:
                return await asyncio.to_thread(listen)
        except (OSError, RuntimeError, ValueError) as error:
            log.warning("faster-whisper (%s) failed: %s", name, error)
            raise HermesError("the engine that does it failed") from error


def _faster_whisper() -> Any:
    try:
        return import_module("faster_whisper")
    except ImportError:
        return None


def _loaded(engine: Any, name: str) -> Any:
    try:
        return engine.WhisperModel(name, device="auto")
    except (RuntimeError, ValueError):  # a graphics card that cannot be used
        return engine.WhisperModel(name, device="cpu", compute_type="int8")


def _service(settings: Transcription, name: str) -> TranscriptionService:
    own = {"openai": settings.openai, "groq": settings.groq, "mistral": settings.mistral}
    return own[name]


def _is_set_up(settings: Transcription, name: str) -> bool:
    own = _service(settings, name)
    return bool(own.base_url or own.api_key)


def _address(base_url: str) -> str:
    base = base_url.rstrip("/")
    if base.endswith("/audio/transcriptions"):
        return base
    return f"{base}{'' if urlsplit(base).path else '/v1'}/audio/transcriptions"


def _recording(path: Path, media_type: str, data: bytes) -> bytes:
    """Return the part of a form that is the recording, after its boundary."""
    kind = media_type if media_type.isascii() and media_type.isprintable() else ""
    suffix = path.suffix if path.suffix.isascii() and path.suffix[1:].isalnum() else ".ogg"
    head = (
        f'content-disposition: form-data; name="file"; filename="voice{suffix}"\r\n'
        f"content-type: {kind or 'application/octet-stream'}\r\n\r\n"
    )
    return head.encode() + data


def _multipart(boundary: str, form: dict[str, str], recording: bytes) -> bytes:
    fields = (
        f'content-disposition: form-data; name="{name}"\r\n\r\n{value}'.encode()
        for name, value in form.items()
    )
    mark, end = f"--{boundary}".encode(), b"\r\n"
    parts = (mark + end + part + end for part in (*fields, recording))
    return b"".join((*parts, mark, b"--", end))
