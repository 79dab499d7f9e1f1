"""The client that the public MCP conformance program drives: `python mcp_conformance.py URL`.

It is Hermes' own connection with a person beside it who opens addresses, signs in, and takes the
first of the answers that are offered.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import httpx2
from msgspec.structs import replace

from fakes.toolbox import Toolbox
from hermes.agent.mcp.client import McpConnection, McpParts
from hermes.domain.settings.agent import McpServerSettings
from hermes.domain.tools import ToolCapabilities, ToolContext

VALUES: dict[str, Any] = {"number": 2, "integer": 2, "string": "two", "boolean": True}


async def first_answer(_context: ToolContext, _question: str, choices: Sequence[str]) -> str:
    return choices[0]


async def sign_in(address: str) -> None:
    """Do what a browser does whose person says yes."""
    async with httpx2.AsyncClient(trust_env=False) as browser:
        answer = await browser.get(address)
        await browser.get(answer.headers["location"])


def server(url: str, scenario: str, given: dict[str, str], key: Path) -> McpServerSettings:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = McpServerSettings(url=url, connect_timeout=20.0, timeout=20.0, oauth_port=port)
    if not scenario.startswith("auth/"):
        return settings
    if "private_key_pem" in given:
        key.write_text(given["private_key_pem"])
        algorithm = given.get("signing_algorithm", "ES256")
        settings = replace(settings, client_key=str(key), client_key_algorithm=algorithm)
    return replace(
        settings,
        auth="client_credentials" if "client-credentials" in scenario else "oauth",
        client_id=given.get("client_id", ""),
        client_secret=given.get("client_secret", ""),
        client_metadata_url="https://conformance-test.local/client-metadata.json"
        if scenario == "auth/basic-cimd"
        else "",
    )


async def main(url: str) -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory() as folder:
        parts = McpParts(tokens=Path(folder), on_login=sign_in)
        settings = server(url, scenario, given, Path(folder) / "key.pem")
        connection = McpConnection("conformance", settings, parts)
        running = asyncio.ensure_future(connection.run())
        await connection.settled.wait()
        if connection.error:
            sys.stderr.write(f"{connection.error}\n")
        for tool in () if connection.error else connection.tools:
            fields = tool.parameters["properties"]
            arguments = {name: VALUES[field["type"]] for name, field in fields.items()}
            context = replace(
                Toolbox(cast(Any, None)).context(), capabilities=ToolCapabilities(ask=first_answer)
            )
            result = await connection.call(tool.name, arguments, context)
            sys.stderr.write(f"{tool.name}: {result.content}\n")
        running.cancel()
        await asyncio.wait([running])


asyncio.run(main(sys.argv[1]))
