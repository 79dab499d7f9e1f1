"""MCP servers: real ones, on the SDK's server side, as programs and at an address."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from fakes.listener import start_server
from fakes.toolbox import Toolbox, gone, local_environment
from hermes.agent.mcp.bounds import bound_body
from hermes.agent.mcp.servers import McpServers
from hermes.agent.tools.registry import ToolRegistry
from hermes.domain.messages import ToolOutcome
from hermes.domain.settings import Settings
from hermes.domain.settings.agent import McpSampling, McpServerSettings, McpToolChoice
from hermes.domain.tools import ToolCapabilities, ToolContext

SERVER = str(Path(__file__).parents[2] / "fakes" / "mcp_server.py")
PLAIN = str(Path(__file__).parents[2] / "fakes" / "mcp_plain.py")
SECRET = "topsecret-9f8e7d6c5b4a"


async def answer(_context: ToolContext, question: str, choices: Sequence[str]) -> str:
    assert "Which size?" in question
    return choices[0] if choices else "42"


async def sample(messages: list[tuple[str, str]], _system: str, tokens: int) -> tuple[str, str]:
    return "scripted", f"four, to {messages[0][1]} within {tokens} tokens"


class McpBox:
    """Servers, and a toolbox with what they offer now."""

    def __init__(self, toolbox: Toolbox, settings: Settings, tokens: Path) -> None:
        self.settings, self._toolbox = settings, toolbox
        self.servers = McpServers(
            lambda: self.settings,
            tokens,
            redact=lambda text: text.replace(SECRET, "***"),
            sample=sample,
        )

    async def names(self) -> list[str]:
        extra = await self.servers.tools()
        return [tool.spec.name.removeprefix("mcp_demo_") for tool in extra]

    async def call(self, tool: str, /, **arguments: object) -> tuple[ToolOutcome, str]:
        extra = await self.servers.tools()
        self._toolbox.tools = ToolRegistry(["mcp-demo"], extra=extra)
        result = await self._toolbox.do(f"mcp_demo_{tool}", **arguments)
        return result.outcome, str(result.content)

    async def until(self, name: str) -> None:
        while name not in await self.names():  # noqa: ASYNC110 - as turns come by
            await asyncio.sleep(0.05)


class AskingToolbox(Toolbox):
    def context(self, call_id: str = "call_0") -> ToolContext:
        return replace(super().context(call_id), capabilities=ToolCapabilities(ask=answer))


@asynccontextmanager
async def box(tmp_path: Path, server: McpServerSettings) -> AsyncIterator[McpBox]:
    settings = Settings(mcp_servers={"demo": server}, mcp_discovery_timeout=60.0)
    async with local_environment(tmp_path) as environment:
        made = McpBox(AskingToolbox(environment), settings, tmp_path / "tokens")
        try:
            yield made
        finally:
            await made.servers.close()


async def test_a_program_is_started_used_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-servers")
    pid = tmp_path / "pid"
    server = McpServerSettings(
        command=sys.executable,
        args=(PLAIN, str(pid)),
        env={"OWN": "1"},
        tools=McpToolChoice(exclude=("leak*",)),
    )
    async with box(tmp_path, server) as mcp:
        assert "leak" not in await mcp.names()
        specs = {tool.spec.name: tool.spec for tool in await mcp.servers.tools()}
        assert specs["mcp_demo_wipe"].destructive
        assert specs["mcp_demo_add"].replay_safe
        assert await mcp.call("add", a=20, b="22") == (ToolOutcome.OK, "42")
        assert await mcp.call("fail") == (ToolOutcome.ERROR, "not today")
        _, variables = await mcp.call("surroundings")
        assert "OWN" in variables.split()
        assert "OPENAI_API_KEY" not in variables
        assert "note://one" in (await mcp.call("resources"))[1]
        assert "remember the milk" in (await mcp.call("resources", uri="note://one"))[1]
        _, prompt = await mcp.call("prompts", name="greet", arguments={"name": "Ada"})
        assert prompt == "user: Say hello to Ada"
        # A changed configuration counts without a restart.
        mcp.settings = replace(
            mcp.settings, mcp_servers={"demo": replace(server, tools=McpToolChoice())}
        )
        assert await mcp.call("leak") == (ToolOutcome.OK, "the key is ***")
        # A server that dies is connected again; the call is reported, not repeated.
        outcome, text = await mcp.call("die")
        assert outcome is ToolOutcome.ERROR
        assert "Whether it was carried out is not known" in text
        assert await mcp.call("add", a=1, b=1) == (ToolOutcome.OK, "2")
        last = int(await asyncio.to_thread(pid.read_text))
    await gone(last)


async def test_what_a_server_asks_for_reaches_the_model_and_the_person(tmp_path: Path) -> None:
    server = McpServerSettings(command=sys.executable, args=(PLAIN,))
    async with box(tmp_path, server) as mcp:
        order = (ToolOutcome.OK, '["accept", {"size": 42, "gift": true}]')
        assert await mcp.call("order") == order
        assert await mcp.call("grow") == (ToolOutcome.OK, "grow done")
        await asyncio.wait_for(mcp.until("shrink"), 30)
        assert await mcp.call("shrink") == (ToolOutcome.OK, "shrink done")
        assert "the model says four, to 2+2?" in (await mcp.call("think"))[1]


async def test_the_settings_of_a_server_count(tmp_path: Path) -> None:
    server = McpServerSettings(
        command=sys.executable,
        args=(PLAIN,),
        cwd=str(tmp_path),
        roots=("/srv/data",),
        timeout=1.0,
        elicitation=False,
        sampling=McpSampling(max_rpm=1, max_tokens_cap=5),
    )
    async with box(tmp_path, server) as mcp:

        async def changed(**settings: Any) -> None:
            demo = msgspec.structs.replace(server, **settings)
            mcp.settings = replace(mcp.settings, mcp_servers={"demo": demo})
            await mcp.servers.tools()

        assert await mcp.call("where") == (ToolOutcome.OK, str(tmp_path))
        assert "file:///srv/data" in (await mcp.call("roots"))[1]
        assert "within 5 tokens" in (await mcp.call("think"))[1]
        assert "1 times a minute" in (await mcp.call("think"))[1]
        assert "accept" not in (await mcp.call("order"))[1]
        assert "did not answer within 1 seconds" in (await mcp.call("sleep"))[1]
        await changed(sampling=McpSampling(enabled=False))
        assert "the model says" not in (await mcp.call("think"))[1]
        await changed(tools=McpToolChoice(include=("ad*",), resources=False, prompts=False))
        assert await mcp.names() == ["add"]
        assert mcp.servers.states() == [("demo", 1, "")], "what is left out is not counted"
        await changed(enabled=False)
        assert await mcp.names() == []
        await changed(command="/bin/sleep", args=("60",), connect_timeout=0.1)
        assert await mcp.names() == []
        assert "no answer within 0.1 seconds" in mcp.servers.states()[0][2]


async def test_a_server_at_an_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, SERVER, str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        server = McpServerSettings(url=f"http://127.0.0.1:{port}/mcp", headers={"X-A": "b"})
        async with box(tmp_path, server) as mcp:
            await asyncio.wait_for(mcp.until("add"), 40)
            assert await mcp.call("add", a=2, b=3) == (ToolOutcome.OK, "5")
    finally:
        process.kill()
        await process.wait()


async def test_an_answer_of_any_size_is_measured_before_it_is_decoded(tmp_path: Path) -> None:
    server = McpServerSettings(command=sys.executable, args=(PLAIN, str(tmp_path / "pid")))
    async with box(tmp_path, server) as mcp:
        for kind, why in (
            ("parts", "has more than 1,000 parts"),
            ("values", "has more than 50,000 values"),
            ("bytes", "has more than 8 MB"),
            ("both", "has more than 8 MB"),
            ("deep", "cannot be read"),
        ):
            outcome, said = await mcp.call("flood", kind=kind)
            assert (outcome, said) == (ToolOutcome.ERROR, f"demo says: its answer {why}")
        outcome, said = await mcp.call("flood", kind="commas")
        assert (outcome, said[:5]) == (ToolOutcome.OK, ",,,,,")
        before = (tmp_path / "pid").read_text()
        assert await mcp.call("add", a=2, b=3) == (ToolOutcome.OK, "5")
        assert (tmp_path / "pid").read_text() == before, "the same program, all the time"


async def test_the_body_of_an_answer_over_http_is_measured_too() -> None:
    async def body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = (await _reader.readuntil(b"\r\n\r\n")).split()[1].decode().strip("/")
        media = "text/event-stream" if kind == "event" else "application/json"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {media}\r\n\r\n".encode())
        content = {"values": "[1" + ",1" * 60_000 + "]", "fine": f'["{"," * 60_000}"]'}
        with suppress(ConnectionError):
            writer.write(content.get(kind, "x" * 9_000_000).encode())
            await writer.drain()
        writer.close()

    async with await start_server(body, "127.0.0.1", 0) as site:
        url = f"http://127.0.0.1:{site.sockets[0].getsockname()[1]}"
        async with httpx2.AsyncClient(event_hooks={"response": [bound_body]}) as client:
            for kind in ("values", "bytes", "event"):
                with pytest.raises((httpx2.StreamError, httpx2.ReadError), match="more than"):
                    await client.get(f"{url}/{kind}")
            assert len((await client.get(f"{url}/fine")).content) > 60_000


async def test_a_server_that_is_not_there_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    server = McpServerSettings(command="/nowhere/at-all")
    async with box(tmp_path, server) as mcp:
        assert await mcp.names() == []
        ((name, tools, trouble),) = mcp.servers.states()
        assert (name, tools) == ("demo", 0)
        assert "/nowhere/at-all" in trouble
        assert mcp.servers.absent() == {"demo": trouble}


async def test_without_the_package_servers_are_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hermes.agent.mcp.client", None)
    monkeypatch.delattr("hermes.agent.mcp.client", raising=False)
    async with box(tmp_path, McpServerSettings(command="/bin/true")) as mcp:
        assert await mcp.names() == []
        assert "pip install 'hermes-gateway[mcp]'" in mcp.servers.states()[0][2]
