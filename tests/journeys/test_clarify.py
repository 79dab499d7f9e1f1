"""clarify: the model asks, the person answers at their door, also after a kill."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2

from fakes.api_gateway import running_api
from fakes.asking_child import asked_and_killed, options
from fakes.command import Hermes
from fakes.gateway import gateway_config
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from hermes.app.build import open_app
from hermes.domain.messages import ToolMessage
from hermes.entry.terminal.oneshot import inbound

ANN = 777
ASK = Call(name="clarify", arguments={"question": "Which colour?", "choices": ["red", "blue"]})
OPEN = Call(name="clarify", arguments={"question": "What name?"})


async def test_a_question_outlives_the_process_that_asked(tmp_path: Path) -> None:
    script = Script(steps=[Step(calls=[ASK])], default=Step(text="Painted."))
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url)
        ((session_id, question_id),) = await asked_and_killed(hermes)
        async with open_app(options(hermes.home, hermes.work)) as app:
            (pending,) = await app.ledger.pending_approvals(session_id)
            assert pending.request.id == question_id
            assert pending.request.expires_at == pending.request.created_at + 3600
            assert await app.answers.reply(question_id, "2", by="ann")
            await app.gateway.recover(session_id)
            await app.gateway.idle(session_id)
            history = [stored.message for stored in await app.ledger.history(session_id)]
            assert len(await app.ledger.approvals()) == 1
    (result,) = [m.content for m in history if isinstance(m, ToolMessage)]
    assert result == "The user answered: blue"


async def test_a_question_waits_as_long_as_the_setting_says(tmp_path: Path) -> None:
    script = Script(steps=[Step(calls=[ASK])], default=Step(text="Painted."))
    async with FakeModelServer(script) as server, asyncio.timeout(30):
        hermes = Hermes(tmp_path, server.base_url, {"agent": {"clarify_timeout": 0.05}})
        async with open_app(options(hermes.home, hermes.work)) as app:
            session = await app.gateway.open_session("main", "cli", "ann")
            message = inbound(session, "paint it", "ann", 0.0)
            await (await app.gateway.submit("main", message, session_id=session.id)).job()
            await app.gateway.drained()
            history = [stored.message for stored in await app.ledger.history(session.id)]
    (result,) = [str(m.content) for m in history if isinstance(m, ToolMessage)]
    assert "Nobody answered in time" in result


def _script() -> Script:
    return Script(
        rules=[
            Rule(contains="paint it", steps=[Step(calls=[ASK]), Step(text="painted")]),
            Rule(contains="name it", steps=[Step(calls=[OPEN]), Step(text="named")]),
        ],
        default=Step(text="hello"),
    )


async def test_a_chat_answers_by_button_and_in_words_and_a_program_by_its_next_message(
    tmp_path: Path,
) -> None:
    async with (
        FakeModelServer(_script()) as model,
        FakeTelegram() as telegram,
        running_api(tmp_path, model.base_url, **gateway_config(telegram.base_url)) as gateway,
        asyncio.timeout(50),
    ):
        telegram.say(ANN, ANN, "paint it")
        await telegram.until(lambda: "Which colour?" in str(telegram.replies(ANN)))
        (shown,) = [m for m in telegram.replies(ANN) if "Which colour?" in m.text]
        (red, data), (blue, _) = (button for row in shown.buttons for button in row)
        assert (red, blue) == ("red", "blue")
        telegram.press(ANN, ANN, shown.message_id, data)
        await telegram.until(lambda: "painted" in str(telegram.replies(ANN)))
        telegram.say(ANN, ANN, "name it")
        await telegram.until(lambda: "What name?" in str(telegram.replies(ANN)))
        telegram.say(ANN, ANN, "Rosinante")
        await telegram.until(lambda: "named" in str(telegram.replies(ANN)))
        told = [m["content"] for m in model.requests[-1].body["messages"] if m["role"] == "tool"]
        assert told == ["The user answered: red", "The user answered: Rosinante"]

        messages: list[Any] = [{"role": "user", "content": "paint it"}]
        async with gateway.client() as client:
            asked = await _said(client, messages)
            assert "Which colour?\n\n1. red\n2. blue" in asked
            messages += [{"role": "assistant", "content": asked}]
            messages += [{"role": "user", "content": "a light green"}]
            assert await _said(client, messages) == "painted"
    told = [m["content"] for m in model.requests[-1].body["messages"] if m["role"] == "tool"]
    assert told == ["The user answered: a light green"]


async def _said(client: httpx2.AsyncClient, messages: list[Any]) -> str:
    body = {"model": "hermes", "messages": messages}
    answer = await client.post("/v1/chat/completions", json=body)
    return str(answer.json()["choices"][0]["message"]["content"])
