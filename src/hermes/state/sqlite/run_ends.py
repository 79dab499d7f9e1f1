"""The end of a run, which is recorded alone or with the end of its turn."""

from collections.abc import Sequence
from sqlite3 import Connection, Row
from typing import Any

import msgspec

from hermes.domain.events import TurnEvent
from hermes.domain.messages import AssistantMessage
from hermes.domain.runs import RunOutcome
from hermes.domain.session import StoredMessage
from hermes.state.sqlite.base import change, one, row_of, sql
from hermes.state.sqlite.rows import dump


class RunEnd:
    """Records the outcome of a run and its last events; False if it had an outcome."""

    def __init__(
        self, run_id: str, outcome: RunOutcome, events: Sequence[TurnEvent], at: float
    ) -> None:
        if outcome.state.open:
            raise ValueError(f"a run cannot end as {outcome.state.value}")
        # Encoded here, on the caller's thread: the writer serves everybody.
        self._texts = [dump(event) for event in events]
        self._text = outcome.text
        self._whole = dump(outcome)
        self._bare = dump(msgspec.structs.replace(outcome, text=""))
        self._run_id = run_id
        self._at = at
        self._values = {"id": run_id, "state": outcome.state, "events": len(self._texts), "at": at}

    def __call__(self, db: Connection, reply: StoredMessage | None = None) -> bool:
        """`reply`: what was just said in the turn, if that is known."""
        run_id = self._run_id
        end = one(db, "runs.end", (run_id,))
        if end is None:
            return False
        kept: dict[str, Any] = {"outcome": self._whole, "said_id": None}
        said_id, text = _said(db, end, reply)
        if said_id is not None and text == self._text:
            kept = {"outcome": self._bare, "said_id": said_id}
        row = row_of(db, "runs.finish", self._values | kept | _through(db, end))
        append_events(db, run_id, row["last_event"], self._texts, self._at)
        if change(db, "runs.keep_turn", (run_id,)):
            change(db, "runs.leave_inbox", (run_id,))
        else:
            change(db, "runs.mark_answered", (run_id,))
        return True


def _said(db: Connection, end: Row, reply: StoredMessage | None) -> tuple[int | None, str]:
    """Return the last thing that was said in the turn of a run: its id and its text."""
    if reply is not None and reply.turn_id == end["turn_id"]:
        assert isinstance(reply.message, AssistantMessage)
        return reply.id, reply.message.text
    row = one(db, "runs.said", (end["session_id"], end["turn_id"]))
    return (None, "") if row is None else (row["id"], row["content"])


def append_events(db: Connection, run_id: str, last: int, texts: Sequence[str], at: float) -> None:
    first = last - len(texts) + 1
    numbered = [(run_id, seq, at, text) for seq, text in enumerate(texts, start=first)]
    db.executemany(sql("runs.insert_event"), numbered)


def _through(db: Connection, end: Row) -> dict[str, int | None]:
    """Tell how far the history goes that a run leaves: to the end of its turn.

    Without a turn of its own (it was taken out of the queue) that is what was
    there before the turn that is running now.
    """
    if end["next_seq"] is None:
        return {"through_seq": None, "through_id": None}
    if end["through_seq"] is not None:
        return {"through_seq": end["through_seq"], "through_id": end["through_id"]}
    if end["open_turn"] not in (None, end["turn_id"]):
        first = one(db, "runs.first_of_turn", (end["session_id"], end["open_turn"]))
        if first is not None and first["seq"] is not None:
            return {"through_seq": first["seq"] - 1, "through_id": first["id"] - 1}
    return {"through_seq": end["next_seq"] - 1, "through_id": end["newest"]}
