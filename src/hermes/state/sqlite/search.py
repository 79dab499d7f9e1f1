"""Search in all messages, and the upkeep of its index while the writer has nothing to do.

The two full-text indexes only find candidates: the newest `MAX_CANDIDATES`
matches among the newest `MAX_SCANNED`. Ranking is done on those (see
`search_text`): the index's own bm25 visits every occurrence of every word,
which takes longer the more ordinary the word is. The index of trigrams does not
know where they stand; what it finds is looked at.

Writing a message never touches the index: messages up to `indexed_through` are in it.
The newest ones, up to `UNINDEXED`, are read as they are instead: an index over few
messages is larger than they are, and one that grows by a message at a time is work at
each turn. The writer thread moves the watermark in idle moments, and a search moves it
as far as needed before it answers. Idle moments also shorten the file once a good part
is unused.
"""

from sqlite3 import Connection, Row
from typing import Any

from msgspec.structs import replace

from hermes.domain.ports.ledger import SearchQuery
from hermes.domain.session import SearchHit
from hermes.state.search_text import MAX_CANDIDATES, SearchPlan, fold, plans_for, score, snippet
from hermes.state.sqlite.base import LedgerPart, change, many, one, row_of
from hermes.state.sqlite.rows import columns, dump, reader

read_hit = reader(SearchHit, renamed={"id": "message_id", "timestamp": "at", "text": "snippet"})
Found = tuple[Row, str]
"""A message that was found, and its folded text."""
MAX_SCANNED = 20_000
"""How many of the newest matches are looked at when filters leave few of them."""

UNINDEXED = 1_000
"""How many of the newest messages need not be in the index."""

MAX_READ = 5_000
"""How many of the newest messages are read when the index cannot help."""

SEARCH_BATCH = 2000
"""Messages that are indexed at once before a search."""

MAX_TERMS = 200
"""How many trigrams a needle of one or two characters may stand for."""

MAX_TRIGRAMS = 8
IDLE_BATCH = 64
"""Messages indexed at once. Small: a writer that arrives meanwhile waits for it."""
MIN_FREE_PAGES = 2_000
FREE_SHARE = 4
PAGES_AT_ONCE = 500


class SearchPart(LedgerPart):
    async def search(self, query: SearchQuery) -> list[SearchHit]:
        plans = plans_for(query.text)
        if not plans or query.limit < 1:
            return []
        await self._catch_up()

        def work(db: Connection) -> list[SearchHit]:
            for plan in plans:
                if hits := _search(db, plan, query):
                    return hits
            return []

        return await self._read(work)

    async def rebuild_search(self) -> int:
        await self._write(_clear)
        await self._catch_up()
        return await self._read(lambda db: int(row_of(db, "ledger.stats")["messages"]))

    async def _catch_up(self) -> None:
        """Index what is missing, in pieces that leave room for other writers."""
        while await self._read(is_behind):
            await self._write(lambda db: index_some(db, SEARCH_BATCH))


def _search(db: Connection, plan: SearchPlan, query: SearchQuery) -> list[SearchHit]:
    found = _candidates(db, plan, _values(db, query))
    if not query.newest_first:
        found.sort(key=lambda pair: -score(plan, pair[1]))
    return [
        replace(read_hit(row), snippet=snippet(plan, row["text"], folded))
        for row, folded in found[: query.limit]
    ]


def _candidates(db: Connection, plan: SearchPlan, values: dict[str, Any]) -> list[Found]:
    """Look at few matches first and at many only if too few of them are left over."""
    indexed = _number(db, "search.indexed_through")
    match = _words_match(plan) if plan.words else _trigram_match(db, plan)
    if match is None:
        return _passed(db, plan, values, _read_ids(db, plan, values, MAX_READ))
    recent = _read_ids(db, plan, values | {"low": max(values["low"], indexed + 1)}, -1)
    name = "search.by_words" if plan.words else "search.by_trigrams"
    old = values | {"match": match, "high": min(values["high"], indexed)}
    found: list[Found] = []
    for scan in (values["candidates"], MAX_SCANNED):
        rows = many(db, name, old | {"scan": scan}) if match else []
        found = _passed(db, plan, values, [*recent, *(row["id"] for row in rows)])
        if len(found) >= values["candidates"] or len(rows) < scan:
            break
    return found


def _read_ids(db: Connection, plan: SearchPlan, values: dict[str, Any], limit: int) -> list[int]:
    """Read the newest messages as they are; return which of them match."""
    rows = many(db, "search.texts", values | {"scan": limit})
    return [row["id"] for row in rows if plan.matches(fold(row["text"]))]


