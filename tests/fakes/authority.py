"""A door at which one key has made things, and a ledger that notes what is asked of it."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2

from fakes.asking import WAITING, Asking
from fakes.http_door import HttpDoor, http_door, with_agents
from fakes.http_runs import Door
from hermes.domain.approvals import Choice
from hermes.domain.keys import Action
from hermes.domain.messages import UserMessage, content_text
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.model import ModelRequest
from hermes.domain.runs import RunQuery
from hermes.entry.http.api import all_endpoints
from hermes.entry.http.endpoint import Endpoint, HttpContext, ServedAgent
from hermes.entry.http.openapi import with_description
from hermes.state.sqlite.ledger import SqliteLedger
from hermes.testing.model import Reply, ScriptedModel, call, calls, say

__all__ = ["BODIES", "ENDPOINTS", "TITLE", "WEATHER", "WORDS", "Seen", "World", "path_of", "world"]

ENDPOINTS = with_description(all_endpoints())
ORDINARY = (Action.RUN, Action.SESSIONS, Action.APPROVE)
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
WORDS = "xylophone-of-ann"
TITLE = "Quince marmalade of Ann"
BODIES: dict[str, dict[str, Any]] = {
    "createChatCompletion": {"messages": [{"role": "user", "content": "Hi"}]},
    "createResponse": {"input": "Hi"},
    "compactResponse": {"model": "hermes", "input": "Hi"},
    "countInputTokens": {"input": "Hi"},
    "createConversation": {},
    "updateConversation": {"metadata": {"a": "b"}},
    "createConversationItems": {"items": [{"role": "user", "content": "Hi"}]},
    "startRun": {"input": "Hi"},
    "steerRun": {"input": "Left!"},
    "answerRun": {"choice": "once"},
    "answerApproval": {"choice": "once"},
    "createSession": {},
    "changeSession": {"title": "Taken over"},
    "forkSession": {},
    "chatInSession": {"message": "Hi"},
    "streamChatInSession": {"message": "Hi"},
    "createJob": {"schedule": "every 2h", "prompt": "Look."},
    "changeJob": {"name": "Other"},
    "pauseJob": {},
}
"""A good body for every endpoint that wants one."""
QUERIES = {"searchSessions": {"q": WORDS}}
_NOTED = re.compile(r"[a-z][a-z_]*\Z")


class NotingLedger:
    """Hands everything on and notes the names of the verbs that are used."""

    def __init__(self, inner: Ledger) -> None:
        self._inner = inner
        self.noted: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not _NOTED.match(name) or not asyncio.iscoroutinefunction(found):
            return found

        async def noting(*given: Any, **named: Any) -> Any:
            if not WAITING.get():
                self.noted.append(name)
            return await found(*given, **named)

        return noting


class Seen:
    """An answer, and what the ledger was asked for it."""

    def __init__(self, answer: httpx2.Response, asked: list[str]) -> None:
        self.status = answer.status_code
        self.text = answer.text
        self.asked = asked
        changing = {"x-request-id", "date", "content-length"}
        self.headers = {k: v for k, v in answer.headers.items() if k not in changing}

    def named(self, name: str) -> tuple[int, str, dict[str, str], list[str]]:
        """Return everything, with the id that was asked for blotted out."""
        return (self.status, self.text.replace(name, "<id>"), self.headers, self.asked)

    def everything(self) -> str:
        return self.text + str(self.headers)


class World:
    """What Ann has made, and the clients of others."""

    def __init__(self, at: HttpDoor, ledger: NotingLedger) -> None:
        self.at = at
        self.ledger = ledger
        self.ann: httpx2.AsyncClient
        self.nobody: httpx2.AsyncClient
        self.things: dict[str, str] = {}
        """Path parameter -> Ann's."""
        self.call_id = ""
        self.secrets: tuple[str, ...] = ()

    async def key(self, name: str, *actions: Action, agents: tuple[str, ...] = ()) -> str:
        """Make a key that was used already, and return it."""
        _, secret = await self.at.new_key(name, actions=actions or ORDINARY, agents=agents)
        client = await self.at.with_key(secret)
        await client.get("/v1/models")
        return secret

    async def send(
        self,
        endpoint: Endpoint,
        headers: dict[str, str],
        *,
        thing: str | None = None,
        body: dict[str, Any] | None = None,
    ) -> Seen:
        """Call an endpoint, with Ann's ids in its path unless another `thing` is given."""
        path = path_of(endpoint, self.things if thing is None else dict.fromkeys(PARAMS, thing))
        self.ledger.noted.clear()
        async with asyncio.timeout(10):
            answer = await self.nobody.request(
                endpoint.method,
                path,
                headers=headers,
                params=QUERIES.get(endpoint.name),
                json=BODIES.get(endpoint.name) if body is None else body,
            )
        return Seen(answer, list(self.ledger.noted))

    async def state(self) -> Any:
        """Return all that Ann has, to see whether anybody changed it."""
        ledger = self.at.ledger
        session_id = self.things["session_id"]
        approval = await ledger.approval(self.things["approval_id"])
        assert approval is not None
        runs = await ledger.runs(RunQuery(key_id=self.ann_key, limit=None))
        return (
            await ledger.session(session_id),
            await ledger.transcript(session_id),
            approval.state,
            sorted((run.id, run.state.value, run.session_id) for run in runs),
            await ledger.handed_call(self.call_id),
            await self.at.context.jobs("main").job(self.things["job_id"]),
        )

    @property
    def ann_key(self) -> str:
        return self._ann_key

    async def settle(self) -> None:
        """Let Ann make one thing of each kind."""
        key, secret = await self.at.new_key("ann", actions=ORDINARY)
        self._ann_key = key.id
        self.ann = await self.at.with_key(secret)
        self.nobody = await self.at.with_key(None)
        made = await self._post("/api/sessions", {"title": TITLE})
        session_id = made["session"]["id"]
        await self._post(f"/api/sessions/{session_id}/chat", {"message": f"Play the {WORDS}."})
        response = await self._post("/v1/responses", {"input": f"Play the {WORDS}."})
        said = [{"role": "user", "content": f"Play the {WORDS}."}]
        talk = (await self._post("/v1/conversations", {"items": said}))["id"]
        [item] = (await self.ann.get(f"/v1/conversations/{talk}/items")).json()["data"]
        handed = await self._post(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "hand it over"}], "tools": [WEATHER]},
        )
        self.call_id = handed["choices"][0]["message"]["tool_calls"][0]["id"]
        job = (await self.at.client.post("/api/jobs", json=BODIES["createJob"])).json()["job"]
        run = await self._post("/v1/runs", {"input": "danger"})
        approval_id = await self.asking.next()
        self.things = {
            "session_id": session_id,
            "response_id": response["id"],
            "conversation_id": talk,
            "item_id": item["id"],
            "run_id": run["run_id"],
            "approval_id": approval_id,
            "job_id": job["id"],
            "model": "hermes",
        }
        hidden = [value for name, value in self.things.items() if name != "model"]
        self.secrets = (*hidden, self.call_id, TITLE, run["session_id"], key.id)

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.ann.post(path, json=body)
        assert answer.status_code < 300, answer.text
        value: dict[str, Any] = answer.json()
        return value

    asking: Asking
    _ann_key = ""


