"""Delivery: the one place that calls an adapter's `send`.

Each slot of a reply is one outbox entry under an id made of turn and slot, so
whoever shows it again, in this process or the next, finds the message that is
already there and edits it. What is final, or may have been sent for good, is
left alone. The first send of a slot that will be edited carries a placeholder
only: if its outcome stays unknown, another placeholder may be sent without ever
doubling an answer. Where sends are idempotent the first one carries the text.
Finals and prompts are tried until they are through or can never be; previews are
dropped when the platform is slow.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.delivery.rate_limit import PATIENCE, Pacer, Pacers, Urgency
from hermes.domain.errors import HermesError
from hermes.domain.outbound import OutboxEntry, OutboxKind, OutboxState, Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import OutboxStore
from hermes.domain.ports.platform import (
    Adapter,
    AlbumSender,
    Button,
    FailureAction,
    Outgoing,
    PlatformFailure,
)
from hermes.domain.ports.surface import Shown

log = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
PLACEHOLDER = "…"
MAX_UNKNOWN_SENDS = 3
MAX_AGE = 24 * 3600.0
"""Entries older than this are reported, not sent."""


class Line(Struct, frozen=True, kw_only=True):
    """A connection to one platform account."""

    adapter: Adapter
    capabilities: Capabilities
    pacers: Pacers
    sent: Callable[[], None] = lambda: None
    """Told after each successful call, for liveness."""


class ReplyOrigin(Struct, frozen=True, kw_only=True):
    """What a reply belongs to; without a turn of its own, `turn_id` is the id of a delivery."""

    turn_id: str
    agent_id: str = ""
    session_id: str = ""


class _Slot:
    def __init__(self, entry: OutboxEntry) -> None:
        self.entry = entry
        self.look: Shown | None = None
        """How this process last wanted it to look."""
        self.plain_only = False
        self.unknown_sends = 0
        self.pause = FIRST_PAUSE
        self.alarm = logging.ERROR
        """How loudly it is said that the account is refused: once."""

    @property
    def over(self) -> bool:
        return self.entry.state in (OutboxState.SENT, OutboxState.FAILED, OutboxState.UNKNOWN)


class TurnSurface:
    """One turn's place in one chat; see `domain.ports.surface`."""

    def __init__(
        self, outbox: OutboxStore, clock: Clock, line: Line, target: Target, origin: ReplyOrigin
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._line = line
        self._target = target
        self._origin = origin
        self._pacer = Pacer(line.pacers, line.capabilities, target, clock)
        self._slots: dict[str, _Slot] = {}

    async def recalled(self) -> Self:
        """Find the slots that another process has shown."""
        turn_id = self._origin.turn_id
        for entry in await self._outbox.outbox_of_turn(turn_id):
            self._slots[entry.id.removeprefix(f"{turn_id}/")] = _Slot(entry)
        return self

    @property
    def capabilities(self) -> Capabilities:
        return self._line.capabilities

    def look(self, slot: str) -> Shown | None:
        known = self._slots.get(slot)
        return None if known is None else known.look

    def previews(self) -> list[str]:
        visible = ((slot, each) for slot, each in self._slots.items() if each.entry.native_id)
        return [slot for slot, each in visible if not each.over]

    async def show(
        self,
        slot: str,
        shown: Shown,
        *,
        buttons: tuple[tuple[Button, ...], ...] = (),
        kind: OutboxKind = OutboxKind.REPLY,
    ) -> None:
        known = await self._slot(slot, kind, content=shown.plain)
        unchanged, known.look = known.look == shown, shown
        if known.over or unchanged:
            return
        outgoing = Outgoing(
            target=self._target,
            text=shown.text,
            plain=shown.plain,
            buttons=buttons,
            kind=kind,
            final=shown.final,
            aside=shown.aside,
            continues=kind is not OutboxKind.PROMPT and self._continues(slot),
            key=known.entry.id,
        )
        # Somebody waits for the answer to a prompt.
        urgent = shown.final or kind is OutboxKind.PROMPT
        urgency = Urgency.FINAL if urgent else Urgency.PREVIEW
        await self._persist(known, lambda: self._put(known, outgoing, urgency), urgency)

    def _continues(self, slot: str) -> bool:
        """Tell whether a slot is not the first of its kind: `reply:0.1` after `reply:0.0`."""
        kind = slot.partition(":")[0]
        return next(each for each in self._slots if each.partition(":")[0] == kind) != slot

    async def remove(self, slot: str) -> None:
        known = self._slots.get(slot)
        if known is None or known.over or known.entry.native_id is None:
            return
        native_id = known.entry.native_id
        if not self.capabilities.deletes:
            # Nothing stays that could be read twice.
            await self.show(slot, Shown(text=PLACEHOLDER, plain=PLACEHOLDER, final=True))
            return
        delete = self._line.adapter.delete
        await self._aside(Urgency.FINAL, lambda: delete(self._target, native_id))
        await self._record(known, OutboxState.SENT)

    async def attach(self, slot: str, path: str, kind: str) -> None:
        known = await self._slot(slot, OutboxKind.FILE, attachment=path)
        if not known.over:
            await self._persist(
                known, lambda: self._send(known, self._file(known, kind), final=True)
            )

    async def attach_album(self, files: Sequence[tuple[str, str]], kind: str) -> None:
        """Send files together where the platform can; each has its entry, none goes twice."""
        album = [await self._slot(slot, OutboxKind.FILE, attachment=path) for slot, path in files]
        fresh = all(known.entry.state is OutboxState.PENDING for known in album)
        if fresh and len(album) > 1 and isinstance(self._line.adapter, AlbumSender):
            sender = self._line.adapter
            await self._persist(album[0], lambda: self._together(sender, album, kind))
        for slot, path in files:
            await self.attach(slot, path, kind)

    async def typing(self) -> None:
        if self.capabilities.typing:
            await self._aside(Urgency.TYPING, lambda: self._line.adapter.typing(self._target))

    async def react(self, native_id: str, emoji: str, patience: float = PATIENCE) -> None:
        """React to a message of the chat, if the budget allows it soon enough."""
        react = self._line.adapter.react
        if self.capabilities.reactions:
            await self._aside(
                Urgency.REACTION, lambda: react(self._target, native_id, emoji), patience
            )

    async def _aside(
        self, urgency: Urgency, call: Callable[[], Awaitable[None]], patience: float = PATIENCE
    ) -> None:
        """Make a call once, if there is room for it soon enough; it may fail."""
        if not await self._pacer.wait(urgency, patience):
            return
        try:
            await call()
        except PlatformFailure as failure:
            if failure.action is FailureAction.WAIT:
                self._pacer.penalise(failure.retry_after, failure.scope)

    # -- one slot ------------------------------------------------------------

    async def _slot(
        self, slot: str, kind: OutboxKind, *, content: str = "", attachment: str | None = None
    ) -> _Slot:
        known = self._slots.get(slot)
        if known is None:
            now = self._clock.now()
            entry = await self._outbox.enqueue(
                OutboxEntry(
                    id=f"{self._origin.turn_id}/{slot}",
                    agent_id=self._origin.agent_id,
                    session_id=self._origin.session_id,
                    turn_id=self._origin.turn_id,
                    target=self._target,
                    kind=kind,
                    content=content,
                    part=len(self._slots),
                    attachment=attachment,
                    created_at=now,
                    updated_at=now,
                )
            )
            known = self._slots[slot] = _Slot(entry)
        return known

    def _file(self, known: _Slot, kind: str) -> Outgoing:
        return Outgoing(
            target=self._target,
            attachment=known.entry.attachment,
            attachment_kind=kind,
            kind=OutboxKind.FILE,
            continues=len(self._slots) > 1,
            key=known.entry.id,
        )

    async def _put(self, known: _Slot, outgoing: Outgoing, urgency: Urgency) -> None:
        """Send the slot's message, or edit the one that is there."""
        text = outgoing.plain if known.plain_only else outgoing.text
        outgoing, can = replace(outgoing, text=text, target=self._target), self.capabilities
        if known.entry.native_id is None:
            if can.idempotent_sends or not can.live:
                await self._send(known, outgoing, final=outgoing.final or not can.live)
                return
            mark = "" if can.streams else PLACEHOLDER
            first = replace(outgoing, text=mark, plain=mark, final=False)
            await self._send(known, first, final=False)
            if not await self._pacer.wait(urgency):
                return
        assert known.entry.native_id is not None
        await self._line.adapter.edit(known.entry.native_id, outgoing)
        if outgoing.final:
            await self._record(known, OutboxState.SENT, content=outgoing.plain)

    async def _send(self, known: _Slot, outgoing: Outgoing, *, final: bool) -> None:
        claimed = await self._outbox.claim_send(known.entry.id, self._clock.now())
        if claimed is None and final and not self.capabilities.idempotent_sends:
            # An earlier process was sending this and may have succeeded.
            raise PlatformFailure(FailureAction.UNKNOWN, "An earlier send was cut off.")
        known.entry = claimed or known.entry
        sent = await self._line.adapter.send(outgoing)
        state = OutboxState.SENT if final else OutboxState.SENDING
        await self._record(known, state, native_id=sent.native_id, content=outgoing.plain)

    async def _together(self, sender: AlbumSender, album: Sequence[_Slot], kind: str) -> None:
        """Send an album; leaves its files pending if they do not go together."""
        for known in album:
            claimed = await self._outbox.claim_send(known.entry.id, self._clock.now())
            known.entry = claimed or known.entry
        try:
            sent = await sender.send_album([self._file(known, kind) for known in album])
        except PlatformFailure as failure:
            if failure.action is not FailureAction.UNKNOWN:
                for known in album:
                    await self._record(known, OutboxState.PENDING)
            if failure.action is not FailureAction.GIVE_UP:
                raise
            return
        for known, one in zip(album, sent, strict=True):
            await self._record(known, OutboxState.SENT, native_id=one.native_id)

    async def _record(self, known: _Slot, state: OutboxState, **more: str) -> None:
        now, entry_id = self._clock.now(), known.entry.id
        known.entry = await self._outbox.update_outbox(entry_id, state=state, at=now, **more)

    # -- until it works --------------------------------------------------------

    async def _persist(
        self,
        known: _Slot,
        call: Callable[[], Awaitable[None]],
        urgency: Urgency = Urgency.FINAL,
    ) -> None:
        """Make a call until it works; a preview is tried once."""
        urgent = urgency is Urgency.FINAL
        while await self._pacer.wait(urgency):
            try:
                await call()
            except PlatformFailure as failure:
                if not await self._go_on(known, failure, urgent=urgent):
                    return
            except HermesError:
                log.exception("outbox entry %s could not be recorded", known.entry.id)
                return
            else:
                self._line.sent()
                return

    async def _go_on(self, known: _Slot, failure: PlatformFailure, *, urgent: bool) -> bool:
        """Return whether the call is worth another try after `failure`."""
        if failure.action is not FailureAction.UNKNOWN and known.entry.native_id is None:
            # Nothing is visible: whoever tries again, also the next process, may send.
            await self._record(known, OutboxState.PENDING)
        moved_to = failure.moved_to
        if moved_to is not None and self._aim(replace(self._target, chat_id=moved_to)):
            return True
        gone = failure.action is FailureAction.GIVE_UP
        if gone or self._clock.now() - known.entry.created_at > MAX_AGE:
            error = failure.message if gone else "too old to be sent"
            await self._record(known, OutboxState.FAILED, error=error)
            return False
        if failure.action is FailureAction.UNKNOWN:
            return await self._after_unknown(known, failure)
        if failure.action is FailureAction.FATAL:
            # The account is refused, not the answer: it waits until somebody has helped.
            log.log(known.alarm, "%s waits: %s", known.entry.id, failure.message)
            known.alarm = logging.DEBUG
        if failure.action in (FailureAction.RETRY, FailureAction.FATAL):
            return urgent and await self._pause(known)
        return self._adjusted(known, failure, urgent=urgent)

    def _adjusted(self, known: _Slot, failure: PlatformFailure, *, urgent: bool) -> bool:
        """Change what the next try will do; False if there is nothing to change."""
        match failure.action:
            case FailureAction.PLAIN:
                again, known.plain_only = not known.plain_only, True
                return again
            case FailureAction.DROP_REPLY:
                return self._aim(replace(self._target, reply_to=None, context=""))
            case FailureAction.DROP_THREAD:
                return self._aim(replace(self._target, thread_id=None))
            case FailureAction.SEND_NEW:
                known.entry = replace(known.entry, native_id=None)
                return urgent
            case _:
                self._pacer.penalise(failure.retry_after, failure.scope)
                return urgent

    def _aim(self, target: Target) -> bool:
        """Send to another address from now on; False if it is the same."""
        changed, self._target = target != self._target, target
        return changed

    async def _after_unknown(self, known: _Slot, failure: PlatformFailure) -> bool:
        """A send that may have worked: only a placeholder may be sent again."""
        known.unknown_sends += 1
        harmless = self.capabilities.live and known.entry.attachment is None
        if harmless or self.capabilities.idempotent_sends:
            return known.unknown_sends <= MAX_UNKNOWN_SENDS and await self._pause(known)
        await self._record(known, OutboxState.UNKNOWN, error=failure.message)
        log.warning("it is unknown whether %s was delivered", known.entry.id)
        return False

    async def _pause(self, known: _Slot) -> bool:
        await self._clock.sleep(known.pause)
        known.pause = min(known.pause * 2, LONGEST_PAUSE)
        return True
