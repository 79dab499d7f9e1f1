"""A service like OpenAI's `/v1/audio/transcriptions`, on loopback."""

import asyncio
import json
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, Self

from msgspec import Struct

from fakes.listener import start_server


class Asked(Struct, kw_only=True):
    """One request, with its form taken apart."""

    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]
    file: bytes
    file_name: str
    file_type: str


class FakeTranscriber:
    """Says what it is given: the model, the language, the key and the recording."""

    def __init__(self, statuses: tuple[int, ...] = ()) -> None:
        self.asked: list[Asked] = []
        self._statuses = list(statuses)
        """Of the next answers; 200 after that."""
        self._server: asyncio.Server | None = None
        self.origin = ""

    async def __aenter__(self) -> Self:
        self._server = await start_server(self._connected, "127.0.0.1", 0)
        self.origin = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, _, rest = head.partition(b"\r\n")
            headers = {k.lower(): v for k, v in BytesParser(policy=HTTP).parsebytes(rest).items()}
            body = await reader.readexactly(int(headers["content-length"]))
            asked = _asked(first.split()[1].decode(), headers, body)
            self.asked.append(asked)
            status = self._statuses.pop(0) if self._statuses else 200
            key = asked.headers.get("authorization", "no key")
            said = f"heard {asked.file.decode()} by {asked.form} with {key} at {asked.path}"
            answer = json.dumps({"text": said} if status == 200 else {"error": {"message": "No."}})
            writer.write(
                f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
                f"content-length: {len(answer)}\r\nconnection: close\r\n\r\n{answer}".encode()
            )
            await writer.drain()
        finally:
            writer.close()


def _asked(path: str, headers: Mapping[str, str], body: bytes) -> Asked:
    head = f"content-type: {headers['content-type']}\r\n\r\n".encode()
    parts = list(BytesParser(policy=HTTP).parsebytes(head + body).iter_parts())
    form = {str(part.get_param("name", header="content-disposition")): part for part in parts}
    file = form.pop("file")
    content = file.get_payload(decode=True)
    assert isinstance(content, bytes)
    return Asked(
        path=path,
        headers=headers,
        form={name: str(part.get_payload()) for name, part in form.items()},
        file=content,
        file_name=file.get_filename() or "",
        file_type=file.get_content_type(),
    )


class Whisper:
    """The part of faster-whisper that is used, on a machine without a graphics card."""

    def __init__(self, name: str, device: str, compute_type: str = "default") -> None:
        if device == "auto":
            raise RuntimeError("CUDA driver version is insufficient")
        self._name = f"{name} on {device}"

    def transcribe(self, path: str, language: str | None, vad_filter: bool) -> tuple[Any, Any]:
        assert vad_filter
        said = Path(path).read_text()
        words = (f" {said}", self._name, language or "")
        return iter([SimpleNamespace(text=word) for word in words]), None


def engine() -> ModuleType:
    """Return a stand-in for the package `faster_whisper`."""
    made = ModuleType("faster_whisper")
    vars(made)["WhisperModel"] = Whisper
    return made
