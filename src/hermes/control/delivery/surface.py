"""Delivery: the one place that calls an adapter's `send`.

Each slot of a reply is one outbox entry under an id made of turn and slot, so whoever shows it
again, in this process or the next, finds the message that is already there and edits it.

    nothing there            one plain send with the text, be it a preview or final
    a message is there       an edit, unless it looks like that already
    a send of unknown fate   find out first, then as above

The fate of a send is unknown when the connection broke after the request, or the process died
between claim and record. It is never repeated blindly:

- where sends are idempotent it is repeated with its key, for as long as the key is known;
- where the history can be listed (`SentHistory`), it is looked for;
- where ids count up and only edits tell (`NumberedMessages`), a placeholder shows where the ids
  stand now. The ids between the last one that was known before the send and the placeholder,
  except those that the outbox knows or that came in from others, are edited to look like the
  piece: the one that can be edited is the lost message, and the placeholder is taken away. If
  there is none among the first few, the placeholder becomes the message: others wait for their
  answers. A placeholder that may be there is looked for before the next one is sent;
- otherwise it is marked `unknown`, and told.

So that a message that nobody knows can only be the one that is looked for, urgent pieces of one
chat go one at a time, in order; previews only when nothing urgent is under way.

Nothing is dropped in silence. Finals, prompts and files are tried until they are out, too old or
refused for good; the last two are recorded with the reason and logged, `hermes status` counts and
`hermes gateway outbox` lists them. A reconnect wakes whatever pauses between two tries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Self
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.delivery.rate_limit import LOOK_AGAIN, PATIENCE, Pacer, Pacers, Urgency
from hermes.domain.errors import HermesError
from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import OutboxEntry, OutboxKind, OutboxState, Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.clock import Clock, wait_at_most
from hermes.domain.ports.ledger import OutboxStore
from hermes.domain.ports.platform import (
    Adapter,
    AlbumSender,
    Button,
    FailureAction,
    NumberedMessages,
    Outgoing,
    PlatformFailure,
    SentHistory,
)
from hermes.domain.ports.surface import Shown

log = logging.getLogger(__name__)

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
LATEST = 3600.0
"""So long something that may be done some time waits for its chance."""
TRIES_IN_A_ROW = 18
"""So often, for two and a half minutes, a piece is tried before others of its chat get a turn: it
may be the only one in trouble."""
PLACEHOLDER = "…"
MAX_TRIES, MAX_PRIVATE_TRIES = 5, 15
"""So many ids are tried for a lost message; only in private chats nobody else waits."""
MAX_SEARCH = 8.0
"""Seconds after which no further id is tried."""
MAX_SUSPECTS = 500
MAX_AGE = 24 * 3600.0
"""Seconds after which a piece is reported instead of sent."""
TOO_OLD = "It was too old to be sent."


class Line(Struct, frozen=True, kw_only=True):
    """A connection to one platform account."""

    adapter: Adapter
    sent: Callable[[], None] = lambda: None
    """Told after each successful call, for liveness."""


class Connections:
    """The connected accounts as deliveries see them, and what all deliveries to a chat share."""

    def __init__(
        self,
        line: Callable[[str, str], Line | None],
        capabilities: Mapping[str, Capabilities],
        clock: Clock,
        beside: Callable[[Coroutine[Any, Any, None]], object] | None = None,
    ) -> None:
        self._line_of = line
        self.beside = beside
        """Does what nobody has to wait for; without it, it is done at once."""
        self.capabilities = capabilities
        self.clock = clock
        self.pacers = Pacers()
        self._woken = asyncio.Event()
        self._orders: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()

    def line(self, target: Target) -> Line | None:
        return self._line_of(target.platform, target.account)

    async def connected(self, target: Target) -> Line:
        while (line := self.line(target)) is None:
            await self.pause(LONGEST_PAUSE)
        return line

    def order(self, target: Target) -> asyncio.Lock:
        """Return what the urgent pieces of a chat queue for."""
        chat = (target.platform, target.account, target.chat_id)
        return self._orders.setdefault(chat, asyncio.Lock())

    def wake(self) -> None:
        """Have everything tried again now: an account has connected."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        await wait_at_most(self._woken, self.clock, seconds)


