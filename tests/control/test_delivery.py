"""Delivery: one message per slot, whatever goes wrong on the way."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.chat_platform import EDITING, MemoryPlatform, failure
from fakes.ledgers import session
from hermes.control.delivery.rate_limit import Pacers
from hermes.control.delivery.surface import Line, ReplyOrigin, TurnSurface
from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import OutboxKind, OutboxState, Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.platform import FailureAction, Outgoing, Sent
from hermes.domain.ports.surface import Shown
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger

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
        line = Line(adapter=self.platform, capabilities=capabilities, pacers=Pacers())
        return TurnSurface(self.ledger, Hurried(), line, TARGET, ORIGIN)

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


async def test_the_first_send_never_carries_the_answer(bench: Bench) -> None:
    bench.platform.fail(failure(FailureAction.UNKNOWN, effect=True))
    await bench.surface().show("reply:0", FINAL)
    assert sorted(bench.platform.visible.values()) == ["<b>done</b>", "…"]


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("action", [FailureAction.UNKNOWN, FailureAction.RETRY, FailureAction.WAIT])
async def test_whatever_fails_the_answer_is_there_exactly_once(
    bench: Bench, action: FailureAction, at: int, effect: bool
) -> None:
    bench.platform.fail(*([None] * at), failure(action, effect=effect))
    surface = bench.surface()
    await surface.show("reply:0", Shown(text="do", plain="do"))
    await surface.show("reply:0", FINAL)
    assert list(bench.platform.visible.values()).count("<b>done</b>") == 1
    assert await bench.state() is OutboxState.SENT


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
    bench.platform.fail(None, failure(FailureAction.PLAIN))
    await bench.surface().show("reply:0", FINAL)
    assert list(bench.platform.visible.values()) == ["done"]


async def test_a_message_that_is_gone_is_replaced_by_a_new_one(bench: Bench) -> None:
    surface = bench.surface()
    await surface.show("reply:0", Shown(text="do", plain="do"))
    bench.platform.visible.clear()
    bench.platform.fail(failure(FailureAction.SEND_NEW))
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
    assert [each.text for each in bench.platform.shown] == ["do", "do", "<b>done</b>"]
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
    line = Line(adapter=bench.platform, capabilities=EDITING, pacers=Pacers())
    surface = TurnSurface(bench.ledger, Hurried(), line, target, ORIGIN)
    bench.platform.fail(None, failure(FailureAction.DROP_REPLY))
    await surface.show("reply:0", FINAL)
    contexts = [each.target.context for each in bench.platform.shown]
    assert contexts == ["token-1", "token-1", ""]
    entry = await bench.ledger.outbox_entry("t1/reply:0")
    assert entry is not None
    assert entry.target == target


async def test_an_adapter_can_tell_a_notice_from_a_reply(bench: Bench) -> None:
    surface = bench.surface(replace(EDITING, edits=False))
    await surface.show("reply:0", FINAL)
    await surface.show("notice:0", FINAL, kind=OutboxKind.NOTICE)
    assert [each.kind for each in bench.platform.shown] == [OutboxKind.REPLY, OutboxKind.NOTICE]
