"""Delivery: one message per slot, whatever goes wrong on the way."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.chat_platform import EDITING, MemoryPlatform, NumberedPlatform, failure
from fakes.ledgers import session
from hermes.control.delivery.place import Connections, Line
from hermes.control.delivery.surface import TOO_OLD, ReplyOrigin, TurnSurface
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.outbound import OutboxKind, OutboxState, Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.ledger import Arrival
from hermes.domain.ports.platform import FailureAction, Outgoing, PlatformFailure, Sent
from hermes.domain.ports.surface import Shown
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger
from hermes.testing import FakeClock

TARGET = Target(platform="memory", account="bot", chat_id="1", thread_id="9", reply_to="3")
ORIGIN = ReplyOrigin(agent_id="main", session_id="s1", turn_id="t1")
FINAL = Shown(text="<b>done</b>", plain="done", final=True)


class Hurried(SystemClock):
    """Time in which nobody waits."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


class Bench:
    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger
        self.platform = MemoryPlatform()

    def surface(self, capabilities: Capabilities = EDITING) -> TurnSurface:
        return TurnSurface(self.ledger, self.connections(capabilities), TARGET, ORIGIN)

    def connections(self, capabilities: Capabilities = EDITING) -> Connections:
        return Connections(
            lambda _platform, _account: Line(adapter=self.platform),
            {"memory": capabilities},
            Hurried(),
        )

    async def state(self, slot: str = "reply:0") -> OutboxState:
        entry = await self.ledger.outbox_entry(f"t1/{slot}")
        assert entry is not None
        return entry.state


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    await ledger.create_session(session())
    yield Bench(ledger)
    await ledger.close()


async def test_preview_and_final_are_one_message(bench: Bench) -> None:
    surface = bench.surface()
    await surface.show("reply:0", Shown(text="do", plain="do"))
    await surface.show("reply:0", Shown(text="done ▉", plain="done"))
    await surface.show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]
    assert await bench.state() is OutboxState.SENT


async def test_a_final_that_is_ready_is_one_plain_send(bench: Bench) -> None:
    await bench.surface().show("reply:0", FINAL)
    assert bench.platform.calls == ["send"]
    assert [each.text for each in bench.platform.shown] == ["<b>done</b>"]


async def test_a_preview_starts_with_its_text(bench: Bench) -> None:
    await bench.surface().show("reply:0", Shown(text="do", plain="do"))
    assert [each.text for each in bench.platform.shown] == ["do"]


async def test_what_looks_right_already_is_not_edited(bench: Bench) -> None:
    surface = bench.surface()
    await surface.show("reply:0", Shown(text="done", plain="done"))
    await surface.show("reply:0", Shown(text="done", plain="done", final=True))
    assert bench.platform.calls == ["send"]
    assert await bench.state() is OutboxState.SENT


async def heard(bench: Bench, native_id: str) -> None:
    """Have a person's message arrive under the id that the platform gives it."""
    bench.platform.heard(native_id)
    message = InboundMessage(
        platform="memory",
        account="bot",
        native_id=native_id,
        chat=Chat(id="1", kind=ChatKind.PRIVATE),
        sender=Sender(id="7"),
        text="hi",
        sent_at=1.0,
    )
    arrival = Arrival(
        agent_id="main", session_key="k", session_id="s1", message=message, at=time.time() - 1
    )
    await bench.ledger.admit(arrival)


@pytest.fixture
async def numbered(bench: Bench) -> Bench:
    """A platform that cannot say what was sent; the last message it is known to have is 4."""
    bench.platform = NumberedPlatform()
    await heard(bench, "4")
    return bench


async def test_a_lost_send_that_had_arrived_is_found(numbered: Bench) -> None:
    numbered.platform.fail(failure(FailureAction.UNKNOWN, effect=True))
    await numbered.surface().show("reply:0", FINAL)
    assert numbered.platform.visible == {"5": "<b>done</b>"}
    entry = await numbered.ledger.outbox_entry("t1/reply:0")
    assert entry is not None
    assert (entry.state, entry.native_id) == (OutboxState.SENT, "5")
    assert numbered.platform.calls == ["send", "send", "edit", "delete"]


