"""Who sees which conversation: its owner, the people of its place, and administrators."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.chat_kit import ChatKit
from fakes.way_in import WayIn, private
from hermes.control.admission.authz import AuthzSettings
from hermes.domain.inbound import Chat, ChatKind, Sender
from hermes.domain.session import Session
from hermes.execution.clock import SystemClock
from hermes.testing import temporary_ledger

ANN = Sender(id="1", name="Ann")
BEN = Sender(id="2", name="Ben")
ADA = Sender(id="4", name="Ada")
GROUP = Chat(kind=ChatKind.GROUP, id="-100")
TOPIC = "55"
ACCESS = AuthzSettings(
    platform="telegram",
    allow_all_users=True,
    allow_admin_from=frozenset({"4"}),
    user_allowed_commands=frozenset("*"),
)
UNDIVIDED = AuthzSettings(platform="telegram", allow_all_users=True)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[ChatKit]:
    async with temporary_ledger(tmp_path) as ledger:
        made = ChatKit(ledger, SystemClock(), tmp_path, {})
        async with made.gateway.running():
            yield made
            await made.gateway.suspend()


@pytest.fixture(params=[ACCESS, UNDIVIDED], ids=["with administrators", "without"])
async def way_in(kit: ChatKit, request: pytest.FixtureRequest) -> AsyncIterator[WayIn]:
    async with asyncio.TaskGroup() as group:
        yield WayIn(kit, group, request.param)


async def conversation(
    way_in: WayIn, sender: Sender, chat: Chat, title: str, thread: str | None = None
) -> Session:
    """Have a conversation with a title, and leave it."""
    key = f"agent:main:telegram:{chat.kind.value}:{chat.id}"
    key += "" if chat.kind is ChatKind.PRIVATE else f":{thread or sender.id}"
    await way_in.say(sender, chat, f"the secrets of {sender.name}", thread=thread)
    session = await way_in.kit.ledger.session_for_key(key)
    assert session is not None
    await way_in.kit.gateway.idle(session.id)
    assert "Title" in await way_in.told(sender, chat, f"/title {title}", thread)
    assert "New conversation" in await way_in.told(sender, chat, "/new", thread)
    return session


async def test_nobody_opens_the_conversation_of_somebody_else(way_in: WayIn) -> None:
    hers = await conversation(way_in, ANN, private(ANN), "Salary")
    for reference in (hers.id, hers.id[:-1], hers.id[:4], "Salary", "salary", "Sal"):
        told = await way_in.told(BEN, private(BEN), f"/resume {reference}")
        assert told.startswith(f"There is no conversation `{reference}`.")
    for typed in ("/sessions", "/sessions Salary", "/resume"):
        assert "There are no conversations" in await way_in.told(BEN, private(BEN), typed)


async def test_the_owner_finds_it_by_id_its_beginning_and_title(way_in: WayIn) -> None:
    hers = await conversation(way_in, ANN, private(ANN), "Salary")
    for reference in (hers.id, hers.id[:-1], "Salary", "salary"):
        assert hers.id in await way_in.told(ANN, private(ANN), "/sessions")
        assert "Salary" in await way_in.told(ANN, private(ANN), f"/resume {reference}")
        await way_in.told(ANN, private(ANN), "/new")


async def test_a_newer_one_of_the_same_name_does_not_hide_mine(way_in: WayIn) -> None:
    hers = await conversation(way_in, ANN, private(ANN), "Plans")
    await conversation(way_in, BEN, private(BEN), "Plans #2")
    await way_in.told(ANN, private(ANN), "/resume Plans")
    assert await way_in.kit.ledger.session_for_key("agent:main:telegram:dm:1") is not None
    current = await way_in.kit.ledger.session_for_key("agent:main:telegram:dm:1")
    assert current is not None
    assert current.id == hers.id


@pytest.mark.parametrize(("source", "user"), [("cli", "me"), ("api_server", "1"), ("discord", "1")])
async def test_conversations_of_other_doors_are_not_theirs(
    way_in: WayIn, source: str, user: str
) -> None:
    kit = way_in.kit
    other = await kit.gateway.open_session("main", source, user)
    await kit.ledger.rename_session(other.id, "Elsewhere")
    for reference in (other.id, "Elsewhere"):
        told = await way_in.told(ANN, private(ANN), f"/resume {reference}")
        assert "There is no conversation" in told


async def test_what_was_said_in_a_topic_belongs_to_all_who_talk_there(way_in: WayIn) -> None:
    ours = await conversation(way_in, ANN, GROUP, "Trip", TOPIC)
    assert ours.id in await way_in.told(BEN, GROUP, "/sessions", TOPIC)
    assert "no conversations" in await way_in.told(BEN, private(BEN), "/sessions")
    assert "no conversations" in await way_in.told(BEN, GROUP, "/sessions", "56")
    assert "Trip" in await way_in.told(BEN, GROUP, "/resume Trip", TOPIC)


async def test_in_a_group_everybody_has_their_own(way_in: WayIn) -> None:
    hers = await conversation(way_in, ANN, GROUP, "Trip")
    assert "no conversation" in await way_in.told(BEN, GROUP, f"/resume {hers.id}")
    assert hers.id in await way_in.told(ANN, GROUP, "/sessions")


async def test_administrators_see_everything(kit: ChatKit) -> None:
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, ACCESS)
        hers = await conversation(way_in, ANN, private(ANN), "Salary")
        assert hers.id in await way_in.told(ADA, private(ADA), "/sessions")
        assert "Salary" in await way_in.told(ADA, private(ADA), f"/resume {hers.id[:-1]}")


async def test_a_role_makes_an_administrator(kit: ChatKit) -> None:
    access = replace(ACCESS, allow_admin_from=frozenset({"role:keepers"}))
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, access)
        hers = await conversation(way_in, ANN, private(ANN), "Salary")
        told = await way_in.told(BEN, private(BEN), f"/resume {hers.id}")
        assert "no conversation" in told
        keeper = replace(BEN, roles=("keepers",))
        assert "Salary" in await way_in.told(keeper, private(BEN), f"/resume {hers.id}")


async def test_whoami_names_no_paths(way_in: WayIn) -> None:
    told = await way_in.told(BEN, private(BEN), "/whoami")
    assert "2 (telegram)" in told
    assert "/" not in told
    assert "administrator" not in told


async def test_whoami_tells_administrators_where_everything_is(kit: ChatKit) -> None:
    async with asyncio.TaskGroup() as group:
        told = await WayIn(kit, group, ACCESS).told(ADA, private(ADA), "/whoami")
    assert str(kit.profile.home) in told
    assert "administrator" in told


async def test_in_a_group_administrators_see_what_everybody_there_may_read(kit: ChatKit) -> None:
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, ACCESS)
        hers = await conversation(way_in, ANN, private(ANN), "Salary")
        for typed in ("/sessions", f"/resume {hers.id}", "/resume"):
            assert "Salary" not in await way_in.told(ADA, GROUP, typed)
        assert "in private" in await way_in.told(ADA, GROUP, "/sessions")
        told = await way_in.told(ADA, GROUP, "/whoami")
        assert str(kit.profile.home) not in told
        assert "in private" in told
