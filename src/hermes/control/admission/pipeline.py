"""Admission: the way of a message from an adapter to a lane.

    adapter -> who is it? -> which conversation? -> command, answer or message?
            -> inbox commit -> (the adapter tells the platform) -> lane -> turn

Everything before the commit is quick; everything slow happens after it. A
message that is let in is in the inbox when `message` returns; one that is not
is refused on purpose. Grouping of split messages happens behind the commit, in
the lane (`lanes.batches`), so nothing that waits there can be lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
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
from hermes.control.commands.context import CommandContext, CommandHost, Screen, carry_over
from hermes.control.commands.registry import (
    CommandRegistry,
    Invocation,
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
from hermes.domain.inbound import Attachment, InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.ports.platform import ButtonPress
from hermes.domain.session import Session


class ChatCaller(Struct, kw_only=True):
    gateway: Gateway
    agent_id: str
    message: InboundMessage
    session: Session
    say: Callable[[Target, str], Awaitable[None]]

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
        await self.say(target_of(self.message), text)

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
            self.message, text=text, attachments=attachments, native_id=new_id("command")
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
    group: asyncio.TaskGroup
    """Where commands run: some take their time."""
    agent_of: Callable[[InboundMessage], str]
    """Routing: which agent answers."""
    say: Callable[[Target, str], Awaitable[None]]
    """Says something that is not part of a conversation."""
    apologise: Callable[[Target, HermesError], Awaitable[None]]
    """Says what cannot be done, even without a ledger."""


class InboundPipeline:
    """The way in for one account on one platform; an `InboundSink`."""

    def __init__(self, parts: PipelineParts, platform: str, account: str) -> None:
        self._parts = parts
        self._gateway = parts.host.gateway
        self._ledger = parts.host.gateway.ledger
        self._replies = ApprovalReplies(parts.host.gateway, parts.host.answers)
        self._cursor_name = f"cursor:{platform}:{account}"
        self._noted: dict[str, float] = {}
        """Session -> when it last heard that its message came during a turn."""

    # -- messages ------------------------------------------------------------

    async def message(self, message: InboundMessage) -> None:
        """Take a message in; when this returns it is committed or refused on purpose."""
        try:
            await self._take(message)
        except NotFound as error:
            log.error("%s: a message is refused: %s", message.platform, error.message)
            self._later(self._parts.apologise(target_of(message), error))
        except StoreError as error:
            # Not confirmed to the platform, so it comes again.
            self._later(self._parts.apologise(target_of(message), error))
            raise

    async def _take(self, message: InboundMessage) -> None:
        access = await self._access(message)
        if not access.allowed:
            await self._stranger(message, access)
            return
        agent_id = self._parts.agent_of(message)
        session = await self._session(agent_id, message)
        invocation = self._command(message)
        if invocation is not None:
            await self._run_command(agent_id, message, session, access, invocation)
            return
        message = replace(message, text=unescaped(message.text))
        if session is None:
            ticket = await self._gateway.submit(agent_id, message)
            self._post(SESSION_START, agent_id, message, ticket.session_id)
        elif not await self._answered(agent_id, message, session, access):
            mode = await self._parts.host.busy_mode(message.platform, session.id)
            submission = await submit_while_busy(
                self._gateway, agent_id, message, session_id=session.id, mode=mode
            )
            self._acknowledge(message, session, submission.effect)

    def _acknowledge(
        self, message: InboundMessage, session: Session, effect: BusyMode | None
    ) -> None:
        """Say what becomes of a message that came during a turn, now and then."""
        if effect is None or message.internal:
            return
        now = self._gateway.clock.monotonic()
        recent = {s: at for s, at in self._noted.items() if now - at < BUSY_NOTE_SECONDS}
        if session.id not in recent and self._parts.host.acknowledges(message.platform):
            recent[session.id] = now
            self._say(message, BUSY_NOTES[effect])
        self._noted = recent

    async def _access(self, message: InboundMessage) -> Access:
        await self._parts.pairing.refresh()
        access = self._parts.authorizer.check(message)
        if not access.allowed:
            await self._parts.pairing.refresh(force=True)
            access = self._parts.authorizer.check(message)
        return access

    async def _stranger(self, message: InboundMessage, access: Access) -> None:
        log.info("%s: a message was not let in: %s", message.platform, access.reason)
        if not access.pair:
            return
        code = await self._parts.pairing.request(message.platform, message.sender)
        if code is None:
            return
        promise = {
            "id": f"welcome:{new_id('pairing')}",
            "at": self._gateway.clock.now(),
            "target": msgspec.to_builtins(replace(target_of(message), reply_to=None)),
        }
        await self._ledger.keep(welcome_name(message.platform, message.sender.id), promise)
        self._say(message, offer_text(message.platform, code))

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
            self._say(message, note)
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

    async def _run_command(
        self,
        agent_id: str,
        message: InboundMessage,
        session: Session | None,
        access: Access,
        invocation: Invocation,
    ) -> None:
        if session is None:
            session = await self._gateway.open_session(
                agent_id, message.platform, message.sender.id
            )
            self._post(SESSION_START, agent_id, message, session.id)
        if not await self._gateway.take_note(agent_id, message, session.id, COMMAND):
            return
        caller = ChatCaller(
            gateway=self._gateway,
            agent_id=agent_id,
            message=message,
            session=session,
            say=self._parts.say,
        )
        work = self._later(self._command_run(caller, access, invocation))
        # What is sent next may depend on it, e.g. after /new; but nobody waits for a slow one.
        await asyncio.wait({work}, timeout=COMMAND_SECONDS)

    async def _command_run(
        self, caller: ChatCaller, access: Access, invocation: Invocation
    ) -> None:
        parts, message, session = self._parts, caller.message, caller.session
        command = parts.registry.find(invocation.name, terminal=False)
        if command is None or not may_run(command, access):
            await caller.reply(f"You are not allowed to use /{invocation.name} here.")
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
            refusal=partial(self._replies.refusal, who=message, access=access),
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
        if await self._gateway.take_note(agent_id, message, session.id, ANSWERED_AS):
            if answer is not None:
                sender = message.sender
                await self._replies.hand_in(answer, sender.name or sender.id)
            else:
                self._say(message, refusal)
        return True

    async def press(self, press: ButtonPress) -> str:
        """Take a button press; return a short text for whoever pressed."""
        await self._parts.pairing.refresh()
        access = self._parts.authorizer.check_person(press.platform, press.chat, press.sender)
        if not access.allowed:
            return "You are not allowed to answer this."
        return await self._replies.press(press, access)

    # -- the rest of the sink --------------------------------------------------

    def alive(self) -> None:
        """Nothing to do: liveness is noted around this sink."""

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
        self._later(self._parts.say(target_of(message), text))

    def _later(self, work: Awaitable[None]) -> asyncio.Task[None]:
        return self._parts.group.create_task(_safely(work))


async def _safely(work: Awaitable[None]) -> None:
    """Keep what goes wrong with one chat from the group that serves all of them."""
    try:
        await work
    except Exception:
        log.exception("a command or a reply of admission failed")


def target_of(message: InboundMessage) -> Target:
    return Target(
        platform=message.platform,
        account=message.account,
        chat_id=message.chat.id,
        thread_id=message.thread_id,
        reply_to=None if message.internal else message.native_id,
        chat_kind=message.chat.kind,
        context=message.reply_context,
    )
