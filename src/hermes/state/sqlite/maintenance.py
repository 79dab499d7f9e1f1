"""Work of the writer thread when nobody waits for it, a bounded piece at a time.

The search index is kept in step with the messages behind a watermark. Writing a
message never touches the index: messages up to `indexed_through` are in it, the writer
thread moves the watermark in idle moments, and a search moves it as far as needed
before it answers. And the file is shortened once a good part of it is unused.
"""

from sqlite3 import Connection

from hermes.state.sqlite.base import change, one

IDLE_BATCH = 64
"""Messages indexed at once. Small: a writer that arrives meanwhile waits for it."""
MIN_FREE_PAGES = 2_000
FREE_SHARE = 4
PAGES_AT_ONCE = 500


def some_upkeep(connection: Connection) -> bool:
    """Index some messages, then give some free space back; return whether more is left."""
    return index_some(connection, IDLE_BATCH) or _shrink(connection)


def is_behind(connection: Connection) -> bool:
    """Tell whether there are messages that are not in the index."""
    newest = _number(connection, "search.newest_message")
    return newest > _number(connection, "search.indexed_through")


def index_some(connection: Connection, limit: int) -> bool:
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


def forget_session(connection: Connection, session_id: str) -> None:
    """Take a session out of the index, before its messages are deleted.

    The index stores no text: it must be told exactly what it was given.
    """
    indexed = _number(connection, "search.indexed_through")
    values = {"session_id": session_id, "indexed": indexed}
    change(connection, "search.forget_words", values)
    change(connection, "search.forget_trigrams", values)


def _number(connection: Connection, query: str) -> int:
    row = one(connection, query)
    assert row is not None
    return int(row["id"])


def _shrink(connection: Connection) -> bool:
    """Shorten the file once a good part of it is unused, as after a prune."""
    free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
    if free < MIN_FREE_PAGES or free * FREE_SHARE < pages:
        return False
    for _ in range(PAGES_AT_ONCE):
        # One at a time: the sqlite3 module steps this statement once, which frees one page.
        connection.execute("PRAGMA incremental_vacuum(1)").fetchall()
    return True
