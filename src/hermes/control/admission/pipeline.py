"""Admission: the way of a message from an adapter to a lane.

    adapter -> who is it? -> which conversation? -> command, answer or message?
            -> inbox commit -> (the adapter tells the platform) -> lane -> turn
                                                                -> queue -> command

Everything before the commit is quick; everything slow happens after it. A
message that is let in is in the inbox when `message` returns; one that is not
is refused on purpose. Grouping of split messages happens behind the commit, in
the lane (`lanes.batches`), so nothing that waits there can be lost.

Commands are run behind the commit, too. What its place says after a command is
queued behind it, for it may depend on it (`/new`, then a text); other places do
not wait. A queue holds committed entries: what had not begun when the process
ended is handled after the next start. A command that was cut off is run again if
that does no harm; of any other its chat is told.

A message whose agent a hook has to choose is kept in the ledger first, and taken in
behind that: in order within its chat, while other chats do not wait for the hook.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.control.admission.approval_replies import ANSWERED_AS, ApprovalReplies
from hermes.control.admission.authz import Access, Authorizer, may_run
from hermes.control.admission.pairing import Pairing, offer_text, welcome_name
from hermes.control.admission.resets import AUTO_RESET, due, is_trigger, policy_of, user_note
from hermes.control.admission.routing import RouteDecision
from hermes.control.commands.context import CommandContext, CommandHost, Screen, carry_over
from hermes.control.commands.registry import (
    CommandRegistry,
    Invocation,
    SlashCommand,
    parse,
    run_command,
    unescaped,
)
from hermes.control.hooks import (
    SESSION_END,
    SESSION_RESET,
    SESSION_START,
    HookAction,
    HookBus,
    command_context,
    session_context,
)
from hermes.control.lanes.gateway import BusyMode, Gateway, submit_while_busy
from hermes.domain.errors import HermesError, NotFound, StoreError
from hermes.domain.ids import new_id
from hermes.domain.inbound import Attachment, InboundMessage, InboxEntry, InboxState
from hermes.domain.outbound import Target
from hermes.domain.ports.platform import ButtonPress, PlatformFailure
from hermes.domain.profile import use_profile
from hermes.domain.session import Session


class ChatCaller(Struct, kw_only=True):
    gateway: Gateway
    agent_id: str
    message: InboundMessage
    session: Session
    say: Callable[[str], None]

    @property
    def source(self) -> str:
        return self.message.platform

    @property
    def user_id(self) -> str:
        return self.message.sender.id

    @property
    def screen(self) -> Screen | None:
        return None

    async def reply(self, text: str) -> None:
        self.say(text)

    async def switch(self, session: Session | None) -> None:
        if session is None:
            session = await self.gateway.open_session(self.agent_id, self.source, self.user_id)
            await carry_over(self.gateway.ledger, self.session.id, session.id)
        key = self.gateway.key_of(self.agent_id, self.message)
        await self.gateway.ledger.bind_key(key, session.id, self.gateway.clock.now())
        self.session = session

    async def ensure_session(self) -> Session:
        return self.session

    async def submit(
        self, text: str, *, mode: BusyMode, attachments: tuple[Attachment, ...] = ()
    ) -> None:
        message = replace(
            self.message,
            text=text,
            attachments=attachments,
            native_id=new_id("command"),
            made_of=self.message.seen_as,
        )
        submission = await submit_while_busy(
            self.gateway, self.agent_id, message, session_id=self.session.id, mode=mode
        )
        if submission.effect is not None:
            await self.reply(BUSY_NOTES[submission.effect])

    async def refresh(self) -> None:
        """Nothing is shown that could be out of date."""


log = logging.getLogger(__name__)

COMMAND = "command"
BUSY_NOTES = {
    BusyMode.INTERRUPT: "⚡ I'm stopping what I was doing; your message is next.",
    BusyMode.QUEUE: "⏳ I'm still working. Your message is next in line.",
    BusyMode.STEER: "↪️ Passed on to what I'm working on.",
}
BUSY_NOTE_SECONDS = 30.0
"""A chat is not told more often than this what becomes of messages that come during a turn."""
COMMAND_SECONDS = 2.0
"""So long what was said after a command waits for it; nobody waits for a slow one."""
REPEATABLE = frozenset(
    {"new", "title", "sessions", "resume", "compress", "sethome", "busy", "model", "reasoning"}
    | {"tools", "usage", "context", "start", "status", "whoami", "version", "help", "commands"}
)
"""Commands that may be run again if a process ended while it ran them."""


Undecided = tuple[InboundMessage, ...]
QueuedWork = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""Sets the event when the next in line may begin; at its end it may in any case."""


