"""HTTP for the fake, parsed by hand: a framework cannot reset or stall a connection."""

import asyncio
import json
import re
import socket
import struct
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct, field

from fakes.telegram_world import ApiError

__all__ = ["Gone", "Request", "head", "post", "read_request", "refuse", "reply", "reset"]


_DISPOSITION = re.compile(r'form-data; name="([^"]*)"(?:; filename="([^"]*)")?')


class Gone(Exception):
    """The connection is over."""


class Request(Struct, kw_only=True):
    """One request with its parameters, however they were sent."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes
    params: dict[str, Any] = field(default_factory=dict)
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Field -> file name and content."""

    @property
    def keep_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    line = await reader.readline()
    if not line:
        return None
    verb, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := await reader.readline()) not in {b"\r\n", b"\n", b""}:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    request = Request(verb=verb, path=unquote(parts.path), headers=headers, body=body)
    request.params |= dict(parse_qsl(parts.query, keep_blank_values=True))
    _read_body(request)
    return request


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def _read_body(request: Request) -> None:
    kind = request.headers.get("content-type", "")
    if not request.body:
        return
    if kind.startswith("application/json"):
        document = json.loads(request.body)
        request.params |= document if isinstance(document, dict) else {}
    elif kind.startswith("application/x-www-form-urlencoded"):
        request.params |= dict(parse_qsl(request.body.decode(), keep_blank_values=True))
    elif kind.startswith("multipart/form-data"):
        _read_multipart(request, kind)


def _read_multipart(request: Request, kind: str) -> None:
    boundary = kind.partition("boundary=")[2].strip('"').encode()
    for part in request.body.split(b"--" + boundary)[1:-1]:
        lines, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        content = content.removesuffix(b"\r\n")
        disposition = _DISPOSITION.search(lines.decode())
        assert disposition is not None, lines
        name, file_name = disposition.groups()
        if file_name is None:
            request.params[name] = content.decode()
        else:
            request.files[name] = (unquote(file_name), content)


def head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Fake", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def reply(writer: asyncio.StreamWriter, status: int, body: Any) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    kind = "text/html" if isinstance(body, str) else "application/json"
    data = text.encode()
    writer.write(head(status, {"content-type": kind, "content-length": str(len(data))}) + data)


def refuse(writer: asyncio.StreamWriter, error: ApiError) -> None:
    body: dict[str, Any] = {
        "ok": False,
        "error_code": error.code,
        "description": error.description,
    }
    reply(writer, error.code, body | ({"parameters": error.parameters} if error.parameters else {}))


def reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise Gone


async def post(webhook: dict[str, Any], update: dict[str, Any]) -> int:
    address = urlsplit(webhook["url"])
    body = json.dumps(update).encode()
    lines = [
        f"POST {address.path or '/'} HTTP/1.1",
        f"host: {address.netloc}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"x-telegram-bot-api-secret-token: {webhook['secret']}",
    ]
    try:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            status = await reader.readline()
        finally:
            writer.close()
    except OSError:
        return 0
    return int(status.split()[1]) if status else 0
