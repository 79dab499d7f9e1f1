"""Search in all messages, and the upkeep of its index while the writer has nothing to do.

The two full-text indexes only find candidates: the newest `MAX_CANDIDATES`
matches among the newest `MAX_SCANNED`. Ranking is done on those (see
`search_text`): the index's own bm25 visits every occurrence of every word,
which takes longer the more ordinary the word is.

Writing a message never touches the index: messages up to `indexed_through` are in it,
the writer thread moves this watermark in idle moments, and a search moves it as far as
needed before it answers. Idle moments also shorten the file once a good part is unused.
"""

from sqlite3 import Connection, Row
from typing import Any

from msgspec.structs import replace

from hermes.domain.ports.ledger import SearchQuery
from hermes.domain.session import SearchHit
from hermes.state.search_text import MAX_CANDIDATES, SearchPlan, fold, plans_for, score, snippet
from hermes.state.sqlite.base import LedgerPart, change, many, one, row_of
from hermes.state.sqlite.rows import columns, reader

read_hit = reader(SearchHit, renamed={"id": "message_id", "timestamp": "at", "text": "snippet"})
_FILTERS = ("session_id", "agent_id", "user_id", "exclude_session_ids", "roles")
MAX_SCANNED = 20_000
"""How many of the newest matches are looked at when filters leave few of them."""

MAX_UNINDEXED = 5_000
"""How many of the newest messages are read when the index cannot help."""

SEARCH_BATCH = 2000
"""Messages that are indexed at once before a search."""

MAX_TERMS = 200
"""How many trigrams a needle of one or two characters may stand for."""

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
    found = [(row, fold(row["text"])) for row in _candidates(db, plan, query)]
    if not plan.words:
        found = [(row, folded) for row, folded in found if plan.matches(folded)]
    if not query.newest_first:
        found.sort(key=lambda pair: -score(plan, pair[1]))
    return [
        replace(read_hit(row), snippet=snippet(plan, row["text"], folded))
        for row, folded in found[: query.limit]
    ]


def _candidates(db: Connection, plan: SearchPlan, query: SearchQuery) -> list[Row]:
    values = _values(db, query)
    if plan.words:
        values["match"] = _words_match(plan)
        return _from_index(db, "search.by_words", values)
    values["match"] = _trigram_match(db, plan)
    if values["match"] is not None:
        return _from_index(db, "search.by_trigrams", values)
    values["scan"] = MAX_UNINDEXED
    needles = {max((n.text for n in group), key=len) for group in plan.alternatives}
    by_id = {
        row["id"]: row
        for needle in needles
        for row in many(db, "search.by_scan", values | {"match": needle})
    }
    return [by_id[key] for key in sorted(by_id, reverse=True)]


def _from_index(db: Connection, query: str, values: dict[str, Any]) -> list[Row]:
    """Look at few matches first and at many only if the filters leave too few of them."""
    if not values["match"]:
        return []
    found: list[Row] = []
    for scan in (values["candidates"], MAX_SCANNED):
        found = many(db, query, values | {"scan": scan})
        if len(found) >= values["candidates"] or not values["filtered"]:
            break
    return found


def _values(db: Connection, query: SearchQuery) -> dict[str, Any]:
    low, high = 0, 2**62
    if query.session_id is not None:
        between = row_of(db, "search.session_range", (query.session_id,))
        low, high = between["low"], between["high"]
    return columns(query) | {
        "low": low,
        "high": high,
        "candidates": max(MAX_CANDIDATES, query.limit),
        "filtered": any(getattr(query, name) for name in _FILTERS),
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
        long = [_quoted(needle.text) for needle in group if len(needle.text) >= 3]
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


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


# -- upkeep --------------------------------------------------------------------


def some_upkeep(db: Connection) -> bool:
    """Index some messages, then give some free space back; return whether more is left."""
    return index_some(db, IDLE_BATCH) or _shrink(db)


def is_behind(db: Connection) -> bool:
    """Tell whether there are messages that are not in the index."""
    newest = _number(db, "search.newest_message")
    return newest > _number(db, "search.indexed_through")


def index_some(db: Connection, limit: int) -> bool:
    """Index the next messages; return whether more are left."""
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
