"""Answers to pending approvals and questions: words, emoji, buttons, and who may give them.

Whoever asked for the turn decides, or an administrator; in groups nobody who is on no
list (`authz.may_decide`). An answer counts only where the question stands: in the chat
that it was put to, while its turn waits for it.
"""

from collections.abc import Callable

from msgspec import Struct

from hermes.control.admission.authz import Access, deciders, may_decide
from hermes.control.approvals import ApprovalAnswers
from hermes.control.lanes.gateway import Gateway
from hermes.domain.approvals import (
    Approval,
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
    Choice,
    choice_labels,
)
from hermes.domain.inbound import ChatKind, InboundMessage
from hermes.domain.ports.platform import NOTED, Button, ButtonPress
from hermes.domain.wording import one_line, visible, visible_line

ANSWERED_AS = "answer"

YES = frozenset(
    {"yes", "y", "ok", "okay", "approve", "approved", "confirm", "go ahead", "do it", "ja", "sí"}
    | {
        "allow",
        "yes please",
        "si",
        "oui",
        "да",
        "是",
        "好",
        "可以",
        "👍",
        "👍🏻",
        "👍🏼",
        "👍🏽",
        "👍🏾",
        "👍🏿",
        "✅",
    }
)
NO = frozenset(
    {"no", "n", "nope", "deny", "denied", "cancel", "stop", "don't", "nein", "non", "нет"}
    | {"否", "不", "不要", "👎", "👎🏻", "👎🏼", "👎🏽", "👎🏾", "👎🏿", "❌"}
)

_MARKS = {Choice.ONCE: "✅", Choice.SESSION: "🕓", Choice.ALWAYS: "♾️", Choice.DENY: "❌"}
_LONGEST_LABEL = 60


class Answer(Struct, frozen=True, kw_only=True):
    approval_id: str
    choice: Choice | None = None
    """None: the answer to a question, in words."""
    text: str = ""

    def fits(self, request: ApprovalRequest) -> bool:
        """Tell whether it is one of the answers that a request offers."""
        question = request.kind is ApprovalKind.QUESTION
        return question if self.choice is None else not question and self.choice in request.choices


def read_answer(text: str, request: ApprovalRequest) -> Answer | None:
    """Read a message as the answer to a request; None: it is no answer."""
    if request.kind is ApprovalKind.QUESTION:
        return Answer(approval_id=request.id, text=text)
    word = _word(text)
    if word in YES:
        return Answer(approval_id=request.id, choice=Choice.ONCE)
    if word in NO:
        return Answer(approval_id=request.id, choice=Choice.DENY)
    return None


def is_clear_answer(text: str) -> bool:
    """Tell whether a text is a bare yes or no."""
    return _word(text) in YES | NO


def _word(text: str) -> str:
    return text.strip().rstrip(".!").lower()


def settled_text(approval: Approval | None) -> str:
    """Tell whoever comes too late what has become of a request."""
    if approval is None or approval.lapsed:
        return "This is no longer needed: the turn has ended."
    if approval.state is ApprovalState.EXPIRED:
        return "Too late: nobody answered in time, so it was not done."
    return "This was already answered."


def request_buttons(request: ApprovalRequest) -> tuple[tuple[Button, ...], ...]:
    """Return the buttons that answer a request, in rows."""
    if request.kind is ApprovalKind.QUESTION:
        named = enumerate(one_line(visible(each), _LONGEST_LABEL) for each in request.choices)
        return tuple((Button(label=name, data=f"cl:{n}:{request.id}"),) for n, name in named)
    labels = choice_labels(request)
    buttons = {
        choice: Button(
            label=one_line(f"{_MARKS[choice]} {visible(labels[choice])}", _LONGEST_LABEL),
            data=f"ea:{choice.value}:{request.id}",
            style="danger" if choice is Choice.DENY else "primary",
        )
        for choice in Choice
        if choice.value in request.choices
    }
    rows = ((Choice.ONCE, Choice.DENY), (Choice.SESSION,), (Choice.ALWAYS,))
    found = (tuple(buttons[choice] for choice in row if choice in buttons) for row in rows)
    return tuple(row for row in found if row)


def read_press(data: str) -> Answer | None:
    """Read the data of a pressed button; None if it is not one of ours."""
    kind, _, rest = data.partition(":")
    word, _, approval_id = rest.partition(":")
    if not approval_id:
        return None
    if kind == "ea" and word in set(Choice):
        return Answer(approval_id=approval_id, choice=Choice(word))
    if kind == "cl" and word.isdecimal():
        return Answer(approval_id=approval_id, text=str(int(word) + 1))
    return None


