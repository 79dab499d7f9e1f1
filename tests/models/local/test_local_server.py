"""The embedded model for real: fetched, served, shared, warmed, stopped.

One group, because the model is loaded by a process of its own and two cores
are not many. Skipped when the extra `local` or the model cannot be had.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from fakes.gguf import gguf_bytes
from fakes.model_client import InstantClock
from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError
from hermes.domain.messages import FinishReason, ToolMessage, UserMessage
from hermes.domain.ports.model import ModelRequest
from hermes.domain.tools import ToolSpec
from hermes.models.client import ModelClient
from hermes.models.local.embedded import EmbeddedModel
from hermes.models.local.fetch import fetch_embedded
from hermes.models.local.files import EMBEDDED, TINY_PROMPT, LocalModel, add_local, find_local
from hermes.models.local.server import (
    ModelServerFailure,
    ServerFiles,
    engine_installed,
    ensure_running,
    stop_server,
)
from hermes.models.routes import ModelSources, ModelTarget, resolve_route
from hermes.models.transport import Transport

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


@pytest_asyncio.fixture
async def embedded(home: HermesHome) -> AsyncIterator[EmbeddedModel]:
    transport = Transport()
    sources = ModelSources(secret=lambda _: None)

    def client(target: ModelTarget) -> ModelClient:
        return ModelClient(
            [resolve_route(target, sources)], clock=InstantClock(), transport=transport
        )

    yield EmbeddedModel(EMBEDDED, home, client, {})
    await transport.close()


def _pid(home: HermesHome) -> int:
    state = ServerFiles(home, EMBEDDED).read()
    assert state is not None
    return state.pid


async def _gone(home: HermesHome) -> None:
    """Wait until no process serves the model any more."""
    async with asyncio.timeout(20):
        while ServerFiles(home, EMBEDDED).alive():  # noqa: ASYNC110 - a file lock
            await asyncio.sleep(0.05)


def _question(text: str, tools: tuple[ToolSpec, ...] = (), max_tokens: int = 30) -> ModelRequest:
    return ModelRequest(
        system=TINY_PROMPT,
        messages=(UserMessage(content=text),),
        tools=tools,
        max_tokens=max_tokens,
        temperature=0.0,
    )


class _Heard:
    """A listener that keeps what it hears, and may act on the first word."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.first = asyncio.Event()

    def on_text(self, text: str) -> None:
        self.pieces.append(text)
        self.first.set()

    def on_reasoning(self, text: str) -> None: ...

    def on_call(self, number: int, name: str, arguments: str) -> bool:
        return False

    def on_notice(self, code: str, text: str) -> None: ...

    def on_restart(self) -> None: ...


async def test_it_starts_answers_streams_and_is_shared(
    home: HermesHome, model: LocalModel, embedded: EmbeddedModel
) -> None:
    seen: list[tuple[str, int, int]] = []
    endpoint = await ensure_running(model, home, lambda *step: seen.append(step))
    assert seen[-1] == ("load", model.size_bytes, model.size_bytes)
    assert embedded.info.context_window == 4096
    first_pid = _pid(home)

    heard = _Heard()
    answer = await embedded.complete(_question("What is the capital of France?"), heard)
    assert "Paris" in answer.message.text
    assert "".join(heard.pieces) == answer.message.text
    assert len(heard.pieces) > 3
    assert (answer.provider, answer.model, answer.cost_usd) == ("embedded", EMBEDDED, 0.0)

    assert await ensure_running(model, home) == endpoint
    assert _pid(home) == first_pid


async def test_it_calls_a_tool_with_a_path_that_was_named_and_answers_from_the_result(
    embedded: EmbeddedModel,
) -> None:
    await embedded.start(TOOLS)
    heard = _Heard()
    asked = _question("show me the contents of main.py", TOOLS)
    answer = await embedded.complete(asked, heard)
    (call,) = answer.message.tool_calls
    assert (call.name, call.arguments) == ("read_file", '{"path": "main.py"}')
    assert answer.message.finish is FinishReason.TOOL_CALLS
    assert heard.pieces == [], "the form it wrote is not for a person"
    assert answer.usage.cache_read_tokens > 150, "the prefix was warm"

    result = ToolMessage(call_id=call.id, name=call.name, content="1|print(1)")
    after = replace(asked, messages=(*asked.messages, answer.message, result))
    said = (await embedded.complete(after, heard)).message
    assert said.text == "".join(heard.pieces) != ""
    assert not said.tool_calls

    chat = await embedded.complete(_question("What is the capital of France?", TOOLS))
    assert "Paris" in chat.message.text


async def test_only_the_key_opens_it(home: HermesHome, model: LocalModel) -> None:
    endpoint = await ensure_running(model, home)
    transport = Transport()
    for key, status in (("", 401), ("wrong", 401), (endpoint.api_key, 200)):
        assert (await transport.get(f"{endpoint.base_url}/models", key))[0] == status
    await transport.close()
    assert ServerFiles(home, EMBEDDED).state.stat().st_mode & 0o077 == 0


async def test_processes_that_start_it_at_once_share_one(
    home: HermesHome, model: LocalModel
) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ensure_running(model, home)) for _ in range(4)]
    assert len({task.result() for task in tasks}) == 1


async def test_a_killed_server_is_replaced(
    home: HermesHome, model: LocalModel, embedded: EmbeddedModel
) -> None:
    before = await ensure_running(model, home)
    os.kill(_pid(home), signal.SIGKILL)
    await _gone(home)
    assert (await embedded.complete(_question("Hello!", max_tokens=2))).message.text
    after = await ensure_running(model, home)
    assert after.api_key != before.api_key


async def test_it_ends_by_itself_when_nobody_uses_it(home: HermesHome, model: LocalModel) -> None:
    await ensure_running(model, home, idle_seconds=0.3)
    await _gone(home)
    assert ServerFiles(home, EMBEDDED).read() is None


async def test_it_does_not_end_while_it_answers(
    home: HermesHome, model: LocalModel, embedded: EmbeddedModel
) -> None:
    await ensure_running(model, home, idle_seconds=0.3)
    long = _question("Tell a long story about the sea.", max_tokens=60)
    assert len((await embedded.complete(long)).message.text) > 60
    await _gone(home)


async def test_a_client_that_leaves_frees_the_model(embedded: EmbeddedModel) -> None:
    heard = _Heard()
    endless = _question("Count up for ever.", max_tokens=4000)
    async with asyncio.TaskGroup() as group:
        talking = group.create_task(embedded.complete(endless, heard))
        await heard.first.wait()
        talking.cancel()
    async with asyncio.timeout(20):
        assert (await embedded.complete(_question("Hello!", max_tokens=2))).message.text


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
