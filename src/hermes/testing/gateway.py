"""A real gateway process, and a model on loopback that tests of chat platforms talk to.

The model does what it is told: it echoes, and a word in brackets has it do something else.
`[bold]` answers with markup, `[long N]` with N characters of numbered words, `[slow]` piece by
piece, `[halt]` stops in the middle the first time, `[file PATH]` sends files, `[ask]` calls a tool
that needs an approval.
"""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import yaml

from hermes.config.environment import process_environ

_ORDER = re.compile(r"\[(bold|long|slow|halt|file|ask)(?: ([^\]]*))?\]")
_MARK = re.compile(r"m\d+x")
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR")
_HEAD = b"HTTP/1.1 %s\r\ncontent-type: %s\r\nconnection: close\r\n\r\n"


class LoopbackModel:
    def __init__(self) -> None:
        self.asked: list[str] = []
        """What people said, as the model was told; once for each call."""
        self.halted: set[str] = set()
        """Marks of answers that stopped in the middle."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def base_url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = re.search(r"content-length: (\d+)", head)
                body = await reader.readexactly(int(size[1]) if size else 0)
                if not head.startswith("post /v1/chat/completions"):
                    writer.write(_HEAD % (b"404 Not Found", b"application/json") + b"{}")
                else:
                    await self._answer(msgspec.json.decode(body), writer)
                await writer.drain()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, request: Any, writer: asyncio.StreamWriter) -> None:
        said = [each for each in request["messages"] if each["role"] == "user"]
        text = _text(said[-1]["content"]) if said else ""
        self.asked.append(text)
        after_tool = request["messages"][-1]["role"] == "tool"
        writer.write(_HEAD % (b"200 OK", b"text/event-stream"))
        async for delta in self._deltas(text, after_tool=after_tool):
            writer.write(_frame(delta))
            await writer.drain()
        reason = "tool_calls" if not after_tool and "[ask]" in text else "stop"
        writer.write(_frame({}, reason) + b"data: [DONE]\n\n")

    async def _deltas(self, text: str, *, after_tool: bool) -> AsyncIterator[dict[str, Any]]:
        order, marks = _ORDER.search(text), _MARK.findall(text)
        name, value = (order[1], order[2] or "") if order else ("", "")
        mark = marks[-1] if marks else ""
        if name == "ask" and not after_tool:
            arguments = msgspec.json.encode({"command": f"rm -rf tmp-{mark}"}).decode()
            function = {"name": "terminal", "arguments": arguments}
            call = {"index": 0, "id": f"call_{mark}", "type": "function", "function": function}
            yield {"tool_calls": [call]}
            return
        for number, piece in enumerate(_pieces(name, value, mark, text)):
            if number == 4 and name == "halt" and mark not in self.halted:
                self.halted.add(mark)
                await asyncio.Event().wait()
            if number and name in ("slow", "halt"):
                await asyncio.sleep(0.15)
            yield {"content": piece}


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(str(part.get("text") or "") for part in parts)


def _pieces(name: str, value: str, mark: str, text: str) -> Iterator[str]:
    match name:
        case "bold":
            yield f"This is **bold**, {mark}."
        case "long":
            size, words = int(value), f"{mark} "
            number = 0
            while len(words) < size:
                words += f"w{number} "
                number += 1
            yield words + "end"
        case "file":
            yield f"Here, {mark}:" + "".join(f"\nMEDIA:{path}" for path in value.split())
        case "slow" | "halt":
            yield f"Slowly, {mark}, "
            yield from (f"word number {number}, " for number in range(8))
            yield "done."
        case "ask":
            yield f"Finished, {mark}."
        case _:
            yield f"You said: {text}"


def _frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "conformance"}
    return b"data: " + msgspec.json.encode(chunk | {"choices": [choice]}) + b"\n\n"


class GatewayRun:
    """`hermes gateway run` in a home of its own, which tests start, stop and kill."""

    def __init__(self, folder: Path, config: dict[str, Any], python_path: str = "") -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self._log = folder / "gateway.log"
        self._folder = folder
        ours = process_environ()
        self._environ = {
            **{name: ours[name] for name in _KEPT if name in ours},
            "HERMES_HOME": str(self.home),
            "HOME": str(folder),
        } | ({"PYTHONPATH": python_path} if python_path else {})
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hermes.cli", "gateway", "run"),
                cwd=self._folder,
                env=self._environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def kill(self) -> None:
        """End it like a power cut."""
        await self.stop(signal.SIGKILL)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(30):
            return await self._process.wait()

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    def platform_state(self, name: str) -> dict[str, Any]:
        """Return what the state file says about a platform; nothing while there is none."""
        try:
            state = msgspec.json.decode((self.home / "gateway_state.json").read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        found: dict[str, Any] = state.get("platforms", {}).get(name, {})
        return found
