"""The way in: messages that cannot be taken, and commands behind the commit."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from fakes.chat_kit import ChatKit
from fakes.ledgers import inbound
from fakes.scripted_turns import Play
from fakes.way_in import Said, pipeline
from hermes.control.admission.authz import AuthzSettings
from hermes.control.admission.pipeline import InboundPipeline
from hermes.domain.errors import StoreError
from hermes.domain.inbound import Chat, ChatKind, InboxState
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger

EVERYBODY = AuthzSettings(platform="telegram", allow_all_users=True)


async def test_an_agent_that_is_not_served_is_said_once_and_the_message_refused(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    async with asyncio.timeout(10), kit.gateway.running(), asyncio.TaskGroup() as group:
        way_in = pipeline(kit, group.create_task, said, EVERYBODY, agent_id="nobody")
        await way_in.message(inbound("m1"))
        await way_in.message(inbound("m2"))
    ((chat, text),) = said
    assert chat == "7"
    assert "Please tell the operator" in text
    await ledger.close()


async def test_what_cannot_be_stored_is_said_once_and_not_confirmed(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    await ledger.close()
    async with asyncio.timeout(10), kit.gateway.running(), asyncio.TaskGroup() as group:
        way_in = pipeline(kit, group.create_task, said, EVERYBODY)
        for _ in range(2):
            with pytest.raises(StoreError):
                await way_in.message(inbound("m1"))
    ((chat, text),) = said
    assert chat == "7"
    assert "I will try again" in text


async def test_what_comes_again_of_somebody_who_was_removed_is_no_knock_at_the_door(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    async with asyncio.timeout(10), kit.gateway.running(), asyncio.TaskGroup() as group:
        await pipeline(kit, group.create_task, said, EVERYBODY).message(inbound("m1"))
        nobody = AuthzSettings(platform="telegram")
        removed = pipeline(kit, group.create_task, said, nobody)
        assert await removed.message(inbound("m1"))
        assert said == []
        assert await removed.message(inbound("m2"))
    ((_, text),) = said
    assert "hermes pairing approve" in text
    await ledger.close()


class Busy(Struct, frozen=True, kw_only=True):
    """A chat in which a turn is under way, and what is said to it."""

    ledger: SqliteLedger
    kit: ChatKit
    way_in: InboundPipeline
    session: str
    go: asyncio.Event
    """Lets the turn come to its end."""
    said: Said


@asynccontextmanager
async def busy_chat(tmp_path: Path) -> AsyncIterator[Busy]:
    async def long_work(play: Play) -> None:
        begun.set()
        await go.wait()
        await play.say("done")

    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit = ChatKit(ledger, SystemClock(), tmp_path, {"work": long_work})
    said, begun, go = Said(), asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(20), kit.gateway.running(), asyncio.TaskGroup() as group:
        way_in = pipeline(kit, group.create_task, said, EVERYBODY)
        await way_in.message(inbound("m1", "work"))
        await begun.wait()
        (session,) = [e.session_id for e in await ledger.unanswered(["telegram"])]
        yield Busy(ledger=ledger, kit=kit, way_in=way_in, session=session, go=go, said=said)
        await kit.gateway.idle(session)
    await ledger.close()


async def test_what_was_missed_stops_nothing_and_is_answered_by_itself(tmp_path: Path) -> None:
    async with busy_chat(tmp_path) as chat:
        for name in ("m2", "m3"):
            await chat.way_in.message(replace(inbound(name, f"hello {name}"), missed=True))
        assert not chat.kit.gateway.stopping(chat.session)
        chat.go.set()
        await chat.kit.gateway.idle(chat.session)
        turns = {e.turn_id: e.message.text for e in await chat.ledger.unanswered(["telegram"])}
    assert chat.said == []
    assert list(turns.values())[:1] == ["work"]
    assert len(turns) == 3


async def test_what_is_said_meanwhile_stops_the_turn(tmp_path: Path) -> None:
    async with busy_chat(tmp_path) as chat:
        await chat.way_in.message(inbound("m2", "hello m2"))
        await chat.kit.gateway.idle(chat.session)  # nobody has let it come to its end
    assert len(chat.said) == 1


async def test_a_message_to_another_bot_stops_no_turn_of_the_first_one(tmp_path: Path) -> None:
    async with busy_chat(tmp_path) as chat:
        await chat.way_in.message(replace(inbound("m2", "hello"), account="another"))
        assert not chat.kit.gateway.stopping(chat.session)
        chat.go.set()


def never(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Take work as a process does that ends before it gets to it."""
    work.close()
    return asyncio.ensure_future(asyncio.sleep(0))


