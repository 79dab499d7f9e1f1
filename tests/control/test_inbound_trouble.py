"""The way in when a message cannot be taken: nobody serves it, or nothing can be stored."""

import asyncio
from pathlib import Path

import pytest

from fakes.chat_kit import ChatKit
from fakes.ledgers import inbound
from fakes.way_in import Said, pipeline
from hermes.control.admission.authz import AuthzSettings
from hermes.domain.errors import StoreError
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger

EVERYBODY = AuthzSettings(platform="telegram", allow_all_users=True)


async def test_an_agent_that_is_not_served_is_said_once_and_the_message_refused(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    async with asyncio.timeout(10), kit.gateway.running(), asyncio.TaskGroup() as group:
        way_in = pipeline(kit, group, said, EVERYBODY, agent_id="nobody")
        await way_in.message(inbound("m1"))
        await way_in.message(inbound("m2"))
    ((chat, text),) = said
    assert chat == "7"
    assert "There is no agent `nobody` here." in text
    await ledger.close()


async def test_what_cannot_be_stored_is_said_once_and_not_confirmed(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    await ledger.close()
    async with asyncio.timeout(10), kit.gateway.running(), asyncio.TaskGroup() as group:
        way_in = pipeline(kit, group, said, EVERYBODY)
        for _ in range(2):
            with pytest.raises(StoreError):
                await way_in.message(inbound("m1"))
    ((chat, text),) = said
    assert chat == "7"
    assert "I will try again" in text
