"""The embedded model for real: fetched, served, shared, warmed, stopped.

One group, because the model is loaded by a process of its own and two cores
are not many. Skipped when the extra `local` or the model cannot be had.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from fakes.gguf import gguf_bytes
from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError
from hermes.domain.tools import ToolSpec
from hermes.execution.local_model.engine import engine_installed
from hermes.execution.local_model.fetch import fetch_embedded
from hermes.execution.local_model.files import EMBEDDED, LocalModel, add_local, find_local
from hermes.execution.local_model.profile import TINY
from hermes.execution.local_model.state import read_state, server_files, take_lock
from hermes.execution.local_model.supervisor import (
    Endpoint,
    ModelServerFailure,
    ensure_running,
    stop_server,
)
from hermes.execution.local_model.warm import warm
from hermes.execution.local_model.wire import (
    body_pieces,
    exchange,
    opened,
    read_head,
    request_bytes,
)

pytestmark = [
    pytest.mark.xdist_group("embedded-model"),
    pytest.mark.timeout(180),
    pytest.mark.skipif(not engine_installed(), reason="the extra `local` is not installed"),
]

TOOLS = tuple(
    ToolSpec(name=name, description="", parameters={"type": "object"}, toolset="file")
    for name in ("read_file", "search_files")
)


@pytest.fixture(scope="module")
def model_file() -> Path:
    """Return the real model, fetched once into the virtual environment."""
    cache = HermesHome(root=Path(sys.prefix) / "hermes-test-home")
    try:
        return asyncio.run(fetch_embedded(cache, env=os.environ)).path
    except HermesError as error:
        pytest.skip(f"the embedded model cannot be had: {error.message}")


@pytest_asyncio.fixture
async def home(tmp_path: Path, model_file: Path) -> AsyncIterator[HermesHome]:
    home = HermesHome(root=tmp_path / "home")
    home.subdirectory(home.models_dir)
    (home.models_dir / model_file.name).symlink_to(model_file)
    yield home
    await stop_server(home, EMBEDDED)


@pytest.fixture
def model(home: HermesHome) -> LocalModel:
    return find_local(home, EMBEDDED)


def _pid(home: HermesHome) -> int:
    state = read_state(server_files(home, EMBEDDED))
    assert state is not None
    return state.pid


async def _gone(home: HermesHome) -> None:
    """Wait until no process serves the model any more."""
    async with asyncio.timeout(20):
        while (lock := take_lock(server_files(home, EMBEDDED))) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    os.close(lock)


async def _chat(endpoint: Endpoint, text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": TINY.system}, {"role": "user", "content": text}]
    body = {"model": endpoint.model, "messages": messages, "max_tokens": 30, **fields}
    status, answer = await exchange(
        f"{endpoint.base_url}/chat/completions",
        method="POST",
        api_key=endpoint.api_key,
        body=json.dumps(body).encode(),
        timeout=60,
    )
    assert status == 200, answer
    found: dict[str, Any] = json.loads(answer)
    return found


def _openai_tools() -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": spec.name}} for spec in TOOLS]


async def test_it_starts_answers_streams_and_is_shared(home: HermesHome, model: LocalModel) -> None:
    seen: list[tuple[str, int, int]] = []
    endpoint = await ensure_running(model, home, lambda *step: seen.append(step))
    assert seen[-1] == ("load", model.size_bytes, model.size_bytes)
    assert endpoint.context_length == TINY.n_ctx
    first_pid = _pid(home)

    answer = await _chat(endpoint, "What is the capital of France?", temperature=0)
    assert "Paris" in answer["choices"][0]["message"]["content"]

    again = await ensure_running(model, home)
    assert again == endpoint
    assert _pid(home) == first_pid

    parts = urlsplit(endpoint.base_url)
    assert parts.port is not None
    body = {"messages": [{"role": "user", "content": "Hello!"}], "stream": True, "max_tokens": 12}
    request = request_bytes(
        "POST",
        "/v1/chat/completions",
        host="x",
        api_key=endpoint.api_key,
        body=json.dumps(body).encode(),
    )
    async with opened("127.0.0.1", parts.port) as (reader, writer):
        writer.write(request)
        head = await read_head(reader)
        pieces = [piece async for piece in body_pieces(reader, head)]
    assert len(pieces) > 3
    assert b"".join(pieces).rstrip().endswith(b"data: [DONE]")


async def test_it_calls_a_tool_with_a_path_that_was_named_and_answers_from_the_result(
    home: HermesHome, model: LocalModel
) -> None:
    endpoint = await ensure_running(model, home)
    assert await warm(endpoint, TINY.system or "", TOOLS)
    answer = await _chat(endpoint, "show me the contents of main.py", tools=_openai_tools())
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "read_file", "arguments": '{"path": "main.py"}'}
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 150, "the prefix was warm"

    chat = await _chat(endpoint, "What is the capital of France?", tools=_openai_tools())
    assert "Paris" in chat["choices"][0]["message"]["content"]


async def test_only_the_key_opens_it(home: HermesHome, model: LocalModel) -> None:
    endpoint = await ensure_running(model, home)
    for key in ("", "wrong"):
        status, _ = await exchange(f"{endpoint.base_url}/models", api_key=key, timeout=5)
        assert status == 401
    status, _ = await exchange(f"{endpoint.base_url}/models", api_key=endpoint.api_key, timeout=5)
    assert status == 200
    assert server_files(home, EMBEDDED).state.stat().st_mode & 0o077 == 0


async def test_processes_that_start_it_at_once_share_one(
    home: HermesHome, model: LocalModel
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ensure_running(model, home)) for _ in range(4)]
    assert len({task.result() for task in tasks}) == 1


async def test_a_killed_server_is_replaced(home: HermesHome, model: LocalModel) -> None:
    before = await ensure_running(model, home)
    os.kill(_pid(home), signal.SIGKILL)
    await _gone(home)
    after = await ensure_running(model, home)
    assert after.api_key != before.api_key
    assert (await _chat(after, "Hello!", max_tokens=2))["choices"]


async def test_it_ends_by_itself_when_nobody_uses_it(home: HermesHome, model: LocalModel) -> None:
    await ensure_running(model, home, idle_seconds=0.3)
    await _gone(home)
    assert read_state(server_files(home, EMBEDDED)) is None


async def test_a_client_that_leaves_frees_the_model(home: HermesHome, model: LocalModel) -> None:
    endpoint = await ensure_running(model, home)
    port = urlsplit(endpoint.base_url).port
    assert port is not None
    long = {
        "messages": [{"role": "user", "content": "Tell a story."}],
        "max_tokens": 4000,
        "ignore_eos": True,
        "stream": True,
    }
    request = request_bytes(
        "POST",
        "/v1/chat/completions",
        host="x",
        api_key=endpoint.api_key,
        body=json.dumps(long).encode(),
    )
    async with opened("127.0.0.1", port) as (reader, writer):
        writer.write(request)
        await read_head(reader)
    async with asyncio.timeout(20):
        assert (await _chat(endpoint, "Hello!", max_tokens=2))["choices"]


async def test_a_file_that_is_no_model_is_explained(home: HermesHome, tmp_path: Path) -> None:
    hollow = tmp_path / "hollow.gguf"
    await asyncio.to_thread(
        hollow.write_bytes,
        gguf_bytes({"general.architecture": "llama", "llama.context_length": 512}),
    )
    with pytest.raises(ModelServerFailure) as caught:
        await ensure_running(add_local(home, hollow), home)
    assert "hollow" in caught.value.message
    assert caught.value.hint
