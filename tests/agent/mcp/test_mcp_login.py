"""Signing in to an MCP server: `hermes mcp login` with the test in the part of the browser."""

import asyncio
import base64
import contextlib
import json
import shutil
import socket
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

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


async def test_how_a_server_is_spoken_to_is_a_setting(tmp_path: Path) -> None:
    async with sign_in_server() as server:
        asked: list[str] = []

        async def opened(address: str) -> None:
            asked.append(address)
            raise HermesError("Nobody is there.")

        def connection(**settings: Any) -> McpConnection:
            given = McpServerSettings(url=f"{server.url}/mcp", **settings)
            return McpConnection("notes", given, McpParts(tokens=tmp_path / "t", on_login=opened))

        async def heard(**settings: Any) -> list[tuple[str, str, str]]:
            server.heard.clear()
            server.good = "none"
            shutil.rmtree(tmp_path / "t", ignore_errors=True)
            with contextlib.suppress(HermesError):
                await connection(**settings).once()
            return list(server.heard)

        # `headers` go with each request; `transport` decides what is asked first.
        assert all("x-door: back" in head for _, head, _ in await heard(headers={"X-Door": "back"}))
        assert (await heard())[0][0] == "POST /mcp"
        assert (await heard(transport="sse"))[0][0] == "GET /mcp"
        # A program signs in with `client_id` and `client_secret` for a `scope`.
        program = {"auth": "client_credentials", "client_id": "me", "client_secret": "hush"}
        said = await heard(**program, scope="notes:read")
        ((_, head, body),) = [each for each in said if each[0] == "POST /issue"]
        assert base64.b64encode(b"me:hush").decode().lower() in head
        assert "scope=notes%3Aread" in body
        elsewhere = await heard(**program, issuer="https://sign-in.example")
        assert "POST /issue" not in [each[0] for each in elsewhere]
        # Or with a key of its own (`client_key`, `client_key_algorithm`).
        secret = ec.generate_private_key(ec.SECP384R1())
        text = secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (tmp_path / "key.pem").write_bytes(text)
        signing = {"client_key": str(tmp_path / "key.pem"), "client_key_algorithm": "ES384"}
        said = await heard(auth="client_credentials", client_id="me", **signing)
        ((_, _, body),) = [each for each in said if each[0] == "POST /issue"]
        (signed,) = parse_qs(body)["client_assertion"]
        told = jwt.decode(signed, secret.public_key(), algorithms=["ES384"], audience=server.url)
        assert told["sub"] == "me"
        # A person: by a document about the client (`client_metadata_url`), or as `client_id`.
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        document = "https://hermes.example/client.json"
        await heard(auth="oauth", oauth_port=port, client_metadata_url=document)
        await heard(auth="oauth", oauth_port=port, client_id="me", scope="notes:write")
        first, second = (parse_qs(urlsplit(address).query) for address in asked)
        assert first["client_id"] == [document]
        assert (second["client_id"], second["scope"]) == (["me"], ["notes:write"])
        # A server is looked at again and again, as `keepalive` says.
        server.heard.clear()
        kept = connection(headers={"Authorization": "Bearer none"}, keepalive=0.01)
        running = asyncio.ensure_future(kept.run())
        async with asyncio.timeout(20):
            while sum("tools/list" in body for _, _, body in server.heard) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