async def test_a_lost_send_that_had_not_arrived_becomes_of_the_placeholder(numbered: Bench) -> None:
    numbered.platform.fail(failure(FailureAction.UNKNOWN))
    await numbered.surface().show("reply:0", FINAL)
    assert list(numbered.platform.visible.values()) == ["<b>done</b>"]
    assert await numbered.state() is OutboxState.SENT


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_send_that_the_last_process_was_at_is_found_or_made(
    numbered: Bench, arrived: bool
) -> None:
    class Killed(BaseException):
        """The end of the process."""

    async def die(outgoing: Outgoing) -> Sent:
        if arrived:
            await send(outgoing)
        raise Killed

    send, numbered.platform.send = numbered.platform.send, die  # type: ignore[method-assign]
    with pytest.raises(Killed):
        await numbered.surface().show("reply:0", FINAL)
    numbered.platform.send = send  # type: ignore[method-assign]
    await numbered.surface().show("reply:0", FINAL)
    assert list(numbered.platform.visible.values()) == ["<b>done</b>"]
    assert await numbered.state() is OutboxState.SENT


async def test_messages_that_the_outbox_knows_are_left_alone(numbered: Bench) -> None:
    surface = numbered.surface()
    await surface.show("reply:0", Shown(text="first", plain="first", final=True))
    numbered.platform.fail(failure(FailureAction.UNKNOWN))
    await surface.show("reply:1", FINAL)
    assert list(numbered.platform.visible.values()) == ["first", "<b>done</b>"]


async def test_placeholders_whose_fate_is_unknown_too_are_taken_away(numbered: Bench) -> None:
    numbered.platform.fail(*[failure(FailureAction.UNKNOWN, effect=True)] * 3)
    await numbered.surface().show("reply:0", FINAL)
    assert numbered.platform.visible == {"5": "<b>done</b>"}


async def test_nobody_waits_until_placeholders_are_taken_away(numbered: Bench) -> None:
    connections, later = numbered.connections(), list[Coroutine[Any, Any, None]]()
    connections.beside = later.append
    surface = TurnSurface(numbered.ledger, connections, TARGET, ORIGIN)
    lost = failure(FailureAction.UNKNOWN, effect=True)
    numbered.platform.fail(lost)
    await surface.show("reply:0", Shown(text="one", plain="one", final=True))
    assert numbered.platform.visible == {"5": "one", "6": "…"}
    numbered.platform.fail(lost)
    await surface.show("reply:1", Shown(text="two", plain="two", final=True))
    assert "two" not in numbered.platform.visible["6"], "it is not taken for the lost message"
    for each in later:
        await each
    assert list(numbered.platform.visible.values()) == ["one", "two"]


async def test_an_unknown_fate_is_looked_into_until_it_is_clear(numbered: Bench) -> None:
    numbered.platform.fail(*[failure(FailureAction.UNKNOWN)] * 40)
    await numbered.surface().show("reply:0", FINAL)
    assert list(numbered.platform.visible.values()) == ["<b>done</b>"]
    assert await numbered.state() is OutboxState.SENT


@pytest.mark.parametrize("effect", [True, False])
async def test_a_lost_file_is_found_or_sent_again(numbered: Bench, effect: bool) -> None:
    numbered.platform.fail(failure(FailureAction.UNKNOWN, effect=effect))
    await numbered.surface().attach("file:0", "/tmp/a.pdf", "document")
    assert numbered.platform.files == ["/tmp/a.pdf"]
    assert numbered.platform.visible == {}
    assert await numbered.state("file:0") is OutboxState.SENT


async def test_a_lost_preview_can_be_removed(numbered: Bench) -> None:
    numbered.platform.fail(failure(FailureAction.UNKNOWN, effect=True))
    surface = numbered.surface()
    await surface.show("progress", Shown(text="working", plain="working"))
    await surface.remove("progress")
    assert numbered.platform.visible == {}
    assert await numbered.state("progress") is OutboxState.SENT


class ListedPlatform(MemoryPlatform):
    """Can be asked what was sent."""

    async def find_sent(self, outgoing: Outgoing, since: float) -> Sent | None:
        found = [each for each, text in self.visible.items() if text == outgoing.text]
        return Sent(native_id=found[0]) if found else None


