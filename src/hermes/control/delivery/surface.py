"""Delivery: the one place that calls an adapter's `send`.

Each slot of a reply is one outbox entry under an id made of turn and slot, so whoever shows it
again, in this process or the next, finds the message that is already there and edits it.

    nothing there            one plain send with the text, be it a preview or final
    a message is there       an edit, unless it looks like that already
    it may not be edited     the reply stops growing: what is final comes as a new message, and
                             then the half one goes
    a send of unknown fate   find out first (`lost_sends`), then as above

Nothing is dropped in silence. Finals, prompts and files are tried until they are out, too old or
refused for good; the last two are recorded with the reason and logged, `hermes status` counts and
`hermes gateway outbox` lists them. A reconnect wakes whatever pauses between two tries.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.delivery.lost_sends import PLACEHOLDER, LostSends
from hermes.control.delivery.place import (
    LONGEST_PAUSE,
    PASSING,
    Call,
    Connections,
    Line,
    ReplyPlace,
    Slot,
)
from hermes.control.delivery.rate_limit import Urgency
from hermes.domain.errors import HermesError
from hermes.domain.outbound import OutboxEntry, OutboxKind, OutboxState, Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.ledger import OutboxStore
from hermes.domain.ports.platform import (
    AlbumSender,
    Button,
    FailureAction,
    Outgoing,
    PlatformFailure,
)
from hermes.domain.ports.surface import Shown

log = logging.getLogger(__name__)

TRIES_IN_A_ROW = 18
"""So often, for two and a half minutes, a piece is tried before others of its chat get a turn: it
may be the only one in trouble."""
MAX_AGE = 24 * 3600.0
"""Seconds after which a piece is reported instead of sent."""
REFUSED = (FailureAction.GIVE_UP, FailureAction.DROP_THREAD, FailureAction.DROP_REPLY)
TOO_OLD = "It was too old to be sent."


class ReplyOrigin(Struct, frozen=True, kw_only=True):
    """What a reply belongs to; without a turn of its own, `turn_id` is the id of a delivery."""

    turn_id: str
    agent_id: str = ""
    session_id: str = ""
    since: float | None = None
    """When it was ready, if that was not now."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Returns when it is its turn among the answers of the chat."""