class ReplyOrigin(Struct, frozen=True, kw_only=True):
    """What a reply belongs to; without a turn of its own, `turn_id` is the id of a delivery."""

    turn_id: str
    agent_id: str = ""
    session_id: str = ""
    since: float | None = None
    """When it was ready, if that was not now."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Returns when it is its turn among the answers of the chat."""


class _Slot:
    def __init__(self, entry: OutboxEntry) -> None:
        self.entry = entry
        self.look: Shown | None = None
        """How this process last wanted it to look."""
        self.visible: tuple[str, object] | None = None
        """How this process last made it look: text and buttons."""
        self.gone = ""
        """Added to its key when its message was deleted: the key still names that one."""
        self.plain_only = False
        self.pause = FIRST_PAUSE
        self.alarm = logging.ERROR
        """How loudly it is said that the account is refused: once."""
        self.mark: str | None = None
        """The placeholder that shows where the ids stood when its fate was looked into."""
        self.strays = 0
        """Placeholders of which nobody knows whether they are there."""
        self.suspects: list[str] = []
        """Ids that the lost message may have."""
        self.litter: list[str] = []
        """Placeholders that have to go."""

    @property
    def over(self) -> bool:
        return self.entry.state in (OutboxState.SENT, OutboxState.FAILED, OutboxState.UNKNOWN)

    @property
    def lost(self) -> bool:
        """Whether a send was begun of which nobody knows what became of it."""
        return self.entry.state is OutboxState.SENDING and self.entry.native_id is None


Call = Callable[[Line], Awaitable[None]]
_PASSING = (FailureAction.UNKNOWN, FailureAction.RETRY, FailureAction.FATAL)


