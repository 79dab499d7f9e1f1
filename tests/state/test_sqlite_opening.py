import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fakes.ledgers import damage, inbound, new_run, outgoing, reply, session, texts, turn
from hermes.domain.errors import StoreError, StoreTooNew
from hermes.domain.outbound import OutboxState
from hermes.domain.runs import SessionChoice
from hermes.domain.turn import TurnState
from hermes.state.sqlite.base import queries
from hermes.state.sqlite.database import (
    APPLICATION_ID,
    SchemaStep,
    load_migrations,
    migrate,
    open_writer,
)
from hermes.state.sqlite.ledger import SqliteLedger


async def opened(folder: Path, **options: float) -> SqliteLedger:
    return await SqliteLedger.open(folder / "state.db", backups=folder / "backups", **options)


async def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await ledger.create_session(session())
    await ledger.begin_turn(turn(says="hello"))
    await ledger.close()
    again = await opened(tmp_path)
    assert texts(await again.history("s1")) == ["hello"]
    assert damage(tmp_path / "state.db") == []
    await again.close()
    assert (tmp_path / "state.db").stat().st_mode & 0o077 == 0, "for its owner's eyes only"
    assert not (tmp_path / "backups").exists(), "nothing had to be migrated"


async def test_the_database_says_whose_it_is_and_syncs_every_commit(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)

    def settings(connection: sqlite3.Connection) -> list[object]:
        wanted = ("application_id", "journal_mode", "synchronous", "foreign_keys")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted]

    assert await ledger._write(settings) == [APPLICATION_ID, "wal", 2, 1]
    await ledger.close()


async def test_a_ledger_of_the_earlier_hermes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    old = sqlite3.connect(path)
    old.execute("CREATE TABLE schema_version (version INTEGER)")
    old.commit()
    old.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"state\.db was written by an earlier Hermes") as caught:
        await opened(tmp_path)
    assert "mv " in caught.value.hint
    assert path.read_bytes() == before
    assert not (tmp_path / "state.db-wal").exists()


async def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "state.db")
    other.execute("CREATE TABLE things (x)")
    other.commit()
    other.close()
    with pytest.raises(StoreError, match="another program"):
        await opened(tmp_path)


async def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    ledger = await opened(tmp_path)
    assert (await ledger.stats()).sessions == 0
    await ledger.close()


async def test_a_newer_ledger_is_refused_with_the_next_step(tmp_path: Path) -> None:
    await (await opened(tmp_path)).close()
    raw = sqlite3.connect(tmp_path / "state.db")
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StoreTooNew, match="schema 99") as caught:
        await opened(tmp_path)
    assert "Update Hermes" in caught.value.hint


@pytest.mark.parametrize("content", [b"this is no database " * 300, b"x"])
async def test_a_file_that_is_no_database_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"state\.db is not a SQLite database") as caught:
        await opened(tmp_path)
    assert "Move the file aside" in caught.value.hint
    assert path.read_bytes() == content


