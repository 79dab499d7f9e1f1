"""The webhook receiver: takes deliveries in, has them worked on and sees them to their end.

    receive: intake -> script -> ledger -> inbox -> 202
    ended:   the turn's result is delivered -> done | failed

A service is answered with success only when the ledger has the delivery and
the inbox its message. What an earlier process left half-done is found in the
ledger by the recovery pass (`control.follow`) and finished: every step can be
taken again without being done twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.follow import Follower, Outcome
from hermes.control.lanes.gateway import Gateway
from hermes.control.lanes.lane import Ticket
from hermes.control.webhooks.effects import (
    Comments,
    Deliver,
    Results,
    Scripts,
    apply_script,
    is_silent,
)
from hermes.control.webhooks.intake import (
    KEEP_SECONDS,
    Arrived,
    HookRefused,
    Ignored,
    Intake,
    agent_prompt,
    plain_text,
)
from hermes.control.webhooks.payload import render
from hermes.control.webhooks.routes import HookRoute, HookRoutes
from hermes.domain.errors import HermesError, NotFound
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, InboxEntry, Sender
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.platform import ListenerCall
from hermes.domain.profile import use_profile
from hermes.domain.turn import TurnOptions, TurnState
from hermes.domain.webhooks import HookDelivery, HookState

log = logging.getLogger(__name__)

PLATFORM = "webhook"
END_REASON = "webhook_complete"
"""For how long a repeated delivery is recognised."""
MANY = 10_000

Key = tuple[str, str]
"""Route and the sender's id."""
Answer = tuple[int, dict[str, str]]
"""HTTP status and what the service is told."""


class ReceiverParts(Struct, frozen=True, kw_only=True):
    ledger: Ledger
    gateway: Gateway
    clock: Clock
    group: asyncio.TaskGroup
    routes: HookRoutes
    scripts: Scripts
    deliver: Deliver
    comment: Comments
    agent_of: Callable[[HookRoute, str], Awaitable[str]]
    """Who is asked about a delivery of a route, by its prompt; `NotFound` if that is nobody."""
    rate_limit: int = 30
    """Deliveries a minute and route; 0: no limit."""
    script_timeout: float = 30.0
    send_patience: float = 20.0
    """Seconds that a sender waits for a delivery without an agent."""