class TurnSurface:
    """One turn's place in one chat; see `domain.ports.surface`."""

    def __init__(
        self, outbox: OutboxStore, connections: Connections, target: Target, origin: ReplyOrigin
    ) -> None:
        self._outbox = outbox
        self._connections = connections
        self._clock = connections.clock
        self._target = target
        self._origin = origin
        self._pacer = Pacer(connections.pacers, self.capabilities, target, self._clock)
        self._slots: dict[str, _Slot] = {}

    async def recalled(self) -> Self:
        """Find the slots that another process has shown."""
        turn_id = self._origin.turn_id
        for entry in await self._outbox.outbox_of_turn(turn_id):
            self._slots[entry.id.removeprefix(f"{turn_id}/")] = _Slot(entry)
        return self

    @property
    def capabilities(self) -> Capabilities:
        return self._connections.capabilities[self._target.platform]

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
        if shown.final and known.entry.native_id is None and self._origin.ready is not None:
            await self._origin.ready()
        # Somebody waits for the answer to a prompt.
        if shown.final or kind is OutboxKind.PROMPT:
            await self._persist(known, lambda line: self._put(known, outgoing, line))
        else:
            await self._preview(known, outgoing)

    def _continues(self, slot: str) -> bool:
        """Tell whether a slot is not the first of its kind: `reply:0.1` after `reply:0.0`."""
        kind = slot.partition(":")[0]
        return next(each for each in self._slots if each.partition(":")[0] == kind) != slot

    async def remove(self, slot: str) -> None:
        known = self._slots.get(slot)
        if known is not None and known.lost:
            lost, nothing = known, self._placeholder(known)
            await self._persist(lost, lambda line: self._find_out(lost, nothing, line))
        if known is None or known.over:
            return
        native_id = known.entry.native_id
        if native_id is not None and not self.capabilities.deletes:
            # Nothing stays that could be read twice.
            await self.show(slot, Shown(text=PLACEHOLDER, plain=PLACEHOLDER, final=True))
            return
        if native_id is not None:
            await self._take_away(native_id)
        await self._record(known, OutboxState.SENT)

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

    async def typing(self) -> None:
        if self.capabilities.typing:
            await self._aside(Urgency.TYPING, lambda line: line.adapter.typing(self._target))

    async def react(self, native_id: str, emoji: str) -> bool:
        """React to a message if the budget allows it soon; return whether that may be seen."""
        if not self.capabilities.reactions:
            return False
        call = self._reaction(native_id, emoji)
        return await self._aside(Urgency.REACTION, call) in (None, FailureAction.UNKNOWN)

    async def react_some_time(self, native_id: str, emoji: str) -> None:
        """React to a message when nothing else is to be done, however late."""
        if self.capabilities.reactions:
            await self._some_time(self._reaction(native_id, emoji))

    def _reaction(self, native_id: str, emoji: str) -> Call:
        return lambda line: line.adapter.react(self._target, native_id, emoji)

    async def _aside(
        self, urgency: Urgency, call: Call, patience: float = PATIENCE
    ) -> FailureAction | None:
        """Make a call once, if there is room for it soon enough; return why it did not work."""
        if not await self._pacer.wait(urgency, patience):
            return FailureAction.WAIT
        line = self._connections.line(self._target)
        if line is None:
            self._pacer.done()
            return FailureAction.RETRY
        try:
            await call(line)
        except PlatformFailure as failure:
            if failure.action is FailureAction.WAIT:
                self._pacer.penalise(failure.retry_after, failure.scope)
            return failure.action
        finally:
            self._pacer.done()
        return None

    async def _some_time(self, call: Call) -> None:
        """Make a call when nobody waits for anything else in the chat, until it works."""
        order, end = self._connections.order(self._target), self._clock.monotonic() + LATEST
        pause = FIRST_PAUSE
        while self._clock.monotonic() < end:
            await self._connections.connected(self._target)
            while order.locked():
                await self._clock.sleep(LOOK_AGAIN)
            # Those who asked at the same time come first.
            action = await self._aside(Urgency.PREVIEW, call, LONGEST_PAUSE)
            if action is FailureAction.WAIT:
                action = await self._aside(Urgency.SOME_TIME, call)
            if action not in (*_PASSING, FailureAction.WAIT):
                return
            if action is not FailureAction.WAIT:
                await self._connections.pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

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
                    created_at=now if self._origin.since is None else self._origin.since,
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

    def _placeholder(self, known: _Slot) -> Outgoing:
        return Outgoing(
            target=self._target,
            text=PLACEHOLDER,
            plain=PLACEHOLDER,
            kind=known.entry.kind,
            final=False,
            key=known.entry.id,
        )

    async def _put(self, known: _Slot, outgoing: Outgoing, line: Line) -> None:
        """Send the slot's message, or edit the one that is there."""
        text = outgoing.plain if known.plain_only else outgoing.text
        key, can = outgoing.key + known.gone, self.capabilities
        outgoing = replace(outgoing, text=text, target=self._target, key=key)
        look = (text, outgoing.buttons)
        if known.lost:
            await self._find_out(known, outgoing, line)
            if known.over:
                return
            if known.visible != look:
                await self._pacer.wait(Urgency.FINAL)
        if known.entry.native_id is None:
            opening = replace(outgoing, text="", plain="", final=False)
            await self._send(known, opening if can.streams else outgoing, line)
            if known.over or known.visible == look:
                return
            await self._pacer.wait(Urgency.FINAL)
        native_id = known.entry.native_id
        assert native_id is not None
        if known.visible != look and can.live:
            await line.adapter.edit(native_id, outgoing)
            known.visible = look
        if outgoing.final or not can.live:
            await self._record(known, OutboxState.SENT, content=outgoing.plain)

    async def _send(self, known: _Slot, outgoing: Outgoing, line: Line) -> None:
        """Send what nobody has sent; what an idempotent platform may have may be sent again."""
        again, look, live = known.lost, (outgoing.text, outgoing.buttons), self.capabilities.live
        if not again:
            claimed = await self._outbox.claim_send(known.entry.id, self._clock.now())
            if claimed is None:
                raise PlatformFailure(FailureAction.UNKNOWN, "An earlier send was cut off.")
            known.entry = claimed
        try:
            sent = await line.adapter.send(outgoing)
        except PlatformFailure as failure:
            if failure.action is FailureAction.UNKNOWN:
                known.visible = look if not again or known.visible == look else None
                await self._note_lost(known, failure)
            elif not again:
                # Nothing is visible: whoever tries again, also the next process, may send.
                await self._record(known, OutboxState.PENDING)
            raise
        # Of two sends with one key the first counts, and it may have had another text.
        known.visible = look if not again or known.visible == look else None
        final = not live or (outgoing.final and known.visible == look)
        state = OutboxState.SENT if final else OutboxState.SENDING
        await self._record(known, state, native_id=sent.native_id, content=outgoing.plain)

    async def _together(self, album: Sequence[_Slot], kind: str, line: Line) -> None:
        """Send an album; leaves its files pending if they do not go together."""
        sender = line.adapter
        if not isinstance(sender, AlbumSender):
            return
        for known in album:
            claimed = await self._outbox.claim_send(known.entry.id, self._clock.now())
            known.entry = claimed or known.entry
        try:
            sent = await sender.send_album([self._file(known, kind) for known in album])
        except PlatformFailure as failure:
            for known in album:
                if failure.action is FailureAction.UNKNOWN:
                    await self._note_lost(known, failure)
                else:
                    await self._record(known, OutboxState.PENDING)
            # From here on each file is looked into or sent by itself.
            if failure.action not in (FailureAction.GIVE_UP, FailureAction.UNKNOWN):
                raise
            return
        for known, one in zip(album, sent, strict=True):
            await self._record(known, OutboxState.SENT, native_id=one.native_id)

    async def _record(self, known: _Slot, state: OutboxState, **more: str) -> None:
        now, entry_id = self._clock.now(), known.entry.id
        known.entry = await self._outbox.update_outbox(entry_id, state=state, at=now, **more)

    async def _note_lost(self, known: _Slot, failure: PlatformFailure) -> None:
        """Note why the fate is unknown; the time stays that of the claim, which is looked from."""
        entry = known.entry
        known.entry = await self._outbox.update_outbox(
            entry.id, state=OutboxState.SENDING, at=entry.updated_at, error=failure.message
        )

    # -- sends of unknown fate ---------------------------------------------------

    async def _find_out(self, known: _Slot, outgoing: Outgoing, line: Line) -> None:
        """Find a message that may have been sent; afterwards it has an id, or may be sent."""
        adapter, can = line.adapter, self.capabilities
        age = self._clock.now() - known.entry.updated_at
        if can.streams or (can.idempotent_sends and age < can.idempotent_seconds):
            return
        if isinstance(adapter, SentHistory):
            sent = await adapter.find_sent(outgoing, known.entry.updated_at)
            if sent is None:
                await self._record(known, OutboxState.PENDING)
            else:
                await self._record(known, OutboxState.SENDING, native_id=sent.native_id)
        elif isinstance(adapter, NumberedMessages):
            await self._probe(known, outgoing, line, adapter)
        else:
            error = known.entry.error or "The process ended while it was being sent."
            await self._end(known, OutboxState.UNKNOWN, f"It may not have arrived. {error}")

    async def _probe(
        self, known: _Slot, outgoing: Outgoing, line: Line, adapter: NumberedMessages
    ) -> None:
        found: str | None = None
        if known.mark is None and known.strays:
            # One placeholder is enough: the lost message or the last placeholder comes next.
            known.suspects = await self._unknown(known, line, adapter, most=2)
            found = await self._ours(known, outgoing, line, adapter)
        if found is None and known.mark is None:
            known.mark = await self._mark(known, outgoing, line)
            known.suspects = await self._unknown(known, line, adapter)
            if known.visible is not None and not known.strays:
                # It was sent a moment ago, and nothing else of ours can be there.
                known.suspects.reverse()
        if found is None:
            found = await self._ours(known, outgoing, line, adapter)
        if found is not None:
            known.visible = (outgoing.text, outgoing.buttons)
        elif outgoing.attachment is None:
            found, known.mark = known.mark, None
            known.visible = (PLACEHOLDER, ())
        if found is None:
            await self._record(known, OutboxState.PENDING)
        else:
            await self._record(known, OutboxState.SENDING, native_id=found)
        if known.mark is not None:
            await self._discard(known, known.mark)
            known.mark = None

    async def _unknown(
        self, known: _Slot, line: Line, adapter: NumberedMessages, most: int = MAX_SUSPECTS
    ) -> list[str]:
        """Return the ids since the last one known before the send of which nothing is known."""
        seen = await self._outbox.seen_in_chat(self._target, line.adapter.account)
        began = known.entry.updated_at
        earlier = [native_id for native_id, at in seen.items() if at < began]
        ids = (
            each
            for each in adapter.between(earlier, known.mark)
            if each not in seen and not adapter.foreign(each)
        )
        return list(islice(ids, most))

    async def _ours(
        self, known: _Slot, outgoing: Outgoing, line: Line, adapter: NumberedMessages
    ) -> str | None:
        """Return the suspect that could be made to look like the piece, if one of the first can."""
        private = self._target.chat_kind is ChatKind.PRIVATE
        tries, end = 0, self._clock.monotonic() + MAX_SEARCH
        while known.suspects and tries < (MAX_PRIVATE_TRIES if private else MAX_TRIES):
            suspect = known.suspects[0]
            if not adapter.foreign(suspect):
                if tries and self._clock.monotonic() > end:
                    break
                tries += 1
                if await self._edited(line, suspect, outgoing):
                    return known.suspects.pop(0)
            known.suspects.pop(0)
        return None

    async def _discard(self, known: _Slot, native_id: str) -> None:
        """Have a placeholder taken away later; until then nobody takes it for a lost message."""
        known.litter.append(native_id)
        entry = replace(
            known.entry,
            id=f"{known.entry.id}/{native_id}",
            turn_id=None,
            kind=OutboxKind.NOTICE,
            content=PLACEHOLDER,
            attachment=None,
            state=OutboxState.SENT,
            native_id=native_id,
            updated_at=self._clock.now(),
        )
        await self._outbox.enqueue(entry)

    async def _mark(self, known: _Slot, outgoing: Outgoing, line: Line) -> str:
        mark = replace(
            outgoing,
            text=PLACEHOLDER,
            plain=PLACEHOLDER,
            buttons=(),
            attachment=None,
            final=False,
            silent=True,
        )
        try:
            return (await line.adapter.send(mark)).native_id
        except PlatformFailure as failure:
            known.strays += failure.action is FailureAction.UNKNOWN
            raise

    async def _edited(self, line: Line, native_id: str, outgoing: Outgoing) -> bool:
        """Make a message look like this; False if it is not one of ours."""
        await self._pacer.wait(Urgency.FINAL)
        try:
            await line.adapter.edit(native_id, outgoing)
        except PlatformFailure as failure:
            if failure.action in (FailureAction.SEND_NEW, FailureAction.GIVE_UP):
                return False
            raise
        return True

    async def _find_strays(self, known: _Slot, line: Line) -> None:
        """Find the placeholders of which nobody knows whether they are there."""
        try:
            for stray in known.suspects[:2] if known.strays else ():
                if await self._edited(line, stray, self._placeholder(known)):
                    await self._discard(known, stray)
        except PlatformFailure as failure:
            log.info("placeholders may be left in a chat: %s", failure.message)
        known.strays = 0

    async def _tidy(self, known: _Slot) -> None:
        """Take away the placeholders that finding out has left; nobody waits for that."""
        litter, known.litter = known.litter, []
        for native_id in litter:
            await self._some_time(partial(self._delete, native_id))

    async def _delete(self, native_id: str, line: Line) -> None:
        await line.adapter.delete(self._target, native_id)

    async def _take_away(self, native_id: str) -> None:
        for _ in range(5):
            if await self._aside(Urgency.FINAL, partial(self._delete, native_id)) is None:
                return
            await self._connections.pause(FIRST_PAUSE)

    # -- until it works --------------------------------------------------------

    async def _preview(self, known: _Slot, outgoing: Outgoing) -> None:
        """Show a preview once, if there is room: what is urgent goes first."""
        order, line = self._connections.order(self._target), self._connections.line(self._target)
        if known.lost or line is None or not await self._pacer.wait(Urgency.PREVIEW):
            return
        if known.entry.native_id is not None:
            await self._attempt(known, lambda line: self._put(known, outgoing, line), line)
        elif not order.locked():
            async with order:
                await self._attempt(known, lambda line: self._put(known, outgoing, line), line)

    async def _persist(self, known: _Slot, call: Call) -> None:
        """Make a call until it works or is pointless."""
        while not await self._tries(known, call):
            pass
        if known.litter and self._connections.beside is not None:
            self._connections.beside(self._tidy(known))
        else:
            await self._tidy(known)

    async def _tries(self, known: _Slot, call: Call) -> bool:
        async with self._connections.order(self._target):
            for _ in range(TRIES_IN_A_ROW):
                line = await self._connections.connected(self._target)
                if self._clock.now() - known.entry.created_at > MAX_AGE:
                    await self._end(known, OutboxState.FAILED, TOO_OLD)
                    return True
                await self._pacer.wait(Urgency.FINAL)
                pause = await self._attempt(known, call, line)
                if pause is None:
                    await self._find_strays(known, line)
                    return True
                await self._connections.pause(pause)
        return False

    async def _attempt(self, known: _Slot, call: Call, line: Line) -> float | None:
        """Make a call; return the seconds after which another try is worth it, None if none is."""
        try:
            await call(line)
        except PlatformFailure as failure:
            return await self._after(known, failure)
        except HermesError:
            log.exception("outbox entry %s could not be recorded", known.entry.id)
            return None
        finally:
            self._pacer.done()
        line.sent()
        return None

    async def _after(self, known: _Slot, failure: PlatformFailure) -> float | None:
        moved_to = failure.moved_to
        if moved_to is not None and self._aim(replace(self._target, chat_id=moved_to)):
            return 0.0
        match failure.action:
            case FailureAction.GIVE_UP:
                await self._end(known, OutboxState.FAILED, failure.message)
                return None
            case FailureAction.WAIT:
                self._pacer.penalise(failure.retry_after, failure.scope)
                return 0.0
            case passing if passing in _PASSING:
                if failure.action is FailureAction.FATAL:
                    # The account is refused, not the answer: it waits until somebody has helped.
                    log.log(known.alarm, "%s waits: %s", known.entry.id, failure.message)
                    known.alarm = logging.DEBUG
                pause, known.pause = known.pause, min(known.pause * 2, LONGEST_PAUSE)
                return pause
            case _:
                if await self._adjusted(known, failure):
                    return 0.0
                await self._end(known, OutboxState.FAILED, failure.message)
                return None

    async def _adjusted(self, known: _Slot, failure: PlatformFailure) -> bool:
        """Change what the next try will do; False if there is nothing to change."""
        match failure.action:
            case FailureAction.PLAIN:
                again, known.plain_only = not known.plain_only, True
                return again
            case FailureAction.DROP_REPLY:
                return self._aim(replace(self._target, reply_to=None, context=""))
            case FailureAction.DROP_THREAD:
                return self._aim(replace(self._target, thread_id=None))
            case _:
                # The message is gone: there may be a new one.
                known.visible, known.gone = None, f"+{known.entry.native_id}"
                await self._record(known, OutboxState.PENDING)
                return True

    def _aim(self, target: Target) -> bool:
        """Send to another address from now on; False if it is the same."""
        changed, self._target = target != self._target, target
        return changed

    async def _end(self, known: _Slot, state: OutboxState, error: str) -> None:
        """Give a piece up, and say so."""
        await self._record(known, state, error=error)
        chat = f"{self._target.platform} chat {self._target.chat_id}"
        log.warning("%s for %s was not delivered: %s", known.entry.id, chat, error)
