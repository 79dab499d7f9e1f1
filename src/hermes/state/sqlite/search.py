"""Search in all messages.

The two full-text indexes only find candidates: the newest `MAX_CANDIDATES`
matches among the newest `MAX_SCANNED`. Ranking is done on those (see
`search_text`): the index's own bm25 visits every occurrence of every word,
which takes longer the more ordinary the word is.
"""

from sqlite3 import Connection, Row
from typing import Any

from hermes.domain.ports.ledger import SearchHit, SearchQuery
from hermes.state.search_text import MAX_CANDIDATES, SearchPlan, fold, plans_for, score, snippet
from hermes.state.sqlite.base import LedgerPart, many, one
from hermes.state.sqlite.maintenance import index_some, is_behind
from hermes.state.sqlite.rows import columns

MAX_SCANNED = 20_000
"""How many of the newest matches are looked at when filters leave few of them."""

MAX_UNINDEXED = 5_000
"""How many of the newest messages are read when the index cannot help."""

SEARCH_BATCH = 2000
"""Messages that are indexed at once before a search."""

MAX_TERMS = 200
"""How many trigrams a needle of one or two characters may stand for."""


class SearchPart(LedgerPart):
    """Implements the search half of `MessageStore`."""

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        plans = plans_for(query.text)
        if not plans or query.limit < 1:
            return []
        await self._catch_up()

        def work(connection: Connection) -> list[SearchHit]:
            for plan in plans:
                if hits := _search(connection, plan, query):
                    return hits
            return []

        return await self._read(work)

    async def _catch_up(self) -> None:
        """Index what is missing, in pieces that leave room for other writers."""
        while await self._read(is_behind):
            await self._write(lambda connection: index_some(connection, SEARCH_BATCH))


def _search(connection: Connection, plan: SearchPlan, query: SearchQuery) -> list[SearchHit]:
    found = [(row, fold(row["text"])) for row in _candidates(connection, plan, query)]
    if not plan.words:
        found = [(row, folded) for row, folded in found if plan.matches(folded)]
    if not query.newest_first:
        found.sort(key=lambda pair: -score(plan, pair[1]))
    return [_hit(plan, row, folded) for row, folded in found[: query.limit]]


def _candidates(connection: Connection, plan: SearchPlan, query: SearchQuery) -> list[Row]:
    values = _values(connection, query)
    if plan.words:
        values["match"] = _words_match(plan)
        return _from_index(connection, "search.by_words", values)
    values["match"] = _trigram_match(connection, plan)
    if values["match"] is not None:
        return _from_index(connection, "search.by_trigrams", values)
    values["scan"] = MAX_UNINDEXED
    needles = {max((n.text for n in group), key=len) for group in plan.alternatives}
    by_id = {
        row["id"]: row
        for needle in needles
        for row in many(connection, "search.by_scan", values | {"match": needle})
    }
    return [by_id[key] for key in sorted(by_id, reverse=True)]


def _from_index(connection: Connection, query: str, values: dict[str, Any]) -> list[Row]:
    """Look at few matches first and at many only if the filters leave too few of them."""
    if not values["match"]:
        return []
    found: list[Row] = []
    for scan in (values["candidates"], MAX_SCANNED):
        found = many(connection, query, values | {"scan": scan})
        if len(found) >= values["candidates"] or not values["filtered"]:
            break
    return found


def _values(connection: Connection, query: SearchQuery) -> dict[str, Any]:
    low, high = 0, 2**62
    if query.session_id is not None:
        between = one(connection, "search.session_range", (query.session_id,))
        assert between is not None
        low, high = between["low"], between["high"]
    return columns(query) | {
        "low": low,
        "high": high,
        "candidates": max(MAX_CANDIDATES, query.limit),
        "filtered": _is_filtered(query),
    }


def _is_filtered(query: SearchQuery) -> bool:
    return bool(
        query.session_id
        or query.agent_id
        or query.user_id
        or query.exclude_session_ids
        or query.exclude_sources
        or query.roles
    )


def _words_match(plan: SearchPlan) -> str:
    return " OR ".join(
        "("
        + " AND ".join(_quoted(needle.text) + ("*" if needle.prefix else "") for needle in group)
        + ")"
        for group in plan.alternatives
    )


def _trigram_match(connection: Connection, plan: SearchPlan) -> str | None:
    """Return the match expression; empty if nothing can match, None if the index cannot say."""
    alternatives: list[str] = []
    for group in plan.alternatives:
        long = [_quoted(needle.text) for needle in group if len(needle.text) >= 3]
        if long:
            alternatives.append("(" + " AND ".join(long) + ")")
            continue
        terms = _terms(connection, max((needle.text for needle in group), key=len))
        if len(terms) > MAX_TERMS:
            return None
        if terms:
            alternatives.append("(" + " OR ".join(map(_quoted, terms)) + ")")
    return " OR ".join(alternatives)


def _terms(connection: Connection, beginning: str) -> list[str]:
    """Return the trigrams that begin like this."""
    values = {"low": beginning, "high": beginning + "\U0010ffff", "limit": MAX_TERMS + 1}
    return [row["term"] for row in many(connection, "search.terms", values)]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _hit(plan: SearchPlan, row: Row, folded: str) -> SearchHit:
    return SearchHit(
        session_id=row["session_id"],
        title=row["title"],
        source=row["source"],
        message_id=row["id"],
        seq=row["seq"],
        role=row["role"],
        at=row["timestamp"],
        snippet=snippet(plan, row["text"], folded),
    )
