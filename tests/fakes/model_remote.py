"""The fake model in a process of its own, for tests that load the machine.

`python -m fakes.model_remote SCRIPT.json` prints its port. It counts all
requests and keeps none, so it stays small however many come.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fakes.model import FakeModelServer, RecordedRequest
from fakes.model_script import Script, load_script

__all__ = ["RemoteModel", "model_process"]


class RemoteModel:
    """Asks a fake model how it does."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.base_url = f"http://127.0.0.1:{port}/v1"

    async def stats(self) -> dict[str, int]:
        return dict(await self._get("/__stats"))

    async def release(self) -> None:
        """Let stalled answers go on."""
        await self._get("/__release")

    async def until(self, condition: Callable[[dict[str, int]], bool], seconds: float) -> None:
        """Wait until the stats satisfy `condition`."""
        async with asyncio.timeout(seconds):
            while True:
                if condition(await self.stats()):
                    return
                await asyncio.sleep(0.05)

    async def _get(self, path: str) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.close()
        return json.loads(answer.partition(b"\r\n\r\n")[2])


@asynccontextmanager
async def model_process(folder: Path, script: Script) -> AsyncIterator[RemoteModel]:
    """Run a model that says `script` for the body of the `with`."""
    file = folder / "model-script.json"
    file.write_bytes(msgspec.json.encode(script))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fakes.model_remote",
        str(file),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            port = int(await process.stdout.readline())
        yield RemoteModel(port)
    finally:
        process.kill()
        await process.wait()


class _Counted(list[RecordedRequest]):
    """Counts what it is given and forgets it."""

    total = 0

    def append(self, _request: RecordedRequest) -> None:
        self.total += 1


class _Server(FakeModelServer):
    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.requests: list[RecordedRequest]
        self.requests = self._counted = _Counted()

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "requests": self._counted.total}


async def _main(script: Script) -> None:
    server = _Server(script)
    await server.start()
    print(server.port, flush=True)  # noqa: T201 - how the parent learns the port
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(load_script(Path(sys.argv[1]).read_bytes())))
