"""Every command does its real thing, against a real gateway and ledger."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.chat_kit import ChatKit
from fakes.command_door import RecordingDoor
from fakes.scripted_turns import Play
from hermes.control.commands.context import Preference, ToolDetail, recalled
from hermes.control.commands.wording import exchanges
from hermes.control.lanes.gateway import BusyMode
from hermes.domain.approvals import ApprovalKind
from hermes.domain.messages import content_text
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import Display, PlatformDisplay
from hermes.execution.clock import SystemClock
from hermes.testing import temporary_ledger


async def forever(play: Play) -> None:
    await asyncio.Event().wait()


async def steerable(play: Play) -> None:
    heard = await play.take_steering()
    await play.say(f"heard {heard[0]}")


async def approve(play: Play) -> None:
    decision = await play.ask("rm -r build")
    await play.say(f"{decision.state.value} {decision.choice} {decision.text}")


async def question(play: Play) -> None:
    decision = await play.ask("Which?", kind=ApprovalKind.QUESTION, choices=("red", "blue"))
    await play.say(f"chosen {decision.text}")


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[ChatKit]:
    scripts = {"forever": forever, "steerable": steerable, "approve": approve, "which": question}
    (tmp_path / "work").mkdir()
    async with temporary_ledger(tmp_path) as ledger:
        made = ChatKit(ledger, SystemClock(), tmp_path, dict(scripts))
        async with made.gateway.running():
            yield made
            for session_id in list(made.gateway._lanes):
                made.gateway.hold(session_id)
                made.gateway.interrupt(session_id)


@pytest.fixture
def door(kit: ChatKit) -> RecordingDoor:
    return RecordingDoor(kit)


async def said(door: RecordingDoor) -> list[tuple[str, str]]:
    assert door.session is not None
    history = await door.kit.ledger.history(door.session.id)
    return [(content_text(each.asked), each.answer) for each in exchanges(history)]


async def test_new_begins_another_conversation_and_keeps_the_last(door: RecordingDoor) -> None:
    await door.ask("one")
    before = door.session
    assert before is not None

    await door.type("/new my second talk")

    assert door.session is not None
    assert door.session.id != before.id
    assert door.session.title == "my second talk"
    kept = await door.kit.ledger.session(before.id)
    assert kept is not None
    assert kept.end_reason == "new"


async def test_retry_asks_the_last_message_again(door: RecordingDoor) -> None:
    await door.ask("first")
    await door.ask("second")

    await door.type("/retry")
    await door.idle()

    assert [asked for asked, _ in await said(door)] == ["first", "second"]
    assert door.kit.runner.turns == ["first", "second", "second"]


async def test_there_may_be_nothing_to_repeat(door: RecordingDoor) -> None:
    await door.ask("one")
    await door.type("/undo")
    assert await door.type("/retry") == "There is nothing to send again."
    assert await door.type("/undo") == "There is nothing to take back."


async def test_undo_takes_exchanges_back_and_offers_the_text_again(door: RecordingDoor) -> None:
    for text in ("one", "two", "three"):
        await door.ask(text)

    reply = await door.type("/undo 2")

    assert "2 exchanges" in reply
    assert [asked for asked, _ in await said(door)] == ["one"]
    assert door.recorded.done == [("prefill", "two")]


async def test_undo_with_nothing_said_explains(door: RecordingDoor) -> None:
    assert "Nothing has been said yet" in await door.type("/undo")
    await door.ask("one")
    assert "not a number" in await door.type("/undo many")


async def test_a_title_is_set_shown_and_unique(door: RecordingDoor) -> None:
    assert await door.type("/title garden plans") == "Title: garden plans"
    assert await door.type("/title") == "Title: garden plans"
    await door.ask("hello")
    await door.type("/new")

    reply = await door.type("/title garden plans")

    assert "garden plans" in reply
    assert "Title:" not in reply


async def test_sessions_are_listed_and_resumed_by_title(door: RecordingDoor) -> None:
    await door.type("/title garden")
    await door.ask("about roses")
    garden = door.session
    await door.type("/new")
    await door.ask("about cars")

    listed = await door.type("/sessions")
    await door.type("/resume garden")

    assert "garden" in listed
    assert "about cars" in listed
    assert garden is not None
    assert door.session is not None
    assert door.session.id == garden.id
    assert "no conversation `nowhere`" in await door.type("/resume nowhere")


async def test_resume_lets_a_person_pick(door: RecordingDoor) -> None:
    await door.ask("about roses")
    roses = door.session
    await door.type("/new")
    door.recorded.choice = 0

    await door.type("/resume")

    assert roses is not None
    assert door.session is not None
    assert door.session.id == roses.id


async def test_a_branch_goes_its_own_way(door: RecordingDoor) -> None:
    await door.ask("trunk")
    trunk = door.session
    assert trunk is not None

    told = await door.type("/branch try this")
    assert told.startswith("This is now a copy of the conversation “try this”")
    await door.ask("twig")

    assert door.session is not None
    assert door.session.parent_id == trunk.id
    assert door.session.title == "try this"
    assert [asked for asked, _ in await said(door)] == ["trunk", "twig"]
    assert len(exchanges(await door.kit.ledger.history(trunk.id))) == 1


async def test_save_writes_json_or_markdown(door: RecordingDoor, tmp_path: Path) -> None:
    await door.ask("hello")
    assert door.session is not None

    await door.type("/save")
    await door.type("/save talk.md")

    saved = json.loads((tmp_path / "saved" / f"{door.session.id}.json").read_bytes())
    assert saved["session"]["id"] == door.session.id
    assert len(saved["messages"]) == 2
    assert "You said: hello" in (tmp_path / "work" / "talk.md").read_text("utf-8")


async def test_history_shows_both_sides(door: RecordingDoor) -> None:
    await door.ask("hello")

    reply = await door.type("/history")

    assert "> hello" in reply
    assert "You said: hello" in reply


async def test_compress_goes_to_the_core_with_its_focus(door: RecordingDoor) -> None:
    await door.ask("hello")

    reply = await door.type("/compress keep the numbers")

    assert door.kit.controls.calls == [("compact", "keep the numbers")]
    assert "900 tokens became 200" in reply


async def test_stop_ends_the_turn_and_names_what_is_dropped(door: RecordingDoor) -> None:
    await door.begin("forever")
    await door.type("/queue later please")

    reply = await door.type("/stop")
    await door.idle()

    assert reply.startswith("Stopped.")
    assert "later please" in reply
    assert door.kit.runner.turns == ["forever"]
    assert "Nothing is running" in await door.type("/stop")


async def test_queue_waits_for_the_turn(door: RecordingDoor) -> None:
    await door.begin("forever")

    await door.type("/queue next")
    assert door.session is not None
    door.kit.gateway.interrupt(door.session.id)
    await door.idle()

    assert door.effects[-1] is BusyMode.QUEUE
    assert door.kit.runner.turns == ["forever", "next"]


async def test_steer_reaches_the_running_turn(door: RecordingDoor) -> None:
    await door.begin("steerable")

    await door.type("/steer to the left")
    await door.idle()

    assert door.effects[-1] is BusyMode.STEER
    assert (await said(door))[0][1] == "heard to the left"


async def test_steering_that_nobody_takes_is_the_next_turn(door: RecordingDoor) -> None:
    await door.begin("forever")

    await door.type("/steer not taken")
    assert door.session is not None
    door.kit.gateway.interrupt(door.session.id)
    await door.idle()

    assert door.kit.runner.turns == ["forever", "not taken"]


async def test_an_interrupting_message_never_stops_its_own_answer(door: RecordingDoor) -> None:
    await door.begin("forever")

    await door.submit("instead", mode=BusyMode.INTERRUPT)
    await door.idle()

    assert door.effects[-1] is BusyMode.INTERRUPT
    assert door.kit.runner.turns == ["forever", "instead"]
    assert (await said(door))[-1] == ("instead", "You said: instead")


async def test_the_busy_mode_is_kept_with_the_session(door: RecordingDoor) -> None:
    assert "interrupt" in await door.type("/busy")
    assert "not a mode" in await door.type("/busy loud")

    await door.type("/busy queue")

    assert door.session is not None
    assert await recalled(door.kit.ledger, door.session.id, Preference.BUSY, str) == "queue"
    assert "queue" in await door.type("/busy")


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("/approve", "approved once "),
        ("/approve session", "approved session "),
        ("/approve always all", "approved always "),
        ("/deny", "denied deny "),
        ("/deny not today", "denied deny not today"),
        ("/deny all because", "denied deny because"),
    ],
)
async def test_approvals_are_answered_in_text(
    door: RecordingDoor, command: str, answer: str
) -> None:
    await door.begin("approve")
    await door.asked()

    await door.type(command)
    await door.idle()

    assert (await said(door))[0][1] == answer


async def test_questions_are_answered_in_words_or_by_number(door: RecordingDoor) -> None:
    await door.begin("which")
    await door.asked()

    await door.type("/answer 2")
    await door.idle()

    assert (await said(door))[0][1] == "chosen blue"
    assert "No question is waiting" in await door.type("/answer again")


async def test_the_model_is_changed_through_the_controls(door: RecordingDoor) -> None:
    await door.type("/model demo-large --provider other")

    assert door.kit.controls.calls == [("set_model", "demo-large", "other")]
    assert door.session is not None
    assert door.session.model == "demo-large"
    assert "no model `gone`" in await door.type("/model gone")
    assert "needs a name" in await door.type("/model demo --provider")


async def test_the_model_is_picked_from_a_list(door: RecordingDoor) -> None:
    door.recorded.choice = 1

    await door.type("/model")

    assert door.kit.controls.calls == [("set_model", "demo-large", "fake")]


async def test_another_model_is_typed(door: RecordingDoor) -> None:
    door.recorded.choice = 2

    await door.type("/model")

    assert ("prefill", "/model ") in door.recorded.done
    assert door.kit.controls.calls == []


async def test_a_way_to_log_tool_calls_in_chats_hides_none_at_the_terminal(
    door: RecordingDoor,
) -> None:
    """`log` is no level: what chats then show is nothing, what the terminal shows is all."""
    host = door.kit.host(Settings(display=Display(tool_progress="log")))
    assert host.tool_detail("telegram", terminal=False) is ToolDetail.OFF
    assert host.tool_detail("cli", terminal=True) is ToolDetail.ALL
    own = Display(platforms={"cli": PlatformDisplay(tool_progress="new", show_reasoning=False)})
    host = door.kit.host(Settings(display=own))
    assert host.tool_detail("cli", terminal=True) is ToolDetail.NEW
    assert not host.shows_reasoning("cli", terminal=True)


async def test_choices_about_the_model_are_durable(door: RecordingDoor) -> None:
    await door.type("/reasoning high")
    await door.type("/reasoning hide")
    await door.type("/yolo")
    await door.type("/verbose verbose")

    ledger = door.kit.ledger
    assert door.session is not None
    session_id = door.session.id
    assert await ledger.recall(session_id, "reasoning_effort") == "high"
    assert await ledger.recall(session_id, "show_reasoning") is False
    assert await ledger.recall(session_id, "yolo") is True
    assert await ledger.recall(session_id, "tool_progress") == "verbose"
    assert "high · thoughts are hidden" in await door.type("/reasoning")
    assert "need approval again" in await door.type("/yolo")


async def test_tools_usage_context_and_config_come_from_the_controls(door: RecordingDoor) -> None:
    await door.ask("hello")

    assert "read_file  Read a file." in await door.type("/tools")
    assert "500 tokens of 1,000 (50%)" in await door.type("/usage")
    assert "system" in await door.type("/context")
    assert await door.type("/config provider") == "provider  fake"


async def test_commands_that_need_quiet_wait_for_it(door: RecordingDoor) -> None:
    await door.begin("forever")

    for command in ("/new", "/undo", "/retry", "/branch", "/compress", "/resume x"):
        assert "until the turn has ended" in await door.type(command)


async def test_status_whoami_version_and_help_tell_what_they_should(door: RecordingDoor) -> None:
    await door.begin("forever")

    assert "working     yes" in await door.type("/status")
    assert "tester (cli)" in await door.type("/whoami")
    assert await door.type("/version") == "Hermes 1.2.3"
    overview = await door.type("/help")
    assert "/undo [N]" in overview
    assert "Also: /fork" in await door.type("/help branch")


async def test_the_screen_does_what_it_is_told(door: RecordingDoor) -> None:
    door.recorded.choice = 1
    await door.ask("hello")

    for command in ("/copy", "/skin", "/image a.png", "/prompt draft", "/redraw", "/quit"):
        await door.type(command)

    assert door.recorded.done == [
        ("copy", "You said: hello"),
        ("pick", "Which skin?", "default", "mono"),
        ("skin", "mono"),
        ("image", "a.png"),
        ("compose", "draft"),
        ("clear",),
        ("leave",),
    ]
    assert "hidden" in await door.type("/statusbar")


async def test_a_chat_door_has_pages_and_no_screen(kit: ChatKit) -> None:
    door = RecordingDoor(kit, terminal=False)

    assert "Page 1 of" in await door.type("/commands")
    assert "no page `99`" in await door.type("/commands 99")
    assert "no command /quit" in await door.type("/quit")


async def test_only_administrators_may_use_what_is_theirs(kit: ChatKit) -> None:
    door = RecordingDoor(kit, admin=False)

    assert "Only administrators" in await door.type("/yolo")
    assert kit.controls.calls == []