def _passed(
    db: Connection, plan: SearchPlan, values: dict[str, Any], ids: list[int]
) -> list[Found]:
    if not ids:
        return []
    rows = many(db, "search.candidates", values | {"ids": dump(ids)})
    found = [(row, fold(row["text"])) for row in _once(rows)]
    return found if plan.words else [pair for pair in found if plan.matches(pair[1])]


def _once(rows: list[Row]) -> list[Row]:
    """Leave out what newer branches of a conversation have as well: a message is found once."""
    copied = {_seat(row) for row in rows if row["copied"]}
    newest: dict[object, Row] = {}
    for row in rows:
        newest.setdefault(_seat(row) if _seat(row) in copied else row["id"], row)
    return list(newest.values())


def _seat(row: Row) -> tuple[object, ...]:
    return row["seq"], row["role"], row["timestamp"], row["text"]


def _values(db: Connection, query: SearchQuery) -> dict[str, Any]:
    low, high = 0, 2**62
    if query.session_id is not None:
        between = row_of(db, "search.session_range", (query.session_id,))
        low, high = between["low"], between["high"]
    return columns(query) | {
        "low": low,
        "high": high,
        "candidates": max(MAX_CANDIDATES, query.limit),
    }


def _words_match(plan: SearchPlan) -> str:
    return " OR ".join(
        "("
        + " AND ".join(_quoted(needle.text) + ("*" if needle.prefix else "") for needle in group)
        + ")"
        for group in plan.alternatives
    )


def _trigram_match(db: Connection, plan: SearchPlan) -> str | None:
    """Return the match expression; empty if nothing can match, None if the index cannot say."""
    alternatives: list[str] = []
    for group in plan.alternatives:
        long = [term for needle in group for term in _trigrams(needle.text)]
        if long:
            alternatives.append("(" + " AND ".join(long) + ")")
            continue
        terms = _terms(db, max((needle.text for needle in group), key=len))
        if len(terms) > MAX_TERMS:
            return None
        if terms:
            alternatives.append("(" + " OR ".join(map(_quoted, terms)) + ")")
    return " OR ".join(alternatives)


def _terms(db: Connection, beginning: str) -> list[str]:
    """Return the trigrams that begin like this."""
    values = {"low": beginning, "high": beginning + "\U0010ffff", "limit": MAX_TERMS + 1}
    return [row["term"] for row in many(db, "search.terms", values)]


def _trigrams(text: str) -> list[str]:
    """Return trigrams that a text with this in it has: of long needles, enough of them."""
    last = len(text) - 3
    places = range(0, last + 1, 1 if last < MAX_TRIGRAMS else 3)
    return [_quoted(text[at : at + 3]) for at in dict.fromkeys((*places, last)) if at >= 0]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


# -- upkeep --------------------------------------------------------------------


def some_upkeep(db: Connection) -> bool:
    """Index some messages, then give some free space back; return whether more is left."""
    return index_some(db, IDLE_BATCH) or _shrink(db)


def is_behind(db: Connection) -> bool:
    """Tell whether more messages than need be are not in the index."""
    newest = _number(db, "search.newest_message")
    return newest > _number(db, "search.indexed_through") + UNINDEXED


def index_some(db: Connection, limit: int) -> bool:
    """Index the next messages; return whether more are left."""
    if not is_behind(db):
        return False
    done = _number(db, "search.indexed_through")
    row = one(db, "search.batch_end", (done, limit))
    if row is None or row["id"] is None:
        return False
    end = int(row["id"])
    change(db, "search.index_words", (done, end))
    change(db, "search.index_trigrams", (done, end))
    change(db, "search.set_indexed", (str(end),))
    return is_behind(db)


def _clear(db: Connection) -> None:
    for step in ("clear_words", "clear_trigrams"):
        change(db, f"search.{step}")
    change(db, "search.set_indexed", ("0",))


def forget_session(db: Connection, session_id: str) -> None:
    """Take a session out of the index, before its messages are deleted.

    The index stores no text: it must be told exactly what it was given.
    """
    indexed = _number(db, "search.indexed_through")
    values = {"session_id": session_id, "indexed": indexed}
    change(db, "search.forget_words", values)
    change(db, "search.forget_trigrams", values)


def _number(db: Connection, query: str) -> int:
    return int(row_of(db, query)["id"])


def _shrink(db: Connection) -> bool:
    """Shorten the file once a good part of it is unused, as after a prune."""
    free = int(db.execute("PRAGMA freelist_count").fetchone()[0])
    pages = int(db.execute("PRAGMA page_count").fetchone()[0])
    if free < MIN_FREE_PAGES or free * FREE_SHARE < pages:
        return False
    for _ in range(PAGES_AT_ONCE):
        # One at a time: the sqlite3 module steps this statement once, which frees one page.
        db.execute("PRAGMA incremental_vacuum(1)").fetchall()
    return True
