"""The approval gate: what only a person may decide is asked, once, durably.

    intent -> policy -> allow | block | ask -> ledger row -> answer -> run | refuse

The request is a ledger row bound to the tool call, so a call that is resumed
after a restart finds its earlier request, and the answer given meanwhile. A
door answers through the `ApprovalAnswers`; answers given by another process are
noticed by looking at the row. Where no door can ask, the answer is no.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from msgspec import Struct

from hermes.control import offers
from hermes.domain.approvals import (
    INPUT_ENDED,
    Approval,
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
    Choice,
    Decision,
    Gate,
    Verdict,
)
from hermes.domain.errors import ToolRefused
from hermes.domain.events import ApprovalAnswered, ApprovalAsked, TurnStream
from hermes.domain.ids import new_id
from hermes.domain.messages import ToolCall
from hermes.domain.ports.approval import ActionPolicy
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import Intent, Offer, ToolContext, ToolSpec

LOOK_AGAIN_SECONDS = 2.0
"""How often a waiting call looks for an answer given by another process."""

NOBODY_TO_ASK = (
    "it needs a person's approval and nobody can be asked here. Do it another way, or tell "
    "the user what to run."
)


Judge = Callable[[str, str], Awaitable[Gate]]
"""`smart` mode: (subject, reason) -> a second opinion; uncertain means ask."""


class ApprovalAnswers:
    """Where doors hand in answers, and where waiting calls hear of them."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._waiting: dict[str, asyncio.Event] = {}

    async def answer(
        self, approval_id: str, choice: Choice, *, by: str, text: str = ""
    ) -> Approval | None:
        """Record an answer; None if somebody was quicker or it has expired."""
        asked = await self._asked(approval_id, ApprovalKind.APPROVAL)
        if asked is None or choice not in asked.choices:
            return None
        denied = choice is Choice.DENY
        state = ApprovalState.DENIED if denied else ApprovalState.APPROVED
        decision = Decision(state=state, choice=choice, text=text, by=by, at=self._clock.now())
        return await self._decide(approval_id, decision)

    async def reply(self, approval_id: str, text: str, *, by: str) -> Approval | None:
        """Record the answer to a question; the number of a choice stands for the choice."""
        asked, text = await self._asked(approval_id, ApprovalKind.QUESTION), text.strip()
        if asked is None:
            return None
        choices = asked.choices
        if text not in choices and text.isdecimal() and 1 <= int(text) <= len(choices):
            text = choices[int(text) - 1]
        decision = Decision(state=ApprovalState.ANSWERED, text=text, by=by, at=self._clock.now())
        return await self._decide(approval_id, decision)

    async def wait(self, approval: Approval) -> Decision:
        """Return the decision when there is one; expiry is a denial."""
        request = approval.request
        event = self._waiting.setdefault(request.id, asyncio.Event())
        try:
            while True:
                current = await self._ledger.approval(request.id)
                if current is not None and current.decision is not None:
                    return current.decision
                now = self._clock.now()
                if current is None or current.state is not ApprovalState.PENDING:
                    return Decision(state=ApprovalState.EXPIRED, text="the turn has ended", at=now)
                if request.expires_at is not None and now >= request.expires_at:
                    late = Decision(
                        state=ApprovalState.EXPIRED, text="nobody answered in time", at=now
                    )
                    await self._ledger.decide(request.id, late)
                    continue
                with suppress(TimeoutError):
                    left = (request.expires_at or inf) - now
                    async with asyncio.timeout(min(left, LOOK_AGAIN_SECONDS)):
                        await event.wait()
        finally:
            self._waiting.pop(request.id, None)

    async def _asked(self, approval_id: str, kind: ApprovalKind) -> ApprovalRequest | None:
        """Return a request of this kind whose time is not over."""
        found = await self._ledger.approval(approval_id)
        request = None if found is None else found.request
        if request is None or request.kind is not kind:
            return None
        late = request.expires_at is not None and self._clock.now() >= request.expires_at
        return None if late else request

    async def _decide(self, approval_id: str, decision: Decision) -> Approval | None:
        approval = await self._ledger.decide(approval_id, decision)
        event = self._waiting.get(approval_id)
        if event is not None:
            event.set()
        return approval


