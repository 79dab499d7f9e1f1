"""The gateway: admission, then execution.

`submit` authorises nothing itself (doors pass through `authz` first): it finds
the session, commits the inbox row and wakes the session's lane. What is
admitted cannot be lost; a second copy with the same native id is the same row.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.executor import (
    call_finished,
    call_started,
    close_calls,
    never_ended,
    open_calls,
)
from hermes.control.door import Doors
from hermes.control.lanes.batches import user_message
from hermes.control.lanes.lane import Lane, Ticket, TurnRunnerPort, explained
from hermes.control.lanes.pauses import pauses
from hermes.domain.errors import HermesError, NotFound, SessionBusy
from hermes.domain.events import ToolFinished, ToolStarted, TurnJob, TurnStream
from hermes.domain.ids import new_session_id, new_turn_id
from hermes.domain.inbound import ChatKind, InboundMessage, InboxEntry, InboxState
from hermes.domain.messages import AssistantMessage, ToolCall, ToolMessage
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Admission, Arrival, Ledger
from hermes.domain.profile import AgentProfile, use_profile
from hermes.domain.session import (
    CHILD_OF,
    KeyScope,
    NewSession,
    Opening,
    Session,
    session_key,
)
from hermes.domain.tools import ToolSpec
from hermes.domain.turn import (
    MAX_RESUMES,
    MAX_UNBEGUN_RESUMES,
    NewTurn,
    Turn,
    TurnError,
    TurnState,
)
from hermes.domain.wording import ago
from hermes.observability.logs import tag_session

log = logging.getLogger(__name__)


async def resume_limit(ledger: Ledger, turn: Turn) -> int:
    """Return how often a turn may be picked up: seldom if it may be what ends the process.

    One that waited for a person, or had only to be closed, was not at work.
    """
    pending = await ledger.pending_approvals(turn.session_id)
    if any(approval.request.turn_id == turn.id for approval in pending):
        return MAX_UNBEGUN_RESUMES
    own = [
        each.message for each in await ledger.history(turn.session_id) if each.turn_id == turn.id
    ]
    if own and isinstance(own[-1], AssistantMessage) and not own[-1].tool_calls:
        return MAX_UNBEGUN_RESUMES
    if await ledger.started_calls(turn.id):
        return MAX_RESUMES
    said = any(isinstance(message, AssistantMessage) for message in own)
    return MAX_RESUMES if said else MAX_UNBEGUN_RESUMES


def given_up(turn: Turn) -> TurnError:
    return TurnError(
        code="resume_limit",
        message=(
            f"This turn was interrupted and resumed {turn.resumes - turn.releases - 1} times;"
            " it was given up."
        ),
        hint="Ask again, perhaps in smaller steps.",
    )


def too_old(turn: Turn, now: float) -> TurnError:
    return TurnError(
        code="too_old",
        message=f"This was interrupted {ago(now - turn.updated_at)} and was not continued.",
        hint="What was done until then is kept: send a message to continue.",
    )


LARGE = 65_536
"""Characters; more are searched for secrets in a thread."""
AFTER_TURN_SECONDS = 0.3
REST_SECONDS = 0.1
"""How often it is looked whether turns still do anything, while the process wants to end."""
UNKNOWN_SESSION = ""
BLOCKED = TurnError(
    code="blocked",
    message="This turn blocked Hermes, which had to restart, so the turn was given up.",
    hint="Ask again in other words. The log says where it was stuck.",
)


def _clean(message: InboundMessage, redact: Callable[[str], str]) -> InboundMessage:
    return replace(
        message,
        text=redact(message.text),
        context=redact(message.context),
        attachments=tuple(
            replace(each, text=redact(each.text)) if each.text else each
            for each in message.attachments
        ),
    )


class GatewayParts(Struct, frozen=True, kw_only=True):
    ledger: Ledger
    runner: TurnRunnerPort
    clock: Clock
    profiles: Mapping[str, AgentProfile]
    owner: str
    """The id under which this process owns turns."""
    owner_alive: Callable[[str], bool]
    blocked_by: Callable[[str], str | None] = lambda _owner: None
    """The session that blocked a dead owner; `UNKNOWN_SESSION` if that cannot be told."""
    freshness: Callable[[], float] = lambda: 0.0
    """How old a turn that was cut off may be to be continued, in seconds; 0 for any age."""
    scope: KeyScope = KeyScope()
    redact: Callable[[str], str] = str
    """Removes secrets by value from what people type, before it is kept."""


class Gateway:
    """Takes messages in and has them answered, one lane per live session."""

    def __init__(self, parts: GatewayParts) -> None:
        self.ledger = parts.ledger
        self.clock = parts.clock
        self.owner = parts.owner
        self.redact = parts.redact
        self.owner_alive = parts.owner_alive
        self.runner = parts.runner
        self.doors = Doors()
        """The doors that are attached to it for now."""
        self._parts = parts
        self.delegating: Counter[str] = Counter()
        """Sessions whose turn waits for child turns: what arrives does not interrupt these."""
        self.draining = False
        """Nothing new is begun any more."""
        self.beginning: set[str] = set()
        """Sessions that are opened with their first turn and have no lane yet."""
        self._lanes: dict[str, Lane] = {}
        self._group: asyncio.TaskGroup | None = None
        self._after_turns: set[asyncio.Task[None]] = set()
        self._lane_tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Gateway"]:
        """Run lanes for the body of the `with`; on leaving, let running turns end.

        What may wait until an answer is out must not delay the end: it is cancelled.
        """
        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    yield self
                    await self.drained()
                    if self._after_turns:
                        await asyncio.wait(set(self._after_turns), timeout=AFTER_TURN_SECONDS)
                    for task in self._after_turns:
                        task.cancel()
                except BaseException as error:
                    failure = error
                    raise
        except BaseExceptionGroup:
            # What the body raised is for its caller, not wrapped in a group of lanes.
            if failure is None:
                raise
            raise failure from None

    @property
    def group(self) -> asyncio.TaskGroup:
        """Where whatever runs as long as the lanes do belongs."""
        if self._group is None:
            raise RuntimeError("the gateway is not running")
        return self._group

    # -- admission ---------------------------------------------------------

    async def submit(
        self, agent_id: str, message: InboundMessage, *, session_id: str | None = None
    ) -> Ticket:
        """Commit `message` to the inbox and wake the lane that will answer it."""
        admission = await self._admit(agent_id, message, session_id)
        if admission.duplicate:
            return Ticket(admission.entry, duplicate=True)
        return self.take(admission.entry)

    def take(
        self, entry: InboxEntry, turn: Turn | None = None, opening: Opening | None = None
    ) -> Ticket:
        """Have a message answered that is in the inbox, or that a turn has taken already."""
        ticket = Ticket(entry)
        lane = self._lane(entry.session_id, self.profile(entry.agent_id))
        lane.wake(ticket)
        if turn is not None:
            lane.begin(turn, entry, opening)
        return ticket

    def first_turn(self, session_id: str, message: InboundMessage, at: float) -> NewTurn | None:
        """Return the turn that answers the message with which a session is opened.

        None if something has to be done first.
        """
        if not message.text or message.attachments or message.results or message.missed:
            return None
        return NewTurn(
            id=new_turn_id(),
            session_id=session_id,
            owner=self.owner,
            inputs=(user_message(message),),
            at=at,
        )

    async def take_note(
        self,
        agent_id: str,
        message: InboundMessage,
        session_id: str | None,
        state: InboxState,
        handled_as: str | None = None,
    ) -> InboxEntry | None:
        """Commit a message that is not for a lane, or not yet; None if it came before."""
        admission = await self._admit(agent_id, message, session_id, state, handled_as)
        return None if admission.duplicate else admission.entry

    def key_of(self, agent_id: str, message: InboundMessage) -> str:
        return str(session_key(agent_id, message, self._parts.scope))

    def shared(self, agent_id: str, message: InboundMessage) -> bool:
        """Tell whether the conversation of a message is also that of others."""
        key = session_key(agent_id, message, self._parts.scope)
        return key.kind is not ChatKind.PRIVATE and key.user_id is None

    async def _admit(
        self,
        agent_id: str,
        message: InboundMessage,
        session_id: str | None,
        state: InboxState = InboxState.WAITING,
        handled_as: str | None = None,
    ) -> Admission:
        key = self.key_of(agent_id, message)
        with use_profile(self.profile(agent_id)):
            if len(message.text) + len(message.context) > LARGE:
                message = await asyncio.to_thread(_clean, message, self.redact)
            else:
                message = _clean(message, self.redact)
        return await self.ledger.admit(
            Arrival(
                agent_id=agent_id,
                session_key=key,
                session_id=await self._session_id(agent_id, message, key, session_id),
                message=message,
                at=self.clock.now(),
                state=state,
                handled_as=handled_as,
            )
        )

    async def _session_id(
        self, agent_id: str, message: InboundMessage, key: str, wanted: str | None
    ) -> str:
        """Return the session of a message, wanted or not; the key points at it from now on."""
        session = await self.ledger.session_for_key(key)
        if session is not None and wanted in (None, session.id):
            return session.id
        if wanted is None:
            session = await self.open_session(agent_id, message.platform, message.sender.id)
        elif (session := await self.ledger.session(wanted)) is None or (
            session.agent_id != agent_id
        ):
            raise NotFound(f"There is no session {wanted}.")
        elif message.internal and await self.ledger.session_for_key(key) is not None:
            # What is said about an earlier conversation does not bring it back.
            return session.id
        await self.ledger.bind_key(key, session.id, self.clock.now())
        return session.id

    async def open_session(self, agent_id: str, source: str, user_id: str | None) -> Session:
        return await self.ledger.create_session(self.new_session(agent_id, source, user_id))

    def new_session(self, agent_id: str, source: str, user_id: str | None) -> NewSession:
        """Return what a new conversation with an agent begins with."""
        profile, now = self.profile(agent_id), self.clock.now()
        return NewSession(
            id=new_session_id(now),
            agent_id=agent_id,
            source=source,
            started_at=now,
            model=profile.model,
            provider=profile.provider,
            cwd=str(profile.workspace),
            user_id=user_id,
        )

    # -- control -----------------------------------------------------------

    def interrupt(self, session_id: str, *, turn_id: str | None = None) -> bool:
        """Stop the session's running turn; False if none runs, or not this one."""
        current = self.current_turn(session_id)
        if current is None or turn_id not in (None, current.turn_id):
            return False
        self._lanes[session_id].interrupt()
        return True

    def stopping(self, session_id: str) -> bool:
        """Tell whether the session's turn has been interrupted and is about to end."""
        lane = self._lanes.get(session_id)
        return lane is not None and lane.stopping

    def answers_elsewhere(self, session_id: str, account: str) -> bool:
        """Tell whether the running turn is answered through another of our accounts."""
        lane = self._lanes.get(session_id)
        return lane is not None and lane.account not in (None, account)

    def current_turn(self, session_id: str) -> TurnStream | None:
        lane = self._lanes.get(session_id)
        return lane.current if lane else None

    def steer(self, ticket: Ticket) -> bool:
        """Offer an admitted message to the running turn; False leaves it in the queue."""
        lane = self._lanes.get(ticket.session_id)
        return lane.steer(ticket) if lane else False

    def join(self, ticket: Ticket) -> None:
        """Give a message to the running turn that has taken it, if it runs here."""
        lane = self._lanes.get(ticket.session_id)
        if lane is not None:
            lane.join(ticket)

    def hold(self, session_id: str) -> None:
        """Let the session's lane take nothing more; what waits is kept for the next wake."""
        lane = self._lanes.get(session_id)
        if lane is not None:
            lane.hold()

    async def idle(self, session_id: str) -> None:
        """Return once the session has nothing to do any more."""
        while (lane := self._lanes.get(session_id)) is not None:
            await lane.gone.wait()

    @property
    def live_sessions(self) -> int:
        return len(self._lanes)

    def drain(self) -> None:
        """Begin nothing new: running turns may end, what arrives is kept for the next start."""
        self.draining = True
        for lane in self._lanes.values():
            lane.hold()

    async def drained(self) -> None:
        """Return once no session has anything to do."""
        while self._lane_tasks:
            await asyncio.wait(set(self._lane_tasks))

    async def at_rest(self) -> None:
        """Return once no session has anything to do but wait for a person."""
        while self._lane_tasks and not await self._only_waits():
            await asyncio.wait(set(self._lane_tasks), timeout=REST_SECONDS)

    async def _only_waits(self) -> bool:
        try:
            states = {turn.id: turn.state for turn in await self.ledger.open_turns()}
            for lane in tuple(self._lanes.values()):
                turn = lane.current
                if turn is None or states.get(turn.turn_id) is not TurnState.WAITING:
                    return False
                if not await pauses(self.ledger, turn):
                    return False
        except HermesError:
            return False  # what cannot be looked up counts as work
        return True

    async def suspend(self) -> None:
        """Stop all lanes where they are; their turns stay open for the next start."""
        for lane in self._lanes.values():
            lane.lay_down()
        tasks = set(self._lane_tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def settled(self) -> None:
        """Return once no after-turn work is under way."""
        while self._after_turns:
            await asyncio.wait(set(self._after_turns))

    async def recover(
        self, session_id: str | None = None, *, platforms: Collection[str] | None = None
    ) -> list[Turn]:
        """Pick up open turns whose process died, and messages nobody has taken.

        With a session id only that session is looked at, and `SessionBusy` is
        raised if a living process is working on it. With `platforms`, only
        what came from there: a chat gateway leaves the terminal's turns alone.
        Returns what is resumed.
        """
        ours: set[str | None] | None = None
        if platforms is not None:
            ours = {entry.turn_id for entry in await self.ledger.unanswered(tuple(platforms))}
        resumed = []
        for turn in await self.ledger.open_turns(session_id):
            under_way = turn.session_id in self._lanes or turn.session_id in self.beginning
            if under_way or (ours is not None and turn.id not in ours):
                continue
            if session_id is None and turn.agent_id not in self._parts.profiles:
                log.warning("turn %s waits for an agent that is not served", turn.id)
                continue
            try:
                claimed = await self._claim(turn, any_age=session_id is not None)
            except SessionBusy:
                if session_id is not None:
                    raise
                continue
            if claimed is not None:
                self._lane(turn.session_id, self.profile(turn.agent_id)).resume(claimed)
                resumed.append(claimed)
        await self._recover_children(session_id)
        for waiting in await self.ledger.sessions_waiting():
            if session_id in {None, waiting} and await self._came_from(waiting, platforms):
                await self.wake(waiting)
        return resumed

    async def _recover_children(self, session_id: str | None) -> None:
        """Pick up what child turns of a conversation have left open."""
        known = await self.ledger.facts(CHILD_OF) if session_id is not None else {}
        for child, about in known.items():
            if about == session_id and await self.ledger.open_turns(child):
                with contextlib.suppress(SessionBusy):
                    await self.recover(child)

    async def earlier_calls(
        self, job: TurnJob, specs: Sequence[ToolSpec]
    ) -> list[tuple[ToolStarted, ToolFinished]]:
        """Return the tool calls that earlier processes carried out for a turn that goes on."""
        if not job.resumed:
            return []
        calls: dict[str, ToolCall] = {}
        found = []
        known = {spec.name: spec for spec in specs}
        history = await self.ledger.history(job.turn.session_id)
        history = [stored for stored in history if stored.turn_id == job.turn.id]
        begun = await self.ledger.started_calls(job.turn.id)
        cut_off = open_calls(history, begun, known.get).cut_off
        for message in [*(stored.message for stored in history), *map(never_ended, cut_off)]:
            if isinstance(message, AssistantMessage):
                calls |= {call.id: call for call in message.tool_calls}
            elif isinstance(message, ToolMessage) and (call := calls.get(message.call_id)):
                started = call_started(call, known.get(call.name), self.redact)
                found.append((started, call_finished(message, -1.0)))
        return found

    async def _came_from(self, session_id: str, platforms: Collection[str] | None) -> bool:
        if platforms is None:
            return True
        waiting = await self.ledger.waiting(session_id)
        return any(entry.message.platform in platforms for entry in waiting)

    async def orphan(self, session_id: str) -> Turn | None:
        """Claim the session's open turn if its owner is dead; `SessionBusy` if it lives."""
        for turn in await self.ledger.open_turns(session_id):
            return await self._claim(turn)
        return None

    async def _claim(self, turn: Turn, *, any_age: bool = False) -> Turn | None:
        if turn.owner != self.owner and self._parts.owner_alive(turn.owner):
            raise SessionBusy(
                f"Session {turn.session_id} is busy: another Hermes process is working on it.",
                hint="Wait until it has answered, or stop it, or start a new session.",
            )
        claimed = await self.ledger.claim_turn(
            turn.id, owner=self.owner, previous=turn.owner, at=self.clock.now()
        )
        if claimed is None:
            return None
        if turn.state is not TurnState.WAITING and self._parts.blocked_by(turn.owner) in {
            turn.session_id,
            UNKNOWN_SESSION,
        }:
            error = BLOCKED
        elif claimed.resumes - claimed.releases > await resume_limit(self.ledger, claimed):
            error = given_up(claimed)
        elif not any_age and self._stale(turn):
            error = too_old(turn, self.clock.now())
        else:
            return claimed
        log.warning("turn %s: %s", turn.id, error.message)
        await close_calls(self.ledger, turn, self.clock.now())
        await self.ledger.finish_turn(turn.id, TurnState.FAILED, error, self.clock.now())
        return None

    def _stale(self, turn: Turn) -> bool:
        """Tell whether a turn was cut off too long ago; one that waits for a person was not."""
        limit, waits = self._parts.freshness(), turn.state is TurnState.WAITING
        return 0 < limit < self.clock.now() - turn.updated_at and not waits

    async def wake(self, session_id: str) -> None:
        """Have what waits in the session's inbox answered."""
        session = await self.ledger.session(session_id)
        if session is None or session.agent_id not in self._parts.profiles:
            log.warning("session %s waits for an agent that is not served", session_id)
            return
        self._lane(session_id, self._parts.profiles[session.agent_id]).wake()

    # -- lanes -------------------------------------------------------------

    @property
    def profiles(self) -> Mapping[str, AgentProfile]:
        """The agents that are served."""
        return self._parts.profiles

    def profile(self, agent_id: str) -> AgentProfile:
        """Return a served agent; `NotFound` names those there are."""
        profile = self._parts.profiles.get(agent_id)
        if profile is None:
            raise NotFound(
                f"There is no agent `{agent_id}` here.",
                hint=f"Served agents: {', '.join(sorted(self._parts.profiles)) or 'none'}.",
            )
        return profile

    def placed(self, agent_id: str, message: InboundMessage) -> AgentProfile:
        """Return a served agent as it answers this message."""
        profile = self.profile(agent_id)
        return profile if message.routed is None else message.routed.applied(profile)

    def _lane(self, session_id: str, profile: AgentProfile) -> Lane:
        lane = self._lanes.get(session_id)
        if lane is None:
            lane = self._lanes[session_id] = Lane(session_id, profile, self)
            if self.draining:
                lane.hold()
            self._spawn(self._run_lane(lane), self._lane_tasks)
        return lane

    def _spawn(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = self.group.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _run_lane(self, lane: Lane) -> None:
        """Run a lane; whatever goes wrong in it stays in it."""
        try:
            with tag_session(lane.session_id), use_profile(lane.profile):
                await lane.run()
        except HermesError as error:
            log.error("lane %s stopped: %s", lane.session_id, error.message)
            lane.abandon(error)
        except Exception as error:  # the boundary of a turn: other lanes go on
            log.exception("lane %s stopped", lane.session_id)
            lane.abandon(explained(error))
        finally:
            # At once: a lane that has ended hears of nothing more.
            del self._lanes[lane.session_id]
            lane.gone.set()

    def turn_ended(self, profile: AgentProfile, session_id: str) -> None:
        """Have what may wait until the answer is out done beside the lanes."""
        if self._group is not None:
            self._spawn(self._after_turn(profile, session_id), self._after_turns)

    async def _after_turn(self, profile: AgentProfile, session_id: str) -> None:
        try:
            with use_profile(profile):
                await self.runner.after_turn(profile, session_id)
        except Exception:  # the boundary of a turn: titles and memories are not worth the lanes
            log.exception("after-turn work of session %s failed", session_id)


class BusyMode(StrEnum):
    """How soon the model hears text that arrives while a turn runs; it is in the inbox first.

    interrupt   the running turn stops, the text is the next turn
    queue       the running turn ends first
    steer       the running turn takes it between tool results and its next
                model call; if it ends before that, the text is the next turn
    """

    INTERRUPT = "interrupt"
    QUEUE = "queue"
    STEER = "steer"


class Submission(Struct, frozen=True, kw_only=True):
    """An admitted message and what its arrival did."""

    ticket: Ticket
    effect: BusyMode | None
    """None: nothing was running and the message is answered at once."""


async def submit_while_busy(
    gateway: Gateway,
    agent_id: str,
    message: InboundMessage,
    *,
    session_id: str,
    mode: BusyMode,
) -> Submission:
    """Admit `message`, then interrupt, steer or leave alone the turn that runs."""
    running = None if gateway.stopping(session_id) else gateway.current_turn(session_id)
    ticket = await gateway.submit(agent_id, message, session_id=session_id)
    if gateway.delegating[session_id] and mode is BusyMode.INTERRUPT:
        mode = BusyMode.QUEUE
    if gateway.answers_elsewhere(session_id, message.account):
        mode = BusyMode.QUEUE
    # If it ended while the message was committed, what runs now is the answer to it.
    if running is None or ticket.duplicate or gateway.current_turn(session_id) is not running:
        return Submission(ticket=ticket, effect=None)
    if (mode is BusyMode.INTERRUPT and gateway.interrupt(session_id, turn_id=running.turn_id)) or (
        mode is BusyMode.STEER and gateway.steer(ticket)
    ):
        return Submission(ticket=ticket, effect=mode)
    return Submission(ticket=ticket, effect=BusyMode.QUEUE)
