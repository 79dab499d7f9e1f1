"""The base of every part of the ledger: the writer, the readers and the named queries.

SQL is read once from the `.sql` files beside this module. A block starts with
`-- name: <name>`; the comment line after it says what the query does.
`sql("turns.insert")` is block `insert` of `turns.sql`.
"""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache, wraps
from importlib.resources import files
from sqlite3 import Connection, Row
from typing import Any, Concatenate, ParamSpec, TypeVar

from hermes.state.sqlite.errors import unknown_session
from hermes.state.sqlite.readers import Readers
from hermes.state.sqlite.writer import Writer

T = TypeVar("T")
P = ParamSpec("P")
L = TypeVar("L", bound="LedgerPart")
Read = Callable[[Row], T]
Parameters = Sequence[Any] | Mapping[str, Any]

_HEADER = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


class LedgerPart:
    """A group of verbs over the shared connections; the port says what each verb does."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers
        self._write = writer.run
        self._read = readers.run
        self._quick = readers.quick
        """For a few rows by key."""

    async def _get(self, read: Read[T], query: str, parameters: Parameters) -> T | None:
        """Return the value of one row by key, or None."""
        row = await self._quick(lambda db: one(db, query, parameters))
        return None if row is None else read(row)

    async def _few(self, read: Read[T], query: str, parameters: Parameters) -> list[T]:
        """Return the values of a few rows by key."""
        return [read(row) for row in await self._quick(lambda db: many(db, query, parameters))]

    async def _list(self, read: Read[T], query: str, parameters: Parameters = ()) -> list[T]:
        """Return the values of any number of rows."""
        return await self._read(lambda db: [read(row) for row in many(db, query, parameters)])

    async def _change(self, read: Read[T], query: str, parameters: Parameters) -> T | None:
        """Run a query that changes one row; return its new value, or None."""
        row = await self._write(lambda db: one(db, query, parameters))
        return None if row is None else read(row)


def transaction(
    verb: Callable[Concatenate[L, Connection, P], T],
) -> Callable[Concatenate[L, P], Coroutine[Any, Any, T]]:
    """Make a verb of a method that writes: all of it is committed when it returns, or nothing."""

    @wraps(verb)
    async def committed(part: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await part._write(lambda db: verb(part, db, *args, **kwargs))  # noqa: SLF001

    return committed


def sql(name: str) -> str:
    return queries()[name]


@cache
def queries() -> dict[str, str]:
    folder = files("hermes.state.sqlite") / "sql"
    found: dict[str, str] = {}
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            subject = file.name.removesuffix(".sql")
            blocks = _HEADER.split(file.read_text(encoding="utf-8"))[1:]
            for name, text in zip(blocks[::2], blocks[1::2], strict=True):
                found[f"{subject}.{name}"] = text.strip()
    return found


def many(db: Connection, query: str, parameters: Parameters = ()) -> list[Row]:
    """Run a named query to its end and return all rows."""
    return db.execute(sql(query), parameters).fetchall()


def one(db: Connection, query: str, parameters: Parameters = ()) -> Row | None:
    """Run a named query to its end and return the first row, if any.

    To its end: a statement with RETURNING that is left open blocks the commit.
    """
    found = db.execute(sql(query), parameters).fetchall()
    return found[0] if found else None


def row_of(db: Connection, query: str, parameters: Parameters = ()) -> Row:
    """Run a named query that always finds something and return its first row."""
    row = one(db, query, parameters)
    assert row is not None, query
    return row


def change(db: Connection, query: str, parameters: Parameters = ()) -> int:
    """Run a named query without results and return how many rows it changed."""
    return db.execute(sql(query), parameters).rowcount


def check_session(db: Connection, session_id: str) -> None:
    if one(db, "sessions.exists", (session_id,)) is None:
        raise unknown_session(session_id)
