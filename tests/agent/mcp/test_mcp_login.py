"""Signing in to an MCP server: `hermes mcp login` with the test in the part of the browser."""

import asyncio
import json
import socket
from pathlib import Path

import httpx2
import pytest

from fakes.command import Hermes
from fakes.mcp_oauth import sign_in_server
from hermes.agent.mcp.client import McpConnection, McpParts
from hermes.domain.errors import HermesError
from hermes.domain.settings.agent import McpServerSettings


async def test_somebody_signs_in_once_and_tokens_are_renewed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with sign_in_server() as server:
        given = {"url": f"{server.url}/mcp", "auth": "oauth", "oauth_port": port}
        hermes = Hermes(tmp_path, config={"mcp_servers": {"notes": given}})
        settings = McpServerSettings(url=f"{server.url}/mcp", auth="oauth", oauth_port=port)

        def connection() -> McpConnection:
            return McpConnection("notes", settings, McpParts(tokens=hermes.home / "mcp-tokens"))

        with pytest.raises(HermesError, match="hermes mcp login notes"):
            await connection().once()

        process = await hermes.start("mcp", "login", "notes")
        assert process.stdout is not None
        async with asyncio.timeout(45), httpx2.AsyncClient(trust_env=False) as browser:
            while not (line := await process.stdout.readline()).startswith(b"http"):
                assert line, await hermes.finish(process)
            sent_back = (await browser.get(line.decode().strip())).headers["location"]
            assert (await browser.get(sent_back)).status_code == 200
        outcome = await hermes.finish(process)
        assert (outcome.code, "notes: 1 tools" in outcome.out) == (0, True), outcome
        kept = hermes.home / "mcp-tokens" / "notes.json"
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.parent.stat().st_mode & 0o777 == 0o700

        # Another process, later: the token is over and is renewed where it came from.
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"expires_at": 1.0}))
        server.grants.clear()
        server.good = "none"
        later = connection()
        await later.once()
        assert [tool.name for tool in later.tools] == ["jot"]
        assert server.grants == ["refresh_token"]
        assert json.loads(kept.read_text())["tokens"]["access_token"] == server.good
        await connection().once()
        assert server.grants == ["refresh_token"]
