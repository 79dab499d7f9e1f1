"""Keeping the search index in step with the messages, behind a watermark.

Writing a message never touches the index. Messages up to `indexed_through`
are in it; the writer thread moves the watermark in idle moments, a search
moves it as far as needed before it answers.
"""

import sqlite3

from hermes.state.sqlite.part import change, one

__all__ = ["IDLE_BATCH", "SEARCH_BATCH", "forget_session", "index_some", "is_behind"]

IDLE_BATCH = 64
"""Small: a writer that arrives meanwhile waits for it."""
SEARCH_BATCH = 2000


def is_behind(connection: sqlite3.Connection) -> bool:
    """Tell whether there are messages that are not in the index."""
    return _number(connection, "search.newest_message") > _number(
        connection, "search.indexed_through"
    )


def index_some(connection: sqlite3.Connection, limit: int = IDLE_BATCH) -> bool:
    """Index the next messages; return whether more are left."""
    done = _number(connection, "search.indexed_through")
    row = one(connection, "search.batch_end", (done, limit))
    if row is None or row["id"] is None:
        return False
    end = int(row["id"])
    change(connection, "search.index_words", (done, end))
    change(connection, "search.index_trigrams", (done, end))
    change(connection, "search.set_indexed", (str(end),))
    return is_behind(connection)


def forget_session(connection: sqlite3.Connection, session_id: str) -> None:
    """Take a session out of the index, before its messages are deleted.

    The index stores no text: it must be told exactly what it was given.
    """
    values = {
        "session_id": session_id,
        "indexed": _number(connection, "search.indexed_through"),
    }
    change(connection, "search.forget_words", values)
    change(connection, "search.forget_trigrams", values)


def _number(connection: sqlite3.Connection, query: str) -> int:
    row = one(connection, query)
    assert row is not None
    return int(row["id"])