async def test_commands_that_had_not_begun_are_run_after_the_next_start_in_their_order(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    async with asyncio.timeout(10), kit.gateway.running():
        way_in = pipeline(kit, never, said, EVERYBODY)
        for number, text in enumerate(("before", "/new", "after", "/title Renamed")):
            await way_in.message(inbound(f"m{number}", text))
        await kit.gateway.idle((await ledger.unanswered(["telegram"]))[0].session_id)
        old = [entry.session_id for entry in await ledger.queued(["telegram"])]
        assert len(old) == 3
        async with asyncio.TaskGroup() as group:
            again = pipeline(kit, group.create_task, said, EVERYBODY)
            await again.recover(["telegram"])
            # The platform delivers again what it was never told of.
            await again.message(inbound("m2", "after"))
            await again.message(inbound("m3", "/title Renamed"))
        assert await ledger.queued(["telegram"]) == []
        (before, after) = await ledger.unanswered(["telegram"])
        assert (before.message.text, after.message.text) == ("before", "after")
        assert before.session_id == old[0] != after.session_id
        renamed = await ledger.session(after.session_id)
        assert renamed is not None
        assert renamed.title == "Renamed"
        assert len(said) == 2
    await ledger.close()


async def test_commands_that_were_cut_off_are_run_again_or_their_chat_is_told_once(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    async with asyncio.timeout(10), kit.gateway.running():
        for number, text in enumerate(("/undo", "/help", "/retry")):
            message = inbound(f"m{number}", text)
            await kit.gateway.take_note("main", message, None, InboxState.QUEUED)
            await kit.gateway.take_note("main", message, None, InboxState.BEGUN)
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                await pipeline(kit, group.create_task, said, EVERYBODY).recover(["telegram"])
        (told, helped) = sorted((text for _chat, text in said), key=len)
        assert "/undo, /retry" in told
        assert "/title" in helped
    await ledger.close()


async def test_what_is_said_after_a_slow_command_does_not_wait_for_its_answer(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said = ChatKit(ledger, SystemClock(), tmp_path, {}), Said()
    async with asyncio.timeout(10), kit.gateway.running(), asyncio.TaskGroup() as group:
        gate, began = asyncio.Event(), asyncio.Event()
        way_in = pipeline(kit, group.create_task, said, EVERYBODY, gate=gate)
        for number in range(20):
            await way_in.message(inbound(f"m{number}", "/help"))
        await way_in.message(inbound("text", "hello"))
        with kit.gateway.doors.watching(lambda _job: began.set()):
            await began.wait()
        taken = await ledger.unanswered(["telegram"])
        assert (taken[0].message.text, said) == ("hello", [])
        assert len(await ledger.queued(["telegram"])) == 20
        gate.set()
    assert len(said) == 20
    assert await ledger.queued(["telegram"]) == []
    await ledger.close()


async def test_a_slow_hook_holds_up_its_chat_only_and_nothing_is_lost_meanwhile(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    kit, said, hook = ChatKit(ledger, SystemClock(), tmp_path, {}), Said(), asyncio.Event()
    routed = replace(inbound("m4"), chat=Chat(id="-5", kind=ChatKind.GROUP))
    everything = (*map(inbound, ("m1", "m2", "m3")), routed)

    async def taken() -> list[str]:
        return [each.native_id for each in everything if await ledger.came_before(each)]

    async with asyncio.timeout(10), kit.gateway.running():
        ended = pipeline(kit, never, said, EVERYBODY, hook=hook)
        for name in ("m1", "m2", "m2"):
            assert await ended.message(inbound(name))
        async with asyncio.TaskGroup() as group:
            way_in = pipeline(kit, group.create_task, said, EVERYBODY, hook=hook)
            await way_in.recover(["telegram"])
            await way_in.message(inbound("m3"))
            await way_in.message(routed)
            assert await taken() == ["m4"]
            hook.set()
        assert await taken() == ["m1", "m2", "m3", "m4"]
        assert await ledger.kept("choosing:telegram:bot") is None
    await ledger.close()
