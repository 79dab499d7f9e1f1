"""Prompts: approvals and questions put before the people of a chat.

A prompt is one message with buttons; when its request is settled, however that comes
about, the same message says so and has no buttons any more. Requests are rows of the
ledger, so what was settled unseen (another door, a restart, a turn that was given up) is
found by looking at the rows of the prompts that can still be seen.

What a prompt quotes cannot imitate the lines around it: it stands in code blocks, or
behind a bar where there are none, and shows what cannot be seen as escapes. A command is
shown whole; if it does not fit, it comes as a file, or in messages of its own, before the
question.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from msgspec import Struct

from hermes.control.admission.approval_replies import request_buttons
from hermes.control.admission.authz import Access, deciders
from hermes.control.delivery.surface import TurnSurface
from hermes.control.follow import goes_on_later
from hermes.domain.approvals import (
    Approval,
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
    Choice,
    granted_by,
)
from hermes.domain.events import ApprovalAnswered, ApprovalAsked, TurnStream
from hermes.domain.outbound import OutboxKind, OutboxState
from hermes.domain.ports.ledger import Ledger
from hermes.domain.wording import long_time, one_line, visible, visible_line
from hermes.streaming.chat.layout import ChatLayout, Verbatim
from hermes.streaming.markup.plain import escaped

SLOT = "approval:"
EXCERPT = 600
"""Characters of the beginning and of the end of a command that is too long for a message."""
NOBODY_DECIDES = (
    "nobody here may allow it: whoever asks is on no list of this bot,"
    " and no administrator is named for this chat"
)
_LONGEST_REASON, _LONGEST_NAME = 400, 60
_BLANKS = re.compile(r"[^\S\n]{24,}|\n(?:[^\S\n]*\n){4,}")
_OUTCOMES = {
    ApprovalState.APPROVED: "✅ Approved",
    ApprovalState.DENIED: "❌ Denied",
    ApprovalState.ANSWERED: "💬 Answered",
}


class Prompts(Struct, frozen=True):
    """The prompts of one turn."""

    ledger: Ledger
    surface: TurnSurface
    layout: ChatLayout
    asker: str
    access: Access
    """What the one who asked may do."""
    private: bool
    folder: Path
    """Where commands lie that are sent as files, until they are sent."""
    deny: Callable[[str, str], Awaitable[object]]
    """(request, reason) -> denied, for what nobody may allow."""

    async def follow(self, stream: TurnStream) -> None:
        """Put requests before the person, and their outcome in the same place."""
        await self.settle()
        async for event in stream.follow():
            if isinstance(event, ApprovalAsked):
                await self.ask(event.request)
            elif isinstance(event, ApprovalAnswered):
                await self.settle()
        if not goes_on_later(stream.finished):
            await self.settle()

    async def settle(self) -> None:
        """Say what has become of the requests that do not wait any more."""
        for slot in self.surface.previews():
            if not slot.startswith(SLOT):
                continue
            approval = await self.ledger.approval(slot.removeprefix(SLOT))
            if approval is None or approval.state is not ApprovalState.PENDING:
                shown = self.layout.assembled(*_outcome(approval), final=True)
                await self.surface.show(slot, shown, kind=OutboxKind.PROMPT)

    async def ask(self, request: ApprovalRequest) -> None:
        question = request.kind is ApprovalKind.QUESTION
        if not question and not deciders(self.asker, self.access, private=self.private):
            await self.deny(request.id, NOBODY_DECIDES)
            shown = self.layout.assembled(
                *_outcome(await self.ledger.approval(request.id)), final=True
            )
            await self.surface.show(SLOT + request.id, shown, kind=OutboxKind.PROMPT)
            return
        body = _made_visible(request.subject)
        parts = list(self._parts(request, [request.subject if question else Verbatim(body)]))
        if self.layout.weight(*parts) > self.layout.room:
            whole = await self._send_whole(request, body)
            excerpt = (Verbatim(body[:EXCERPT]), "…", Verbatim(body[-EXCERPT:]))
            parts = list(self._parts(request, [whole, *excerpt]))
        buttons = request_buttons(request) if self.surface.capabilities.buttons else ()
        shown = self.layout.assembled(*parts, final=False)
        await self.surface.show(SLOT + request.id, shown, buttons=buttons, kind=OutboxKind.PROMPT)

    def _parts(
        self, request: ApprovalRequest, subject: list[str | Verbatim]
    ) -> Iterator[str | Verbatim]:
        if request.kind is ApprovalKind.APPROVAL:
            yield from self._approval(request, subject)
            return
        yield "❓ **The agent asks**"
        yield from subject
        for number, choice in enumerate(request.choices, 1):
            yield f"{number}. {choice}"
        if until := _until(request):
            yield f"Open for {until}."

    def _approval(
        self, request: ApprovalRequest, command: list[str | Verbatim]
    ) -> Iterator[str | Verbatim]:
        asker = escaped(visible_line(self.asker)[:_LONGEST_NAME])
        yield f"⚠️ **Approval needed**, asked by {asker}"
        yield from command
        yield f"Why: {escaped(one_line(visible(request.reason), _LONGEST_REASON))}"
        if Choice.ALWAYS in request.choices or Choice.SESSION in request.choices:
            yield "For this conversation, or always, this would be allowed without asking:"
            yield Verbatim(_made_visible(granted_by(request))[:EXCERPT])
        who = deciders(asker, self.access, private=self.private)
        who = "An administrator" if who == "an administrator" else who
        until = f" within {_until(request)}" if _until(request) else ""
        yield f"{who} decides{until}; without an answer it is not done."
        can = self.surface.capabilities
        mark, buttons = can.command_mark, "the buttons, " if can.buttons else ""
        ways = f"`yes` or `no`, `{mark}approve [session|always]` or `{mark}deny [reason]`."
        yield f"Answer with {buttons}{ways}"

    async def _send_whole(self, request: ApprovalRequest, body: str) -> str:
        """Send what does not fit into the prompt before it; return what the prompt says of it."""
        size = f"{len(request.subject):,} characters"
        if "document" in self.surface.capabilities.media:
            slot = f"approval-file:{request.id}"
            path = self.folder / request.id / "command.txt"
            await asyncio.to_thread(_write, path, request.subject)
            await self.surface.attach(slot, str(path), "document")
            await asyncio.to_thread(_remove, path)
            entry = await self.ledger.outbox_entry(f"{request.turn_id}/{slot}")
            if entry is not None and entry.state is OutboxState.SENT:
                return f"**{size}: all of it is in the file above.** Beginning and end:"
        step = self.layout.room // 3
        for number, at in enumerate(range(0, len(body), step)):
            piece = self.layout.assembled(Verbatim(body[at : at + step]), final=True)
            slot = f"approval-part:{request.id}.{number}"
            await self.surface.show(slot, piece, kind=OutboxKind.PROMPT)
        return f"**{size}: all of it is in the messages above.** Beginning and end:"


def _until(request: ApprovalRequest) -> str:
    """Return how long a request stands, counted from the time of its message."""
    return long_time(request.expires_at - request.created_at) if request.expires_at else ""


def _outcome(approval: Approval | None) -> Iterator[str | Verbatim]:
    if approval is None:
        yield "⏹ No longer needed."
        return
    request, decision = approval.request, approval.decision
    if decision is None or approval.lapsed:
        yield "⏹ No longer needed: the turn has ended."
    elif decision.state is ApprovalState.EXPIRED:
        yield "⌛ Nobody answered in time, so it was not done"
    else:
        scope = decision.choice if decision.state is ApprovalState.APPROVED else None
        choice = f" ({scope.value})" if scope else ""
        by = f" by {escaped(visible_line(decision.by)[:_LONGEST_NAME])}" if decision.by else ""
        said = f": {escaped(one_line(visible(decision.text), EXCERPT))}" if decision.text else ""
        yield f"{_OUTCOMES.get(decision.state, decision.state.value)}{choice}{by}{said}"
    if request.kind is ApprovalKind.QUESTION:
        yield escaped(one_line(visible(request.subject), EXCERPT))
        return
    body = _made_visible(request.subject)
    yield Verbatim(body if len(body) <= 2 * EXCERPT else f"{body[:EXCERPT]}…")
    if decision is not None and decision.choice in (Choice.SESSION, Choice.ALWAYS):
        where = "in this conversation" if decision.choice is Choice.SESSION else "everywhere"
        yield f"Allowed {where} from now on:"
        yield Verbatim(_made_visible(granted_by(request))[:EXCERPT])


def _made_visible(text: str) -> str:
    """Show what cannot be seen, and blanks that would push the rest out of sight, by name."""

    def named(found: re.Match[str]) -> str:
        blanks = found[0]
        if "\n" in blanks:
            return f"\n⟨{blanks.count(chr(10)) - 1} empty lines⟩\n"
        return f" ⟨{len(blanks)} spaces⟩ "

    return _BLANKS.sub(named, visible(text).strip("\n"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(text.encode(errors="replace"))


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.rmdir()
