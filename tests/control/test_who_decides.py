"""Who decides about a command in a chat: whoever asked for it, or an administrator.

A stranger whom an open group lets talk, a paired person, another member and an
administrator each try every way there is: buttons, forged buttons, words, replies
and commands, here and elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.chat_kit import ChatKit
from fakes.scripted_turns import Play
from fakes.way_in import WayIn, private
from hermes.control.admission.authz import AuthzSettings, ChatPolicy
from hermes.domain.approvals import ApprovalKind, ApprovalState, Choice
from hermes.domain.inbound import Chat, ChatKind, Sender
from hermes.domain.outbound import OutboxEntry, OutboxKind, OutboxState, Target
from hermes.execution.clock import SystemClock
from hermes.testing import temporary_ledger

ANN = Sender(id="1", name="Ann")
BEN = Sender(id="2", name="Ben")
PAT = Sender(id="3", name="Pat")
ADA = Sender(id="4", name="Ada")
SID = Sender(id="9", name="Ann")
"""A stranger who calls himself like somebody else."""
GROUP = Chat(kind=ChatKind.GROUP, id="-100")
OTHER_GROUP = Chat(kind=ChatKind.GROUP, id="-200")
TOPIC = "55"

ACCESS = AuthzSettings(
    platform="telegram",
    allowed_users=frozenset({"1", "2"}),
    group_policy=ChatPolicy.OPEN,
    dm_policy=ChatPolicy.OPEN,
    group_allow_admin_from=frozenset({"4"}),
    allow_admin_from=frozenset({"4"}),
    user_allowed_commands=frozenset({"*"}),
)
EVERYBODY = AuthzSettings(platform="telegram", allow_all_users=True)
REFUSED = "or an administrator can answer this"


async def wipe(play: Play) -> None:
    decision = await play.ask("rm -r build")
    await play.say(f"{decision.state.value} {decision.choice}")


async def once(play: Play) -> None:
    await play.ask("eval $x", choices=(Choice.ONCE, Choice.DENY))


async def hidden(play: Play) -> None:
    await play.ask("rm \u200bbuild")


async def question(play: Play) -> None:
    decision = await play.ask("Which?", kind=ApprovalKind.QUESTION, choices=("red", "blue"))
    await play.say(f"chosen {decision.text}")


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[ChatKit]:
    async with temporary_ledger(tmp_path) as ledger:
        scripts = {"wipe": wipe, "once": once, "which": question, "hidden": hidden}
        made = ChatKit(ledger, SystemClock(), tmp_path, dict(scripts))
        async with made.gateway.running():
            yield made
            await made.gateway.suspend()


@pytest.fixture
async def way_in(kit: ChatKit) -> AsyncIterator[WayIn]:
    async with asyncio.TaskGroup() as group:
        yield WayIn(kit, group, ACCESS, paired=PAT.id)


async def state(way_in: WayIn, approval_id: str) -> ApprovalState:
    return (await way_in.approval(approval_id)).state


@pytest.mark.parametrize("choice", list(Choice))
@pytest.mark.parametrize("other", [BEN, PAT, SID])
async def test_nobody_presses_the_button_of_somebody_else(
    way_in: WayIn, other: Sender, choice: Choice
) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it")
    assert REFUSED in await way_in.press(other, GROUP, f"ea:{choice}:{asked}")
    assert await state(way_in, asked) is ApprovalState.PENDING


@pytest.mark.parametrize("person", [ANN, ADA])
async def test_whoever_asked_and_administrators_decide(way_in: WayIn, person: Sender) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it")
    assert await way_in.press(person, GROUP, f"ea:always:{asked}") == "Noted."
    assert await state(way_in, asked) is ApprovalState.APPROVED


@pytest.mark.parametrize("person", [BEN, PAT])
async def test_people_on_a_list_decide_about_their_own_in_groups(
    way_in: WayIn, person: Sender
) -> None:
    asked = await way_in.asked(person, GROUP, "wipe it")
    assert await way_in.press(person, GROUP, f"ea:once:{asked}") == "Noted."


async def test_in_a_group_a_stranger_allows_nothing_but_may_deny_their_own(way_in: WayIn) -> None:
    asked = await way_in.asked(SID, GROUP, "wipe it")
    for choice in (Choice.ONCE, Choice.SESSION, Choice.ALWAYS):
        assert "on a list" in await way_in.press(SID, GROUP, f"ea:{choice}:{asked}")
    assert "on a list" in await way_in.told(SID, GROUP, "yes")
    assert "on a list" in await way_in.told(SID, GROUP, "/approve always")
    assert await state(way_in, asked) is ApprovalState.PENDING
    assert await way_in.press(SID, GROUP, f"ea:deny:{asked}") == "Noted."


async def test_a_role_that_the_platform_confirms_is_a_list(kit: ChatKit) -> None:
    access = replace(ACCESS, allowed_roles=frozenset({"staff"}))
    access = replace(access, group_allow_admin_from=frozenset({"role:keepers"}))
    staff, keeper = replace(SID, roles=("staff",)), replace(BEN, roles=("keepers", "x"))
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, access)
        asked = await way_in.asked(staff, GROUP, "wipe it")
        assert REFUSED in await way_in.press(BEN, GROUP, f"ea:once:{asked}")
        assert "on a list" in await way_in.press(SID, GROUP, f"ea:once:{asked}")
        assert await way_in.press(staff, GROUP, f"ea:once:{asked}") == "Noted."
        asked = await way_in.asked(ANN, GROUP, "wipe it")
        assert await way_in.press(keeper, GROUP, f"ea:once:{asked}") == "Noted."


async def test_a_list_that_names_everybody_names_nobody(kit: ChatKit) -> None:
    everybody = replace(ACCESS, allow_all_users=True, group_allow_admin_from=frozenset("*"))
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, everybody)
        asked = await way_in.asked(SID, GROUP, "wipe it")
        assert "on a list" in await way_in.press(SID, GROUP, f"ea:once:{asked}")


@pytest.mark.parametrize("allowed", [{"allow_all_users": True}, {"allowed_users": frozenset("*")}])
async def test_where_there_are_no_lists_everybody_decides_about_their_own(
    kit: ChatKit, allowed: dict[str, Any]
) -> None:
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, AuthzSettings(platform="telegram", **allowed))
        asked = await way_in.asked(SID, GROUP, "wipe it")
        assert REFUSED in await way_in.press(BEN, GROUP, f"ea:once:{asked}")
        assert await way_in.press(SID, GROUP, f"ea:once:{asked}") == "Noted."


async def test_where_no_administrator_is_named_nobody_decides_for_others(kit: ChatKit) -> None:
    undivided = AuthzSettings(platform="telegram", allowed_users=frozenset({"1", "2"}))
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, undivided)
        asked = await way_in.asked(ANN, GROUP, "wipe it", TOPIC)
        assert REFUSED in await way_in.press(BEN, GROUP, f"ea:always:{asked}")
        assert REFUSED in await way_in.told(BEN, GROUP, "/approve always", TOPIC)
        assert await way_in.press(ANN, GROUP, f"ea:once:{asked}") == "Noted."


@pytest.mark.parametrize("other", [BEN, PAT, SID])
@pytest.mark.parametrize("text", ["yes", "👍", "no", "/approve", "/approve always", "/deny all"])
async def test_in_a_shared_topic_others_are_told_and_decide_nothing(
    way_in: WayIn, other: Sender, text: str
) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it", TOPIC)
    assert REFUSED in await way_in.told(other, GROUP, text, TOPIC)
    assert await state(way_in, asked) is ApprovalState.PENDING
    assert way_in.kit.runner.turns == ["wipe it"]


async def test_in_a_shared_topic_the_one_who_asked_says_yes(way_in: WayIn) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it", TOPIC)
    await way_in.say(ANN, GROUP, "yes", thread=TOPIC)
    assert await state(way_in, asked) is ApprovalState.APPROVED


@pytest.mark.parametrize("person", [ANN, BEN, ADA, SID])
async def test_a_button_counts_only_in_the_chat_it_stands_in(way_in: WayIn, person: Sender) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it")
    for place in (OTHER_GROUP, private(person)):
        pressed = await way_in.press(person, place, f"ea:always:{asked}")
        assert pressed == "This button no longer works."
    assert await state(way_in, asked) is ApprovalState.PENDING


@pytest.mark.parametrize("person", [ANN, ADA, SID])
async def test_an_approval_elsewhere_is_out_of_reach_of_commands(
    way_in: WayIn, person: Sender
) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it")
    for place in (OTHER_GROUP, private(person)):
        told = await way_in.told(person, place, "/approve always all")
        assert told == "Nothing is waiting for approval."
    assert await state(way_in, asked) is ApprovalState.PENDING


async def test_what_is_not_offered_cannot_be_forged(way_in: WayIn) -> None:
    asked = await way_in.asked(ANN, GROUP, "once only")
    for forged in (f"ea:always:{asked}", f"cl:0:{asked}", f"ea:maybe:{asked}", "ea:once:appr_none"):
        assert await way_in.press(ANN, GROUP, forged) == "This button no longer works."
    assert "cannot be approved as `always`" in await way_in.told(ANN, GROUP, "/approve always")
    assert await state(way_in, asked) is ApprovalState.PENDING


async def test_a_question_is_answered_by_whoever_asked_and_others_just_talk(way_in: WayIn) -> None:
    asked = await way_in.asked(ANN, GROUP, "which one", TOPIC)
    assert REFUSED in await way_in.press(BEN, GROUP, f"cl:0:{asked}")
    await way_in.say(BEN, GROUP, "/queue what is going on here?", thread=TOPIC)
    assert await state(way_in, asked) is ApprovalState.PENDING
    await way_in.say(ANN, GROUP, "the blue one", thread=TOPIC)
    decided = (await way_in.approval(asked)).decision
    assert decided is not None
    assert decided.text == "the blue one"


@pytest.mark.parametrize(
    "access", [ACCESS, AuthzSettings(platform="telegram", allow_all_users=True)]
)
async def test_approvals_are_not_switched_off_in_a_group(
    kit: ChatKit, access: AuthzSettings
) -> None:
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, replace(access, user_allowed_commands=frozenset("*")))
        for person in (SID, BEN):
            told = await way_in.told(person, GROUP, "/yolo on", TOPIC)
            assert "only a named administrator" in told.lower() or "Only administrators" in told
        await way_in.asked(SID, GROUP, "wipe it", TOPIC)


async def test_what_somebody_waived_alone_is_not_waived_in_a_group(kit: ChatKit) -> None:
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, EVERYBODY)
        await way_in.told(ANN, private(ANN), "/yolo on")
        session = await kit.ledger.session_for_key("agent:main:telegram:dm:1")
        assert session is not None
        await way_in.say(ANN, private(ANN), "hello")
        await kit.gateway.idle(session.id)
        await way_in.told(ANN, GROUP, f"/resume {session.id}", TOPIC)
        assert await kit.ledger.recall(session.id, "yolo") is None


async def test_a_steering_word_does_not_make_somebody_the_one_who_asked(way_in: WayIn) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it", TOPIC)
    await way_in.say(BEN, GROUP, "/steer also the cache", thread=TOPIC)
    assert REFUSED in await way_in.press(BEN, GROUP, f"ea:once:{asked}")


async def prompt_shown(way_in: WayIn, asked: str, native_id: str) -> None:
    """Note that a request is shown as a message, as replies do."""
    request, ledger = (await way_in.approval(asked)).request, way_in.kit.ledger
    prompt = OutboxEntry(
        id=f"{request.turn_id}/approval:{asked}", agent_id="main", turn_id=request.turn_id,
        session_id=request.session_id, kind=OutboxKind.PROMPT, content="?", created_at=1.0,
        target=Target(platform="telegram", account="bot", chat_id=GROUP.id),
    )  # fmt: skip
    await ledger.enqueue(prompt)
    await ledger.update_outbox(prompt.id, state=OutboxState.SENDING, at=1.0, native_id=native_id)


async def test_a_yes_to_another_message_is_not_for_the_approval(way_in: WayIn) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it", TOPIC)
    await prompt_shown(way_in, asked, "77")
    await way_in.told(ANN, GROUP, "/busy queue", TOPIC)
    await way_in.say(ANN, GROUP, "yes", thread=TOPIC, reply_to="12")
    assert await state(way_in, asked) is ApprovalState.PENDING
    await way_in.say(ANN, GROUP, "yes", thread=TOPIC, reply_to="77")
    assert await state(way_in, asked) is ApprovalState.APPROVED


async def test_an_administrator_decides_by_command_in_a_group_where_everybody_has_their_own(
    way_in: WayIn,
) -> None:
    asked = await way_in.asked(SID, GROUP, "wipe it")
    for other in (ANN, PAT):
        told = await way_in.told(other, GROUP, "/approve")
        assert told == "Only an administrator can answer this."
    assert "Nothing is waiting" in await way_in.told(ADA, OTHER_GROUP, "/approve")
    assert "Approved (once)" in await way_in.told(ADA, GROUP, "/approve")
    assert await state(way_in, asked) is ApprovalState.APPROVED


async def test_a_reply_to_the_prompt_of_somebody_else_counts_from_an_administrator_only(
    way_in: WayIn,
) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it")
    await prompt_shown(way_in, asked, "77")
    for other in (BEN, PAT, SID):
        before = len(way_in.said)
        await way_in.say(other, GROUP, "yes", reply_to="77")
        assert REFUSED in way_in.said[before][1]
    assert await state(way_in, asked) is ApprovalState.PENDING
    await way_in.say(ADA, GROUP, "no", reply_to="77")
    assert await state(way_in, asked) is ApprovalState.DENIED
    assert way_in.kit.runner.turns == ["wipe it"]


@pytest.mark.parametrize("choice", [Choice.ONCE, Choice.ALWAYS])
async def test_a_stopped_turn_leaves_nothing_to_allow(way_in: WayIn, choice: Choice) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it", TOPIC)
    request = (await way_in.approval(asked)).request
    await way_in.told(ANN, GROUP, "/stop", TOPIC)
    pressed = await way_in.press(ANN, GROUP, f"ea:{choice}:{asked}")
    assert pressed == "This is no longer needed: the turn has ended."
    await way_in.kit.gateway.idle(request.session_id)
    assert await way_in.kit.ledger.grants("main", request.session_id) == []
    await way_in.say(ANN, GROUP, "yes", thread=TOPIC)
    await way_in.until(lambda: way_in.kit.runner.turns == ["wipe it", "yes"])


@pytest.mark.parametrize(
    ("text", "ends"), [("yes", "approved"), ("👍", "approved"), ("No.", "denied")]
)
async def test_a_bare_answer_of_the_one_who_asked_needs_no_mention(
    way_in: WayIn, text: str, ends: str
) -> None:
    asked = await way_in.asked(ANN, GROUP, "wipe it")
    for other in (BEN, PAT, SID):
        await way_in.overhear(other, GROUP, text)
    await way_in.overhear(ANN, OTHER_GROUP, text)
    assert await state(way_in, asked) is ApprovalState.PENDING
    await way_in.overhear(ANN, GROUP, text)
    assert (await state(way_in, asked)).value == ends
    assert way_in.said == []
    assert way_in.kit.runner.turns == ["wipe it"]


async def test_what_is_overheard_answers_no_question_and_begins_no_turn(way_in: WayIn) -> None:
    asked = await way_in.asked(ANN, GROUP, "which one")
    await way_in.overhear(ANN, GROUP, "yes")
    await way_in.overhear(SID, GROUP, "yes")
    assert await state(way_in, asked) is ApprovalState.PENDING
    assert way_in.kit.runner.turns == ["which one"]


async def test_others_are_told_who_decides_as_the_prompt_says_it(way_in: WayIn) -> None:
    asked = await way_in.asked(SID, GROUP, "wipe it", TOPIC)
    told = await way_in.told(ANN, GROUP, "yes", TOPIC)
    assert told == "Only an administrator can answer this."
    told = await way_in.told(SID, GROUP, "yes", TOPIC)
    assert told.startswith("Only an administrator can allow this")
    await way_in.told(ADA, GROUP, "/approve", TOPIC)
    decision = (await way_in.approval(asked)).decision
    assert decision is not None
    assert decision.by == "Ada"


async def test_replies_to_commands_show_what_cannot_be_seen(way_in: WayIn) -> None:
    await way_in.asked(ANN, GROUP, "hidden")
    assert await way_in.told(ANN, GROUP, "/deny") == "Denied: rm \\u200bbuild"


OPEN_GROUP = AuthzSettings(
    platform="telegram", allowed_users=frozenset("1"), group_allowed_chats=frozenset({GROUP.id})
)


@pytest.mark.parametrize("access", [OPEN_GROUP, ACCESS])
@pytest.mark.parametrize("text", ["/restart", "/sethome", "/model x", "/yolo on"])
@pytest.mark.parametrize("thread", [None, TOPIC])
async def test_guests_change_nothing_of_the_gateway(
    kit: ChatKit, access: AuthzSettings, text: str, thread: str | None
) -> None:
    async with asyncio.TaskGroup() as group:
        told = await WayIn(kit, group, access).told(SID, GROUP, text, thread)
    assert told.startswith(("Only administrators can", "Only people on the list"))


@pytest.mark.parametrize("text", ["/new", "/undo", "/title x", "/busy queue", "/resume", "/retry"])
async def test_guests_change_nothing_that_others_share(kit: ChatKit, text: str) -> None:
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, OPEN_GROUP)
        told = await way_in.told(SID, GROUP, text, TOPIC)
        assert told.startswith("Only people on the list of this bot can use")
        assert "not allowed" not in await way_in.told(ANN, GROUP, "/new", TOPIC)
        assert "New conversation" in await way_in.told(SID, GROUP, "/new")
        for harmless in ("/help", "/status", "/whoami"):
            assert "Only people" not in await way_in.told(SID, GROUP, harmless, TOPIC)


async def test_guests_stop_only_what_they_began(kit: ChatKit) -> None:
    async with asyncio.TaskGroup() as group:
        way_in = WayIn(kit, group, OPEN_GROUP)
        asked = await way_in.asked(ANN, GROUP, "wipe it", TOPIC)
        await way_in.say(SID, GROUP, "what about me?", thread=TOPIC)
        told = await way_in.told(SID, GROUP, "/stop", TOPIC)
        assert told.startswith("Somebody else asked for what is running")
        assert await state(way_in, asked) is ApprovalState.PENDING
        await way_in.asked(SID, GROUP, "which one")
        assert await way_in.told(SID, GROUP, "/stop") == "Stopped."


async def test_where_no_administrator_is_named_people_on_the_list_change_the_gateway(
    kit: ChatKit,
) -> None:
    async with asyncio.TaskGroup() as group:
        told = await WayIn(kit, group, OPEN_GROUP).told(ANN, GROUP, "/sethome")
    assert told.startswith("This chat is now the home channel")
