"""FollowUp: sees deliveries through, from the inbox to their end.

A turn that answers a delivery is followed; when it has ended its result is
delivered and only then is the delivery done. Deliveries that nobody follows,
because their process died or the ledger failed at the wrong moment, are found
by looking over the open ones now and then: the inbox tells which turn took
the message, and the ledger how that ended.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct

from hermes.control.lanes.gateway import Gateway
from hermes.control.webhooks.effects import Results, is_silent
from hermes.control.webhooks.ports import PLATFORM, Key, key_of, message_of, origin_of
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnJob, TurnStream
from hermes.domain.inbound import InboxEntry, InboxState
from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import Turn, TurnState
from hermes.domain.webhooks import HookDelivery, HookState

__all__ = ["END_REASON", "FollowUp"]

log = logging.getLogger(__name__)

END_REASON = "webhook_complete"
LOOK_OVER_SECONDS = 60.0
KEEP_SECONDS = 30 * 24 * 3600.0
"""For how long a repeated delivery is recognised."""
MANY = 10_000

Work = Callable[[], Awaitable[None]]


class _Ended(Struct, frozen=True, kw_only=True):
    """How the turn of a delivery ended."""

    turn_id: str | None
    session_id: str | None = None
    done: bool
    text: str = ""
    error: str = ""


class FollowUp:
    """Looks after the deliveries that are not over."""

    def __init__(
        self,
        ledger: Ledger,
        gateway: Gateway,
        clock: Clock,
        results: Results,
        agent_id: str,
        taken: Callable[[Key], Awaitable[None]],
    ) -> None:
        self._ledger = ledger
        self._gateway = gateway
        self._clock = clock
        self._results = results
        self._agent_id = agent_id
        self._taken = taken
        """Waits until the request that brought a delivery has been answered."""
        self._work: asyncio.Queue[Work] = asyncio.Queue()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._ending: set[Key] = set()
        """Deliveries whose result is being delivered."""

    # -- new deliveries ----------------------------------------------------------------------

    async def start(self, delivery: HookDelivery) -> None:
        """Give a committed delivery to the agent; it is failed if that is impossible."""
        try:
            entry = (await self._gateway.submit(self._agent_id, message_of(delivery))).entry
        except HermesError as error:
            await self._give_up(delivery, error)
            raise
        await self._running(delivery, entry)

    async def send_on(self, delivery: HookDelivery, patience: float) -> HookDelivery:
        """Deliver the text of a delivery that needs no agent; return how far that got.

        A target that takes long keeps the delivery open; it is gone on with.
        """
        sent = asyncio.Event()
        self._do(lambda: self._send(delivery, sent))
        try:
            async with asyncio.timeout(patience):
                await sent.wait()
        except TimeoutError:
            log.warning("webhook %s, %s: delivering takes long", *key_of(delivery))
        return await self._ledger.hook(*key_of(delivery)) or delivery

    async def _send(self, delivery: HookDelivery, sent: asyncio.Event) -> None:
        if key_of(delivery) in self._ending:
            return
        self._ending.add(key_of(delivery))
        try:
            await self._deliver(delivery, _Ended(turn_id=None, done=True, text=delivery.prompt))
        finally:
            self._ending.discard(key_of(delivery))
            sent.set()

    async def _running(self, delivery: HookDelivery, entry: InboxEntry) -> None:
        """Record that a turn will come; that it is admitted counts even if this fails."""
        try:
            await self._record(delivery, HookState.RUNNING, session_id=entry.session_id)
        except HermesError as error:
            log.warning("webhook %s, %s: %s", *key_of(delivery), error.message)

    async def _give_up(self, delivery: HookDelivery, error: HermesError) -> None:
        """Let the sender try again; if even that cannot be recorded we do so ourselves."""
        try:
            await self._record(delivery, HookState.FAILED, _sentence(error))
        except HermesError as second:
            log.error("webhook %s, %s: %s", *key_of(delivery), second.message)

    # -- turns ---------------------------------------------------------------------------------

    def on_turn(self, job: TurnJob) -> None:
        """Note a turn that starts or goes on."""
        entry = job.entry
        if entry is not None:
            self._do(functools.partial(self._follow, job.stream, entry))

    async def run(self) -> None:
        """Follow turns and look over open deliveries until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_looking())
            while True:
                work = await self._work.get()
                group.create_task(self._safely(work))

    def _do(self, work: Work) -> None:
        """Have something done beside everything else, by `run`."""
        self._under_way += 1
        self._quiet.clear()
        self._work.put_nowait(work)

    async def _safely(self, work: Work) -> None:
        """Do it; what goes wrong with one delivery stays with it, and is looked at again."""
        try:
            await work()
        except HermesError as error:
            log.warning("a webhook delivery waits: %s", error.message)
        except Exception:
            log.exception("a webhook delivery could not be followed")
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def settled(self) -> None:
        """Return once nothing is being followed or delivered."""
        await self._quiet.wait()

    async def _follow(self, stream: TurnStream, entry: InboxEntry) -> None:
        finished = await stream.wait()
        error = finished.error
        if error is not None and error.code == "shutdown":
            return
        reason = error.message if error else f"The turn was {finished.outcome.value}."
        done = finished.outcome is TurnState.DONE
        await self._end(
            entry,
            _Ended(
                turn_id=stream.turn_id,
                session_id=entry.session_id,
                done=done,
                text=finished.text,
                error=reason,
            ),
        )

    # -- the end of a delivery -------------------------------------------------------------------

    async def _end(self, entry: InboxEntry, ended: _Ended) -> None:
        """Deliver a result and record that; whoever comes second finds it done."""
        route, delivery_id, attempt = origin_of(entry.message)
        key = (route, delivery_id)
        await self._taken(key)
        if key in self._ending:
            return
        self._ending.add(key)
        try:
            delivery = await self._ledger.hook(route, delivery_id)
            current = delivery is not None and delivery.attempt == attempt
            if delivery is not None and current and not delivery.state.over:
                await self._deliver(delivery, ended)
            if current:
                await self._ledger.end_session(entry.session_id, END_REASON, self._clock.now())
            if ended.turn_id is not None:
                await self._ledger.mark_answered(ended.turn_id)
        finally:
            self._ending.discard(key)

    async def _deliver(self, delivery: HookDelivery, ended: _Ended) -> None:
        """Bring the result to its target and record how the delivery ended."""
        error = None if ended.done else ended.error
        if ended.done and (delivery.deliver_only or not is_silent(ended.text)):
            try:
                await self._results.send(delivery, ended.text)
            except HermesError as failure:
                error = _sentence(failure)
        state = HookState.DONE if error is None else HookState.FAILED
        if error is not None:
            log.warning("webhook %s, %s failed: %s", *key_of(delivery), error)
        await self._record(delivery, state, error, ended.session_id)

    async def _record(
        self,
        delivery: HookDelivery,
        state: HookState,
        error: str | None = None,
        session_id: str | None = None,
    ) -> HookDelivery:
        updated = await self._ledger.update_hook(
            delivery.route,
            delivery.delivery_id,
            state=state,
            at=self._clock.now(),
            session_id=session_id,
            error=error,
        )
        return updated or delivery

    # -- what nobody follows ---------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            await self._clock.sleep(LOOK_OVER_SECONDS)
            try:
                await self.look_over(older_than=LOOK_OVER_SECONDS)
                await self._ledger.prune_hooks(self._clock.now() - KEEP_SECONDS)
            except HermesError as error:
                log.warning("open webhook deliveries cannot be looked over: %s", error.message)

    async def recover(self) -> int:
        """Have everything gone on with that an earlier process left; return how many."""
        for entry in await self._ledger.unanswered((PLATFORM,)):
            ended = await self._ended(entry)
            if ended is not None:
                self._do(functools.partial(self._end, entry, ended))
        return await self.look_over(older_than=0.0)

    async def look_over(self, *, older_than: float) -> int:
        """Have open deliveries gone on with that have not moved for so long; return how many."""
        before = self._clock.now() - older_than
        found = await self._ledger.hooks((HookState.RECEIVED, HookState.RUNNING), limit=MANY)
        still = [each for each in found if each.updated_at <= before]
        for delivery in still:
            self._do(functools.partial(self._go_on, delivery))
        return len(still)

    async def _go_on(self, listed: HookDelivery) -> None:
        await self._taken(key_of(listed))
        delivery = await self._ledger.hook(*key_of(listed))
        if delivery is None or delivery.state.over or key_of(delivery) in self._ending:
            return
        if delivery.deliver_only:
            await self._send(delivery, asyncio.Event())
            return
        # Submitting again finds the entry that is there, or makes the one that is missing.
        entry = (await self._gateway.submit(self._agent_id, message_of(delivery))).entry
        if delivery.state is HookState.RECEIVED:
            await self._running(delivery, entry)
        if entry.state is InboxState.WAITING:
            await self._gateway.wake(entry.session_id)
        else:
            ended = await self._ended(entry)
            if ended is not None:
                await self._end(entry, ended)

    async def _ended(self, entry: InboxEntry) -> _Ended | None:
        """Return how the turn that took a message ended; None if it goes on."""
        session_id = entry.session_id
        if entry.state is InboxState.DROPPED or entry.turn_id is None:
            reason = f"The message was {entry.drop_reason or 'dropped'}."
            return _Ended(turn_id=None, session_id=session_id, done=False, error=reason)
        turn = await self._ledger.turn(entry.turn_id)
        if turn is None:
            return _Ended(turn_id=None, done=False, error="The turn was deleted.")
        if turn.state.open:
            return None
        reason = turn.error.message if turn.error else f"The turn was {turn.state.value}."
        done = turn.state is TurnState.DONE
        text = await self._said(turn) if done else ""
        return _Ended(turn_id=turn.id, session_id=session_id, done=done, text=text, error=reason)

    async def _said(self, turn: Turn) -> str:
        said = [
            stored.message.text
            for stored in await self._ledger.transcript(turn.session_id)
            if stored.turn_id == turn.id and isinstance(stored.message, AssistantMessage)
        ]
        return said[-1] if said else ""


def _sentence(error: HermesError) -> str:
    return f"{error.message} {error.hint}".strip()