@pytest.mark.parametrize("effect", [True, False])
async def test_where_the_history_can_be_listed_it_is_looked_up(bench: Bench, effect: bool) -> None:
    bench.platform = ListedPlatform()
    bench.platform.fail(failure(FailureAction.UNKNOWN, effect=effect))
    await bench.surface().show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]
    assert bench.platform.calls == ["send"] if effect else ["send", "send"]


async def test_what_is_too_old_is_recorded_and_not_sent(bench: Bench) -> None:
    origin = replace(ORIGIN, since=time.time() - 3 * 86400)
    await TurnSurface(bench.ledger, bench.connections(), TARGET, origin).show("reply:0", FINAL)
    entry = await bench.ledger.outbox_entry("t1/reply:0")
    assert entry is not None
    assert (entry.state, entry.error) == (OutboxState.FAILED, TOO_OLD)
    assert bench.platform.calls == []


async def test_a_reconnect_wakes_what_pauses(bench: Bench) -> None:
    clock = FakeClock()
    connections = Connections(
        lambda _platform, _account: Line(adapter=bench.platform), {"memory": EDITING}, clock
    )
    bench.platform.fail(failure(FailureAction.RETRY))
    surface = TurnSurface(bench.ledger, connections, TARGET, ORIGIN)
    async with asyncio.TaskGroup() as group:
        group.create_task(surface.show("reply:0", FINAL))
        await clock.until_sleeping()
        connections.wake()
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]


async def test_finals_of_a_chat_go_in_order_and_previews_stand_back(bench: Bench) -> None:
    connections = bench.connections()
    bench.platform.fail(*[failure(FailureAction.RETRY)] * 3)
    ids = [str(number) for number in range(5)]
    surfaces = [
        TurnSurface(bench.ledger, connections, TARGET, replace(ORIGIN, turn_id=each))
        for each in ids
    ]
    async with asyncio.TaskGroup() as group:
        for each, surface in zip(ids, surfaces, strict=True):
            group.create_task(surface.show("reply:0", Shown(text=each, plain=each, final=True)))
            await surface.show("progress", Shown(text="…", plain="…"))
    assert list(bench.platform.visible.values()) == ids


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("action", [FailureAction.UNKNOWN, FailureAction.RETRY, FailureAction.WAIT])
async def test_whatever_fails_the_answer_is_there_exactly_once(
    numbered: Bench, action: FailureAction, at: int, effect: bool
) -> None:
    numbered.platform.fail(*([None] * at), failure(action, effect=effect))
    surface = numbered.surface()
    await surface.show("reply:0", Shown(text="do", plain="do"))
    await surface.show("reply:0", FINAL)
    assert list(numbered.platform.visible.values()).count("<b>done</b>") == 1
    assert await numbered.state() is OutboxState.SENT


async def test_a_final_is_not_shown_again_by_a_later_process(bench: Bench) -> None:
    await bench.surface().show("reply:0", FINAL)
    calls = len(bench.platform.calls)
    await bench.surface().show("reply:0", FINAL)
    assert len(bench.platform.calls) == calls


async def test_a_later_process_edits_the_preview_that_is_there(bench: Bench) -> None:
    await bench.surface().show("reply:0", Shown(text="do", plain="do"))
    await bench.surface().show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]


async def test_refused_markup_is_sent_as_plain_text_in_the_same_message(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.PLAIN))
    await bench.surface().show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["done"]


async def test_a_message_that_is_gone_is_replaced_by_a_new_one(bench: Bench) -> None:
    surface = bench.surface()
    await surface.show("reply:0", Shown(text="do", plain="do"))
    bench.platform.visible.clear()
    bench.platform.fail(failure(FailureAction.SEND_NEW))
    await surface.show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]


class UneditablePlatform(MemoryPlatform):
    def __init__(self, action: FailureAction) -> None:
        super().__init__()
        self.action = action

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        self.calls.append("edit")
        raise failure(self.action).error