async def test_damage_is_reported_with_the_next_step(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await ledger.create_session(session())
    await ledger.close()
    path = tmp_path / "state.db"
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged") as caught:
        await (await opened(tmp_path)).session("s1")
    assert "backups/" in caught.value.hint


async def test_a_place_that_cannot_hold_a_ledger_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made"):
        await opened(tmp_path / "file" / "home")
    (tmp_path / "home" / "state.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be opened"):
        await opened(tmp_path / "home")


async def test_a_full_disk_loses_nothing_and_is_survived(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await ledger.create_session(session())
    pages = await ledger._write(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    await ledger._write(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall())
    outcomes = await asyncio.gather(
        ledger.freeze_prompt("s1", "short"),
        ledger.begin_turn(turn("t1", says="x" * 200_000)),
        return_exceptions=True,
    )
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert failed
    assert all(isinstance(error, StoreError) for error in failed)
    assert "disk is full" in str(failed[-1])
    await ledger._write(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchall())
    await ledger.begin_turn(turn("t1", says="x" * 200_000))
    assert damage(tmp_path / "state.db") == []
    await ledger.close()


@pytest.fixture
def lock_holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the write lock until its standard input closes."""
    code = (
        "import sqlite3,sys;c=sqlite3.connect(sys.argv[1],isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE');print('locked',flush=True);sys.stdin.read()"
    )
    asyncio.run(make_ledger(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "state.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield holder
        holder.kill()


async def make_ledger(folder: Path) -> None:
    await (await opened(folder)).close()


def test_a_lock_of_another_process_is_waited_for_within_a_bound(
    lock_holder: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    async def scenario() -> None:
        impatient = await opened(tmp_path, busy_seconds=0.05)
        with pytest.raises(StoreError, match=f"process {lock_holder.pid}"):
            await impatient.create_session(session("s1"))
        patient = await opened(tmp_path, busy_seconds=20)
        async with asyncio.TaskGroup() as group:
            created = group.create_task(patient.create_session(session("s2")))
            assert lock_holder.stdin is not None
            lock_holder.stdin.close()
        assert created.result().id == "s2"
        await impatient.create_session(session("s1"))
        await impatient.close()
        await patient.close()

    asyncio.run(scenario())


def test_an_older_ledger_is_copied_before_it_is_migrated(tmp_path: Path) -> None:
    path, backups = tmp_path / "state.db", tmp_path / "backups"
    first = SchemaStep(version=1, text="CREATE TABLE a (x);\nINSERT INTO a VALUES (7);")
    second = SchemaStep(
        version=2,
        text="CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  DELETE FROM a;\nEND;\nDROP TABLE a;",
    )
    connection = open_writer(path)
    migrate(connection, path, backups, [first])
    assert not backups.exists()
    migrate(connection, path, backups, [first, second])
    assert connection.execute("PRAGMA user_version").fetchone()[0] == 2
    (copy,) = backups.iterdir()
    kept = sqlite3.connect(copy)
    assert kept.execute("SELECT x FROM a").fetchall() == [(7,)]
    kept.close()
    migrate(connection, path, backups, [first, second])
    assert len(list(backups.iterdir())) == 1
    connection.close()


SCHEMA_1_ROWS = """
INSERT INTO sessions (id, agent_id, source, model, provider, started_at, updated_at,
                      message_count, tool_call_count, next_seq)
  VALUES ('s1', 'main', 'cli', 'm', 'p', 1.0, 4.0, 4, 1, 5);
INSERT INTO session_prompts VALUES ('s1', 'You are Hermes.');
INSERT INTO turns (id, session_id, agent_id, owner, state, started_at, updated_at, finished_at)
  VALUES ('t1', 's1', 'main', 'o', 'done', 2.0, 4.0, 4.0);
INSERT INTO turns (id, session_id, agent_id, owner, state, started_at, updated_at)
  VALUES ('t2', 's1', 'main', 'o', 'running', 5.0, 5.0);
INSERT INTO messages (session_id, turn_id, seq, role, content, kind, timestamp)
  VALUES ('s1', 't1', 1, 'user', 'hello', 'user', 2.0);
INSERT INTO messages (session_id, turn_id, seq, role, content, tool_calls, finish_reason, timestamp)
  VALUES ('s1', 't1', 2, 'assistant', 'work', '[{"id":"c1","name":"tool_c1","arguments":"{}"}]',
          'tool_calls', 3.0);
INSERT INTO calls VALUES ('t1', 'c1', 3, 3.0);
INSERT INTO messages (session_id, turn_id, seq, role, content, tool_call_id, tool_name, outcome,
                      timestamp)
  VALUES ('s1', 't1', 3, 'tool', 'done', 'c1', 'tool_c1', 'ok', 3.5);
INSERT INTO messages (session_id, turn_id, seq, role, content, kind, timestamp)
  VALUES ('s1', 't2', 4, 'user', 'go on', 'user', 5.0);
INSERT INTO inbox (platform, account, native_id, agent_id, session_key, session_id, message,
                   admitted_at, state, turn_id)
  VALUES ('telegram', 'bot', 'n1', 'main', 'k', 's1', :message, 1.5, 'taken', 't1');
INSERT INTO outbox (id, agent_id, platform, account, chat_id, kind, content, created_at, part,
                    state, attempts, updated_at)
  VALUES ('o1', 'main', 'telegram', 'bot', '7', 'reply', 'text', 1.0, 0, 'pending', 0, 1.0);
INSERT INTO facts VALUES ('offset', '7');
"""


def make_schema_1(folder: Path) -> None:
    """Make a ledger as the first release wrote it, with something in it."""
    path = folder / "state.db"
    first = [migration for migration in load_migrations() if migration.version == 1]
    connection = open_writer(path)
    migrate(connection, path, folder / "backups", first)
    for statement in SCHEMA_1_ROWS.split(";\n")[:-1]:
        message = msgspec.json.encode(inbound("n1", "hello")).decode()
        connection.execute(statement, {"message": message} if ":message" in statement else {})
    connection.close()


async def test_a_ledger_of_the_first_schema_is_migrated_without_loss(tmp_path: Path) -> None:
    make_schema_1(tmp_path)
    ledger = await opened(tmp_path)
    assert (await ledger.stats()).schema_version == len(load_migrations())
    assert texts(await ledger.history("s1")) == ["hello", "work", "done", "go on"]
    found = await ledger.session("s1")
    assert found is not None
    assert (found.system_prompt, found.message_count) == ("You are Hermes.", 4)
    (entry,) = await ledger.entries_of_turn("t1")
    assert entry.message == inbound("n1", "hello")
    assert await ledger.outbox([OutboxState.PENDING]) == [outgoing("o1")]
    assert await ledger.kept("offset") == 7
    assert [turn.id for turn in await ledger.open_turns()] == ["t2"]
    assert await ledger.handed_call("c1") is None
    assert damage(tmp_path / "state.db") == []
    (copy,) = (tmp_path / "backups").iterdir()
    assert "schema1" in copy.name

    await ledger.record_reply("t2", reply("there", "c2"), None, 6.0)
    await ledger.finish_turn("t2", TurnState.DONE, None, 7.0, handed=True)
    assert await ledger.handed_call("c2") == "s1"
    run = (await ledger.open_run(new_run(choice=SessionChoice(session_id="s1")))).run
    assert run.session_id == "s1"
    await ledger.close()


def test_a_migrated_ledger_has_the_schema_of_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    make_schema_1(tmp_path / "old")

    def schema(path: Path) -> list[tuple[object, ...]]:
        connection = open_writer(path)
        migrate(connection, path, tmp_path / "backups", load_migrations())
        query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
        found = [tuple(row) for row in connection.execute(query)]
        connection.close()
        return found

    assert schema(tmp_path / "old" / "state.db") == schema(tmp_path / "new.db")


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = open_writer(path)
    broken = SchemaStep(version=1, text="CREATE TABLE a (x);\nNONSENSE;")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, path, tmp_path / "backups", [broken])
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    connection.close()


def test_migrations_are_numbered_without_gaps() -> None:
    versions = [migration.version for migration in load_migrations()]
    assert versions == list(range(1, len(versions) + 1))


def test_every_query_is_described_and_fits_the_schema(tmp_path: Path) -> None:
    connection = open_writer(tmp_path / "state.db")
    migrate(connection, tmp_path / "state.db", tmp_path / "backups", load_migrations())
    for name, text in queries().items():
        assert text.startswith("-- "), f"{name} has no description"
        unbound = text.count("?")
        values = (None,) * unbound if unbound else _Anything()
        connection.execute(f"EXPLAIN {text}", values)
    connection.close()


class _Anything(dict[str, None]):
    def __missing__(self, key: str) -> None:
        return None


async def test_many_openers_of_a_new_home_agree(tmp_path: Path) -> None:
    ledgers = await asyncio.gather(*(opened(tmp_path) for _ in range(6)))
    for n, ledger in enumerate(ledgers):
        await ledger.create_session(session(f"s{n}"))
    assert (await ledgers[0].stats()).sessions == 6
    for ledger in ledgers:
        await ledger.close()