class ApprovalReplies(Struct, frozen=True):
    gateway: Gateway
    answers: ApprovalAnswers
    access: Callable[[InboundMessage], Access]
    """Says what whoever sent a message may do."""

    async def find(
        self, message: InboundMessage, session_id: str, access: Access, *, questions: bool = True
    ) -> tuple[Answer | None, str]:
        """Return the answer that a message gives; or why it does not count, if it is one."""
        ledger, refusal = self.gateway.ledger, ""
        pending = [] if message.internal else await ledger.pending_approvals(session_id)
        for approval in pending or await self.replied_to(message):
            request = approval.request
            if request.kind is ApprovalKind.QUESTION and not questions:
                continue
            answer = read_answer(message.text, request)
            if answer is None or not await self._stands(request, message):
                continue
            deny = answer.choice is Choice.DENY
            refused = await self.refusal(request, message, access, deny=deny)
            if not refused:
                return answer, ""
            # What somebody else is asked keeps nobody from talking; a bare yes or no is told.
            if request.kind is ApprovalKind.APPROVAL:
                refusal = refusal or refused
        return None, refusal

    async def replied_to(self, message: InboundMessage) -> list[Approval]:
        """Return the requests whose prompt a message replies to, in whosever conversation."""
        reply = message.reply_to
        if reply is None or not reply.own or message.internal:
            return []
        nearby = await self.nearby(message)
        return [each for each in nearby if reply.native_id in await self._places(each.request)]

    async def nearby(self, message: InboundMessage) -> list[Approval]:
        """Return what waits in the place of a message, in whosever conversation, oldest first."""
        found: list[Approval] = []
        for approval in await self.gateway.ledger.pending_approvals():
            started = await self._started(approval.request)
            if started is not None and _place(started) == _place(message):
                found.append(approval)
        return found

    async def press(self, press: ButtonPress, access: Access) -> str:
        """Take a button press; return a short text for whoever pressed."""
        ledger, answer = self.gateway.ledger, read_press(press.data)
        approval = None if answer is None else await ledger.approval(answer.approval_id)
        if answer is None or approval is None or not answer.fits(approval.request):
            return "This button no longer works."
        request = approval.request
        started = await self._started(request)
        if started is None or (started.platform, started.account, started.chat.id) != (
            *(press.platform, press.account, press.chat.id),
        ):
            return "This button no longer works."
        if approval.state is not ApprovalState.PENDING or self._stopping(request):
            return settled_text(None if approval.state is ApprovalState.PENDING else approval)
        deny = answer.choice is Choice.DENY
        if refused := await self.refusal(request, press, access, deny=deny):
            return refused
        if await self.hand_in(answer, press.sender.name or press.sender.id) is not None:
            return NOTED
        return settled_text(await ledger.approval(request.id))

    async def hand_in(self, answer: Answer, by: str) -> Approval | None:
        if answer.choice is None:
            return await self.answers.reply(answer.approval_id, answer.text, by=by)
        return await self.answers.answer(answer.approval_id, answer.choice, by=by, text=answer.text)

    async def refusal(
        self,
        request: ApprovalRequest,
        who: InboundMessage | ButtonPress,
        access: Access,
        *,
        deny: bool,
    ) -> str:
        """Say why somebody may not answer a request; empty if they may."""
        started, sender = await self._started(request), who.sender
        asker = None
        if started is not None and not started.internal:
            asker, asked = started.sender, started.platform == who.platform
            asked = asked and (sender.alt_id or sender.id) == (asker.alt_id or asker.id)
        else:
            session = await self.gateway.ledger.session(request.session_id)
            owner = None if session is None else (session.source, session.user_id)
            asked = owner == (who.platform, sender.id)
        private = who.chat.kind is ChatKind.PRIVATE
        if may_decide(request, access, asked=asked, private=private, deny=deny):
            return ""
        if access.operator:
            return "Only somebody who is on a list of this bot can approve this in a group."
        if asked:
            return "Only an administrator can allow this: you are not on a list of this bot."
        name = "the one who asked" if asker is None else asker.name or asker.id
        theirs = access if started is None else self.access(started)
        private = private or asker is None
        allowed = deciders(visible_line(name)[:60], theirs, private=private)
        return (
            f"Only {allowed} can answer this." if allowed else "Nobody in this chat can allow this."
        )

    async def _started(self, request: ApprovalRequest) -> InboundMessage | None:
        """Return the message that began the turn of a request; what was said later began none."""
        entries = await self.gateway.ledger.entries_of_turn(request.turn_id)
        return entries[0].message if entries else None

    async def _stands(self, request: ApprovalRequest, message: InboundMessage) -> bool:
        """Tell whether a request waits, and a message does not reply to anything else of ours."""
        now, reply = self.gateway.clock.now(), message.reply_to
        if self._stopping(request) or (request.expires_at is not None and now > request.expires_at):
            return False
        if reply is None or not reply.own:
            return True
        places = await self._places(request)
        return not places or reply.native_id in places

    async def _places(self, request: ApprovalRequest) -> set[str]:
        """Return the ids of the messages that show a request."""
        shown = await self.gateway.ledger.outbox_of_turn(request.turn_id)
        return {each.native_id for each in shown if request.id in each.id and each.native_id}

    def _stopping(self, request: ApprovalRequest) -> bool:
        current = self.gateway.current_turn(request.session_id)
        own = current is not None and current.turn_id == request.turn_id
        return own and self.gateway.stopping(request.session_id)


def _place(message: InboundMessage) -> tuple[str, str, str, str | None]:
    return message.platform, message.account, message.chat.id, message.thread_id
