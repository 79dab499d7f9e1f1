"""Open WebUI, as it is published, in a real browser: one chat from the model list to Continue.

`make clients-browser` installs it (a few gigabytes) and runs this; `open_webui.py` is what a person
does in the page.
"""

import asyncio
import json
import os
import socket
from pathlib import Path

import httpx2
import pytest

from fakes.api_clients import ClientWorld
from fakes.api_gateway import KEY, running_api
from fakes.model import Call, FakeModelServer, Rule, Script, Step

PROGRAM = Path(__file__).with_name("open_webui.py")
BIN = PROGRAM.parents[2] / ".venv" / "clients" / "open-webui" / "bin"
SETTINGS = {
    "ANONYMIZED_TELEMETRY": "False",
    "ENABLE_OLLAMA_API": "False",
    "ENABLE_PERSISTENT_CONFIG": "False",
    "ENABLE_VERSION_UPDATE_CHECK": "False",
    "OFFLINE_MODE": "True",
    "RAG_EMBEDDING_ENGINE": "openai",
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "only-for-this-test",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.clients,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (BIN / "open-webui").exists(), reason="not installed"),
]


def _script() -> Script:
    def shell(command: str) -> Call:
        return Call(name="terminal", arguments={"command": command})

    clean = Step(text="Cleaning up.", calls=[shell("rm -rf open_webui-chat")])
    stall = Step(text="This takes for ever.", stall="middle")
    rules = [
        Rule(contains="clean", steps=[clean, Step(text="It is clean.")]),
        Rule(contains="own ", steps=[Step(calls=[shell("echo found")]), Step(text="I looked.")]),
        Rule(contains="stall", steps=[stall, Step(text=" Or not.")]),
    ]
    return Script(rules=rules, default=Step(text="Hello from the agent."))


async def _until_up(address: str, process: asyncio.subprocess.Process) -> None:
    async with httpx2.AsyncClient() as client, asyncio.timeout(400):
        while process.returncode is None:
            try:
                await client.get(f"{address}/health")
            except httpx2.TransportError:
                await asyncio.sleep(0.5)
            else:
                return
    raise AssertionError("Open WebUI has ended")


async def test_a_chat_in_the_browser_is_one_session(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    address = f"http://127.0.0.1:{port}"
    async with (
        FakeModelServer(_script()) as model,
        running_api(tmp_path, model.base_url, terminal={"backend": "local"}) as gateway,
    ):
        world = ClientWorld(gateway, model)
        rubbish = gateway.hermes.home / "workspace" / "open_webui-chat"
        rubbish.mkdir(parents=True)
        where = {"OPENAI_API_BASE_URL": world.base_url, "OPENAI_API_KEY": KEY}
        with (tmp_path / "open-webui.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(str(BIN / "open-webui"), "serve", "--host", "127.0.0.1", "--port", port),
                env={**os.environ, **SETTINGS, **where, "DATA_DIR": str(tmp_path / "data")},
                stdout=log,
                stderr=log,
            )
        try:
            await _until_up(address, process)
            person = await asyncio.create_subprocess_exec(
                *(str(BIN / "python"), str(PROGRAM), address, str(tmp_path)),
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await person.communicate()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        cases = [json.loads(line) for line in out.decode().splitlines()]
        assert [case["case"] for case in cases if case["failed"]] == [], out.decode()
        assert len(cases) == 6
        assert not rubbish.exists()
        async with gateway.client() as client:
            sessions = (await client.get("/api/sessions")).json()["data"]
        assert len(sessions) == 1
