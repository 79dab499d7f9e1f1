"""Sends of unknown fate: whether a message that may have been sent is there.

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
"""

import logging
from itertools import islice

from msgspec.structs import replace

from hermes.control.delivery.place import Line, ReplyPlace, Slot
from hermes.control.delivery.rate_limit import Urgency
from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import OutboxKind, OutboxState
from hermes.domain.ports.platform import (
    FailureAction,
    NumberedMessages,
    Outgoing,
    PlatformFailure,
    SentHistory,
)

log = logging.getLogger(__name__)

PLACEHOLDER = "…"
MAX_TRIES, MAX_PRIVATE_TRIES = 5, 15
"""So many ids are tried for a lost message; only in private chats nobody else waits."""
MAX_SEARCH = 8.0
"""Seconds after which no further id is tried."""
MAX_SUSPECTS = 500


class LostSends:
    def __init__(self, place: ReplyPlace) -> None:
        self._place = place

    def placeholder(self, known: Slot) -> Outgoing:
        return Outgoing(
            target=self._place.target,
            text=PLACEHOLDER,
            plain=PLACEHOLDER,
            kind=known.entry.kind,
            final=False,
            key=known.entry.id,
        )

    async def find_out(self, known: Slot, outgoing: Outgoing, line: Line) -> None:
        """Find a message that may have been sent; afterwards it has an id, or may be sent."""
        adapter, can = line.adapter, self._place.capabilities
        age = self._place.clock.now() - known.entry.updated_at
        if can.streams or (can.idempotent_sends and age < can.idempotent_seconds):
            return
        if isinstance(adapter, SentHistory):
            sent = await adapter.find_sent(outgoing, known.entry.updated_at)
            if sent is None:
                await self._place.record(known, OutboxState.PENDING)
            else:
                await self._place.record(known, OutboxState.SENDING, native_id=sent.native_id)
        elif isinstance(adapter, NumberedMessages):
            await self._probe(known, outgoing, line, adapter)
        else:
            error = known.entry.error or "The process ended while it was being sent."
            await self._place.end(known, OutboxState.UNKNOWN, f"It may not have arrived. {error}")

    async def _probe(
        self, known: Slot, outgoing: Outgoing, line: Line, adapter: NumberedMessages
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
            await self._place.record(known, OutboxState.PENDING)
        else:
            await self._place.record(known, OutboxState.SENDING, native_id=found)
        if known.mark is not None:
            await self._discard(known, known.mark)
            known.mark = None

    async def _unknown(
        self, known: Slot, line: Line, adapter: NumberedMessages, most: int = MAX_SUSPECTS
    ) -> list[str]:
        """Return the ids since the last one known before the send of which nothing is known."""
        seen = await self._place.outbox.seen_in_chat(self._place.target, line.adapter.account)
        began = known.entry.updated_at
        earlier = [native_id for native_id, at in seen.items() if at < began]
        ids = (
            each
            for each in adapter.between(earlier, known.mark)
            if each not in seen and not adapter.foreign(each)
        )
        return list(islice(ids, most))

    async def _ours(
        self, known: Slot, outgoing: Outgoing, line: Line, adapter: NumberedMessages
    ) -> str | None:
        """Return the suspect that could be made to look like the piece, if one of the first can."""
        private = self._place.target.chat_kind is ChatKind.PRIVATE
        tries, end = 0, self._place.clock.monotonic() + MAX_SEARCH
        while known.suspects and tries < (MAX_PRIVATE_TRIES if private else MAX_TRIES):
            suspect = known.suspects[0]
            if not adapter.foreign(suspect):
                if tries and self._place.clock.monotonic() > end:
                    break
                tries += 1
                if await self._edited(line, suspect, outgoing):
                    return known.suspects.pop(0)
            known.suspects.pop(0)
        return None

    async def _discard(self, known: Slot, native_id: str) -> None:
        """Have a placeholder taken away later; until then nobody takes it for a lost message."""
        known.litter.append(native_id)
        await self.keep_apart(known, native_id)

    async def keep_apart(self, known: Slot, native_id: str) -> None:
        """Write down a message of ours that is not the piece."""
        entry = replace(
            known.entry,
            id=f"{known.entry.id}/{native_id}",
            turn_id=None,
            kind=OutboxKind.NOTICE,
            content=PLACEHOLDER,
            attachment=None,
            state=OutboxState.SENT,
            native_id=native_id,
            updated_at=self._place.clock.now(),
        )
        await self._place.outbox.enqueue(entry)

    async def _mark(self, known: Slot, outgoing: Outgoing, line: Line) -> str:
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
        await self._place.pacer.wait(Urgency.FINAL)
        try:
            await line.adapter.edit(native_id, outgoing)
        except PlatformFailure as failure:
            if failure.action in (FailureAction.SEND_NEW, FailureAction.GIVE_UP):
                return False
            raise
        return True

    async def find_strays(self, known: Slot, line: Line) -> None:
        """Find the placeholders of which nobody knows whether they are there."""
        try:
            for stray in known.suspects[:2] if known.strays else ():
                if await self._edited(line, stray, self.placeholder(known)):
                    await self._discard(known, stray)
        except PlatformFailure as failure:
            log.info("placeholders may be left in a chat: %s", failure.message)
        known.strays = 0

    async def tidy(self, known: Slot) -> None:
        """Take away the placeholders that finding out has left; nobody waits for that."""
        litter, known.litter = known.litter, []
        for native_id in litter:
            await self._place.some_time(self._place.deletion(native_id))
