"""What becomes of a delivery: its result, its failures, its repetition, and restarts."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from fakes.webhook_door import SECRET, Chats, FaultyLedger, webhook_door
from hermes.domain.outbound import OutboxState
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.turn import TurnError, TurnState
from hermes.domain.webhooks import HookDelivery, HookState
from hermes.testing import FakeClock
from hermes.testing.model import Reply, ScriptedModel, say

CHAT: dict[str, Any] = {
    "a": {"secret": SECRET, "prompt": "Look at {title}", "deliver": "telegram:5:7"}
}
COMMENT: dict[str, Any] = {
    "gh": {
        "secret": SECRET,
        "prompt": "Review {title}",
        "deliver": "github_comment",
        "deliver_extra": {"repo": "{repository.full_name}", "pr_number": "{number}"},
    }
}
ONLY: dict[str, Any] = {
    "a": {
        "secret": SECRET,
        "prompt": "Build {name}",
        "deliver": "telegram",
        "deliver_extra": {"chat_id": "{chat}"},
        "deliver_only": True,
    }
}
PULL = {"title": "it", "repository": {"full_name": "ann/tool"}, "number": 12}


def broken() -> ModelFailure:
    return ModelFailure(FailureKind.AUTH, "The key is wrong.", hint="Set another.")


async def test_the_result_goes_to_the_chat_and_only_then_is_it_done(tmp_path: Path) -> None:
    chats = Chats()
    chats.go.clear()
    async with webhook_door(
        tmp_path, ScriptedModel(default=say("All fine.")), CHAT, chats=chats
    ) as door:
        assert (await door.post("a", {"title": "it"}, id="1")).status_code == 202
        await door.core.gateway.drained()
        assert await door.state("a", "1") is HookState.RUNNING
        assert (await door.post("a", {"title": "it"}, id="1")).json()["status"] == "duplicate"
        chats.go.set()
        await door.quiet()
        assert await door.state("a", "1") is HookState.DONE
        assert (await door.post("a", {"title": "it"}, id="1")).json()["status"] == "duplicate"
    assert chats.sent == {"webhook:a:1#1": ("telegram", "5", "7", "All fine.")}


async def test_a_turn_that_is_quicker_than_the_receiver_ends_its_delivery_for_good(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(default=say("Fine."))
    ledger = await FaultyLedger.at(tmp_path)
    ledger.may_run = asyncio.Event()
    try:
        async with webhook_door(tmp_path, model, CHAT, ledger=ledger) as door:
            async with asyncio.TaskGroup() as group:
                group.create_task(door.post("a", {"title": "it"}, id="1"))
                await model.called(1)
                await door.core.gateway.drained()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await door.receiver.idle()
                ledger.may_run.set()
            await door.quiet()
            assert await door.state("a", "1") is HookState.DONE
    finally:
        await ledger.close()


async def test_a_silent_result_is_done_without_being_delivered(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, ScriptedModel(default=say("[SILENT]")), CHAT) as door:
        await door.post("a", {"title": "it"}, id="1")
        await door.quiet()
        assert await door.state("a", "1") is HookState.DONE
        assert door.chats.tried == 0


async def test_a_turn_that_failed_is_run_again_when_the_sender_tries_again(tmp_path: Path) -> None:
    model = ScriptedModel([broken(), say("Better.")])
    async with webhook_door(tmp_path, model, CHAT) as door:
        assert (await door.post("a", {"title": "it"}, id="1")).status_code == 202
        await door.quiet()
        failed = await door.delivery("a", "1")
        assert failed.state is HookState.FAILED
        assert "key is wrong" in (failed.error or "")
        again = await door.post("a", {"title": "it"}, id="1")
        assert again.json()["status"] == "accepted"
        await door.quiet()
        done = await door.delivery("a", "1")
        assert (done.state, done.attempt, done.error) == (HookState.DONE, 2, None)
        assert list(door.chats.sent) == ["webhook:a:1#2"]
        assert await door.entries() == []


async def test_a_result_that_could_not_be_delivered_is_a_failure_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    async with webhook_door(tmp_path, ScriptedModel(default=say("Fine.")), CHAT) as door:
        door.chats.fails = True
        await door.post("a", {"title": "it"}, id="1")
        await door.quiet()
        failed = await door.delivery("a", "1")
        assert failed.state is HookState.FAILED
        assert failed.error == "The chat is gone. Choose another."
        door.chats.fails = False
        assert (await door.post("a", {"title": "it"}, id="1")).status_code == 202
        await door.quiet()
        assert await door.state("a", "1") is HookState.DONE
        assert door.chats.texts == ["Fine."]


async def test_an_interrupted_turn_is_a_failure(tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("x",), before=hold)])
    async with webhook_door(tmp_path, model, CHAT) as door:
        await door.post("a", {"title": "it"}, id="1")
        await model.called(1)
        session = (await door.delivery("a", "1")).session_id
        assert session is not None
        assert door.core.gateway.interrupt(session)
        await door.quiet()
        assert await door.state("a", "1") is HookState.FAILED
        assert door.chats.tried == 0


async def test_a_comment_is_written_once_and_is_in_the_outbox(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, ScriptedModel(default=say("Nice.")), COMMENT) as door:
        await door.post("gh", PULL, id="1")
        await door.quiet()
        assert door.hub.comments == [("ann/tool", "12", "Nice.")]
        entry = await door.ledger.outbox_entry("webhook:gh:1#1")
        assert entry is not None
        assert entry.state is OutboxState.SENT
        assert await door.state("gh", "1") is HookState.DONE


@pytest.mark.parametrize(
    "change",
    [
        {"number": "12; rm -rf /"},
        {"number": "--repo"},
        {"repository": {"full_name": "--help/x"}},
        {"repository": {"full_name": "ann"}},
        {"repository": {}},
    ],
)
async def test_a_payload_cannot_smuggle_arguments_into_the_comment(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    async with webhook_door(tmp_path, ScriptedModel(default=say("Nice.")), COMMENT) as door:
        await door.post("gh", {**PULL, **change}, id="1")
        await door.quiet()
        assert door.hub.comments == []
        assert await door.state("gh", "1") is HookState.FAILED


async def test_a_comment_that_was_cut_off_is_not_written_again(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, ScriptedModel(default=say("Nice.")), COMMENT) as door:
        door.hub.fails = True
        await door.post("gh", PULL, id="1")
        await door.quiet()
        assert "not logged in" in ((await door.delivery("gh", "1")).error or "")
        # As a process leaves it that dies while `gh` runs.
        await door.ledger.update_outbox("webhook:gh:1#1", state=OutboxState.SENDING, at=1.0)
        await door.ledger.update_hook("gh", "1", state=HookState.RUNNING, at=1.0)
        door.hub.fails = False
        await door.receiver.recover()
        await door.quiet()
        assert door.hub.comments == []
        assert "may be there already" in ((await door.delivery("gh", "1")).error or "")


async def test_a_text_is_sent_on_without_the_agent_and_then_confirmed(tmp_path: Path) -> None:
    model = ScriptedModel()
    async with webhook_door(tmp_path, model, ONLY) as door:
        answer = await door.post("a", {"name": "nightly", "chat": 9}, id="1")
        assert answer.status_code == 200
        assert answer.json()["status"] == "delivered"
        assert list(door.chats.sent.values()) == [("telegram", "9", None, "Build nightly")]
        assert await door.state("a", "1") is HookState.DONE
        again = await door.post("a", {"name": "nightly", "chat": 9}, id="1")
        assert again.json()["status"] == "duplicate"
        assert door.chats.tried == 1
    assert model.requests == []


async def test_a_text_that_could_not_be_sent_on_can_be_sent_again(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, ScriptedModel(), ONLY) as door:
        door.chats.fails = True
        answer = await door.post("a", {"name": "x", "chat": "9"}, id="1")
        assert answer.status_code == 502
        assert await door.state("a", "1") is HookState.FAILED
        door.chats.fails = False
        assert (await door.post("a", {"name": "x", "chat": "9"}, id="1")).status_code == 200
        assert list(door.chats.sent) == ["webhook:a:1#2"]


async def test_copies_that_come_while_a_text_is_sent_on_share_its_fate(tmp_path: Path) -> None:
    chats = Chats()
    chats.go.clear()
    async with webhook_door(tmp_path, ScriptedModel(), ONLY, chats=chats) as door:
        chats.fails = True
        async with asyncio.TaskGroup() as group:
            posts = [
                group.create_task(door.post("a", {"name": "x", "chat": "9"}, id="1"))
                for _ in range(5)
            ]
            await chats.asked.wait()
            chats.go.set()
        assert {post.result().status_code for post in posts} == {502}
        assert chats.tried <= 5


async def test_a_text_that_takes_long_is_accepted_and_sent_on_later(tmp_path: Path) -> None:
    chats = Chats()
    chats.go.clear()
    async with webhook_door(
        tmp_path, ScriptedModel(), ONLY, chats=chats, send_patience=0.05
    ) as door:
        answer = await door.post("a", {"name": "x", "chat": "9"}, id="1")
        assert answer.status_code == 202
        assert await door.state("a", "1") is HookState.RECEIVED
        await door.receiver.recover()
        chats.go.set()
        await door.quiet()
        assert await door.state("a", "1") is HookState.DONE
        assert chats.tried == 1


# -- across restarts ------------------------------------------------------------------------------


async def test_a_repeated_delivery_is_recognised_after_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Fine."))
    for word in ("accepted", "duplicate"):
        async with webhook_door(tmp_path, model, CHAT) as door:
            assert (await door.post("a", {"title": "it"}, id="1")).json()["status"] == word
            await door.quiet()
    assert len(model.requests) == 1


async def test_a_failed_delivery_is_taken_again_after_a_restart(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, ScriptedModel([broken()]), CHAT) as door:
        await door.post("a", {"title": "it"}, id="1")
        await door.quiet()
    async with webhook_door(tmp_path, ScriptedModel(default=say("Fine.")), CHAT) as door:
        assert (await door.post("a", {"title": "it"}, id="1")).json()["status"] == "accepted"
        await door.quiet()
        assert await door.state("a", "1") is HookState.DONE


async def test_a_turn_cut_off_by_a_restart_goes_on_and_is_delivered(tmp_path: Path) -> None:
    hold = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("x",), before=hold)])
    async with webhook_door(tmp_path, model, CHAT) as door:
        await door.post("a", {"title": "it"}, id="1")
        await model.called(1)
    async with webhook_door(tmp_path, ScriptedModel(default=say("Back.")), CHAT) as door:
        assert await door.state("a", "1") is HookState.RUNNING
        await door.receiver.recover()
        await door.core.gateway.recover(platforms=("webhook",))
        await door.quiet()
        assert await door.state("a", "1") is HookState.DONE
        assert door.chats.texts == ["Back."]
        assert await door.entries() == []


async def test_a_result_that_nobody_delivered_is_delivered_after_a_restart(tmp_path: Path) -> None:
    chats = Chats()
    chats.go.clear()
    async with webhook_door(
        tmp_path, ScriptedModel(default=say("Fine.")), CHAT, chats=chats
    ) as door:
        await door.post("a", {"title": "it"}, id="1")
        await door.core.gateway.drained()
    assert chats.sent == {}
    model = ScriptedModel()
    async with webhook_door(tmp_path, model, CHAT) as door:
        await door.receiver.recover()
        await door.quiet()
        assert door.chats.sent == {"webhook:a:1#1": ("telegram", "5", "7", "Fine.")}
        assert await door.state("a", "1") is HookState.DONE
        assert await door.entries() == []
        await door.receiver.recover()
    assert model.requests == []


@pytest.mark.parametrize("admitted", [False, True])
async def test_a_delivery_that_was_committed_only_is_run_after_a_restart(
    tmp_path: Path, admitted: bool
) -> None:
    ledger = await FaultyLedger.at(tmp_path)
    delivery = HookDelivery(
        route="a",
        delivery_id="1",
        event="e",
        received_at=1.0,
        updated_at=1.0,
        prompt="Look.",
        target="telegram:5",
    )
    model = ScriptedModel(default=say("Fine."))
    try:
        async with webhook_door(tmp_path, model, CHAT, ledger=ledger) as door:
            if admitted:
                ledger.broken = frozenset({"update_hook"})
                answer = await door.post("a", {"title": "it"}, id="1")
                assert answer.status_code == 202
                await door.quiet()
                ledger.broken = frozenset()
                assert await door.state("a", "1") is HookState.RECEIVED
            else:
                await ledger.receive_hook(delivery)
            await door.receiver.recover()
            await door.quiet()
            await door.quiet()
            assert await door.state("a", "1") is HookState.DONE
            assert door.chats.texts == ["Fine."]
        assert len(model.requests) == 1
    finally:
        await ledger.close()


@pytest.mark.parametrize("step", range(1, 8))
async def test_whichever_write_fails_the_result_arrives_once(tmp_path: Path, step: int) -> None:
    model, chats = ScriptedModel(default=say("Fine.")), Chats()
    ledger = await FaultyLedger.at(tmp_path)
    try:
        async with webhook_door(tmp_path, model, CHAT, ledger=ledger, chats=chats) as door:
            ledger.fails_at = step
            answers = [(await door.post("a", {"title": "it"}, id="1")).status_code]
            while answers[-1] >= 300 and len(answers) < 4:
                await door.quiet()
                answers.append((await door.post("a", {"title": "it"}, id="1")).status_code)
            await door.quiet()
            assert answers[-1] < 300
    finally:
        await ledger.close()
    async with webhook_door(tmp_path, model, CHAT, chats=chats) as door:
        await door.receiver.recover()
        await door.core.gateway.recover(platforms=("webhook",))
        await door.quiet()
        delivery = await door.delivery("a", "1")
        assert delivery.state is HookState.DONE
        session = await door.ledger.session(delivery.session_id or "")
        assert session is not None
        assert session.end_reason == "webhook_complete"
        assert await door.entries() == []
    assert chats.texts == ["Fine."]
    assert len(model.requests) == 1


async def test_a_text_to_be_sent_on_is_sent_after_a_restart(tmp_path: Path) -> None:
    chats = Chats()
    async with webhook_door(tmp_path, ScriptedModel(), ONLY, chats=chats) as door:
        delivery = HookDelivery(
            route="a",
            delivery_id="1",
            event="e",
            received_at=1.0,
            updated_at=1.0,
            prompt="Build x",
            target="telegram:5",
            deliver_only=True,
        )
        await door.ledger.receive_hook(delivery)
        await door.receiver.recover()
        await door.quiet()
        assert await door.state("a", "1") is HookState.DONE
    assert chats.texts == ["Build x"]


async def test_a_turn_that_was_given_up_ends_its_delivery(tmp_path: Path) -> None:
    """Nobody runs such a turn, so nobody is told of its end: it is found by looking."""
    model = ScriptedModel([Reply(pieces=("x",), before=asyncio.Event())])
    async with webhook_door(tmp_path, model, CHAT) as door:
        await door.post("a", {"title": "it"}, id="1")
        await model.called(1)
    clock = FakeClock(4_000_000_000.0)
    async with webhook_door(tmp_path, ScriptedModel(), CHAT, clock=clock) as door:
        [turn] = await door.ledger.open_turns()
        error = TurnError(code="given_up", message="It was cut off too often.")
        await door.ledger.finish_turn(turn.id, TurnState.FAILED, error, clock.now())
        assert await door.state("a", "1") is HookState.RUNNING
        await door.receiver.recover()
        await door.quiet()
        failed = await door.delivery("a", "1")
        assert (failed.state, failed.error) == (HookState.FAILED, "It was cut off too often.")
        assert door.chats.tried == 0


async def test_deliveries_are_forgotten_after_a_month(tmp_path: Path) -> None:
    clock = FakeClock()
    async with webhook_door(
        tmp_path, ScriptedModel(default=say("Fine.")), CHAT, clock=clock
    ) as door:
        await door.post("a", {"title": "it"}, id="1")
        await door.quiet()
        clock.advance(31 * 24 * 3600)
        await door.receiver.recover()
        assert await door.ledger.hook("a", "1") is None