class PlaceQueues:
    """Work behind the commit: in order within a place, beside that of all other places."""

    def __init__(self, do: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self.do = do
        """Runs something beside everything else; what goes wrong in it is logged."""
        self.known: set[int] = set()
        """The inbox entries that are queued or being handled here."""
        self.choosing: dict[str, dict[str, InboundMessage]] = {}
        """Account -> the messages whose agent is being chosen."""
        self._waiting: dict[str, deque[tuple[QueuedWork, float | None]]] = {}
        self._saying: dict[str, dict[asyncio.Task[None], int]] = {}
        """Place -> what is being said there, in order, and the inbox entry that it is about."""

    def busy(self, key: str) -> bool:
        return key in self._waiting

    def add(self, key: str, work: QueuedWork, patience: float | None) -> None:
        """Have `work` done in turn; the next in line waits for it so many seconds at most."""
        if key in self._waiting:
            self._waiting[key].append((work, patience))
        else:
            self._waiting[key] = deque([(work, patience)])
            self.do(self._run(key))

    async def _run(self, key: str) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                await self._one(*waiting.popleft())
        finally:
            del self._waiting[key]

    async def _one(self, work: QueuedWork, patience: float | None) -> None:
        done = asyncio.Event()
        self.do(work(done)).add_done_callback(lambda _task: done.set())
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await done.wait()

    async def said(self, key: str, number: int) -> None:
        """Return when everything is said that belongs to entries before this one."""
        earlier = {task for task, of in self._saying.get(key, {}).items() if of < number}
        if earlier:
            await asyncio.wait(earlier)

    def say(
        self, key: str, number: int, saying: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        """Have something said about an inbox entry after everything that was to be said before."""
        sayings = self._saying.setdefault(key, {})
        before = next(reversed(sayings), None)

        async def said() -> None:
            if before is not None:
                await asyncio.wait({before})
            try:
                await saying()
            finally:
                del sayings[task]
                if not sayings and self._saying.get(key) is sayings:
                    del self._saying[key]

        task = self.do(said())
        sayings[task] = number
        return task


class PipelineParts(Struct, frozen=True, kw_only=True):
    """What the way in is made of, the same for all platforms."""

    host: CommandHost
    registry: CommandRegistry
    authorizer: Authorizer
    pairing: Pairing
    background_age: Callable[[str], float | None]
    """Session -> seconds since the oldest work began that still runs for it."""
    zone: tzinfo
    """Where the days of resets begin."""
    hooks: HookBus
    queues: PlaceQueues
    route: Callable[[InboundMessage], Awaitable[RouteDecision]]
    """Which agent answers."""
    declared: Callable[[InboundMessage], bool] = lambda _message: True
    """Whether that is known without a hook, which may be slow."""
    say: Callable[[Target, str, str], Coroutine[Any, Any, None]]
    """Says something that is not part of a conversation, under an id or a new one."""
    apologise: Callable[[InboundMessage, HermesError], Coroutine[Any, Any, None]]
    """Says what cannot be done, even without a ledger."""


class InboundPipeline:
    """The way in for one account on one platform; an `InboundSink`."""

    def __init__(self, parts: PipelineParts, platform: str, account: str) -> None:
        self._parts = parts
        self._gateway = parts.host.gateway
        self._ledger = parts.host.gateway.ledger
        self._replies = ApprovalReplies(
            parts.host.gateway, parts.host.answers, parts.authorizer.check
        )
        self._cursor_name = f"cursor:{platform}:{account}"
        self._choosing_name = f"choosing:{platform}:{account}"
        self._noted: dict[str, float] = {}
        """Session -> when it last heard that its message came during a turn."""

    # -- messages ------------------------------------------------------------

    async def message(self, message: InboundMessage, *, chosen: bool = False) -> bool:
        """Take a message in; when this returns it is committed or refused on purpose."""
        try:
            return await self._take(message, chosen=chosen)
        except NotFound as error:
            log.error("%s: a message is refused: %s", message.platform, error.message)
            self._later(self._parts.apologise(message, error))
            return True
        except StoreError as error:
            # Not confirmed to the platform, so it comes again.
            self._later(self._parts.apologise(message, error))
            raise

    async def _take(self, message: InboundMessage, *, chosen: bool) -> bool:
        access = await self._access(message)
        if not access.allowed:
            # What was let in before and comes again is nobody knocking.
            known = await self._ledger.came_before(message)
            return known or await self._stranger(message, access)
        if not (chosen or self._parts.declared(message)):
            if _name(message) not in self._choosing:
                self._choose_later(message)
                await self._keep_choosing()
            return True
        decision = await self._parts.route(message)
        message = replace(message, routed=decision.terms)
        with use_profile(self._gateway.profile(decision.agent)):  # refused if it cannot work
            await self._take_for(decision.agent, message, access)
        return True

    @property
    def _choosing(self) -> dict[str, InboundMessage]:
        return self._parts.queues.choosing.setdefault(self._choosing_name, {})

    def _choose_later(self, message: InboundMessage) -> None:
        self._choosing[_name(message)] = message
        place = f"{self._choosing_name}:{message.chat.id}"
        self._parts.queues.add(place, partial(self._choose, message), None)

    async def _keep_choosing(self) -> None:
        redact = self._gateway.redact
        kept = [replace(each, text=redact(each.text)) for each in self._choosing.values()]
        await self._ledger.keep(self._choosing_name, msgspec.to_builtins(kept) or None)

    async def _choose(self, message: InboundMessage, _done: asyncio.Event) -> None:
        """Take in what waited for its agent, unless the process is about to end."""
        if not self._gateway.draining:
            await self.message(message, chosen=True)
            del self._choosing[_name(message)]
            await self._keep_choosing()

    async def _take_for(self, agent_id: str, message: InboundMessage, access: Access) -> None:
        key, queues = self._gateway.key_of(agent_id, message), self._parts.queues
        if self._command(message) is None and not queues.busy(key):
            await self._submit(agent_id, message, access)
            return
        first = await self._ledger.session_for_key(key) is None
        entry = await self._gateway.take_note(agent_id, message, None, InboxState.QUEUED)
        if entry is not None:
            self._enqueue(entry)
            if first:
                self._post(SESSION_START, agent_id, message, entry.session_id)

    def _enqueue(self, entry: InboxEntry) -> None:
        self._parts.queues.known.add(entry.id)
        patience = None if self._command(entry.message) is None else COMMAND_SECONDS
        self._parts.queues.add(entry.session_key, partial(self._next, entry), patience)

    async def _next(self, entry: InboxEntry, done: asyncio.Event) -> None:
        """Handle what was queued, unless the process is about to end; then the next one does."""
        try:
            if self._gateway.draining:
                return
            access = await self._access(entry.message)
            if not access.allowed:
                await self._ledger.drop((entry.id,), "not allowed any more")
                return
            with use_profile(self._gateway.profile(entry.agent_id)):
                if (invocation := self._command(entry.message)) is None:
                    await self._submit(entry.agent_id, entry.message, access)
                else:
                    await self._run_command(entry, invocation, access, done)
        except NotFound as error:
            await self._ledger.drop((entry.id,), "its agent is not served any more")
            await self._parts.apologise(entry.message, error)
        finally:
            self._parts.queues.known.discard(entry.id)

    async def recover(self, platforms: Sequence[str]) -> None:
        """Queue what an earlier process left; of commands that were cut off their chat is told."""
        kept = msgspec.convert(await self._ledger.kept(self._choosing_name) or (), Undecided)
        for message in kept:
            if _name(message) not in self._choosing:
                self._choose_later(message)
        cut_off: dict[str, list[InboxEntry]] = {}
        for entry in await self._ledger.queued(platforms):
            if entry.id in self._parts.queues.known:
                continue
            if entry.state is InboxState.QUEUED:
                self._enqueue(entry)
                continue
            self._parts.queues.known.add(entry.id)
            if await self._ledger.outbox_of_turn(_reply_id(entry)):
                # Its answer is in the outbox, which sees to the rest.
                await self._ledger.drop((entry.id,), COMMAND)
            elif self._repeatable(entry.message):
                self._enqueue(entry)
            else:
                cut_off.setdefault(entry.session_key, []).append(entry)
        for entries in cut_off.values():
            commands = ", ".join(entry.message.text.split(maxsplit=1)[0] for entry in entries)
            text = f"⚠️ A restart cut off {commands}. Send again what has had no effect."
            self._say(entries[0].message, text)
            await self._ledger.drop([entry.id for entry in entries], COMMAND)

    async def _submit(self, agent_id: str, message: InboundMessage, access: Access) -> None:
        session = await self._session(agent_id, message)
        message = replace(message, text=unescaped(message.text))
        if session is None and await self._replies.replied_to(message):
            session = await self._gateway.open_session(
                agent_id, message.platform, message.sender.id
            )
        if session is None:
            ticket = await self._gateway.submit(agent_id, message)
            self._post(SESSION_START, agent_id, message, ticket.session_id)
        elif not await self._answered(agent_id, message, session, access):
            mode = await self._parts.host.busy_mode(message.platform, session.id)
            guest = access.guest and self._gateway.shared(agent_id, message)
            if guest or message.missed:
                # A guest does not stop what somebody else asked for, and nobody says "stop" with
                # what waited for the gateway.
                mode = BusyMode.QUEUE
            submission = await submit_while_busy(
                self._gateway, agent_id, message, session_id=session.id, mode=mode
            )
            self._acknowledge(agent_id, message, session, submission.effect)

    def _acknowledge(
        self, agent_id: str, message: InboundMessage, session: Session, effect: BusyMode | None
    ) -> None:
        """Say what becomes of a message that came during a turn, now and then."""
        if effect is None or message.internal or message.missed:
            return
        now = self._gateway.clock.monotonic()
        recent = {s: at for s, at in self._noted.items() if now - at < BUSY_NOTE_SECONDS}
        if session.id not in recent and self._parts.host.acknowledges(message.platform):
            recent[session.id] = now
            self._say_first(agent_id, message, BUSY_NOTES[effect])
        self._noted = recent

    async def _access(self, message: InboundMessage) -> Access:
        await self._parts.pairing.refresh()
        return self._parts.authorizer.check(message)

    async def _stranger(self, message: InboundMessage, access: Access) -> bool:
        log.info("%s: a message was not let in: %s", message.platform, access.reason)
        if not access.pair:
            return False
        code = await self._parts.pairing.request(access.pair, message.sender)
        if code is None:
            return False
        promise = {
            "id": f"welcome:{new_id('pairing')}",
            "at": self._gateway.clock.now(),
            "target": msgspec.to_builtins(replace(target_of(message), reply_to=None)),
        }
        await self._ledger.keep(welcome_name(access.pair, message.sender.id), promise)
        self._say(message, offer_text(access.pair, code))
        return True

    async def _session(self, agent_id: str, message: InboundMessage) -> Session | None:
        """Return the current conversation of the place; None: the message opens one."""
        key = self._gateway.key_of(agent_id, message)
        session = await self._ledger.session_for_key(key)
        if session is None or self._gateway.current_turn(session.id) is not None:
            return session
        now = self._gateway.clock.now()
        policy = policy_of(self._parts.host.settings(), message.platform, message.chat.kind)
        working = self._parts.background_age(session.id)
        reason = due(session, policy, now, self._parts.zone, working)
        if reason is None:
            return session
        await self._ledger.end_session(session.id, "session_reset", now)
        fresh = await self._gateway.open_session(agent_id, message.platform, message.sender.id)
        await self._ledger.remember(fresh.id, AUTO_RESET, {"reason": reason.value})
        await carry_over(self._ledger, session.id, fresh.id)
        await self._ledger.bind_key(key, fresh.id, now)
        self._started_over(agent_id, message, session.id, fresh.id)
        if note := user_note(reason, policy):
            self._say_first(agent_id, message, note)
        return fresh

    # -- commands ------------------------------------------------------------

    def _command(self, message: InboundMessage) -> Invocation | None:
        """Return the command a message is; unknown ones are text."""
        if message.internal:
            return None
        if is_trigger(self._parts.host.settings(), message.text):
            return Invocation(name="new")
        parsed = parse(message.text)
        if not isinstance(parsed, Invocation):
            return None
        known = self._parts.registry.find(parsed.name, terminal=False)
        return parsed if known is not None else None

    def _repeatable(self, message: InboundMessage) -> bool:
        invocation = self._command(message)
        found = invocation and self._parts.registry.find(invocation.name, terminal=False)
        return found is None or found.name in REPEATABLE

    async def _run_command(
        self, entry: InboxEntry, invocation: Invocation, access: Access, done: asyncio.Event
    ) -> None:
        """Run a command that is next; it is settled when all that it says is out."""
        agent_id, message, sayings = entry.agent_id, entry.message, list[asyncio.Task[None]]()

        def say(text: str) -> None:
            reply_id = _reply_id(entry, len(sayings))
            saying = partial(self._parts.say, target_of(message), text, reply_id)
            sayings.append(self._parts.queues.say(entry.session_key, entry.id, saying))

        session = await self._session(agent_id, message)
        if session is None:
            session = await self._gateway.open_session(
                agent_id, message.platform, message.sender.id
            )
        if entry.state is InboxState.QUEUED and not await self._gateway.take_note(
            agent_id, message, session.id, InboxState.BEGUN
        ):
            return
        caller = ChatCaller(
            gateway=self._gateway, agent_id=agent_id, message=message, session=session, say=say
        )
        await self._command_run(caller, access, invocation)
        done.set()
        if sayings:
            await asyncio.wait(sayings)
        await self._ledger.drop((entry.id,), COMMAND)

    async def _command_run(
        self, caller: ChatCaller, access: Access, invocation: Invocation
    ) -> None:
        parts, message, session = self._parts, caller.message, caller.session
        command = parts.registry.find(invocation.name, terminal=False)
        shared = self._gateway.shared(caller.agent_id, message)
        if command is None or not may_run(command, access, shared=shared):
            await caller.reply(_not_allowed(command, access, invocation.name))
            return
        decision = await parts.hooks.decide(invocation.name, command_context(message, invocation))
        if decision.decision in (HookAction.DENY, HookAction.HANDLED):
            if decision.message:
                await caller.reply(decision.message)
            return
        if decision.decision is HookAction.REWRITE and decision.command_name:
            invocation = Invocation(name=decision.command_name, rest=decision.raw_args or "")
        context = CommandContext(
            host=parts.host,
            caller=caller,
            agent_id=caller.agent_id,
            session=session,
            admin=access.admin,
            operator=access.operator,
            guest=access.guest,
            user_name=message.sender.name or "",
            key=self._gateway.key_of(caller.agent_id, message),
            refusal=partial(self._replies.refusal, who=message, access=access),
            nearby=partial(self._replies.nearby, message),
            chat=target_of(message),
            chat_name=message.chat.topic or message.chat.name or "",
        )
        await run_command(parts.registry, context, invocation)
        if caller.session.id != session.id:
            before = await self._ledger.session(session.id)
            if before is not None and before.ended_at is not None:
                self._started_over(caller.agent_id, message, session.id, caller.session.id)

    # -- approvals and questions ---------------------------------------------

    async def _answered(
        self, agent_id: str, message: InboundMessage, session: Session, access: Access
    ) -> bool:
        """Take a message as an answer if something is pending and it is short and clear."""
        answer, refusal = await self._replies.find(message, session.id, access)
        if answer is None and not refusal:
            return False
        dropped = InboxState.DROPPED
        if await self._gateway.take_note(agent_id, message, session.id, dropped, ANSWERED_AS):
            if answer is not None:
                sender = message.sender
                await self._replies.hand_in(answer, sender.name or sender.id)
            else:
                self._say(message, refusal)
        return True

    async def overheard(self, message: InboundMessage) -> None:
        """Let a bare yes or no count for the approval that its sender may decide; else nothing."""
        if self._parts.declared(message):
            await self._overheard(message)
        else:
            self._later(self._overheard(message))

    async def _overheard(self, message: InboundMessage) -> None:
        access = await self._access(message)
        if not access.allowed or message.reply_to is not None:
            return
        try:
            agent_id = (await self._parts.route(message)).agent
        except NotFound:
            return
        session = await self._ledger.session_for_key(self._gateway.key_of(agent_id, message))
        if session is None:
            return
        answer, _ = await self._replies.find(message, session.id, access, questions=False)
        dropped = InboxState.DROPPED
        if answer is not None and await self._gateway.take_note(
            agent_id, message, session.id, dropped, ANSWERED_AS
        ):
            await self._replies.hand_in(answer, message.sender.name or message.sender.id)

    async def press(self, press: ButtonPress) -> str:
        """Take a button press; return a short text for whoever pressed."""
        await self._parts.pairing.refresh()
        access = self._parts.authorizer.check_person(
            press.platform, press.chat, press.sender, account=press.account
        )
        if not access.allowed:
            return "You are not allowed to answer this."
        return await self._replies.press(press, access)

    # -- the rest of the sink --------------------------------------------------

    def alive(self) -> None:
        """Nothing to do: liveness is noted around this sink."""

    def failing(self, failure: PlatformFailure, pause: float) -> None:
        """Nothing to do either."""

    async def cursor(self) -> Any:
        return await self._ledger.kept(self._cursor_name)

    async def save_cursor(self, cursor: Any) -> None:
        await self._ledger.keep(self._cursor_name, cursor)

    # -- hooks -----------------------------------------------------------------

    def _started_over(self, agent_id: str, message: InboundMessage, old: str, new: str) -> None:
        self._post(SESSION_END, agent_id, message, old)
        self._post(SESSION_RESET, agent_id, message, new)
        self._post(SESSION_START, agent_id, message, new)

    def _post(self, event: str, agent_id: str, message: InboundMessage, session_id: str) -> None:
        key = self._gateway.key_of(agent_id, message)
        self._parts.hooks.post(event, session_context(message, session_id, key))

    def _say(self, message: InboundMessage, text: str) -> None:
        self._later(self._parts.say(target_of(message), text, ""))

    def _say_first(self, agent_id: str, message: InboundMessage, text: str) -> None:
        """Say something before the message is answered."""
        key = self._gateway.key_of(agent_id, message)
        self._parts.queues.say(key, 0, partial(self._parts.say, target_of(message), text, ""))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._parts.queues.do(work)


def _not_allowed(command: SlashCommand | None, access: Access, name: str) -> str:
    if not access.guest:
        return f"You are not allowed to use /{name} here."
    if command is not None and command.admin and access.administrators:
        return f"Only administrators can use /{name}."
    return f"Only people on the list of this bot can use /{name} here."


def _name(message: InboundMessage) -> str:
    return f"{message.chat.id}:{message.native_id}"


def _reply_id(entry: InboxEntry, number: int = 0) -> str:
    return f"command:{entry.id}:{number}"


def target_of(message: InboundMessage) -> Target:
    return Target(
        platform=message.platform,
        account=message.account,
        chat_id=message.chat.id,
        thread_id=message.thread_id,
        reply_to=None if message.internal else message.seen_as,
        chat_kind=message.chat.kind,
        context=message.reply_context,
    )