@pytest.mark.parametrize(
    "action", [FailureAction.SEND_NEW, FailureAction.GIVE_UP, FailureAction.DROP_THREAD]
)
@pytest.mark.parametrize("deletes", [True, False])
async def test_where_nothing_may_be_edited_the_answer_comes_once_and_whole(
    bench: Bench, action: FailureAction, deletes: bool
) -> None:
    bench.platform = UneditablePlatform(action)
    surface = bench.surface(replace(EDITING, deletes=deletes))
    for text in ("d", "do", "don", "done"):
        await surface.show("reply:0", Shown(text=f"{text} ▉", plain=text))
        await surface.show("reply:1", Shown(text=f"{text} ▉", plain=text)) if text > "do" else None
    assert bench.platform.calls == ["send", "edit"]
    await surface.show("reply:0", FINAL)
    await surface.show("reply:1", FINAL)
    left = [] if deletes else ["d ▉"]
    assert list(bench.platform.visible.values()) == [*left, "<b>done</b>", "<b>done</b>"]
    assert await bench.state() is OutboxState.SENT


async def test_half_an_answer_stays_where_no_other_can_be_sent(bench: Bench) -> None:
    surface = bench.surface()
    await surface.show("reply:0", Shown(text="do", plain="do"))
    bench.platform.fail(failure(FailureAction.GIVE_UP), failure(FailureAction.GIVE_UP))
    await surface.show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["do"]
    assert bench.platform.calls == ["send", "edit", "send"]
    assert await bench.state() is OutboxState.FAILED


async def test_an_edit_that_is_refused_as_plain_text_too_is_sent_anew(bench: Bench) -> None:
    bench.platform = UneditablePlatform(FailureAction.PLAIN)
    surface = bench.surface()
    await surface.show("reply:0", Shown(text="do", plain="do"))
    await surface.show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["done"]
    assert bench.platform.calls == ["send", "edit", "edit", "send", "delete"]


class KeyedPlatform(MemoryPlatform):
    """Of two sends with one key the first counts, also if its message was deleted since."""

    def __init__(self) -> None:
        super().__init__()
        self.by_key: dict[str, Sent] = {}

    async def send(self, outgoing: Outgoing) -> Sent:
        if outgoing.key not in self.by_key:
            self.by_key[outgoing.key] = await super().send(outgoing)
        return self.by_key[outgoing.key]


async def test_a_deleted_message_is_replaced_although_its_key_is_taken(bench: Bench) -> None:
    bench.platform = KeyedPlatform()
    surface = bench.surface(replace(EDITING, idempotent_sends=True))
    await surface.show("reply:0", Shown(text="do", plain="do"))
    bench.platform.visible.clear()
    await asyncio.wait_for(surface.show("reply:0", FINAL), 20)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]
    assert await bench.state() is OutboxState.SENT


class UntypedPlatform(MemoryPlatform):
    """Takes no typing signals now, and says so or does not answer."""

    refusal: PlatformFailure | None = None
    tried = 0

    async def typing(self, target: Target) -> None:
        self.tried += 1
        if self.refusal is None:
            await asyncio.Event().wait()
        else:
            raise self.refusal


@pytest.mark.parametrize("answers", [True, False])
async def test_an_answer_does_not_wait_for_typing(bench: Bench, answers: bool) -> None:
    bench.platform = platform = UntypedPlatform()
    if answers:
        platform.refusal = PlatformFailure(FailureAction.WAIT, "slow down", retry_after=3600.0)
    surface = bench.surface(replace(EDITING, typing=True))
    async with asyncio.timeout(20):
        assert not await surface.typing()
        assert not await surface.typing()
        assert platform.tried == 1
        await surface.show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]


async def test_a_chat_that_cannot_be_reached_is_given_up_and_recorded(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.GIVE_UP))
    await bench.surface().show("reply:0", FINAL)
    assert await bench.state() is OutboxState.FAILED
    await bench.surface().show("reply:0", FINAL)
    assert bench.platform.calls == ["send"]


async def test_an_answer_waits_while_the_account_is_refused(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.FATAL), failure(FailureAction.FATAL))
    await bench.surface().show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]
    assert await bench.state() is OutboxState.SENT


