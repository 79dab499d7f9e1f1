"""The baseline of the HTTP door: a proxy that passes streams through and does nothing else.

`python -m bench.pass_through MODEL_URL` prints its port. The same server and
the same HTTP library as the gateway, without a ledger, an agent or a key.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct

from hermes.entry.http.server import HttpServer

__all__ = ["PassThrough", "pass_through"]

ROOT = Path(__file__).resolve().parent.parent


class PassThrough(Struct, frozen=True, kw_only=True):
    """A running proxy."""

    pid: int
    port: int


@asynccontextmanager
async def pass_through(model_url: str) -> AsyncIterator[PassThrough]:
    """Run a proxy to a model for the body of the `with`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.pass_through",
        model_url,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield PassThrough(pid=process.pid, port=int(await process.stdout.readline()))
    finally:
        process.kill()
        await process.wait()


async def _main(model_url: str) -> None:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    client = httpx2.AsyncClient(timeout=None, limits=limits)

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        url = f"{model_url}/chat/completions"
        async with client.stream("POST", url, content=body, headers=headers) as answer:
            kind = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": kind})
            async for chunk in answer.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    server = HttpServer(app, "127.0.0.1", 0)
    await server.bind()
    print(server.port, flush=True)
    await server.run()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
