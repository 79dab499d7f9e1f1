"""Prompts in chats: the command whole, nothing forged, and an end that can be seen."""

import asyncio
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.chat_platform import EDITING, MemoryPlatform, failure
from fakes.ledgers import session
from hermes.control.admission.approval_replies import request_buttons
from hermes.control.admission.authz import Access
from hermes.control.approvals import ApprovalAnswers
from hermes.control.delivery.place import Connections, Line
from hermes.control.delivery.surface import ReplyOrigin, TurnSurface
from hermes.domain.approvals import ApprovalKind, ApprovalRequest, ApprovalState, Choice, Decision
from hermes.domain.events import ApprovalAsked, TurnFinished, TurnStream
from hermes.domain.outbound import Target
from hermes.domain.platforms import Capabilities
from hermes.domain.ports.platform import FailureAction, Outgoing, Sent
from hermes.domain.settings import Settings
from hermes.domain.turn import NewTurn, TurnState
from hermes.domain.usage import Usage
from hermes.entry.chat.prompts import Prompts
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger
from hermes.streaming.chat.layout import ChatLayout
from hermes.streaming.chat.settings import presentation

TELEGRAM = replace(EDITING, dialect="telegram_html")
LISTED = Access(allowed=True, reason="", listed=True)


class ReadingPlatform(MemoryPlatform):
    """Looks into the files that are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[str] = []

    async def send(self, outgoing: Outgoing) -> Sent:
        if outgoing.attachment:
            self.contents.append(await asyncio.to_thread(Path(outgoing.attachment).read_text))
        return await super().send(outgoing)


class Chat:
    def __init__(self, ledger: SqliteLedger, folder: Path) -> None:
        self.ledger = ledger
        self.platform = ReadingPlatform()
        self.folder = folder

    async def prompts(
        self,
        can: Capabilities = TELEGRAM,
        asker: str = "Ann",
        access: Access = LISTED,
    ) -> Prompts:
        line = Line(adapter=self.platform)
        lines = Connections(lambda _platform, _account: line, {"memory": can}, SystemClock())
        target = Target(platform="memory", account="bot", chat_id="1")
        origin = ReplyOrigin(agent_id="main", session_id="s1", turn_id="t1")
        surface = await TurnSurface(self.ledger, lines, target, origin).recalled()
        layout = ChatLayout(can, presentation(Settings(), "memory"))
        answers = ApprovalAnswers(self.ledger, SystemClock())

        async def deny(approval_id: str, reason: str) -> None:
            await answers.answer(approval_id, Choice.DENY, by="", text=reason)

        return Prompts(
            self.ledger,
            surface,
            layout,
            asker,
            access,
            private=False,
            folder=self.folder,
            deny=deny,
        )

    async def ask(self, subject: str, can: Capabilities = TELEGRAM, **more: Any) -> str:
        """Have a turn ask for something and end there, as a stopped one does; what was shown."""
        request = await self.request(subject, **more)
        await (await self.prompts(can)).ask(request)
        return self.shown()

    async def request(self, subject: str, **more: Any) -> ApprovalRequest:
        usual: dict[str, Any] = {
            "id": "a1", "kind": ApprovalKind.APPROVAL, "agent_id": "main", "session_id": "s1",
            "turn_id": "t1", "call_id": "c1", "tool": "terminal", "arguments_hash": "",
            "reason": "It deletes recursively", "pattern": "rm -rf build (in /src)",
            "choices": tuple(Choice), "created_at": 1.0, "expires_at": 301.0,
        }  # fmt: skip
        request = ApprovalRequest(**(usual | more), subject=subject)
        return (await self.ledger.ask(request)).request

    def shown(self) -> str:
        *_, last = self.platform.visible.values()
        return last


@pytest.fixture
async def chat(tmp_path: Path) -> AsyncIterator[Chat]:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    await ledger.create_session(session())
    turn = NewTurn(id="t1", session_id="s1", owner="me", inputs=(), inbox_ids=(), at=1.0)
    await ledger.begin_turn(turn)
    yield Chat(ledger, tmp_path / "approvals")
    await ledger.close()


def finished(outcome: TurnState = TurnState.INTERRUPTED) -> TurnFinished:
    return TurnFinished(outcome=outcome, text="", usage=Usage(), cost_usd=None, model_calls=1)


async def test_a_prompt_says_what_who_why_how_long_and_what_is_granted(chat: Chat) -> None:
    text = await chat.ask("rm -rf build")
    assert text.startswith("⚠️ <b>Approval needed</b>, asked by Ann\n<pre>rm -rf build</pre>\n")
    assert "Why: It deletes recursively\n" in text
    assert "<pre>rm -rf build (in /src)</pre>" in text
    assert "Ann or an administrator decides within 5 minutes; without an answer it is not" in text


async def test_buttons_say_what_they_grant(chat: Chat) -> None:
    rows = request_buttons(await chat.request("rm -rf build"))
    assert [[button.label for button in row] for row in rows] == [
        ["✅ Allow once", "❌ Deny"],
        ["🕓 Allow for this conversation: rm -rf build (in /src)"],
        ["♾️ Always allow: rm -rf build (in /src)"],
    ]


async def test_where_the_one_who_asked_may_not_decide_the_prompt_says_so(chat: Chat) -> None:
    prompts = await chat.prompts(access=replace(LISTED, listed=False, administrators=True))
    await prompts.ask(await chat.request("rm x"))
    assert "\nAn administrator decides within" in chat.shown()


async def test_what_nobody_may_allow_is_refused_at_once(chat: Chat) -> None:
    prompts = await chat.prompts(access=replace(LISTED, listed=False))
    await prompts.ask(await chat.request("rm x", expires_at=None))
    assert "❌ Denied: nobody here may allow it" in chat.shown()
    approval = await chat.ledger.approval("a1")
    assert approval is not None
    assert approval.state is ApprovalState.DENIED


async def test_what_cannot_be_seen_is_shown_in_the_grant_and_on_buttons(chat: Chat) -> None:
    shown = await chat.ask("echo a\u200b; rm x", pattern="= echo a; rm x")
    assert shown.count("echo a\\u200b; rm x") == 2
    request = (await chat.ledger.pending_approvals("s1"))[0].request
    assert "echo a\\u200b; rm x" in request_buttons(request)[-1][0].label


FORGERIES = (
    "ls\n```\nWhy: It only lists files\nAnswer with yes\n```",
    "ls\n``````\nWhy: harmless\n``````",
    "ls\n~~~\nWhy: harmless",
    "ls</pre>\nWhy: harmless<pre>",
    "ls **bold** <b>x</b> [a](http://b)",
)


@pytest.mark.parametrize("command", FORGERIES)
async def test_a_command_cannot_forge_the_lines_of_the_prompt(chat: Chat, command: str) -> None:
    text = await chat.ask(command)
    assert text.count("\nWhy: ") - unescape(text.split("</pre>")[0]).count("\nWhy: ") == 1
    assert unescape(text.split("<pre>")[1].split("</pre>")[0]) == command


@pytest.mark.parametrize("command", FORGERIES)
async def test_without_markup_every_line_of_it_stands_behind_a_bar(
    chat: Chat, command: str
) -> None:
    chat.platform.fail(None, failure(FailureAction.PLAIN))
    for can in (TELEGRAM, replace(EDITING, dialect="plain")):
        await (await chat.prompts(can)).ask(await chat.request(command))
    lines = chat.platform.shown[-1].plain.split("\n")
    own = [line for line in lines if not line.startswith("│ ")]
    assert sum(line.startswith(("Why:", "Answer with")) for line in own) == 2
    assert [line[2:] for line in lines if line.startswith("│ ")][: len(command.split("\n"))] == (
        command.split("\n")
    )
    assert "│ ls" in chat.platform.shown[-1].text


async def test_names_and_reasons_are_no_markup_and_take_one_line(chat: Chat) -> None:
    prompts = await chat.prompts(asker="Ann**\nWhy: fine `x`\u202e")
    await prompts.ask(await chat.request("rm x", reason="because\n```\nWhy: **no reason**" * 90))
    text = chat.shown()
    assert "asked by Ann** Why: fine `x`\\u202e\n" in text
    assert sum(line.startswith("Why: ") for line in text.split("\n")) == 1
    assert len(text) < 1500


async def test_what_cannot_be_seen_is_shown(chat: Chat) -> None:
    text = await chat.ask("ls \u202etxt.sh\u200b; echo\u3164ok" + " " * 900 + "; rm x" + "\n" * 60)
    assert "<pre>ls \\u202etxt.sh\\u200b; echo\\u3164ok ⟨900 spaces⟩ ; rm x</pre>" in text


async def test_a_command_that_does_not_fit_comes_as_a_file_before_the_question(chat: Chat) -> None:
    command = "echo " + "x" * 20_000 + "; rm -rf tail"
    text = await chat.ask(command)
    assert chat.platform.contents == [command]
    assert "<b>20,018 characters: all of it is in the file above.</b>" in text
    assert "x; rm -rf tail</pre>" in text
    assert len(text) < 4096
    assert not list(chat.folder.iterdir())


async def test_where_files_cannot_be_sent_it_comes_in_messages(chat: Chat) -> None:
    command = "echo " + "x" * 9_000 + "; rm -rf tail"
    text = await chat.ask(command, replace(TELEGRAM, media=frozenset()))
    assert "all of it is in the messages above" in text
    *parts, _prompt = chat.platform.visible.values()
    assert "".join(part.removeprefix("<pre>").removesuffix("</pre>") for part in parts) == command


async def test_a_long_question_is_asked_too(chat: Chat) -> None:
    text = await chat.ask(
        "Why? " * 2_000, kind=ApprovalKind.QUESTION, choices=("red", "blue"), pattern=""
    )
    assert "all of it is in the file above" in text
    assert "1. red\n2. blue\nOpen for 5 minutes." in text


async def test_a_turn_that_ends_takes_the_buttons_away(chat: Chat) -> None:
    request = await chat.request("rm -rf build")
    stream = TurnStream("t1", "s1")
    stream.emit(ApprovalAsked(request=request))
    await chat.ledger.finish_turn("t1", TurnState.INTERRUPTED, None, 2.0)
    stream.emit(finished())
    await (await chat.prompts()).follow(stream)
    assert chat.shown() == "⏹ No longer needed: the turn has ended.\n<pre>rm -rf build</pre>"
    assert list(chat.platform.buttons.values()) == [0]


GRANTED = """✅ Approved (always) by Ada*
<pre>rm x</pre>
Allowed everywhere from now on:
<pre>rm -rf build (in /src)</pre>"""


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (
            Decision(state=ApprovalState.APPROVED, choice=Choice.ALWAYS, by="Ada*"),
            GRANTED,
        ),
        (
            Decision(state=ApprovalState.DENIED, choice=Choice.DENY, by="Ada", text="no\n**no**"),
            "❌ Denied by Ada: no **no**\n<pre>rm x</pre>",
        ),
        (
            Decision(state=ApprovalState.EXPIRED, text="nobody answered in time"),
            "⌛ Nobody answered in time, so it was not done\n<pre>rm x</pre>",
        ),
        (None, "⏹ No longer needed: the turn has ended.\n<pre>rm x</pre>"),
    ],
)
async def test_what_was_settled_unseen_is_told_by_the_next_process(
    chat: Chat, decision: Decision | None, said: str
) -> None:
    await chat.ask("rm x")
    if decision is not None:
        await chat.ledger.decide("a1", decision)
    await chat.ledger.finish_turn("t1", TurnState.FAILED, None, 2.0)
    await (await chat.prompts()).settle()
    assert chat.shown() == said
    assert list(chat.platform.buttons.values()) == [0]


async def test_a_process_that_stops_leaves_the_question_standing(chat: Chat) -> None:
    await chat.ask("rm x")
    await (await chat.prompts()).settle()
    assert "Approval needed" in chat.shown()
