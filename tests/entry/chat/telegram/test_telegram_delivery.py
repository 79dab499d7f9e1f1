"""Delivery on Telegram: what became of a send that nobody heard of again is found out."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.ledgers import session
from fakes.telegram import FakeTelegram
from fakes.telegram_kit import adapter_for
from hermes.control.delivery.place import Connections, Line
from hermes.control.delivery.surface import ReplyOrigin, TurnSurface
from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import OutboxKind, OutboxState, Target
from hermes.domain.ports.platform import Button
from hermes.domain.ports.surface import Shown
from hermes.entry.chat.telegram.manifest import PLATFORM
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger

ANN, GROUP = 777, -1001
LOST = ("reset_before", "reset_after", "504")
FINAL = Shown(text="<b>done</b>", plain="done", final=True)


class Leaping(SystemClock):
    """Time that leaps over every wait."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        return super().now() + self._ahead

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead

    async def sleep(self, seconds: float) -> None:
        self._ahead += max(0.0, seconds)
        await super().sleep(0)


class Chat:
    def __init__(self, telegram: FakeTelegram, ledger: SqliteLedger, lines: Connections) -> None:
        self.telegram = telegram
        self.ledger = ledger
        self._lines = lines

    def surface(self, turn_id: str = "t1", chat_id: int = ANN) -> TurnSurface:
        target = Target(
            platform="telegram",
            account="4242",
            chat_id=str(chat_id),
            chat_kind=ChatKind.PRIVATE if chat_id == ANN else ChatKind.GROUP,
            reply_to=f"{chat_id}:1",
        )
        origin = ReplyOrigin(agent_id="main", session_id="s1", turn_id=turn_id)
        return TurnSurface(self.ledger, self._lines, target, origin)

    @property
    def texts(self) -> list[str]:
        return [seen.text for seen in self.telegram.replies(ANN)]


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Chat]:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    await ledger.create_session(session())
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        line = Line(adapter=adapter)
        can = {"telegram": PLATFORM.capabilities}
        there = Chat(telegram, ledger, Connections(lambda _p, _a: line, can, Leaping()))
        telegram.say(ANN, ANN, "hello")
        await there.surface("t0").show("reply:0", Shown(text="hi", plain="hi", final=True))
        yield there
    await ledger.close()


async def test_an_answer_is_one_send(chat: Chat) -> None:
    await chat.surface().show("reply:0", FINAL)
    assert chat.texts == ["hi", "done"]
    assert len(chat.telegram.called("sendMessage")) == 2
    assert not chat.telegram.called("editMessageText")


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("times", [1, 2, 6, 25])
async def test_an_answer_whose_send_was_lost_is_there_once(
    chat: Chat, kind: str, times: int
) -> None:
    chat.telegram.fault(kind, "sendMessage", times=times)
    await chat.surface().show("reply:0", FINAL)
    assert [text for text in chat.texts if text != "…"] == ["hi", "done"]
    entry = await chat.ledger.outbox_entry("t1/reply:0")
    assert entry is not None
    (seen,) = [seen for seen in chat.telegram.replies(ANN) if seen.text == "done"]
    assert (entry.state, entry.native_id) == (OutboxState.SENT, f"{ANN}:{seen.message_id}")
    assert "…" not in chat.texts or times == 25


async def test_a_send_that_had_arrived_is_proven_and_not_touched(chat: Chat) -> None:
    chat.telegram.fault("reset_after", "sendMessage")
    await chat.surface().show("reply:0", FINAL)
    (_, seen) = chat.telegram.replies(ANN)
    assert (seen.text, seen.history) == ("done", [])
    (edit,) = chat.telegram.called("editMessageText")
    assert "message is not modified" in edit.outcome
    assert len(chat.telegram.called("deleteMessage")) == 1


