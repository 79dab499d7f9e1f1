"""The HTTP door on a real loopback port, around a real core with a scripted model.

    async with http_door(tmp_path, model, endpoints=ENDPOINTS) as door:
        answer = await door.client.get("/v1/models")

`door.client` presents the owner's key; `door.with_key(secret)` is a client with
another one, and `await door.new_key(...)` makes one.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from msgspec.structs import replace

from fakes.core import Core, ScriptedTools, running_core
from fakes.runs_on import runs_on
from hermes.control.admission.routing import Router
from hermes.control.api_keys import ApiKeys
from hermes.control.approvals import ApprovalAnswers
from hermes.control.runs.runs import Runs
from hermes.domain.errors import UsageError
from hermes.domain.inbound import Attachment, RouteTerms
from hermes.domain.keys import Action, ApiKey
from hermes.domain.messages import AssistantMessage, Message
from hermes.domain.ports.files import JobStore
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.model import Model, ModelInfo, ModelReply
from hermes.domain.settings import Settings
from hermes.domain.usage import Usage
from hermes.entry.http.app import HttpApp
from hermes.entry.http.endpoint import Endpoint, HttpContext, ServedAgent, Toolset
from hermes.entry.http.guards import KeyRing
from hermes.entry.http.server import HttpServer
from hermes.entry.http.settings import HttpSettings
from hermes.execution.clock import SystemClock
from hermes.observability.metrics import Registry
from hermes.state.jobs import JobFiles

__all__ = ["KEY", "SECRET", "FakeMedia", "FakeSideCalls", "HttpDoor", "bearer", "http_door"]

KEY = "owner-key-0123456789abcdef"
SECRET = "hunter2-is-secret"
"""What `context.redact` takes out of texts."""


class FakeSideCalls:
    """Answers helper calls with a fixed text and remembers them."""

    def __init__(self) -> None:
        self.text = "A Short Title"
        self.asked: list[tuple[str, str, tuple[Message, ...], int | None]] = []

    async def answer(
        self, agent_id: str, task: str, messages: tuple[Message, ...], max_tokens: int | None
    ) -> ModelReply:
        self.asked.append((agent_id, task, messages, max_tokens))
        return ModelReply(
            message=AssistantMessage(text=self.text),
            usage=Usage(input_tokens=7, output_tokens=3),
            provider="scripted",
            model="small-1",
        )

    async def summarise(self, agent_id: str, messages: Sequence[Message], focus: str) -> ModelReply:
        return await self.answer(agent_id, "compression", tuple(messages), None)


class FakeMedia:
    """Keeps pictures as files; knows the pictures of a few addresses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.remote: dict[str, tuple[bytes, str]] = {}
        self.kept: list[tuple[bytes, str]] = []
        self.answers: dict[str, bytes] = {}
        """The files that answers may show."""

    async def keep(self, data: bytes, media_type: str, name: str = "") -> Attachment:
        self.kept.append((data, media_type))
        self._folder.mkdir(exist_ok=True)
        kind = "document" if name else "image"
        name = name or f"picture-{len(self.kept)}.{media_type.rpartition('/')[2]}"
        path = self._folder / name
        path.write_bytes(data)
        return Attachment(
            kind=kind, path=str(path), name=name, media_type=media_type, size=len(data)
        )

    async def fetch(self, url: str, name: str = "") -> Attachment:
        if url not in self.remote:
            raise UsageError(f"The picture at {url} cannot be fetched.")
        return await self.keep(*self.remote[url], name)


class HttpDoor:
    """A running server, and everything behind it in reach of the test."""

    def __init__(self, core: Core, context: HttpContext, server: HttpServer, port: int) -> None:
        self.core = core
        self.context = context
        self.server = server
        self.port = port
        self.base_url = f"http://127.0.0.1:{port}"
        self.owner_keys: list[str] = [KEY]
        """The configured keys; a change counts at once."""
        self.keys = ApiKeys(core.ledger, SystemClock())
        self.side_calls: FakeSideCalls
        self.media: FakeMedia
        self.client: httpx2.AsyncClient
        self._stack: AsyncExitStack

    @property
    def ledger(self) -> Ledger:
        return self.core.ledger

    @property
    def runs(self) -> Runs:
        return self.context.runs

    @property
    def tools(self) -> ScriptedTools:
        return self.core.tools

    async def with_key(self, secret: str | None) -> httpx2.AsyncClient:
        """Return a client that presents this key; None: no key."""
        headers = {"authorization": f"Bearer {secret}"} if secret is not None else {}
        client = httpx2.AsyncClient(base_url=self.base_url, headers=headers, timeout=20)
        return await self._stack.enter_async_context(client)

    async def new_key(
        self,
        name: str,
        *,
        agents: Sequence[str] = (),
        actions: Sequence[Action] = (Action.RUN, Action.SESSIONS, Action.APPROVE),
        expires_in: float | None = None,
    ) -> tuple[ApiKey, str]:
        """Make a key and return it with its secret."""
        return await self.keys.create(name, agents=agents, actions=actions, expires_in=expires_in)