class LedgerGate(Struct, frozen=True, kw_only=True):
    ledger: Ledger
    policy: ActionPolicy
    answers: ApprovalAnswers
    settings: LiveSettings
    stream: TurnStream
    clock: Clock
    can_ask: bool = False
    """Whether the door can put a question to a person."""
    yolo: bool = False
    """Nothing is asked that can be read; what is never approvable stays blocked."""
    judge: Judge | None = None

    @property
    def _trusted(self) -> bool:
        return self.yolo or self.settings().approvals.mode == "off"

    async def admit(
        self, call: ToolCall, spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
    ) -> None:
        """Return if the call may run; raise `ToolRefused` with the reason if not."""
        intent = spec.intent(arguments) if spec.intent else None
        if intent is None and not spec.destructive:
            return
        subject = _subject(call, intent)
        if context.again is not None:
            await self._may_offer(subject, context.again, context)
        verdict = await self._verdict(spec, intent or Intent(), context)
        await self._settle(call, subject, verdict, context)
        if intent is not None:
            self.policy.note(intent, context.environment)

    async def _may_offer(self, subject: str, offer: Offer, context: ToolContext) -> None:
        """Raise if what has failed is not to be offered to a person: the model gets a hint."""
        hint = offers.hint(offer)
        if self._trusted:
            # A program's output, which anybody may have written, is nobody's yes.
            raise ToolRefused(f"{hint} `escalate` with a reason runs it outside.")
        if await offers.was_declined(subject, offer, context):
            raise ToolRefused(
                f"{hint} The user declined such an offer before, and was not asked again."
            )
        if not self.can_ask:
            raise ToolRefused(f"{hint} To run outside {NOBODY_TO_ASK}")

    async def _settle(
        self, call: ToolCall, subject: str, verdict: Verdict, context: ToolContext
    ) -> None:
        """Return if the verdict, a second opinion or a person allows it; raise if not."""
        if verdict.gate is Gate.ALLOW:
            return
        if verdict.gate is Gate.BLOCK:
            raise ToolRefused(f"Not allowed: {verdict.reason}")
        smart = self.settings().approvals.mode == "smart" and not verdict.opaque
        if smart and self.judge is not None:
            opinion = await self.judge(subject, verdict.reason)
            if opinion is Gate.ALLOW:
                return
            if opinion is Gate.BLOCK:
                raise ToolRefused(f"Judged too dangerous: {verdict.reason}")
        await self._ask(call, subject, verdict, context)

    async def _verdict(self, spec: ToolSpec, intent: Intent, context: ToolContext) -> Verdict:
        patterns = await self._patterns(context)
        verdict = await self._judged(intent, context, patterns)
        if verdict.gate is not Gate.ALLOW or not spec.destructive or self._trusted:
            return verdict
        pattern = f"tool {spec.name}"
        if pattern in patterns:
            return verdict
        return Verdict(gate=Gate.ASK, reason=f"{spec.name} cannot be undone", pattern=pattern)

    async def _patterns(self, context: ToolContext) -> frozenset[str]:
        granted = await self.ledger.grants(context.agent_id, context.session_id)
        return frozenset(approval.request.pattern for approval in granted)

    async def _judged(
        self, intent: Intent, context: ToolContext, patterns: frozenset[str]
    ) -> Verdict:
        return await self.policy.judge(
            intent, context.environment, grants=patterns, trusted=self._trusted
        )

    async def hidden(self, context: ToolContext, paths: Sequence[str]) -> frozenset[str]:
        """Return the files that may be shown only after an approval; a capability of tools."""
        patterns = await self._patterns(context)

        async def asks(*files: str) -> bool:
            return (
                await self._judged(Intent(reads=files), context, patterns)
            ).gate is not Gate.ALLOW

        if not paths or not await asks(*paths):
            return frozenset()
        return frozenset([path for path in paths if await asks(path)])

    async def question(self, context: ToolContext, text: str, choices: Sequence[str]) -> str:
        """Put a question to the person and return the answer; the `ask` capability of tools."""
        if not self.can_ask:
            raise ToolRefused("Nobody can be asked here.", hint="Decide yourself and say so.")
        digest = hashlib.sha256(text.encode()).hexdigest()
        decision = await self._put(
            context,
            kind=ApprovalKind.QUESTION,
            call_id=f"{context.call_id}:{digest[:8]}",
            tool="",
            arguments_hash=digest,
            subject=text,
            reason="",
            pattern="",
            choices=tuple(choices),
            seconds=self.settings().agent.clarify_timeout or inf,
        )
        if decision.state is not ApprovalState.ANSWERED:
            raise ToolRefused("Nobody answered in time.", hint="Decide yourself and say so.")
        return decision.text

    async def _ask(
        self, call: ToolCall, subject: str, verdict: Verdict, context: ToolContext
    ) -> None:
        if not self.can_ask:
            raise ToolRefused(f"Not carried out ({verdict.reason}): {NOBODY_TO_ASK}")
        offer = context.again
        decision = await self._put(
            context,
            kind=ApprovalKind.APPROVAL,
            call_id=call.id,
            tool=call.name,
            arguments_hash=hashlib.sha256(call.arguments.encode()).hexdigest(),
            subject=subject,
            reason=_asked_why(verdict, offer),
            pattern=verdict.pattern,
            choices=tuple(Choice) if verdict.pattern else (Choice.ONCE, Choice.DENY),
            seconds=self.settings().approvals.timeout,
        )
        if decision.state is ApprovalState.APPROVED:
            return
        if offer is None:
            raise ToolRefused(_refusal(decision, verdict))
        await offers.settle(subject, offer, decision, context)
        raise ToolRefused(offers.outcome(offer, decision))

    async def _put(self, context: ToolContext, *, seconds: float, **fields: Any) -> Decision:
        """Commit a request, show it, and return the decision once there is one."""
        now = self.clock.now()
        approval = await self.ledger.ask(
            ApprovalRequest(
                id=new_id("appr"),
                agent_id=context.agent_id,
                session_id=context.session_id,
                turn_id=context.turn_id,
                created_at=now,
                expires_at=None if seconds == inf else now + seconds,
                **fields,
            )
        )
        if approval.decision is not None:
            return approval.decision
        await self.ledger.set_waiting(context.turn_id, waiting=True, at=self.clock.now())
        self.stream.emit(ApprovalAsked(request=approval.request))
        decision = await self.answers.wait(approval)
        self.stream.emit(ApprovalAnswered(approval_id=approval.request.id, decision=decision))
        await self.ledger.set_waiting(context.turn_id, waiting=False, at=self.clock.now())
        return decision


def _subject(call: ToolCall, intent: Intent | None) -> str:
    if intent and intent.command:
        return intent.command
    if intent and intent.writes:
        return f"{call.name} " + ", ".join(intent.writes)
    return f"{call.name} {intent.code if intent and intent.code else call.arguments}"


def _asked_why(verdict: Verdict, offer: Offer | None) -> str:
    """Return the reason that a person reads: with what the command printed, if it has run."""
    if offer is None or not offer.said:
        return verdict.reason
    return f"{verdict.reason.rstrip('.')}. It printed: “{offer.said}”"


def _refusal(decision: Decision, verdict: Verdict) -> str:
    if decision.state is ApprovalState.EXPIRED:
        return f"Not run ({verdict.reason}): nobody approved it in time."
    if decision.text == INPUT_ENDED:
        return f"Not run ({verdict.reason}). {INPUT_ENDED}"
    refused = f"The user refused this ({verdict.reason})."
    if decision.text:  # what they want instead may be another way
        return f"{refused} They said: {decision.text}"
    return f"{refused} Do not try it again another way."