async def test_messages_of_others_in_between_do_not_matter(chat: Chat) -> None:
    chat.telegram.say(ANN, ANN, "one more thing")
    chat.telegram.fault("reset_after", "sendMessage")
    await chat.surface().show("reply:0", FINAL)
    assert chat.texts == ["hi", "done"]
    (edit,) = chat.telegram.called("editMessageText")
    assert "message is not modified" in edit.outcome, "it was sent last"


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("slot", ["approval:a", "notice:0"])
async def test_prompts_and_notices_are_not_lost_either(chat: Chat, kind: str, slot: str) -> None:
    chat.telegram.fault(kind, "sendMessage", times=5)
    buttons = ((Button(label="Yes", data="yes"),),)
    kinds = {"approval:a": OutboxKind.PROMPT, "notice:0": OutboxKind.NOTICE}
    shown = Shown(text="ok?", plain="ok?", final=slot == "notice:0")
    await chat.surface().show(slot, shown, buttons=buttons, kind=kinds[slot])
    assert chat.texts == ["hi", "ok?"]
    assert chat.telegram.replies(ANN)[-1].buttons == [[("Yes", "yes")]]


@pytest.mark.parametrize("kind", LOST)
async def test_a_file_whose_upload_was_lost_is_there_once(
    chat: Chat, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("text")
    chat.telegram.fault(kind, "sendDocument")
    await chat.surface().attach("media:0", str(tmp_path / "a.txt"), "document")
    assert [seen.file_name for seen in chat.telegram.replies(ANN)] == ["", "a.txt"]


@pytest.mark.parametrize("kind", LOST)
async def test_pictures_whose_album_was_lost_are_there_once(
    chat: Chat, kind: str, tmp_path: Path
) -> None:
    names = ["a.png", "b.png", "c.png"]
    for name in names:
        (tmp_path / name).write_bytes(b"picture")
    chat.telegram.fault(kind, "sendMediaGroup")
    album = [(f"media:{name}", str(tmp_path / name)) for name in names]
    await chat.surface().attach_album(album, "image")
    assert [seen.file_name for seen in chat.telegram.replies(ANN)] == ["", *names]


async def test_two_lost_answers_do_not_take_each_other(chat: Chat) -> None:
    chat.telegram.fault("reset_after", "sendMessage", times=7)
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            shown = Shown(text=f"answer {number}", plain=f"answer {number}", final=True)
            group.create_task(chat.surface(f"t{number + 1}").show("reply:0", shown))
    assert chat.texts == ["hi", "answer 0", "answer 1", "answer 2"]


async def test_of_many_placeholders_that_may_be_there_one_is_and_it_makes_no_sound(
    chat: Chat,
) -> None:
    chat.telegram.fault("reset_after", "sendMessage", times=6)
    await chat.surface().show("reply:0", FINAL)
    sent = [seen for seen in chat.telegram.world.chats[ANN].messages.values() if seen.from_bot]
    assert [(seen.text, seen.silent) for seen in sent] == [
        ("hi", False),
        ("done", False),
        ("…", True),
    ]
    assert chat.texts == ["hi", "done"]


@pytest.mark.parametrize("kind", ["reset_before", "reset_after"])
async def test_a_lost_message_is_not_looked_for_among_dozens_of_others(
    chat: Chat, kind: str
) -> None:
    """A bot in privacy mode does not hear what others say in between."""
    chat.telegram.chat(GROUP, "supergroup")
    hi = Shown(text="hi", plain="hi", final=True)
    await chat.surface("t8", GROUP).show("reply:0", hi)
    for number in range(40):
        chat.telegram.say(GROUP, ANN, f"chatter {number}")
    chat.telegram.fault(kind, "sendMessage", chat_id=GROUP)
    await chat.surface("t9", GROUP).show("reply:0", FINAL)
    assert [seen.text for seen in chat.telegram.replies(GROUP)] == ["hi", "done"]
    assert len(chat.telegram.called("editMessageText")) <= 6