def bearer(secret: str = KEY) -> dict[str, str]:
    """Return the headers that present a key."""
    return {"authorization": f"Bearer {secret}"}


@asynccontextmanager
async def http_door(
    folder: Path,
    model: Model,
    *,
    endpoints: Sequence[Endpoint] = (),
    settings: HttpSettings | None = None,
    tools: ScriptedTools | None = None,
    agent: Settings | None = None,
    side: Model | None = None,
    ledger: Ledger | None = None,
    max_runs: int = 2000,
    more: Callable[[HttpContext], HttpContext] = lambda context: context,
) -> AsyncIterator[HttpDoor]:
    """Serve `endpoints` for the body of the `with`; `more` may change the context."""
    wanted = settings or HttpSettings(port=0, max_auth_failures=1_000_000)
    core_of = running_core(
        folder, model, tools=tools, settings=agent, side=side, redact=without_secret, ledger=ledger
    )
    async with core_of as core, runs_on(core, max_open=max_runs, redact=without_secret) as runs:
        media, side_calls = FakeMedia(folder / "media"), FakeSideCalls()
        context = more(_context(folder, core, runs, media, side_calls, model))
        doors: list[HttpDoor] = []
        keys = KeyRing(core.ledger, context.clock, lambda: doors[0].owner_keys if doors else ())
        app = HttpApp(endpoints, context, wanted, keys)
        server = HttpServer(
            app,
            wanted.host,
            wanted.port,
            grace_seconds=wanted.grace_seconds,
            messages=app.room,
        )
        async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
            serving = group.create_task(server.run())
            await server.started.wait()
            door = HttpDoor(core, context, server, server.port)
            door.side_calls, door.media, door._stack = side_calls, media, stack
            doors.append(door)
            door.client = await door.with_key(KEY)
            try:
                yield door
            finally:
                await stack.aclose()
                serving.cancel()


def _context(
    folder: Path,
    core: Core,
    runs: Runs,
    media: FakeMedia,
    side_calls: FakeSideCalls,
    model: Model,
) -> HttpContext:
    clock = SystemClock()
    job_files: dict[str, JobFiles] = {}

    def jobs(agent_id: str) -> JobStore:
        return job_files.setdefault(agent_id, JobFiles(folder / agent_id / "cron"))

    async def skills(agent_id: str) -> list[dict[str, Any]]:
        return [{"name": "greet", "description": "How to greet.", "path": "skills/greet/SKILL.md"}]

    async def model_info(
        agent_id: str, session_id: str | None, terms: RouteTerms | None
    ) -> ModelInfo:
        return model.info

    async def own_tools(
        agent_id: str, session_id: str | None, terms: RouteTerms | None
    ) -> dict[str, str]:
        return {spec.name: spec.toolset for spec in core.tools.specs()}

    async def answer_file(agent_id: str, session_id: str, path: str) -> bytes | None:
        return media.answers.get(path)

    async def prompt_tokens(
        agent_id: str, session_id: str | None, own_tools: tuple[str, ...] | None
    ) -> int:
        return 1000

    return HttpContext(
        ledger=core.ledger,
        gateway=core.gateway,
        answers=ApprovalAnswers(core.ledger, clock),
        runs=runs,
        clock=clock,
        agents=lambda: {
            "hermes": ServedAgent(agent_id="main", name="hermes", routed=True),
            "hermes-agent": ServedAgent(agent_id="main", name="hermes", routed=True),
            "main": ServedAgent(agent_id="main", name="hermes"),
        },
        router=Router(Settings, lambda: ("main",)),
        side_calls=side_calls,
        media=media,
        jobs=jobs,
        toolsets=lambda agent_id: (Toolset(name="test", enabled=True, tools=("read_file",)),),
        own_tools=own_tools,
        skills=skills,
        model=model_info,
        prompt_tokens=prompt_tokens,
        answer_file=answer_file,
        metrics=Registry(),
        gateway_state=lambda: {"gateway_state": "running", "platforms": {}},
        ready=lambda: {"ledger": True},
        redact=without_secret,
        version="0.0-test",
    )


def without_secret(text: str) -> str:
    return re.sub(re.escape(SECRET), "***", text)


def with_agents(context: HttpContext, *cards: ServedAgent) -> HttpContext:
    """Return context with further agents; for `more`."""
    known = {**context.agents(), **{card.name: card for card in cards}}
    return replace(context, agents=lambda: known)
