"""The context of chat turns, from configuration and ledger."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.ledgers import arrival, session, turn
from hermes.app.options import AppOptions
from hermes.app.platforms import enabled_platforms
from hermes.app.serve_context import ChatContext
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.control.admission.resets import AUTO_RESET
from hermes.domain.inbound import InboxEntry
from hermes.domain.turn import Turn
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger

CONFIG = """
platforms:
  telegram: {enabled: true, token: '1:x'}
privacy: {redact_pii: true}
"""


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    opened = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    await opened.create_session(session())
    yield opened
    await opened.close()


def context(home: Path, ledger: SqliteLedger) -> ChatContext:
    (home / "config.yaml").write_text(CONFIG)
    options = AppOptions(home=HermesHome(root=home), environ={}, cwd=home)
    loaded = load_config(options.home, options.environ)
    made = ChatContext(loaded, enabled_platforms(loaded, options, SystemClock()))
    made.use(ledger)
    return made


async def begun(ledger: SqliteLedger, number: int) -> tuple[Turn, InboxEntry]:
    admission = await ledger.admit(arrival(f"m{number}"))
    new = turn(f"t{number}", inbox_ids=(admission.entry.id,))
    return (await ledger.begin_turn(new)).turn, admission.entry


async def test_only_the_first_turn_after_an_automatic_reset_hears_of_it(
    tmp_path: Path, ledger: SqliteLedger
) -> None:
    await ledger.remember("s1", AUTO_RESET, {"reason": "idle"})
    made = context(tmp_path, ledger)
    first, entry = await begun(ledger, 1)
    assert "ended automatically (idle)" in await made.ephemeral(first, entry)
    assert "ended automatically (idle)" in await made.ephemeral(first, None), "after a restart"
    text = await made.ephemeral(replace(first, id="t2"), entry)
    assert "Platform: telegram" in text
    assert "ended automatically" not in text


async def test_ids_are_hashed_with_a_salt_that_stays(tmp_path: Path, ledger: SqliteLedger) -> None:
    first, entry = await begun(ledger, 1)
    text = await context(tmp_path, ledger).ephemeral(first, entry)
    assert '"Ada" (id id-' in text
    assert "(id 7)" not in text
    assert await context(tmp_path, ledger).ephemeral(first, entry) == text


async def test_turns_of_other_doors_are_told_nothing(tmp_path: Path, ledger: SqliteLedger) -> None:
    first, _ = await begun(ledger, 1)
    assert await context(tmp_path, ledger).ephemeral(replace(first, id="t9"), None) == ""
