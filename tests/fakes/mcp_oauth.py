"""An MCP server that wants somebody to sign in, and who issues its tokens, on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from fakes.listener import start_server


class SignInServer(Struct):
    url: str
    good: str = "none"
    """The access token that counts."""
    grants: list[str] = []
    heard: list[tuple[str, str, str]] = []
    """Method and path, headers, and body of what came."""

    def answer(self, method: str, target: str, head: str, body: bytes) -> tuple[str, Any]:
        parts = urlsplit(target)
        self.heard.append((f"{method} {parts.path}", head, body.decode()))
        if parts.path == "/mcp":
            return self._mcp(head, body) if method == "POST" else ("405 Not Allowed", {})
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            return "200 OK", {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        if parts.path == "/.well-known/oauth-authorization-server":
            return "200 OK", {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/issue",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "client_id_metadata_document_supported": True,
            }
        if parts.path == "/register":
            return "201 Created", json.loads(body) | {"client_id": "c1"}
        if parts.path == "/authorize":
            given = {name: values[0] for name, values in parse_qs(parts.query).items()}
            where = f"{given['redirect_uri']}?code=abc&state={given['state']}"
            return f"302 Found\r\nLocation: {where}", {}
        if parts.path == "/issue":
            self.grants.append(parse_qs(body.decode())["grant_type"][0])
            self.good = f"access-{len(self.grants)}"
            token = {"access_token": self.good, "refresh_token": f"r{len(self.grants)}"}
            return "200 OK", token | {"token_type": "Bearer", "expires_in": 3600}
        return "404 Not Found", {}

    def _mcp(self, head: str, body: bytes) -> tuple[str, Any]:
        if f"bearer {self.good}" not in head:
            where = f"{self.url}/.well-known/oauth-protected-resource/mcp"
            return f'401 No\r\nWWW-Authenticate: Bearer resource_metadata="{where}"', {}
        asked = json.loads(body)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "jot", "inputSchema": {"type": "object"}}]},
        }
        if "id" not in asked:
            return "202 Accepted", {}
        said = results.get(asked["method"])
        wrong = {"error": {"code": -32601, "message": "unknown method"}}
        outcome = wrong if said is None else {"result": said}
        return "200 OK", {"jsonrpc": "2.0", "id": asked["id"], **outcome}


@asynccontextmanager
async def sign_in_server() -> AsyncIterator[SignInServer]:
    served = SignInServer("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split(" ", 2)
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        status, document = served.answer(method, target, head.lower(), body)
        data = json.dumps(document).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        await writer.drain()
        writer.close()

    server = await start_server(serve, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