PARAMS = (
    *("session_id", "response_id", "conversation_id", "item_id"),
    *("run_id", "approval_id", "job_id", "model"),
)


def path_of(endpoint: Endpoint, things: dict[str, str]) -> str:
    """Return the path of an endpoint with these ids in it."""
    return re.sub(r"\{([a-z_]+)\}", lambda found: things[found[1]], endpoint.path)


def _script(request: ModelRequest) -> Reply:
    last = request.messages[-1]
    asked = content_text(last.content) if isinstance(last, UserMessage) else ""
    if "danger" in asked:
        return calls(call("danger", "call_danger"))
    return calls(call("weather", "call_weather")) if "hand it over" in asked else say("Done.")


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Serve all endpoints at a door behind which Ann has one thing of each kind."""
    inner = await SqliteLedger.open(folder / "state.db", backups=folder / "backups")
    noting = NotingLedger(inner)
    asking = Asking()

    def two_agents(context: HttpContext) -> HttpContext:
        return with_agents(context, ServedAgent(agent_id="other", name="other"))

    try:
        async with http_door(
            folder,
            ScriptedModel(default=_script),
            endpoints=all_endpoints(),
            tools=asking.tools,
            ledger=cast(Ledger, noting),
            more=two_agents,
        ) as at:
            asking.at = Door(at)
            made = World(at, noting)
            made.asking = asking
            await made.settle()
            try:
                yield made
            finally:
                # A turn that waits for a person would hold up the end of the gateway.
                await at.context.answers.answer(made.things["approval_id"], Choice.DENY, by="test")
    finally:
        await inner.close()
