"""The fake model of the tests as a process of its own, told to remember little.

`python -m bench.model_server SCRIPT.json` prints its port. It keeps only the
last requests, so that thousands of long histories do not slow it down.
"""

import asyncio
import gc
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fakes.model import FakeModelServer, RecordedRequest
from fakes.model_script import Rule, Script, Step, load_script

__all__ = ["TOKENS", "ModelProcess", "model_process", "script"]

TOKENS = 20
ANSWER = "word" * TOKENS
"""Comes in pieces of four characters: one token each."""
KEPT = 64
ROOT = Path(__file__).resolve().parent.parent


class ModelProcess(Struct, frozen=True, kw_only=True):
    """A running fake model."""

    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def requests(self) -> list[bytes]:
        """Return the bodies of the last requests that were not for a title."""
        seen = json.loads(await self._get("/__requests"))
        return [json.dumps(item["body"]).encode() for item in seen if item["body"].get("tools")]

    async def count(self) -> int:
        """Return how many requests have come so far."""
        return int(json.loads(await self._get("/__stats"))["requests"])

    async def _get(self, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer.partition(b"\r\n\r\n")[2]


def script(answer: Step, *rules: Rule) -> Script:
    """Return a script with titles out of the way of the answers that are measured."""
    title = Rule(contains="\n\nAssistant: ", steps=[Step(text="A title")])
    return Script(rules=[title, *rules], default=answer, strict=False)


@asynccontextmanager
async def model_process(said: Script) -> AsyncIterator[ModelProcess]:
    """Run a fake model that says `said` for the body of the `with`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.encode(said))
        file.flush()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.model_server",
            file.name,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT / "tests")},
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            yield ModelProcess(port=int(await process.stdout.readline()))
        finally:
            process.terminate()
            await process.wait()


class _Recent(list[RecordedRequest]):
    """Keeps the last few and counts them all."""

    total = 0

    def append(self, request: RecordedRequest) -> None:
        self.total += 1
        del self[: -KEPT + 1]
        super().append(request)


class _Server(FakeModelServer):
    def __init__(self, said: Script) -> None:
        super().__init__(said)
        self.requests: list[RecordedRequest]
        self.requests = self._recent = _Recent()

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "requests": self._recent.total}


async def _main(said: Script) -> None:
    server = _Server(said)
    await server.start()
    gc.freeze()
    print(server.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(load_script(Path(sys.argv[1]).read_bytes())))