class WebhookReceiver(Follower):
    def __init__(self, parts: ReceiverParts) -> None:
        super().__init__(parts.ledger, parts.group)
        self._parts = parts
        self.draining = False
        self._clock = parts.clock
        self._intake = Intake(parts.clock, parts.rate_limit)
        self._results = Results(parts.ledger, parts.clock, parts.deliver, parts.comment)
        self._intakes: dict[Key, asyncio.Future[HookRefused | None]] = {}
        """Deliveries that are being taken in right now, with what copies are told; None: taken."""
        self._sends: dict[Key, asyncio.Task[None]] = {}
        """Texts that are being sent on without the agent."""

    async def route(self, name: str, agent: str | None = None) -> HookRoute:
        """Return a route, if it asks this agent.

        `HookRefused` if there is none, it is switched off or Hermes stops.
        """
        if self.draining:
            raise HookRefused(503, "Hermes is stopping; send it again.", retry_after=5)
        route = await self._parts.routes.find(name)
        if route is None:
            raise HookRefused(404, "There is no such route.")
        if not route.enabled:
            raise HookRefused(403, "This route is switched off.")
        if agent is not None and await self._parts.agent_of(route, "") != agent:
            raise HookRefused(404, "There is no such route.")
        return route

    # -- taking a delivery -------------------------------------------------------------------

    async def receive(self, route: HookRoute, call: ListenerCall) -> Answer:
        """Take a delivery; return status and answer once it is in the ledger.

        Raises `HookRefused`, also if it could not be written down.
        """
        try:
            arrived = await self._intake.read(route, call)
            if challenge := _challenge(arrived.payload):
                return 200, {"challenge": challenge}
            if arrived.ignored is not None:
                return _answer("ignored", route, arrived, reason=arrived.ignored.reason)
            arrived = await self._recognised(route, arrived)
            key = (route.name, arrived.delivery_id)
            if key not in self._intakes:
                return await self._alone(key, route, arrived)
            if refused := await asyncio.shield(self._intakes[key]):
                raise refused
            return _answer("duplicate", route, arrived)
        except HookRefused:
            raise
        except HermesError as error:
            log.error("webhook %s: a delivery was not taken: %s", route.name, error.message)
            raise _not_taken() from error

    async def _recognised(self, route: HookRoute, arrived: Arrived) -> Arrived:
        """Return a delivery under the id with which what is signed in it came first."""
        if arrived.proof is None:
            return arrived
        now = self._clock.now()
        first = await self._ledger.recognise_hook(
            route.name, arrived.proof, arrived.delivery_id, now, now - arrived.proof_holds
        )
        return replace(arrived, delivery_id=first)

    async def _alone(self, key: Key, route: HookRoute, arrived: Arrived) -> Answer:
        """Take a delivery; copies that come meanwhile share its fate."""
        waiting = self._intakes[key] = asyncio.get_running_loop().create_future()
        refused: HookRefused | None = _not_taken()
        try:
            answer = await self._take(route, arrived)
            refused = None
        except HookRefused as error:
            refused = error
            raise
        finally:
            del self._intakes[key]
            waiting.set_result(refused)
        return answer

    async def _take(self, route: HookRoute, arrived: Arrived) -> Answer:
        known = await self._ledger.hook(route.name, arrived.delivery_id)
        if known is not None and known.state is not HookState.FAILED:
            return _answer("duplicate", route, arrived)
        payload = arrived.payload
        if route.script is not None:
            timeout = self._parts.script_timeout
            payload = await apply_script(self._parts.scripts, route.script, payload, timeout)
        delivery = await self._ledger.receive_hook(self._delivery(route, arrived, payload))
        if delivery is None:
            return _answer("duplicate", route, arrived)
        if isinstance(payload, Ignored):
            return _answer("ignored", route, arrived, reason=payload.reason)
        if route.deliver_only:
            delivered = await self._send_on(delivery)
            return _answer("delivered" if delivered else "accepted", route, arrived)
        await self._start(delivery)
        return _answer("accepted", route, arrived)

    async def _start(self, delivery: HookDelivery) -> None:
        """Give a committed delivery to the agent; it is failed if that is impossible."""
        try:
            ticket = await self._submit(delivery)
        except HermesError as error:
            # If even that cannot be recorded, the recovery pass tries it again.
            await self._try_record(delivery, HookState.FAILED, error=_sentence(error))
            raise
        if not ticket.duplicate:
            self.expect(ticket)
        await self._try_record(delivery, HookState.RUNNING, session_id=ticket.session_id)

    async def _submit(self, delivery: HookDelivery) -> Ticket:
        agent_id = await self._agent_of(delivery)
        return await self._parts.gateway.submit(agent_id, _message_of(delivery))

    async def _agent_of(self, delivery: HookDelivery) -> str:
        route = await self._parts.routes.find(delivery.route)
        if route is None:
            raise NotFound(f"The route `{delivery.route}` is gone.")
        return await self._parts.agent_of(route, delivery.prompt)

    def _delivery(self, route: HookRoute, arrived: Arrived, payload: Any) -> HookDelivery:
        now = self._clock.now()
        delivery = HookDelivery(
            route=route.name,
            delivery_id=arrived.delivery_id,
            event=arrived.event,
            received_at=now,
            updated_at=now,
            deliver_only=route.deliver_only,
        )
        if isinstance(payload, Ignored):
            return replace(delivery, state=HookState.IGNORED)
        make = plain_text if route.deliver_only else agent_prompt
        return replace(
            delivery,
            prompt=make(route, arrived.event, payload),
            target=render(route.deliver, payload),
            target_extra={
                name: render(value, payload) for name, value in route.deliver_extra.items()
            },
        )

    # -- texts that need no agent --------------------------------------------------------------

    async def _send_on(self, delivery: HookDelivery) -> bool:
        """Deliver a text; False: the target takes long, and the delivery goes on."""
        sending = self._sender(delivery)
        await asyncio.wait({sending}, timeout=self._parts.send_patience)
        ended = await self._ledger.hook(*_key_of(delivery)) or delivery
        if not ended.state.over:
            log.warning("webhook %s, %s: delivering takes long", *_key_of(delivery))
        elif ended.state is not HookState.DONE:
            raise HookRefused(502, ended.error or "It could not be delivered.")
        return ended.state is HookState.DONE

    def _sender(self, delivery: HookDelivery) -> asyncio.Task[None]:
        key = _key_of(delivery)
        if key not in self._sends:
            outcome = Outcome(turn_id=None, state=TurnState.DONE, text=delivery.prompt)
            sending = self._sends[key] = self.do(self._forward(delivery, outcome))
            sending.add_done_callback(lambda _done: self._sends.pop(key, None))
        return self._sends[key]

    async def _forward(self, delivery: HookDelivery, outcome: Outcome) -> None:
        await self._deliver(delivery, outcome, agent_id=await self._agent_of(delivery))

    # -- obligations ---------------------------------------------------------------------------

    async def recover(self) -> None:
        """Have open deliveries seen through that nobody follows; forget those long over."""
        await super().recover()
        await self._ledger.prune_hooks(self._clock.now() - KEEP_SECONDS)

    async def unfinished(self) -> Sequence[InboxEntry]:
        found = {entry.id: entry for entry in await self._ledger.unanswered((PLATFORM,))}
        states = (HookState.RECEIVED, HookState.RUNNING)
        for delivery in await self._ledger.hooks(states, limit=MANY):
            if _key_of(delivery) in self._intakes:
                continue
            if delivery.deliver_only:
                self._sender(delivery)
                continue
            try:
                # This finds the entry that is there, or makes the one that is missing.
                ticket = await self._submit(delivery)
            except HermesError as error:
                log.warning("webhook %s, %s waits: %s", *_key_of(delivery), error.message)
                continue
            found[ticket.entry.id] = ticket.entry
            if delivery.state is HookState.RECEIVED:
                await self._try_record(delivery, HookState.RUNNING, session_id=ticket.session_id)
        return tuple(found.values())

    async def follow(self, ticket: Ticket) -> None:
        await ticket.job()
        taking = self._intakes.get(_origin_of(ticket.entry.message)[:2])
        if taking is not None:
            # Its request has to be recorded as running before it can be done.
            await asyncio.shield(taking)
        await super().follow(ticket)

    async def ended(self, entry: InboxEntry, outcome: Outcome) -> None:
        """Deliver a result and record that; whoever comes second finds it done."""
        route, delivery_id, attempt = _origin_of(entry.message)
        delivery = await self._ledger.hook(route, delivery_id)
        if delivery is not None and delivery.attempt == attempt:
            if not delivery.state.over:
                await self._deliver(delivery, outcome, entry.session_id, agent_id=entry.agent_id)
            await self._ledger.end_session(entry.session_id, END_REASON, self._clock.now())
        if outcome.turn_id is not None:
            await self._ledger.mark_answered(outcome.turn_id)

    async def _deliver(
        self,
        delivery: HookDelivery,
        outcome: Outcome,
        session_id: str | None = None,
        *,
        agent_id: str,
    ) -> None:
        """Bring the result to its target and record how the delivery ended."""
        error: str | None = None
        if outcome.state is not TurnState.DONE:
            error = outcome.reason
        elif delivery.deliver_only or not is_silent(outcome.text):
            try:
                with use_profile(self._parts.gateway.profile(agent_id)):
                    await self._results.send(delivery, outcome.text, agent_id)
            except HermesError as failure:
                error = _sentence(failure)
        if error is not None:
            log.warning("webhook %s, %s failed: %s", *_key_of(delivery), error)
        state = HookState.DONE if error is None else HookState.FAILED
        await self._record(delivery, state, session_id=session_id, error=error)

    async def _record(self, delivery: HookDelivery, state: HookState, **more: str | None) -> None:
        route, delivery_id = _key_of(delivery)
        await self._ledger.update_hook(
            route, delivery_id, state=state, at=self._clock.now(), **more
        )

    async def _try_record(
        self, delivery: HookDelivery, state: HookState, **more: str | None
    ) -> None:
        """Record how far a delivery has come; its message counts even if this fails."""
        try:
            await self._record(delivery, state, **more)
        except HermesError as error:
            log.warning("webhook %s, %s: %s", *_key_of(delivery), error.message)


