"""The webhook receiver on a loopback port, around a real core with a scripted model.

    async with webhook_door(tmp_path, model, {"gh": {"secret": SECRET}}) as door:
        answer = await door.post("gh", {"a": 1}, id="1")

What the receiver needs from outside is real where it can be (scripts, ledger,
gateway) and scripted where it would leave the machine (chats, GitHub).
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec

from fakes.core import Core, running_core
from hermes.config.paths import HermesHome
from hermes.control.door import Door
from hermes.control.webhooks.receiver import PLATFORM, ReceiverParts, WebhookReceiver
from hermes.control.webhooks.routes import HookRoute, HookRoutes, RouteRules, read_routes
from hermes.domain.errors import HermesError, StoreError
from hermes.domain.events import TurnJob
from hermes.domain.inbound import InboxEntry
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Admission, Arrival, Ledger
from hermes.domain.ports.model import Model
from hermes.domain.webhooks import HookDelivery, HookState
from hermes.entry.http.listener import webhook_app
from hermes.entry.http.server import HttpServer
from hermes.entry.http.settings import webhook_settings
from hermes.execution.clock import SystemClock
from hermes.execution.webhook_effects import HookScripts
from hermes.state.sqlite.ledger import SqliteLedger
from hermes.state.webhook_routes import HookRouteFile

__all__ = ["SECRET", "Chats", "FaultyLedger", "Hub", "WebhookDoor", "webhook_door"]

SECRET = "a shared secret"


class Chats:
    """Chats that take texts, once per outbox entry, or refuse them."""

    def __init__(self) -> None:
        self.sent: dict[str, tuple[str, str | None, str | None, str]] = {}
        self.tried = 0
        self.fails = False
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def deliver(self, target: Target, text: str, entry_id: str) -> None:
        self.tried += 1
        self.asked.set()
        await self.go.wait()
        if self.fails:
            raise HermesError("The chat is gone.", hint="Choose another.")
        place = (target.platform, target.chat_id or None, target.thread_id)
        self.sent.setdefault(entry_id, (*place, text))

    @property
    def texts(self) -> list[str]:
        return [text for *_, text in self.sent.values()]


class Hub:
    """Pull requests that take comments, or refuse them."""

    def __init__(self) -> None:
        self.comments: list[tuple[str, str, str]] = []
        self.fails = False

    async def comment(self, repo: str, number: str, text: str) -> None:
        if self.fails:
            raise HermesError("gh is not logged in.", hint="gh auth login")
        self.comments.append((repo, number, text))


class FaultyLedger(SqliteLedger):
    """A ledger whose verbs for deliveries fail: those in `broken`, or the one call `fails_at`."""

    broken: frozenset[str] = frozenset()
    fails_at: int | None = None
    calls = 0
    may_run: asyncio.Event | None = None
    """Deliveries are recorded as running only when this is set."""

    @classmethod
    async def at(cls, folder: Path) -> Self:
        return await cls.open(folder / "state.db", backups=folder / "backups")

    def _check(self, verb: str) -> None:
        self.calls += 1
        if verb in self.broken or self.calls == self.fails_at:
            raise StoreError("The disk is full.")

    async def receive_hook(self, delivery: HookDelivery) -> HookDelivery | None:
        self._check("receive_hook")
        return await super().receive_hook(delivery)

    async def update_hook(self, route: str, delivery_id: str, **more: Any) -> HookDelivery | None:
        self._check("update_hook")
        if self.may_run is not None and more["state"] is HookState.RUNNING:
            await self.may_run.wait()
        return await super().update_hook(route, delivery_id, **more)

    async def admit(self, arrival: Arrival) -> Admission:
        self._check("admit")
        return await super().admit(arrival)

    async def end_session(self, session_id: str, reason: str, at: float) -> None:
        self._check("end_session")
        await super().end_session(session_id, reason, at)

    async def mark_answered(self, turn_id: str) -> int:
        self._check("mark_answered")
        return await super().mark_answered(turn_id)


class _Turns(Door):
    platforms = (PLATFORM,)

    def __init__(self, receiver: WebhookReceiver) -> None:
        self._receiver = receiver

    def on_turn(self, job: TurnJob) -> None:
        self._receiver.begin(job)


class WebhookDoor:
    """A running receiver and everything around it."""

    def __init__(self, core: Core, receiver: WebhookReceiver, client: httpx2.AsyncClient) -> None:
        self.core = core
        self.ledger = core.ledger
        self.receiver = receiver
        self.client = client
        self.chats = Chats()
        self.hub = Hub()

    async def post(
        self,
        route: str,
        payload: Any,
        *,
        id: str | None = None,  # noqa: A002 (what senders call it)
        secret: str = SECRET,
        **headers: str,
    ) -> httpx2.Response:
        """Send a delivery as GitHub does."""
        body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if id is not None:
            named["x-github-delivery"] = id
        named = {"x-hub-signature-256": f"sha256={signature}", **named}
        return await self.client.post(f"/webhooks/{route}", content=body, headers=named)

    async def quiet(self) -> None:
        """Wait until no turn runs and no result is on its way."""
        async with asyncio.timeout(20):
            await self.core.gateway.drained()
            await self.receiver.idle()

    async def delivery(self, route: str, delivery_id: str) -> HookDelivery:
        found = await self.ledger.hook(route, delivery_id)
        assert found is not None
        return found

    async def state(self, route: str, delivery_id: str) -> HookState:
        return (await self.delivery(route, delivery_id)).state

    async def entries(self) -> list[InboxEntry]:
        """Return what turns have taken and is not marked as answered."""
        return await self.ledger.unanswered(("webhook",))


async def asks_main(_route: HookRoute, _text: str) -> str:
    return "main"


@asynccontextmanager
async def webhook_door(
    folder: Path,
    model: Model,
    routes: Mapping[str, Any],
    *,
    ledger: Ledger | None = None,
    chats: Chats | None = None,
    clock: Clock | None = None,
    send_patience: float = 20.0,
    **section: Any,
) -> AsyncIterator[WebhookDoor]:
    """Run a receiver."""
    settings = webhook_settings({"port": 0, **section, "routes": dict(routes)})
    scripts = HookScripts(folder / "scripts", {"PATH": "/usr/bin:/bin", "MY_API_KEY": "k"})
    rules = RouteRules(
        home=folder,
        secret=settings.secret,
        loopback=settings.loopback,
        check_script=scripts.check,
    )
    routes_now = HookRoutes(
        read_routes(settings.routes, rules), HookRouteFile(HermesHome(root=folder)), rules
    )
    async with running_core(folder, model, ledger=ledger) as core:
        hub, places = Hub(), chats or Chats()
        async with asyncio.TaskGroup() as group:
            receiver = WebhookReceiver(
                ReceiverParts(
                    ledger=core.ledger,
                    gateway=core.gateway,
                    clock=clock or SystemClock(),
                    group=group,
                    routes=routes_now,
                    scripts=scripts.run,
                    deliver=places.deliver,
                    comment=hub.comment,
                    agent_of=asks_main,
                    rate_limit=settings.rate_limit,
                    script_timeout=settings.script_timeout_seconds,
                    send_patience=send_patience,
                )
            )
            server = HttpServer(webhook_app(receiver, settings), settings.host, settings.port)
            serving = group.create_task(server.run())
            await server.started.wait()
            base = f"http://127.0.0.1:{server.port}"
            async with httpx2.AsyncClient(base_url=base, timeout=30) as client:
                with core.gateway.doors.attached(_Turns(receiver)):
                    door = WebhookDoor(core, receiver, client)
                    door.hub, door.chats = hub, places
                    yield door
                    await core.gateway.suspend()
            serving.cancel()
            await receiver.close(0.5)
