"""Questions put as text: the real `openai` package, and what Open WebUI sends, at a gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from fakes.api_clients import ClientWorld
from fakes.api_gateway import KEY, running_api
from fakes.model import Call, FakeModelServer, Rule, Script, Step

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("consent")]
ASKS = "I need your consent to run this: answer yes or no."
SCRIPT = Call(
    name="execute_code",
    arguments={"code": "from hermes_tools import terminal\nterminal('rm -rf m')"},
)
LIST = Call(name="terminal", arguments={"command": "ls"})
LOCAL: dict[str, Any] = {"terminal": {"backend": "local"}}


def _clean(*names: str) -> list[Step]:
    calls = [Call(name="terminal", arguments={"command": f"rm -rf {name}"}) for name in names]
    return [Step(text="Cleaning up.", calls=calls), Step(text="It is clean.")]


def _script() -> Script:
    rules = [Rule(contains=f"clean {name}", steps=_clean(name)) for name in "abcdefghijklnopqr"]
    rules += [
        Rule(contains="both", steps=_clean("one", "two")),
        Rule(
            contains="list",
            steps=[
                Step(calls=[Call(name="terminal", arguments={"command": "ls"})]),
                Step(text="Listed."),
            ],
        ),
        Rule(
            contains="use a program",
            steps=[Step(calls=[SCRIPT]), Step(text="It is clean.")],
        ),
        Rule(contains="thanks", steps=[Step(text="Any time.")]),
        Rule(contains="instead", steps=[Step(text="As you like.")]),
    ]
    return Script(rules=rules, default=Step(text="Hello."))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientWorld]:
    folder = tmp_path_factory.mktemp("consent")
    async with (
        FakeModelServer(_script()) as model,
        running_api(folder, model.base_url, **LOCAL) as gateway,
    ):
        yield ClientWorld(gateway, model)


@pytest_asyncio.fixture(loop_scope="module")
async def client(world: ClientWorld) -> AsyncIterator[AsyncOpenAI]:
    made = AsyncOpenAI(api_key=KEY, base_url=world.base_url, max_retries=0, timeout=20)
    async with made, asyncio.timeout(60):
        yield made


def folder(world: ClientWorld, name: str) -> Path:
    made = world.gateway.hermes.home / "workspace" / name
    made.mkdir(parents=True, exist_ok=True)
    return made


class WebChat:
    """A chat of a web interface: the whole history each time, streamed or not."""

    def __init__(
        self, client: AsyncOpenAI, *, stream: bool, user: str | None = None, **headers: str
    ) -> None:
        self.client = client
        self.stream = stream
        self.more: Any = {"user": user} if user else {}
        self.headers = headers
        self.messages: list[Any] = [{"role": "system", "content": "You live in a web page."}]
        self.sessions: list[str] = []

    async def say(self, text: str) -> str:
        self.messages.append({"role": "user", "content": text})
        raw = await self.client.chat.completions.with_raw_response.create(
            model="hermes",
            messages=self.messages,
            stream=self.stream,
            **self.more,
            extra_headers={name.replace("_", "-"): each for name, each in self.headers.items()},
        )
        self.sessions.append(raw.headers["x-hermes-session-id"])
        answer: Any = raw.parse()
        if self.stream:
            chunks = [chunk async for chunk in answer]
            said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            ends = [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason]
            assert ends == ["stop"]
        else:
            said = answer.choices[0].message.content
            assert answer.choices[0].finish_reason == "stop"
        self.messages.append({"role": "assistant", "content": said})
        return str(said)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_chat_answers_by_typing(
    world: ClientWorld, client: AsyncOpenAI, stream: bool
) -> None:
    name = "ab"[stream]
    there, chat = folder(world, name), WebChat(client, stream=stream)
    asked = await chat.say(f"Please clean {name}")
    assert ASKS in asked
    assert f"```\nrm -rf {name}\n```" in asked
    assert "Why I ask: " in asked
    assert there.exists()
    assert await chat.say("Yes.") == "It is clean."
    assert not there.exists()
    assert await chat.say("thanks") == "Any time."
    assert len(set(chat.sessions)) == 1
    assert len(world.asked(f"clean {name}")) == 3, "the turn went on, it was not asked again"


async def test_no_is_no_and_other_words_are_a_new_message(
    world: ClientWorld, client: AsyncOpenAI
) -> None:
    there, chat = folder(world, "c"), WebChat(client, stream=True)
    await chat.say("Please clean c")
    assert await chat.say("no") == "It is clean.", "what the model said, not what is true"
    assert b"The user refused this" in world.asked("clean c")[-1].raw
    await chat.say("Please clean c again")
    assert await chat.say("Do nothing instead of it") == "As you like."
    assert b"Do nothing instead" in world.asked("clean c")[-1].raw
    assert await chat.say("thanks") == "Any time."
    assert there.exists()
    assert len(set(chat.sessions)) == 1


async def test_two_questions_come_one_after_the_other(
    world: ClientWorld, client: AsyncOpenAI
) -> None:
    one, two = folder(world, "one"), folder(world, "two")
    chat = WebChat(client, stream=True)
    assert "rm -rf one" in await chat.say("Remove both")
    second = await chat.say("ok")
    assert "rm -rf two" in second
    assert "rm -rf one" not in second
    assert await chat.say("no") == "It is clean."
    assert not one.exists()
    assert two.exists()
    assert await chat.say("thanks") == "Any time."
    assert len(set(chat.sessions)) == 1


async def test_a_named_session_answers_with_its_last_message_only(
    world: ClientWorld, client: AsyncOpenAI
) -> None:
    there = folder(world, "d")
    for text, expected in (("Please clean d", ASKS), ("yes", "It is clean."), ("thanks", "Any")):
        answer = await client.chat.completions.create(
            model="hermes",
            messages=[{"role": "user", "content": text}],
            extra_headers={"X-Hermes-Session-Key": "cleaning"},
        )
        assert expected in (answer.choices[0].message.content or "")
    assert not there.exists()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_response_answers_by_its_id(
    world: ClientWorld, client: AsyncOpenAI, stream: bool
) -> None:
    name = "ef"[stream]
    there = folder(world, name)

    async def respond(text: Any, previous: str | None = None) -> Any:
        more: Any = {"previous_response_id": previous} if previous else {}
        if not stream:
            return await client.responses.create(model="hermes", input=text, **more)
        async with client.responses.stream(model="hermes", input=text, **more) as events:
            async for _ in events:
                pass
            return await events.get_final_response()

    first = await respond(f"Please clean {name}")
    assert first.status == "completed"
    assert ASKS in first.output_text
    second = await respond("yes", first.id)
    assert (second.status, second.output_text) == ("completed", "It is clean.")
    assert second.id != first.id
    assert [item.type for item in second.output] == ["mcp_call", "message"]
    assert second.output[0].status == "completed"
    assert not there.exists()
    assert (await respond("thanks", second.id)).output_text == "Any time."
    kept = await client.responses.retrieve(first.id)
    assert kept.output_text == first.output_text


async def test_responses_that_carry_their_whole_history(
    world: ClientWorld, client: AsyncOpenAI
) -> None:
    there = folder(world, "g")
    items: list[Any] = [{"role": "user", "content": "Please clean g"}]
    first = await client.responses.create(model="hermes", input=items, store=False)
    assert ASKS in first.output_text
    items += [item.to_dict() for item in first.output]
    items.append({"role": "user", "content": "yes"})
    second = await client.responses.create(model="hermes", input=items, store=False)
    assert second.output_text == "It is clean."
    assert not there.exists()


async def test_a_client_that_knows_our_events_gets_them(
    world: ClientWorld, client: AsyncOpenAI
) -> None:
    folder(world, "h")
    body = {"model": "hermes", "stream": True, "messages": [{"role": "user", "content": "clean h"}]}
    headers = {"authorization": f"Bearer {KEY}", "x-hermes-events": "approvals"}
    async with httpx2.AsyncClient(base_url=world.base_url, headers=headers) as plain:
        async with plain.stream("POST", "/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            async for line in lines:
                if line == "event: hermes.approval.request":
                    break
            [asked] = (await plain.get("/approvals")).json()["data"]
            await plain.post(f"/approvals/{asked['id']}", json={"choice": "deny"})
            rest = [line async for line in lines]
    assert "event: hermes.approval.responded" in rest
    assert ASKS not in "".join(rest)


async def test_a_key_that_may_not_approve_is_told_who_can(
    world: ClientWorld, client: AsyncOpenAI
) -> None:
    there = folder(world, "i")
    secret = await world.new_key("reader", "--action", "run")
    async with AsyncOpenAI(api_key=secret, base_url=world.base_url, max_retries=0) as other:
        chat = WebChat(other, stream=False)
        asked = await chat.say("Please clean i")
        assert "may not answer" in asked
        with pytest.raises(openai.PermissionDeniedError, match="may not answer approvals"):
            await chat.say("yes")
        chat.messages.pop()
        assert there.exists()
        approval_id = asked.rpartition("(`")[2].removesuffix("`)")
        async with world.gateway.client() as owner:
            answer = await owner.post(f"/v1/approvals/{approval_id}", json={"choice": "once"})
            assert answer.status_code == 200
        assert await chat.say("yes") == "This was already answered.\n\nIt is clean."
        assert not there.exists()


@pytest.mark.parametrize(
    ("first", "told"), [("yes", "[no output]"), ("no", "The user refused this")]
)
async def test_an_answer_that_is_given_again_does_not_change_what_was_done(
    world: ClientWorld, client: AsyncOpenAI, first: str, told: str
) -> None:
    name = {"yes": "p", "no": "q"}[first]
    there, chat = folder(world, name), WebChat(client, stream=False)
    await chat.say(f"Please clean {name}")
    question = list(chat.messages)
    await chat.say(first)
    assert there.exists() is (first == "no")
    chat.messages = question
    await chat.say("yes")
    assert len(set(chat.sessions)) == 2, "the answer is another one: a branch"
    seen = world.asked(f"clean {name}")[-1].raw.decode()
    assert "did not answer" not in seen
    results = [each for each in json.loads(seen)["messages"] if each["role"] == "tool"]
    assert len(results) == 1
    assert told in results[0]["content"]


async def test_nobody_consents_for_somebody_else_or_in_another_chat(
    world: ClientWorld, client: AsyncOpenAI
) -> None:
    there, alice = folder(world, "n"), WebChat(client, stream=False, user="alice")
    asked = await alice.say("Please clean n")
    assert ASKS in asked
    quoted = {"role": "assistant", "content": f"(`{asked.rpartition('(`')[2]}"}
    for user in ("bob", None, "alice"):
        for words in (alice.messages, [{"role": "user", "content": "Something else"}, quoted]):
            if (user, words) == ("alice", alice.messages):
                continue
            other = WebChat(client, stream=False, user=user)
            other.messages = list(words)
            assert await other.say("yes") != "It is clean."
            assert other.sessions != alice.sessions
    assert there.exists()
    assert await alice.say("yes") == "It is clean."
    assert not there.exists()


@pytest.mark.parametrize("hidden", [True, False])
async def test_a_client_that_hides_the_id_of_a_question_or_more_can_answer_it(
    world: ClientWorld, client: AsyncOpenAI, hidden: bool
) -> None:
    name = "ro"[hidden]
    there, chat = folder(world, name), WebChat(client, stream=True)
    asked = await chat.say(f"Please clean {name}")
    text, mark, token = asked.rpartition("(`appr_")
    chat.messages[-1]["content"] = text.rstrip() if hidden else f"It asks: {mark}{token}"
    assert await chat.say("yes") == "It is clean."
    assert not there.exists()
    assert await chat.say("thanks") == "Any time."
    assert len(set(chat.sessions)) == 1


@pytest.mark.parametrize("wanted", ["text", "reasoning"])
async def test_progress_as_text_or_reasoning(client: AsyncOpenAI, wanted: str) -> None:
    stream = await client.chat.completions.create(
        model="hermes",
        messages=[{"role": "user", "content": "list"}],
        stream=True,
        extra_headers={"X-Hermes-Progress": wanted},
    )
    deltas = [chunk.choices[0].delta async for chunk in stream]
    said = "".join(delta.content or "" for delta in deltas)
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    shown = {"text": said, "reasoning": thought}[wanted]
    assert "terminal: ls" in shown
    assert said.endswith("Listed.")
    history: Any = [
        {"role": "user", "content": "list"},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "thanks"},
    ]
    raw = await client.chat.completions.with_raw_response.create(model="hermes", messages=history)
    assert raw.headers["x-hermes-session-id"] == stream.response.headers["x-hermes-session-id"]


async def test_the_answer_comes_after_a_restart(tmp_path: Path) -> None:
    async with (
        FakeModelServer(_script()) as model,
        running_api(tmp_path, model.base_url, **LOCAL) as gateway,
    ):
        world = ClientWorld(gateway, model)
        there = folder(world, "j")
        async with AsyncOpenAI(api_key=KEY, base_url=world.base_url) as client:
            chat = WebChat(client, stream=True)
            assert ASKS in await chat.say("Please clean j")
        await gateway.kill()
        await gateway.start()
        async with AsyncOpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", timeout=30) as client:
            chat.client = client
            assert await chat.say("yes") == "It is clean."
            assert not there.exists()
            assert await chat.say("thanks") == "Any time."
        assert len(set(chat.sessions)) == 1


async def test_a_question_does_not_hold_up_a_restart(tmp_path: Path) -> None:
    patient = {**LOCAL, "agent": {"restart_drain_timeout": 60}}
    async with (
        FakeModelServer(_script()) as model,
        running_api(tmp_path, model.base_url, **patient) as gateway,
    ):
        world = ClientWorld(gateway, model)
        there = folder(world, "l")
        async with AsyncOpenAI(api_key=KEY, base_url=world.base_url) as client:
            chat = WebChat(client, stream=False)
            assert ASKS in await chat.say("Please clean l")
        for _ in range(2):  # also one that waited for the question already
            async with asyncio.timeout(10):
                assert await gateway.stop() == 0
            await gateway.start()
        async with AsyncOpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", timeout=30) as client:
            chat.client = client
            assert await chat.say("yes") == "It is clean."
        assert not there.exists()
        assert len(set(chat.sessions)) == 1


async def _again_and_again(client: AsyncOpenAI) -> None:
    while True:
        await WebChat(client, stream=False).say("list")


async def test_what_works_beside_a_question_has_its_time(tmp_path: Path) -> None:
    patient = {**LOCAL, "agent": {"restart_drain_timeout": 60}}
    slow = Rule(contains="slowly", steps=[Step(text="Slowly done.", stall="middle")])
    script = Script(rules=[slow, *_script().rules], default=Step(text="Hello."))
    async with (
        asyncio.timeout(60),
        FakeModelServer(script) as model,
        running_api(tmp_path, model.base_url, **patient) as gateway,
        AsyncOpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", max_retries=0) as client,
    ):
        world = ClientWorld(gateway, model)
        folder(world, "l")
        chat, other = WebChat(client, stream=False), WebChat(client, stream=False)
        assert ASKS in await chat.say("Please clean l")
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(other.say("Go slowly"))
            await world.until_asked("slowly")
            ends = group.create_task(gateway.stop())
            with pytest.raises(openai.InternalServerError, match="stopping"):
                await _again_and_again(client)
            model.release()
        assert answer.result() == "Slowly done."
        assert ends.result() == 0


async def test_an_expired_question_is_said_so(tmp_path: Path) -> None:
    short = {**LOCAL, "approvals": {"timeout": 1}}
    async with (
        FakeModelServer(_script()) as model,
        running_api(tmp_path, model.base_url, **short) as gateway,
        AsyncOpenAI(api_key=KEY, base_url=f"{gateway.url}/v1", timeout=30) as client,
    ):
        world = ClientWorld(gateway, model)
        there, chat = folder(world, "k"), WebChat(client, stream=True)
        await chat.say("Please clean k")
        await world.until_asked("nobody approved it in time")
        said = await chat.say("yes")
        assert said.startswith("Too late: nobody answered in time, so it was not done.")
        assert said.endswith("It is clean.")
        assert there.exists()
        assert await chat.say("thanks") == "Any time."
        assert len(set(chat.sessions)) == 1


async def test_what_a_script_asks_for_is_asked_in_the_chat(
    world: ClientWorld, client: AsyncOpenAI
) -> None:
    there, chat = folder(world, "m"), WebChat(client, stream=True)
    said = await chat.say("Please use a program")
    for _ in range(2):  # the script as a whole, and what it runs
        if said != "It is clean.":
            assert ASKS in said
            said = await chat.say("yes")
    assert said == "It is clean."
    assert not there.exists()
