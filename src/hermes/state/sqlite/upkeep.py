"""What the writer thread does when nobody waits for it, a bounded piece at a time."""

import sqlite3

from hermes.state.sqlite.indexing import index_some

__all__ = ["some_upkeep"]

MIN_FREE_PAGES = 2_000
FREE_SHARE = 4
PAGES_AT_ONCE = 500


def some_upkeep(connection: sqlite3.Connection) -> bool:
    """Index some messages, then give some free space back; return whether more is left."""
    return index_some(connection) or _shrink(connection)


def _shrink(connection: sqlite3.Connection) -> bool:
    """Shorten the file once a good part of it is unused, as after a prune."""
    free = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
    if free < MIN_FREE_PAGES or free * FREE_SHARE < pages:
        return False
    for _ in range(PAGES_AT_ONCE):
        # One at a time: the sqlite3 module steps this statement once, which frees one page.
        connection.execute("PRAGMA incremental_vacuum(1)").fetchall()
    return True