async def test_a_moved_chat_is_followed(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.RETRY, moved_to="2"))
    await bench.surface().show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]


@pytest.mark.parametrize("action", [FailureAction.DROP_REPLY, FailureAction.DROP_THREAD])
async def test_what_is_gone_around_a_message_is_left_out(
    bench: Bench, action: FailureAction
) -> None:
    bench.platform.fail(failure(action))
    await bench.surface().show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]


async def test_without_edits_an_unknown_send_is_marked_and_never_repeated(bench: Bench) -> None:
    plain = replace(EDITING, edits=False)
    bench.platform.fail(failure(FailureAction.UNKNOWN, effect=True))
    await bench.surface(plain).show("reply:0", FINAL)
    assert await bench.state() is OutboxState.UNKNOWN
    await bench.surface(plain).show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]


async def test_idempotent_sends_are_simply_repeated(bench: Bench) -> None:
    safe = replace(EDITING, edits=False, idempotent_sends=True)
    bench.platform.fail(failure(FailureAction.UNKNOWN))
    await bench.surface(safe).show("reply:0", FINAL)
    assert await bench.state() is OutboxState.SENT


async def test_a_file_is_never_sent_twice(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.UNKNOWN, effect=True))
    await bench.surface().attach("file:0", "/tmp/a.pdf", "document")
    await bench.surface().attach("file:0", "/tmp/a.pdf", "document")
    assert bench.platform.files == ["/tmp/a.pdf"]
    assert await bench.state("file:0") is OutboxState.UNKNOWN


async def test_a_prompt_is_shown_however_often_it_fails(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.RETRY), None, failure(FailureAction.WAIT))
    await bench.surface().show("approval:a", Shown(text="ok?", plain="ok?"), kind=OutboxKind.PROMPT)
    assert list(bench.platform.visible.values()) == ["ok?"]


async def test_a_file_follows_its_chat_out_of_a_closed_thread(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.DROP_THREAD))
    await bench.surface().attach("file:0", "/tmp/a.pdf", "document")
    assert [each.target.thread_id for each in bench.platform.shown] == ["9", None]
    assert await bench.state("file:0") is OutboxState.SENT


async def test_a_preview_is_not_worth_a_second_try(bench: Bench) -> None:
    surface = bench.surface()
    await surface.show("reply:0", Shown(text="do", plain="do"))
    bench.platform.fail(failure(FailureAction.RETRY))
    calls = len(bench.platform.calls)
    await surface.show("reply:0", Shown(text="don", plain="don"))
    assert len(bench.platform.calls) == calls + 1


async def test_a_removed_slot_is_gone(bench: Bench) -> None:
    surface = bench.surface()
    await surface.show("progress", Shown(text="working", plain="working"))
    await surface.remove("progress")
    assert bench.platform.visible == {}


async def test_a_preview_of_an_earlier_process_can_be_removed(bench: Bench) -> None:
    await bench.surface().show("progress", Shown(text="working", plain="working"))
    surface = await bench.surface().recalled()
    assert (surface.previews(), surface.look("progress")) == (["progress"], None)
    await surface.remove("progress")
    assert (bench.platform.visible, surface.previews()) == ({}, [])


async def test_where_nothing_can_be_deleted_a_removed_slot_says_nothing(bench: Bench) -> None:
    surface = bench.surface(replace(EDITING, deletes=False))
    await surface.show("progress", Shown(text="working", plain="working"))
    await surface.remove("progress")
    assert list(bench.platform.visible.values()) == ["…"]
    assert await bench.state("progress") is OutboxState.SENT


@pytest.mark.parametrize("action", [FailureAction.RETRY, FailureAction.WAIT])
async def test_a_file_that_could_not_go_out_is_sent_again(
    bench: Bench, action: FailureAction
) -> None:
    bench.platform.fail(failure(action), failure(action))
    await bench.surface().attach("file:0", "/tmp/a.pdf", "document")
    assert bench.platform.files == ["/tmp/a.pdf"]
    assert await bench.state("file:0") is OutboxState.SENT


async def test_an_answer_without_edits_outlives_a_flood_limit(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.WAIT))
    await bench.surface(replace(EDITING, edits=False)).show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["<b>done</b>"]
    assert await bench.state() is OutboxState.SENT


