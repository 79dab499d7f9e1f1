"""Clients generated from the OpenAPI document: they are made, used and checked."""

import asyncio
import importlib
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from fakes.api_clients import ClientWorld, client_world
from fakes.api_gateway import KEY
from hermes.entry.http import events

NPM = Path(__file__).parents[2] / ".venv" / "npm" / "node_modules"
PROGRAM = """
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const baseUrl = "%(url)s", headers = { Authorization: "Bearer %(key)s" };
const client = createClient<paths, "application/json">({ baseUrl, headers });

async function talk(): Promise<void> {
  const { data, error } = await client.POST("/v1/chat/completions", {
    body: { messages: [{ role: "user", content: "Hi" }] },
  });
  if (error) throw new Error(error.error.message);
  const said: string | null = data.choices[0].message.content;
  const started = await client.POST("/v1/runs", { body: { input: "Hi" } });
  const run = await client.GET("/v1/runs/{run_id}", {
    params: { path: { run_id: started.data!.run_id } },
  });
  type Open = "queued" | "running" | "waiting_for_approval";
  const status: Open | "completed" | "failed" | "cancelled" = run.data!.status;
  const chunk: components["schemas"]["ChatCompletionChunk"] | undefined = undefined;
  console.log(said, status.length > 0, chunk);
}
talk();
"""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("generated")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientWorld]:
    async with client_world(tmp_path_factory.mktemp("generated")) as made:
        yield made


async def run(*command: str | Path, folder: Path) -> str:
    """Run a program to its good end and return what it said."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    return output


async def document(world: ClientWorld, folder: Path) -> Path:
    async with world.gateway.client() as client:
        answer = await client.get("/openapi.json")
    path = folder / "openapi.json"
    path.write_bytes(answer.content)
    return path


async def test_a_python_client_is_generated_whole_and_works(
    world: ClientWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await document(world, tmp_path)
    (tmp_path / "settings.json").write_text('{"post_hooks": []}', encoding="utf-8")
    said = await run(
        *(Path(sys.executable).with_name("openapi-python-client"), "generate", "--meta", "none"),
        *("--path", path, "--output-path", tmp_path / "made_client"),
        *("--config", tmp_path / "settings.json", "--fail-on-warning"),
        folder=tmp_path,
    )
    assert "WARNING" not in said
    monkeypatch.syspath_prepend(str(tmp_path))
    made: Any = importlib.import_module("made_client")
    models: Any = importlib.import_module("made_client.models")

    def operation(name: str) -> Any:
        return importlib.import_module(f"made_client.api.{name}").asyncio

    async with made.AuthenticatedClient(base_url=world.gateway.url, token=KEY) as client:
        hi = models.ChatMessage(role=models.ChatMessageRole.USER, content="Hi")
        asked = models.ChatRequest(messages=[hi])
        answer = await operation("chat.create_chat_completion")(client=client, body=asked)
        assert answer.choices[0].message.content == "Hello from the agent."
        assert answer.choices[0].finish_reason == "stop"
        asked.n = 2
        refused = await operation("chat.create_chat_completion")(client=client, body=asked)
        assert (refused.error.param, refused.error.code) == ("n", "invalid_value")
        body = models.CreateResponse(input_="once")
        response = await operation("responses.create_response")(client=client, body=body)
        assert response.status == models.ResponseResourceStatus.COMPLETED
        assert type(response.output[0]) is models.McpCallItem
        begun = await operation("runs.start_run")(client=client, body=models.RunBody(input_="Hi"))
        told = await operation("runs.stream_run_events")(begun.run_id, client=client)
        assert '"event":"run.completed"' in told
        seen = await operation("runs.get_run")(begun.run_id, client=client)
        assert (seen.status, seen.output) == ("completed", "Hello from the agent.")
        listed = await operation("sessions.list_sessions")(client=client, limit=5)
        assert begun.session_id in [session.id for session in listed.data]


@pytest.mark.skipif(not (NPM / "openapi-typescript").exists(), reason="no openapi-typescript")
async def test_a_typescript_client_is_generated_checked_and_works(
    world: ClientWorld, tmp_path: Path
) -> None:
    (tmp_path / "node_modules").symlink_to(NPM)
    path = await document(world, tmp_path)
    made = tmp_path / "api.ts"
    await run(NPM / ".bin" / "openapi-typescript", path, "-o", made, folder=tmp_path)
    assert not re.search(r'"text/event-stream": unknown', made.read_text("utf-8"))
    program = tmp_path / "program.mts"
    values = {"url": world.gateway.url, "key": KEY}
    program.write_text(PROGRAM % values, encoding="utf-8")
    options = (
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--lib",
        "es2022,dom",
    )
    await run(NPM / ".bin" / "tsc", *options, program, made, folder=tmp_path)
    node = shutil.which("node")
    assert node is not None
    said = await run(node, tmp_path / "program.mjs", folder=tmp_path)
    assert said.startswith("Hello from the agent. true")


async def _data(client: httpx2.AsyncClient, method: str, path: str, **body: Any) -> list[Any]:
    async with client.stream(method, path, json=body or None) as answer:
        lines = [line async for line in answer.aiter_lines()]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


async def test_streams_are_what_the_document_says(world: ClientWorld) -> None:
    async with world.gateway.client() as client:
        for text in ("once", "think", "fail"):
            said = [{"role": "user", "content": text}]
            chat = await _data(client, "POST", "/v1/chat/completions", messages=said, stream=True)
            response = await _data(client, "POST", "/v1/responses", input=text, stream=True)
            begun = (await client.post("/v1/runs", json={"input": text})).json()
            followed = await _data(client, "GET", f"/v1/runs/{begun['run_id']}/events")
            session = (await client.post("/api/sessions", json={})).json()["session"]["id"]
            path = f"/api/sessions/{session}/chat/stream"
            talk = await _data(client, "POST", path, message=text)
            for kind, told in (
                (events.ChatCompletionChunk, chat),
                (events.ResponseStreamEvent, response),
                (events.RunEvent, followed),
                (events.SessionEvent, talk),
            ):
                assert len(told) > 1
                for each in told:
                    kept = msgspec.to_builtins(msgspec.convert(each, kind))
                    assert kept.keys() == each.keys(), f"{kind.__name__} does not know {each}"
