import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from fakes.ledgers import arrival, damage, reply, session, texts, turn
from hermes.domain.errors import StoreError
from hermes.domain.messages import AssistantMessage, ToolCall, UserMessage
from hermes.domain.ports.ledger import SearchQuery
from hermes.domain.turn import NewTurn
from hermes.state.sqlite import search
from hermes.state.sqlite.database import open_reader
from hermes.state.sqlite.ledger import SqliteLedger


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    opened = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path / "backups")
    yield opened
    await opened.close()


class Gate:
    """Holds the writer thread inside a transaction until it is let go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.inside.set()
        assert self.go.wait(10)

    async def closed(self, ledger: SqliteLedger) -> "asyncio.Future[None]":
        task = asyncio.ensure_future(ledger._write(self))
        await asyncio.to_thread(self.inside.wait, 10)
        return task


async def test_one_failure_in_a_batch_leaves_the_others_alone(ledger: SqliteLedger) -> None:
    await ledger.create_session(session("s1"))
    gate = Gate()
    first = await gate.closed(ledger)
    batch = [
        asyncio.ensure_future(ledger.create_session(session(name))) for name in ("s2", "s1", "s3")
    ]
    await asyncio.sleep(0)
    gate.go.set()
    outcomes = await asyncio.gather(first, *batch, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "NoneType",
        "Session",
        "Conflict",
        "Session",
    ]
    assert (await ledger.stats()).sessions == 3


async def test_a_bug_in_a_transaction_is_the_callers_and_undoes_its_writes(
    ledger: SqliteLedger,
) -> None:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO state_meta VALUES ('x', 'y')")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ledger._write(work)
    rows = await ledger._read(lambda c: c.execute("SELECT key FROM state_meta").fetchall())
    assert [row["key"] for row in rows] == ["indexed_through"]


async def test_an_unexpected_error_of_sqlite_is_a_store_error(ledger: SqliteLedger) -> None:
    with pytest.raises(StoreError, match="no such table"):
        await ledger._write(lambda c: c.execute("SELECT * FROM nowhere"))
    with pytest.raises(StoreError, match="no such table"):
        await ledger._read(lambda c: c.execute("SELECT * FROM nowhere"))
    with pytest.raises(StoreError):
        await ledger._read(lambda c: c.execute("DELETE FROM sessions"))


async def test_work_handed_in_is_done_though_its_caller_is_cancelled(ledger: SqliteLedger) -> None:
    gate = Gate()
    first = await gate.closed(ledger)
    cancelled = asyncio.ensure_future(ledger.create_session(session("s1")))
    await asyncio.sleep(0)
    cancelled.cancel()
    gate.go.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await ledger.create_session(session("s2"))
    assert await ledger.session("s1") is not None


async def test_closing_finishes_what_was_handed_in(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path / "backups")
    gate = Gate()
    first = await gate.closed(ledger)
    pending = [asyncio.ensure_future(ledger.create_session(session(f"s{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(ledger.close())
    await asyncio.sleep(0)
    gate.go.set()
    await asyncio.gather(first, closing, *pending)
    with pytest.raises(StoreError, match="closed"):
        await ledger.create_session(session("late"))
    with pytest.raises(StoreError, match="closed"):
        await ledger.session("s1")
    await ledger.close()
    again = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path / "backups")
    assert (await again.stats()).sessions == 50
    await again.close()


async def test_the_event_loop_goes_on_while_the_disk_is_slow(ledger: SqliteLedger) -> None:
    gate = Gate()
    first = await gate.closed(ledger)
    assert await ledger.session("s1") is None, "reads do not wait for the writer"
    gate.go.set()
    await first


async def test_text_that_is_not_unicode_is_kept_as_far_as_it_can_be(ledger: SqliteLedger) -> None:
    await ledger.create_session(session())
    bad = UserMessage(content="a\udcffb\0c", sender="x\ud800")
    call = ToolCall(id="c1", name="read", arguments='"\ud800"')
    await ledger.begin_turn(NewTurn(id="t1", session_id="s1", owner="o", inputs=(bad,), at=2.0))
    await ledger.record_reply("t1", AssistantMessage(text="\udfff", tool_calls=(call,)), None, 3.0)
    stored = await ledger.history("s1")
    assert texts(stored) == ["a\ufffdb\0c", "\ufffd"]
    assert len(await ledger.search(SearchQuery(text="\udcff"))) == 2
    entry = (await ledger.admit(arrival("n1", "\ud800"))).entry
    assert entry.message.text == "\ufffd"


async def test_the_log_is_folded_into_the_database_as_it_grows(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    log, largest = tmp_path / "state.db-wal", 0
    for _ in range(40):
        replies = (reply("x" * 10_000) for _ in range(100))
        await asyncio.gather(*(ledger.record_reply("t1", r, None, 3.0) for r in replies))
        largest = max(largest, log.stat().st_size)
    assert largest < 12_000_000
    assert (tmp_path / "state.db").stat().st_size > 20_000_000
    assert damage(tmp_path / "state.db") == []


async def test_the_log_is_small_when_nothing_happens(ledger: SqliteLedger, tmp_path: Path) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    log = tmp_path / "state.db-wal"
    await asyncio.gather(
        *(ledger.record_reply("t1", reply("x" * 100_000), None, 3.0) for _ in range(150))
    )
    assert log.stat().st_size > 12_000_000, "one commit is one commit"
    async with asyncio.timeout(10):
        while log.stat().st_size > 8_388_608:
            await asyncio.to_thread(threading.Event().wait, 0.05)
    await ledger.record_reply("t1", reply("And on."), None, 4.0)
    assert len(await ledger.history("s1")) == 152
    assert damage(tmp_path / "state.db") == []


async def test_a_log_that_is_being_read_is_left_as_it_is(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    with closing(open_reader(tmp_path / "state.db")) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM messages").fetchone()[0]
        for number in range(3):
            replies = (reply("x" * 100_000) for _ in range(60))
            await asyncio.gather(*(ledger.record_reply("t1", r, None, 3.0) for r in replies))
            await asyncio.to_thread(threading.Event().wait, 0.4)  # the idle work of the writer
            assert reader.execute("SELECT count(*) FROM messages").fetchone()[0] == before
            assert len(await ledger.history("s1")) == 1 + 60 * (number + 1)
    async with asyncio.timeout(10):
        await ledger.record_reply("t1", reply("And on."), None, 4.0)
        while (tmp_path / "state.db-wal").stat().st_size > 8_388_608:
            await asyncio.to_thread(threading.Event().wait, 0.05)
    assert damage(tmp_path / "state.db") == []


async def test_the_index_follows_in_idle_moments(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    assert len(await ledger.search(SearchQuery(text="Hello"))) == 1
    assert await _indexed(ledger) == 0, "few messages are read as they are"
    monkeypatch.setattr(search, "UNINDEXED", 0)
    await ledger.record_reply("t1", reply("Good day"), None, 3.0)
    async with asyncio.timeout(10):
        while await _indexed(ledger) < 1:
            await asyncio.to_thread(threading.Event().wait, 0.05)


async def _indexed(ledger: SqliteLedger) -> int:
    query = "SELECT value FROM state_meta WHERE key = 'indexed_through'"
    row = await ledger._read(lambda c: c.execute(query).fetchone())
    return int(row["value"])


async def test_the_file_shrinks_after_much_was_deleted(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    await ledger.create_session(session("big"))
    await ledger.create_session(session("small"))
    await ledger.begin_turn(turn(session_id="big"))
    for _ in range(30):
        await ledger.record_reply("t1", reply("x" * 500_000), None, 3.0)
    before = (await ledger.stats()).bytes
    await ledger.delete_session("big")
    async with asyncio.timeout(20):
        while (await ledger.stats()).bytes > before / 2:
            await asyncio.to_thread(threading.Event().wait, 0.05)
    assert damage(tmp_path / "state.db") == []


async def test_the_index_stays_true_through_deletes(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "UNINDEXED", 0)
    for n in range(3):
        await ledger.create_session(session(f"s{n}"))
        await ledger.begin_turn(turn(f"t{n}", session_id=f"s{n}", says=f"needle number {n}"))
    assert len(await ledger.search(SearchQuery(text="needle"))) == 3
    await ledger.delete_session("s1")
    found = await ledger.search(SearchQuery(text="needle"))
    assert {hit.session_id for hit in found} == {"s0", "s2"}

    def check(connection: sqlite3.Connection) -> None:
        for index in ("messages_fts", "messages_fts_trigram"):
            connection.execute(f"INSERT INTO {index}({index}, rank) VALUES('integrity-check', 1)")

    await ledger._write(check)
