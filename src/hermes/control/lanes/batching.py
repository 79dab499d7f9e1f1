"""Messages that belong together: split texts, albums, quick afterthoughts.

Chat clients split long texts and send albums as separate messages. What is
waiting in the inbox is grouped by who said it and how closely it came; a group
is complete when something else follows or nothing more has come for a moment.
The grouping depends only on what the ledger knows, so it survives a restart.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes.domain.inbound import InboxEntry


class BatchWindow(Struct, frozen=True, kw_only=True):
    """How long to wait for more, in seconds."""

    seconds: float = 0.0
    long_seconds: float = 0.0
    """After a text that is nearly as long as a message may be: it was probably split."""
    long_length: int = 3_500
    album_seconds: float = 0.0


NO_BATCHING = BatchWindow()


def first_batch(
    entries: Sequence[InboxEntry], window: BatchWindow, now: float
) -> tuple[list[InboxEntry], float]:
    """Return the first group of `entries`, and how long to wait until it is complete."""
    batch = [entries[0]]
    for entry in entries[1:]:
        if not _belongs(batch[-1], entry, window):
            return batch, 0.0
        batch.append(entry)
    wait = batch[-1].admitted_at + _patience(batch[-1], window) - now
    return batch, max(wait, 0.0)


def _belongs(before: InboxEntry, entry: InboxEntry, window: BatchWindow) -> bool:
    if before.message.sender.id != entry.message.sender.id:
        return False
    if _alone(before) or _alone(entry):
        return False
    patience = _patience(before, window)
    return patience > 0 and entry.admitted_at - before.admitted_at <= patience


def _alone(entry: InboxEntry) -> bool:
    return entry.message.internal or entry.message.text.startswith("/")


def _patience(entry: InboxEntry, window: BatchWindow) -> float:
    if _alone(entry):
        return 0.0
    if entry.message.group_id is not None:
        return window.album_seconds
    if len(entry.message.text) >= window.long_length:
        return window.long_seconds
    return window.seconds
