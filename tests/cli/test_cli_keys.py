"""`hermes keys`, as a person uses it beside a running gateway."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fakes.hermes_cli import hermes
from hermes.entry.http.guards import KeyRing
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_without_a_home_there_are_no_keys_and_nothing_is_made(home: Path) -> None:
    done = hermes(home, "keys", "list")
    assert done.returncode == 0, done.stderr
    assert "no keys" in done.stderr
    assert not home.exists()


async def test_a_key_made_while_a_server_runs_is_good_at_once_and_bad_once_revoked(
    home: Path,
) -> None:
    ledger = await SqliteLedger.open(home / "state.db", backups=home / "backups")
    try:
        ring = KeyRing(ledger, SystemClock(), tuple)
        made = hermes(home, "keys", "create", "laptop", "--agent", "main", "--action", "run")
        assert made.returncode == 0, made.stderr
        secret = made.stdout.strip()
        caller = await ring.caller(secret.encode())
        assert caller is not None
        assert (caller.name, caller.agents, set(caller.actions)) == ("laptop", ("main",), {"run"})
        assert hermes(home, "keys", "revoke", "laptop").returncode == 0
        assert await ring.caller(secret.encode()) is None
    finally:
        await ledger.close()


def test_an_agent_goes_by_the_name_it_has_in_requests(home: Path) -> None:
    made = hermes(home, "keys", "create", "laptop", "--agent", "hermes")
    assert made.returncode == 0, made.stderr
    assert "main: run" in made.stderr
    unknown = hermes(home, "keys", "create", "phone", "--agent", "nobody")
    assert unknown.returncode != 0
    assert "There is no agent `nobody`." in unknown.stderr
    assert "phone" not in hermes(home, "keys", "list").stdout


def test_the_key_is_printed_once_and_stored_nowhere(home: Path) -> None:
    made = hermes(home, "keys", "create", "ci", "--expires", "30d")
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    assert secret.startswith("hk_")
    assert len(secret) == 46
    assert "not shown again" in made.stderr
    listed = hermes(home, "keys", "list")
    assert "ci" in listed.stdout
    assert "until 20" in listed.stdout
    assert secret not in listed.stdout + made.stderr
    with closing(sqlite3.connect(home / "state.db")) as database:
        assert secret not in "\n".join(database.iterdump())


def test_revoked_keys_are_listed_on_demand(home: Path) -> None:
    hermes(home, "keys", "create", "old")
    assert "is revoked" in hermes(home, "keys", "revoke", "old").stdout
    assert "old" not in hermes(home, "keys", "list").stdout
    assert "revoked" in hermes(home, "keys", "list", "--all").stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "owner"), 2),
        (("create", "a b"), 2),
        (("create", "x", "--expires", "soon"), 2),
        (("create", "x", "--expires", "0d"), 2),
        (("create", "x", "--action", "fly"), 2),
        (("revoke", "nobody"), 4),
    ],
)
def test_what_makes_no_sense_is_refused(home: Path, arguments: tuple[str, ...], code: int) -> None:
    assert hermes(home, "keys", *arguments).returncode == code


def test_a_name_is_taken_only_once(home: Path) -> None:
    assert hermes(home, "keys", "create", "laptop").returncode == 0
    assert hermes(home, "keys", "create", "laptop").returncode == 5