class TurnSurface:
    """One turn's place in one chat; see `domain.ports.surface`."""

    def __init__(
        self, outbox: OutboxStore, connections: Connections, target: Target, origin: ReplyOrigin
    ) -> None:
        self._place = ReplyPlace(outbox, connections, target)
        self._lost = LostSends(self._place)
        self._origin = origin
        self._slots: dict[str, Slot] = {}

    async def recalled(self) -> Self:
        """Find the slots that another process has shown."""
        turn_id = self._origin.turn_id
        for entry in await self._place.outbox.outbox_of_turn(turn_id):
            self._slots[entry.id.removeprefix(f"{turn_id}/")] = Slot(entry)
        return self

    @property
    def capabilities(self) -> Capabilities:
        return self._place.capabilities

    def look(self, slot: str) -> Shown | None:
        known = self._slots.get(slot)
        return None if known is None else known.look

    def previews(self) -> list[str]:
        return [slot for slot, each in self._slots.items() if not each.over]

    async def reserve(self, slot: str, shown: Shown, kind: OutboxKind) -> None:
        """Write down what will be shown, so that it is also if the process ends before."""
        await self._slot(slot, kind, content=shown.plain)

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
            target=self._place.target,
            text=shown.text,
            plain=shown.plain,
            buttons=buttons,
            kind=kind,
            final=shown.final,
            aside=shown.aside,
            continues=kind is not OutboxKind.PROMPT and self._continues(slot),
            key=known.entry.id,
        )
        if shown.final and known.entry.native_id is None and self._origin.ready is not None:
            await self._origin.ready()
        # Somebody waits for the answer to a prompt.
        if shown.final or kind is OutboxKind.PROMPT:
            await self._persist(known, lambda line: self._put(known, outgoing, line))
        elif kind is OutboxKind.NOTICE or not any(each.halves for each in self._slots.values()):
            await self._preview(known, outgoing)

    def _continues(self, slot: str) -> bool:
        """Tell whether a slot is not the first of its kind: `reply:0.1` after `reply:0.0`."""
        kind = slot.partition(":")[0]
        return next(each for each in self._slots if each.partition(":")[0] == kind) != slot

    async def remove(self, slot: str) -> None:
        known = self._slots.get(slot)
        if known is not None and known.lost:
            lost, nothing = known, self._lost.placeholder(known)
            await self._persist(lost, lambda line: self._lost.find_out(lost, nothing, line))
        if known is None or known.over:
            return
        native_id = known.entry.native_id
        while known.halves and self.capabilities.deletes:
            await self._place.take_away(known.halves.pop())
        if native_id is not None and not self.capabilities.deletes:
            # Nothing stays that could be read twice.
            await self.show(slot, Shown(text=PLACEHOLDER, plain=PLACEHOLDER, final=True))
            return
        if native_id is not None:
            await self._place.take_away(native_id)
        await self._place.record(known, OutboxState.SENT)

    async def attach(self, slot: str, path: str, kind: str) -> None:
        known = await self._slot(slot, OutboxKind.FILE, attachment=path)
        if not known.over:
            await self._persist(known, lambda line: self._put(known, self._file(known, kind), line))

    async def attach_album(self, files: Sequence[tuple[str, str]], kind: str) -> None:
        """Send files together where the platform can; each has its entry, none goes twice."""
        album = [await self._slot(slot, OutboxKind.FILE, attachment=path) for slot, path in files]
        fresh = all(known.entry.state is OutboxState.PENDING for known in album)
        if fresh and len(album) > 1:
            await self._persist(album[0], lambda line: self._together(album, kind, line))
        for slot, path in files:
            await self.attach(slot, path, kind)

    async def typing(self) -> bool:
        if not self.capabilities.typing:
            return True
        target = self._place.target
        call = self._place.aside(Urgency.TYPING, lambda line: line.adapter.typing(target))
        return await call is not FailureAction.WAIT

    async def react(self, native_id: str, emoji: str) -> bool:
        """React to a message if the budget allows it soon; return whether that may be seen."""
        if not self.capabilities.reactions:
            return False
        call = self._reaction(native_id, emoji)
        return await self._place.aside(Urgency.REACTION, call) in (None, FailureAction.UNKNOWN)

    async def react_some_time(self, native_id: str, emoji: str) -> None:
        """React to a message when nothing else is to be done, however late."""
        if self.capabilities.reactions:
            await self._place.some_time(self._reaction(native_id, emoji))

    def _reaction(self, native_id: str, emoji: str) -> Call:
        return lambda line: line.adapter.react(self._place.target, native_id, emoji)

    # -- one slot ------------------------------------------------------------

    async def _slot(
        self, slot: str, kind: OutboxKind, *, content: str = "", attachment: str | None = None
    ) -> Slot:
        known = self._slots.get(slot)
        if known is None:
            now = self._place.clock.now()
            entry = await self._place.outbox.enqueue(
                OutboxEntry(
                    id=f"{self._origin.turn_id}/{slot}",
                    agent_id=self._origin.agent_id,
                    session_id=self._origin.session_id,
                    turn_id=self._origin.turn_id,
                    target=self._place.target,
                    kind=kind,
                    content=content,
                    part=len(self._slots),
                    attachment=attachment,
                    created_at=now if self._origin.since is None else self._origin.since,
                    updated_at=now,
                )
            )
            known = self._slots[slot] = Slot(entry)
        return known

    def _file(self, known: Slot, kind: str) -> Outgoing:
        return Outgoing(
            target=self._place.target,
            attachment=known.entry.attachment,
            attachment_kind=kind,
            kind=OutboxKind.FILE,
            continues=len(self._slots) > 1,
            key=known.entry.id,
        )

    async def _put(self, known: Slot, outgoing: Outgoing, line: Line) -> None:
        """Send the slot's message, or edit the one that is there."""
        text = outgoing.plain if known.plain_only else outgoing.text
        key, can = outgoing.key + known.gone, self.capabilities
        outgoing = replace(outgoing, text=text, target=self._place.target, key=key)
        look = (text, outgoing.buttons)
        if known.lost:
            await self._lost.find_out(known, outgoing, line)
            if known.over:
                return
            if known.visible != look:
                await self._place.pacer.wait(Urgency.FINAL)
        if known.entry.native_id is None:
            opening = replace(outgoing, text="", plain="", final=False)
            await self._send(known, opening if can.streams else outgoing, line)
            if known.over or known.visible == look:
                return
            await self._place.pacer.wait(Urgency.FINAL)
        native_id = known.entry.native_id
        assert native_id is not None
        if known.visible != look and can.live:
            try:
                await line.adapter.edit(native_id, outgoing)
            except PlatformFailure as failure:
                # What may not be edited may still be sent, once where it takes an edit to do so.
                plain = failure.action is FailureAction.PLAIN and known.plain_only
                if (plain or failure.action in REFUSED) and not (can.streams and known.halves):
                    failure.action = FailureAction.SEND_NEW
                raise
            known.visible = look
        if outgoing.final or not can.live:
            await self._place.record(known, OutboxState.SENT, content=outgoing.plain)

    async def _send(self, known: Slot, outgoing: Outgoing, line: Line) -> None:
        """Send what nobody has sent; what an idempotent platform may have may be sent again."""
        again, look = known.lost, (outgoing.text, outgoing.buttons)
        if not again and not await self._place.claim(known):
            raise PlatformFailure(FailureAction.UNKNOWN, "An earlier send was cut off.")
        try:
            sent = await line.adapter.send(outgoing)
        except PlatformFailure as failure:
            if failure.action is FailureAction.UNKNOWN:
                known.visible = look if not again or known.visible == look else None
                await self._place.note_lost(known, failure)
            elif not again:
                # Nothing is visible: whoever tries again, also the next process, may send.
                await self._place.record(known, OutboxState.PENDING)
            raise
        # Of two sends with one key the first counts, and it may have had another text.
        known.visible = look if not again or known.visible == look else None
        final = not self.capabilities.live or (outgoing.final and known.visible == look)
        state = OutboxState.SENT if final else OutboxState.SENDING
        await self._place.record(known, state, native_id=sent.native_id, content=outgoing.plain)

    async def _together(self, album: Sequence[Slot], kind: str, line: Line) -> None:
        """Send an album; leaves its files pending if they do not go together."""
        sender = line.adapter
        if not isinstance(sender, AlbumSender):
            return
        for known in album:
            await self._place.claim(known)
        try:
            sent = await sender.send_album([self._file(known, kind) for known in album])
        except PlatformFailure as failure:
            for known in album:
                if failure.action is FailureAction.UNKNOWN:
                    await self._place.note_lost(known, failure)
                else:
                    await self._place.record(known, OutboxState.PENDING)
            # From here on each file is looked into or sent by itself.
            if failure.action not in (FailureAction.GIVE_UP, FailureAction.UNKNOWN):
                raise
            return
        for known, one in zip(album, sent, strict=True):
            await self._place.record(known, OutboxState.SENT, native_id=one.native_id)

    # -- until it works --------------------------------------------------------

    async def _preview(self, known: Slot, outgoing: Outgoing) -> None:
        """Show a preview once, if there is room: what is urgent goes first."""
        connections, target = self._place.connections, self._place.target
        order, line = connections.order(target), connections.line(target)
        if known.lost or line is None or not await self._place.pacer.wait(Urgency.PREVIEW):
            return
        if known.entry.native_id is not None:
            await self._attempt(known, lambda line: self._put(known, outgoing, line), line)
        elif not order.locked():
            async with order:
                await self._attempt(known, lambda line: self._put(known, outgoing, line), line)

    async def _persist(self, known: Slot, call: Call) -> None:
        """Make a call until it works or is pointless."""
        while not await self._tries(known, call):
            pass
        if known.entry.native_id is not None and self.capabilities.deletes:
            known.litter, known.halves = known.litter + known.halves, []
        if known.litter and self._place.connections.beside is not None:
            self._place.connections.beside(self._lost.tidy(known))
        else:
            await self._lost.tidy(known)

    async def _tries(self, known: Slot, call: Call) -> bool:
        async with self._place.connections.order(self._place.target):
            for _ in range(TRIES_IN_A_ROW):
                line = await self._place.connections.connected(self._place.target)
                if self._place.clock.now() - known.entry.created_at > MAX_AGE:
                    await self._place.end(known, OutboxState.FAILED, TOO_OLD)
                    return True
                await self._place.pacer.wait(Urgency.FINAL)
                pause = await self._attempt(known, call, line)
                if pause is None:
                    await self._lost.find_strays(known, line)
                    return True
                await self._place.connections.pause(pause)
        return False

    async def _attempt(self, known: Slot, call: Call, line: Line) -> float | None:
        """Make a call; return the seconds after which another try is worth it, None if none is."""
        try:
            await call(line)
        except PlatformFailure as failure:
            return await self._after(known, failure)
        except HermesError:
            log.exception("outbox entry %s could not be recorded", known.entry.id)
            return None
        finally:
            self._place.pacer.done()
        line.sent()
        return None

    async def _after(self, known: Slot, failure: PlatformFailure) -> float | None:
        moved_to = failure.moved_to
        if moved_to is not None and self._place.aim(replace(self._place.target, chat_id=moved_to)):
            return 0.0
        match failure.action:
            case FailureAction.GIVE_UP:
                await self._place.end(known, OutboxState.FAILED, failure.message)
                return None
            case FailureAction.WAIT:
                self._place.pacer.penalise(failure.retry_after, failure.scope)
                return 0.0
            case passing if passing in PASSING:
                if failure.action is FailureAction.FATAL:
                    # The account is refused, not the answer: it waits until somebody has helped.
                    log.log(known.alarm, "%s waits: %s", known.entry.id, failure.message)
                    known.alarm = logging.DEBUG
                pause, known.pause = known.pause, min(known.pause * 2, LONGEST_PAUSE)
                return pause
            case _:
                if await self._adjusted(known, failure):
                    return 0.0
                await self._place.end(known, OutboxState.FAILED, failure.message)
                return None

    async def _adjusted(self, known: Slot, failure: PlatformFailure) -> bool:
        """Change what the next try will do; False if there is nothing to change."""
        match failure.action:
            case FailureAction.PLAIN:
                again, known.plain_only = not known.plain_only, True
                return again
            case FailureAction.DROP_REPLY:
                return self._place.aim(replace(self._place.target, reply_to=None, context=""))
            case FailureAction.DROP_THREAD:
                return self._place.aim(replace(self._place.target, thread_id=None))
            case _:
                # The message is gone or stays as it is: there may be a new one.
                half = known.entry.native_id or ""
                known.visible, known.gone = None, f"+{half}"
                known.halves.append(half)
                await self._lost.keep_apart(known, half)
                await self._place.record(known, OutboxState.PENDING)
                return True
