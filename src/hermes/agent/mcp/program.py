"""A server that is a program: JSON lines over its standard input and output.

In place of the SDK's own: lines are of bounded length, measured before they are decoded,
and large ones are decoded in a thread.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TextIO

import anyio
import mcp_types as types
from mcp import StdioServerParameters
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from hermes.agent.mcp.bounds import MAX_BYTES, SMALL, refusal, too_much

_CHUNK = 65_536
_PATIENCE = 2.0
"""Seconds for the program to end by itself, then when it is asked to."""
_POLL = 0.01
_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})|"([^"\\]{1,100})")')
_ENDS = 300
"""How much of a line that is too long is searched for the call it answers."""

Item = SessionMessage | Exception
_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


@asynccontextmanager
async def program(server: StdioServerParameters, errors: TextIO) -> AsyncIterator[TransportStreams]:
    """Start a program and connect to it; `OSError` if that cannot be done."""
    process = await asyncio.create_subprocess_exec(
        server.command,
        *server.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        env=get_default_environment() | (server.env or {}),
        cwd=server.cwd,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    heard, reading = anyio.create_memory_object_stream[Item](0)
    writing, to_say = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(output: asyncio.StreamReader) -> None:
        async with heard:
            with suppress(*_GONE):
                async for line in lines(output):
                    if isinstance(line, Exception) or line.strip():
                        await heard.send(await _read(line))
        while await output.read(_CHUNK):  # a full pipe would keep the program from ending
            pass

    async def write(into: asyncio.StreamWriter) -> None:
        async with to_say:
            try:
                async for each in to_say:
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    into.write(text.encode("utf-8", "replace") + b"\n")
                    await into.drain()
            except _GONE:
                await heard.aclose()

    async with anyio.create_task_group() as group:
        group.start_soon(read, process.stdout)
        group.start_soon(write, process.stdin)
        try:
            yield reading, writing
        finally:
            with anyio.CancelScope(shield=True):
                reading.close()
                writing.close()
                await _end(process)
            group.cancel_scope.cancel()


class _TooLong(Exception):
    """A line that was not kept; where it begins and ends."""


async def lines(output: asyncio.StreamReader) -> AsyncIterator[bytes | Exception]:
    """Yield lines; one that is too long is not kept."""
    kept, cut = bytearray(), b""
    while chunk := await output.read(_CHUNK):
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            kept += piece
            yield _TooLong(cut + kept[-_ENDS:]) if cut else bytes(kept)
            kept, cut = bytearray(), b""
        kept += rest
        if len(kept) > MAX_BYTES:
            cut = cut or bytes(kept[:_ENDS])
            kept = kept[-_ENDS:]


async def _read(line: bytes | Exception) -> Item:
    if isinstance(line, _TooLong):
        return _refused(line.args[0], f"its answer has more than {MAX_BYTES // 2**20} MB")
    if isinstance(line, Exception):
        return line
    if len(line) <= SMALL:
        return _decoded(line)
    why = await asyncio.to_thread(too_much, line)
    return _refused(line, why) if why else await asyncio.to_thread(_decoded, line)


def _refused(line: bytes, why: str) -> Item:
    """Return an error for the call that a line answers, as far as it can be told."""
    found = _ID.search(line[:_ENDS]) or _ID.search(line[-_ENDS:])
    if found is None:
        return ValueError(why)
    return refusal(int(found[1]) if found[1] else found[2].decode("utf-8", "replace"), why)


def _decoded(line: bytes) -> Item:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return _refused(line, "its answer cannot be read")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input, then ask it and all it started to end, then make them."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with anyio.move_on_after(_PATIENCE):
            while process.returncode is None:  # noqa: ASYNC110 - `wait` waits for heirs of its pipes, too
                await anyio.sleep(_POLL)
        if process.returncode is not None:
            break
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    with anyio.move_on_after(_PATIENCE):
        await process.wait()