def _key_of(delivery: HookDelivery) -> Key:
    return delivery.route, delivery.delivery_id


def _message_of(delivery: HookDelivery) -> InboundMessage:
    """Return the message by which the agent learns of this attempt."""
    route, delivery_id = _key_of(delivery)
    return InboundMessage(
        platform=PLATFORM,
        account=route,
        native_id=f"{delivery_id}#{delivery.attempt}",
        chat=Chat(kind=ChatKind.WEBHOOK, id=f"webhook:{route}:{delivery_id}"),
        sender=Sender(id=f"webhook:{route}", name=route),
        text=delivery.prompt,
        sent_at=delivery.received_at,
        options=TurnOptions(title=False),
    )


def _origin_of(message: InboundMessage) -> tuple[str, str, int]:
    """Return route, delivery id and attempt of such a message."""
    delivery_id, _, attempt = message.native_id.rpartition("#")
    return message.account, delivery_id, int(attempt)


def _sentence(error: HermesError) -> str:
    return f"{error.message} {error.hint}".strip()


def _challenge(payload: Any) -> str | None:
    """Return what Slack wants to read back before it sends events to an address."""
    asked = isinstance(payload, dict) and payload.get("type") == "url_verification"
    challenge = payload.get("challenge") if asked else None
    return challenge if isinstance(challenge, str) else None


def _answer(word: str, route: HookRoute, arrived: Arrived, **more: str) -> Answer:
    body = {"status": word, "route": route.name, "event": arrived.event}
    status = 202 if word == "accepted" else 200
    return status, {**body, "delivery_id": arrived.delivery_id, **more}


def _not_taken() -> HookRefused:
    return HookRefused(503, "The delivery could not be taken; send it again.", retry_after=30)
