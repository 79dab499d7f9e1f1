"""MCP as it is published: the conformance scenarios for clients, and a server from npm."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from fakes.toolbox import Toolbox, local_environment
from hermes.agent.mcp.servers import McpServers
from hermes.agent.tools.registry import ToolRegistry
from hermes.domain.settings import Settings
from hermes.domain.settings.agent import McpServerSettings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv" / "clients" / "mcp" / "node_modules"
NODE = FOLDER / ".bin" / "node"
CLIENT = ROOT / "tests" / "fakes" / "mcp_conformance.py"
SCENARIOS = (
    *("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"),
    *(f"auth/metadata-{name}" for name in ("default", "var1", "var2", "var3")),
    *("auth/basic-cimd", "auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported"),
    *("auth/scope-omitted-when-undefined", "auth/scope-step-up", "auth/scope-retry-limit"),
    *(f"auth/token-endpoint-auth-{name}" for name in ("basic", "post", "none")),
    *("auth/pre-registration", "auth/2025-03-26-oauth-endpoint-fallback"),
    *("auth/resource-mismatch", "auth/offline-access-scope", "auth/offline-access-not-supported"),
    *("auth/client-credentials-basic", "auth/client-credentials-jwt"),
)
"""All but two: `2025-03-26-oauth-metadata-backcompat`, whose server names another issuer than its
own (the SDK refuses that, RFC 8414), and the extension `cross-app-access-complete-flow`, where an
identity provider of a company vouches for the person: the SDK leaves the first half of it out."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.clients,
    pytest.mark.skipif(not NODE.exists(), reason="scripts/test-clients.sh did not install it"),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_conformance(scenario: str, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(FOLDER / ".bin" / "conformance"), "client", "--scenario", scenario),
        *("--command", f"{sys.executable} {CLIENT}"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def test_a_server_from_npm(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("of the folder")
    program = str(FOLDER / ".bin" / "mcp-server-filesystem")
    server = McpServerSettings(command=str(NODE), args=(program, str(tmp_path)))
    settings = Settings(mcp_servers={"files": server}, mcp_discovery_timeout=60.0)
    servers = McpServers(lambda: settings, tmp_path / "tokens")
    try:
        tools = ToolRegistry(["mcp-files"], extra=await servers.tools())
        async with local_environment(tmp_path) as environment:
            box = Toolbox(environment, tools)
            path = str(tmp_path / "a.txt")
            assert "of the folder" in await box.text("mcp_files_read_text_file", path=path)
            assert "denied" in await box.text("mcp_files_read_text_file", path="/etc/hostname")
    finally:
        await servers.close()
