"""The way in when a message cannot be taken: nobody serves it, or nothing can be stored."""

import asyncio
from datetime import UTC
from pathlib import Path

import pytest

from fakes.chat_kit import ChatKit
from fakes.ledgers import inbound
from hermes.control.admission.authz import Authorizer, AuthzSettings
from hermes.control.admission.pairing import Pairing
from hermes.control.admission.pipeline import InboundPipeline, PipelineParts
from hermes.control.commands.builtin import builtin_registry
from hermes.control.commands.context import CommandHost
from hermes.control.hooks import HookBus
from hermes.domain.errors import StoreError
from hermes.domain.outbound import Target
from hermes.domain.settings.live import LiveSettings
from hermes.entry.chat.replies import Apologies
from hermes.execution.clock import SystemClock
from hermes.state.pairing import PairingFiles
from hermes.state.sqlite.ledger import SqliteLedger

Said = list[tuple[str, str]]


def pipeline(kit: ChatKit, group: asyncio.TaskGroup, agent_id: str, said: Said) -> InboundPipeline:
    async def say(target: Target, text: str) -> None:
        said.append((target.chat_id, text))

    parts = PipelineParts(
        host=CommandHost(
            gateway=kit.gateway,
            answers=kit.answers,
            controls=kit.controls,
            version="1",
            saved_dir=kit.profile.home,
            settings=LiveSettings(),
        ),
        registry=builtin_registry(),
        authorizer=Authorizer(
            {"telegram": AuthzSettings(platform="telegram", allow_all_users=True)},
            paired=lambda _platform, _sender: True,
        ),
        pairing=Pairing(PairingFiles(kit.profile.home / "pairing"), kit.clock),
        background_age=lambda _session_id: None,
        zone=UTC,
        hooks=HookBus(),
        group=group,
        agent_of=lambda _message: agent_id,
        say=say,
        apologise=Apologies(say, kit.clock).say,
    )
    return InboundPipeline(parts, "telegram", "bot")


async def test_an_agent_that_is_not_served_is_said_once_and_the_message_refused(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    async with asyncio.timeout(10), kit.gateway.running(), asyncio.TaskGroup() as group:
        way_in = pipeline(kit, group, "nobody", said)
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
        way_in = pipeline(kit, group, "main", said)
        for _ in range(2):
            with pytest.raises(StoreError):
                await way_in.message(inbound("m1"))
    ((chat, text),) = said
    assert chat == "7"
    assert "I will try again" in text
