"""The context of chat turns, from configuration and ledger."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.ledgers import arrival, session, turn
from hermes.control.admission.resets import AUTO_RESET
from hermes.domain.inbound import InboxEntry
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import Privacy
from hermes.domain.settings.live import LiveSettings
from hermes.domain.turn import Turn
from hermes.entry.chat.context import ChatContext
from hermes.state.sqlite.ledger import SqliteLedger


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    opened = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    await opened.create_session(session())
    yield opened
    await opened.close()


def context(ledger: SqliteLedger) -> ChatContext:
    return ChatContext(
        ledger=ledger, prompts={"telegram": lambda _chat, _thread: ""}, settings=PRIVATE
    )


PRIVATE = LiveSettings(Settings(privacy=Privacy(redact_pii=True)))


async def begun(ledger: SqliteLedger, number: int) -> tuple[Turn, InboxEntry]:
    admission = await ledger.admit(arrival(f"m{number}"))
    new = turn(f"t{number}", inbox_ids=(admission.entry.id,))
    return (await ledger.begin_turn(new)).turn, admission.entry


async def test_only_the_first_turn_after_an_automatic_reset_hears_of_it(
    ledger: SqliteLedger,
) -> None:
    await ledger.remember("s1", AUTO_RESET, {"reason": "idle"})
    made = context(ledger)
    first, entry = await begun(ledger, 1)
    assert "ended automatically (idle)" in (await made.describe(first, entry)).passing
    again = await made.describe(first, entry)
    assert "ended automatically (idle)" in again.passing, "after a restart"
    told = await made.describe(replace(first, id="t2"), entry)
    assert "ended automatically" not in told.passing


async def test_ids_are_hashed_with_a_salt_that_stays(ledger: SqliteLedger) -> None:
    first, entry = await begun(ledger, 1)
    told = await context(ledger).describe(first, entry)
    assert '"Ada" (id id-' in told.lasting
    assert "(id 7)" not in told.lasting
    assert await context(ledger).describe(first, entry) == told


async def test_the_place_is_told_again_only_if_it_is_not_the_one_in_the_prompt(
    ledger: SqliteLedger,
) -> None:
    first, entry = await begun(ledger, 1)
    told = await context(ledger).describe(first, entry)
    assert "Platform: telegram" in told.lasting
    assert told.passing == ""
    await ledger.freeze_prompt("s1", told.lasting)
    assert (await context(ledger).describe(first, entry)).passing == ""
    changed = replace(context(ledger), prompts={"telegram": lambda _chat, _thread: "Be brief."})
    told = await changed.describe(first, entry)
    assert "Instructions of the owner for this chat:\nBe brief." in told.passing
    moved = replace(entry, message=replace(entry.message, platform="slack"))
    elsewhere = replace(context(ledger), prompts={"slack": lambda _chat, _thread: ""})
    assert "Platform: slack" in (await elsewhere.describe(first, moved)).passing