class AlbumPlatform(MemoryPlatform):
    """Can send several files at once."""

    async def send_album(self, pieces: list[Outgoing]) -> list[Sent]:
        paths = [piece.attachment or "" for piece in pieces]
        await self._call("album", lambda: self.files.extend(paths))
        return [Sent(native_id=f"album-{number}") for number, _ in enumerate(pieces)]


PICTURES = [("file:0", "/tmp/a.png"), ("file:1", "/tmp/b.png")]


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        (None, ["album"]),
        (FailureAction.WAIT, ["album", "album"]),
        (FailureAction.GIVE_UP, ["album", "send", "send"]),
    ],
)
async def test_an_album_is_one_call_and_each_file_an_entry(
    bench: Bench, action: FailureAction | None, calls: list[str]
) -> None:
    bench.platform = AlbumPlatform()
    bench.platform.fail(*([failure(action)] if action else []))
    await bench.surface().attach_album(PICTURES, "image")
    assert bench.platform.calls == calls
    assert bench.platform.files == ["/tmp/a.png", "/tmp/b.png"]
    assert [await bench.state(slot) for slot, _ in PICTURES] == [OutboxState.SENT] * 2


async def test_an_album_whose_fate_is_unknown_is_not_sent_again(bench: Bench) -> None:
    bench.platform = AlbumPlatform()
    bench.platform.fail(failure(FailureAction.UNKNOWN, effect=True))
    for _ in range(2):
        await bench.surface().attach_album(PICTURES, "image")
    assert bench.platform.calls == ["album"]
    assert [await bench.state(slot) for slot, _ in PICTURES] == [OutboxState.UNKNOWN] * 2


async def test_without_albums_the_files_go_one_by_one(bench: Bench) -> None:
    await bench.surface().attach_album(PICTURES, "image")
    assert bench.platform.calls == ["send", "send"]
    assert bench.platform.files == ["/tmp/a.png", "/tmp/b.png"]


async def test_where_sends_are_idempotent_nobody_sees_a_placeholder(bench: Bench) -> None:
    surface = bench.surface(replace(EDITING, idempotent_sends=True))
    bench.platform.fail(failure(FailureAction.UNKNOWN))
    await surface.show("reply:0", Shown(text="do", plain="do"))
    await surface.show("reply:0", FINAL)
    # The platform may have kept the text that came first under this key.
    assert [each.text for each in bench.platform.shown] == ["do", "<b>done</b>", "<b>done</b>"]
    assert len({each.key for each in bench.platform.shown}) == 1
    assert await bench.state() is OutboxState.SENT


async def test_a_message_that_grows_is_opened_empty_and_closed_with_its_last_text(
    bench: Bench,
) -> None:
    surface = bench.surface(replace(EDITING, edits=False, streams=True))
    await surface.show("reply:0", Shown(text="do", plain="do"))
    await surface.show("reply:0", FINAL)
    shown = [(each.text, each.final) for each in bench.platform.shown]
    assert shown == [("", False), ("do", False), ("<b>done</b>", True)]


async def test_the_reply_context_goes_along_until_the_platform_refuses_it(bench: Bench) -> None:
    target = replace(TARGET, context="token-1", chat_kind=ChatKind.PRIVATE)
    surface = TurnSurface(bench.ledger, bench.connections(), target, ORIGIN)
    bench.platform.fail(failure(FailureAction.DROP_REPLY))
    await surface.show("reply:0", FINAL)
    contexts = [each.target.context for each in bench.platform.shown]
    assert contexts == ["token-1", ""]
    entry = await bench.ledger.outbox_entry("t1/reply:0")
    assert entry is not None
    assert entry.target == target


async def test_an_adapter_can_tell_a_notice_from_a_reply(bench: Bench) -> None:
    surface = bench.surface(replace(EDITING, edits=False))
    await surface.show("reply:0", FINAL)
    await surface.show("notice:0", FINAL, kind=OutboxKind.NOTICE)
    assert [each.kind for each in bench.platform.shown] == [OutboxKind.REPLY, OutboxKind.NOTICE]
