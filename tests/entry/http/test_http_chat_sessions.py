"""Which session a chat completion continues, and what happens when its client leaves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.core import ScriptedTools, returns, waits
from fakes.http_chat import (
    PATH,
    WEATHER,
    ask,
    body,
    door_with,
    history,
    said,
    streamed,
    text_of,
)
from fakes.http_door import KEY, HttpDoor
from hermes.control.runs.runs import Runs
from hermes.domain.messages import UserMessage, content_text
from hermes.domain.ports.ledger import SearchQuery
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.runs import RunQuery, RunState
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import Sessions
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


async def test_the_conversation_of_the_client_is_the_history(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Three.")) as (door, model):
        answer = await ask(
            door.client,
            {"role": "system", "content": "Count with me."},
            "One",
            {"role": "assistant", "content": "Two"},
            "Go on",
            max_tokens=50,
            temperature=0.5,
            reasoning_effort="low",
        )
        assert text_of(answer) == "Three."
        assert history(model) == ["One", "Two", "Go on"]
        request = model.requests[0]
        assert "Count with me." in request.system
        assert (request.max_tokens, request.temperature) == (50, 0.5)
        assert request.reasoning_effort == "low"


async def test_two_requests_are_two_conversations(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("a"), say("b")) as (door, model):
        first, second = await ask(door.client, "Hi"), await ask(door.client, "Hi")
        assert first.headers["x-hermes-session-id"] != second.headers["x-hermes-session-id"]
        assert history(model) == ["Hi"]


def agent_said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def session_of(answer: Any) -> str:
    return str(answer.headers["x-hermes-session-id"])


async def test_a_client_that_sends_the_whole_chat_stays_in_one_session(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a secret file"))
    script = (calls(call("look"), text="Looking."), say("Found."), say("Bye."))
    async with door_with(tmp_path, *script, tools=tools) as (door, model):
        first = await ask(door.client, {"role": "system", "content": "Now: 1."}, "Look")
        talk = ["Look", agent_said(text_of(first)), "Thanks"]
        second = await ask(door.client, {"role": "system", "content": "Now: 2."}, *talk)
        assert session_of(second) == session_of(first)
        assert "a secret file" in str(model.requests[-1].messages), "the tools' findings are kept"
        assert history(model)[-1] == "Thanks"
        assert "Now: 2." in model.requests[-1].system


@pytest.mark.parametrize("shown", ["Looking.\n\nFound.", "Found."])
async def test_a_client_may_have_what_was_streamed_or_the_answer(
    tmp_path: Path, shown: str
) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a file"))
    script = (calls(call("look"), text="Looking."), say("Found."), say("Bye."))
    async with door_with(tmp_path, *script, tools=tools) as (door, _):
        first = await ask(door.client, "Look")
        second = await ask(door.client, "Look", agent_said(shown), "Thanks")
        assert session_of(second) == session_of(first)


async def test_an_edited_or_repeated_question_is_a_branch(tmp_path: Path) -> None:
    script = (say("Hello."), say("One."), say("Two."), say("Three."))
    async with door_with(tmp_path, *script) as (door, model):
        first = await ask(door.client, "Hi")
        start = ("Hi", agent_said("Hello."))
        second = await ask(door.client, *start, "Count")
        again = await ask(door.client, *start, "Count")
        assert session_of(second) == session_of(first) != session_of(again)
        assert history(model) == ["Hi", "Hello.", "Count"]
        branch = await door.ledger.session(session_of(again))
        assert branch is not None
        assert branch.parent_id == session_of(first)
        onward = await ask(door.client, *start, "Count", agent_said("Two."), "And?")
        assert session_of(onward) == session_of(again), "the answer that was chosen goes on"


async def test_a_continued_answer_is_one_message_for_the_client(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("It is"), say(" fine."), say("Bye.")) as (door, _):
        first = await ask(door.client, "How is it?")
        begun = ("How is it?", agent_said("It is"))
        second = await ask(door.client, *begun)
        whole = ("How is it?", agent_said("It is" + text_of(second)), "Thanks")
        third = await ask(door.client, *whole)
        assert text_of(second) == " fine."
        assert session_of(third) == session_of(second) == session_of(first)


async def test_other_words_and_other_keys_open_a_session(tmp_path: Path) -> None:
    async with door_with(tmp_path, *(say("Hello.") for _ in range(4))) as (door, _):
        first = await ask(door.client, "Hi")
        changed = await ask(door.client, "Hi", agent_said("Hello!"), "Go on")
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        foreign = await ask(other, "Hi", agent_said("Hello."), "Go on")
        assert len({session_of(each) for each in (first, changed, foreign)}) == 3
        assert session_of(
            await ask(door.client, "Hi", agent_said("Hello."), "Go", "on")
        ) == session_of(first)


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_nul_character_in_an_answer_does_not_end_the_chat(
    tmp_path: Path, *, streaming: bool
) -> None:
    reply = Reply(reasoning=("h\x00m",), pieces=("It is ", "\x00 or \\u0000\x00\x00.", " Yes."))
    async with door_with(tmp_path, reply, say("Bye.")) as (door, model):
        first = await ask(door.client, "What is it?", stream=streaming)
        told = said(streamed(first)) if streaming else text_of(first)
        assert told == "It is \ufffd or \\u0000\ufffd\ufffd. Yes."
        second = await ask(door.client, "What is it?", agent_said(told), "And now?")
        assert second.status_code == 200, second.text
        assert session_of(second) == session_of(first)
        assert history(model) == ["What is it?", "It is \x00 or \\u0000\x00\x00. Yes.", "And now?"]


async def test_an_answer_that_the_client_stopped_goes_on_in_its_session(tmp_path: Path) -> None:
    tools, started, never = ScriptedTools(), asyncio.Event(), asyncio.Event()
    tools.add("wait", waits(started, never))
    script = (calls(call("wait"), text="Let me look at it."), say("Fine."))
    async with door_with(tmp_path, *script, tools=tools) as (door, _):
        leaving = await door.with_key(KEY)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(leaving.post(PATH, json=body("Hi", stream=True)))
            await started.wait()
            task.cancel()
        await leaving.aclose()
        assert await ended_run(door) is RunState.INCOMPLETE
        [run] = await door.ledger.runs(RunQuery())
        second = await ask(door.client, "Hi", agent_said("Let me loo"), "Never mind")
        assert session_of(second) == run.session_id


NOTHING_SAID: Any = [(), ({"role": "assistant", "content": ""},), ({"role": "assistant"},)]


@pytest.mark.parametrize("between", NOTHING_SAID)
async def test_a_turn_that_was_stopped_before_its_first_word_is_gone_on_from(
    tmp_path: Path, between: Any
) -> None:
    tools, started, never = ScriptedTools(), asyncio.Event(), asyncio.Event()
    tools.add("wait", waits(started, never))
    script = (say("Hello."), calls(call("wait")), say("Fine."), say("Bye."), say("Other."))
    async with door_with(tmp_path, *script, tools=tools) as (door, model):
        first = await ask(door.client, "Hi")
        start = ("Hi", agent_said("Hello."), "Do it")
        await leave_at(door, started, body(*start, stream=True))
        second = await ask(door.client, *start, *between, "Is it done?")
        assert session_of(second) == session_of(first)
        assert history(model)[:3] == ["Hi", "Hello.", "Do it"]
        assert "cut off" in history(model)[-2]
        assert history(model)[-1] == "Is it done?"
        onward = (*start, *between, "Is it done?", agent_said("Fine."), "Thanks")
        assert session_of(await ask(door.client, *onward)) == session_of(first)
        again = await ask(door.client, *start, *between, "What now?")
        branch = await door.ledger.session(session_of(again))
        assert branch is not None
        assert branch.parent_id == session_of(first)
        assert "cut off" in history(model)[-2]


async def test_the_first_question_of_a_chat_may_be_the_one_that_was_stopped(tmp_path: Path) -> None:
    never = asyncio.Event()
    script = (Reply(pieces=(), before_end=never), say("Fine."), say("Mine."), say("Hers."))
    async with door_with(tmp_path, *script) as (door, model):
        await leave(door, model, body("Think", stream=True))
        assert await ended_run(door) is RunState.INCOMPLETE
        [run] = await door.ledger.runs(RunQuery())
        second = await ask(door.client, "Think", "Faster,", "please")
        assert session_of(second) == run.session_id
        assert history(model) == ["Think", "Faster,\n\nplease"]
        other = await ask(door.client, "Thunk", "Faster,", "please")
        hers = await ask(door.client, "Think", "Faster,", "please", user="ann")
        assert len({session_of(each) for each in (second, other, hers)}) == 3


async def test_a_question_that_no_turn_had_is_asked_with_the_next_one(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Hello."), say("Fine."), say("Bye.")) as (door, model):
        first = await ask(door.client, "Hi")
        lost = ("Hi", agent_said("Hello."), "Are you well?", agent_said(""), "Well?")
        second = await ask(door.client, *lost)
        assert session_of(second) == session_of(first)
        assert history(model) == ["Hi", "Hello.", "Are you well?\n\nWell?"]
        third = await ask(door.client, *lost, agent_said("Fine."), "Thanks")
        assert session_of(third) == session_of(first)


async def test_a_turn_that_failed_is_gone_on_from(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("a cat"))
    broken = ModelFailure(FailureKind.AUTH, "The key was refused.")
    script = (calls(call("look")), broken, say("A cat."))
    async with door_with(tmp_path, *script, tools=tools) as (door, model):
        first = await ask(door.client, "Look")
        assert first.status_code == 502
        second = await ask(door.client, "Look", agent_said(""), "And?")
        assert session_of(second) == session_of(first)
        assert history(model) == ["Look", "", "a cat", "And?"]


async def test_a_client_that_may_retry_goes_on_before_its_turn_has_ended(tmp_path: Path) -> None:
    tools, started, never = ScriptedTools(), asyncio.Event(), asyncio.Event()
    tools.add("wait", waits(started, never))
    script = (calls(call("wait")), say("Fine."))
    async with door_with(tmp_path, *script, tools=tools) as (door, _):
        await leave_at(door, started, body("Do it"), **{"x-stainless-retry-count": "0"})
        [run] = await door.ledger.runs(RunQuery())
        async with asyncio.timeout(4):
            second = await ask(door.client, "Do it", "Well?")
        assert session_of(second) == run.session_id


async def leave_at(
    door: HttpDoor, moment: asyncio.Event, request: dict[str, Any], **headers: str
) -> None:
    """Send a request, and close the connection at a moment."""
    leaving = await door.with_key(KEY)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(leaving.post(PATH, json=request, headers=headers))
        await moment.wait()
        task.cancel()
    await leaving.aclose()


async def test_nobody_answers_a_call_in_the_session_of_another_key(tmp_path: Path) -> None:
    script = (calls(call("weather")), say("Mine."))
    async with door_with(tmp_path, *script) as (door, _):
        first = await ask(door.client, "Weather?", tools=[WEATHER])
        message = first.json()["choices"][0]["message"]
        call_id = message["tool_calls"][0]["id"]
        result = {"role": "tool", "tool_call_id": call_id, "content": "hail"}
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        answer = await ask(other, "Weather?", message, result, tools=[WEATHER])
        assert text_of(answer) == "Mine."
        assert answer.headers["x-hermes-session-id"] != first.headers["x-hermes-session-id"]
        assert await door.ledger.handed_call(call_id) == first.headers["x-hermes-session-id"]


async def test_a_session_is_continued_by_its_id(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Hello, Ann."), say("Ann.")) as (door, model):
        first = await ask(door.client, "I am Ann.")
        session = {"X-Hermes-Session-Id": first.headers["x-hermes-session-id"]}
        talk = ("Something else", {"role": "assistant", "content": "Yes"}, "Who am I?")
        second = await ask(door.client, *talk, headers=session)
        assert text_of(second) == "Ann."
        assert history(model) == ["I am Ann.", "Hello, Ann.", "Who am I?"]
        assert second.headers["x-hermes-session-id"] == session["X-Hermes-Session-Id"]


async def test_a_session_key_names_a_conversation_of_one_api_key(tmp_path: Path) -> None:
    script = (say("Hello, Ann."), say("Ann."), say("Who knows?"))
    async with door_with(tmp_path, *script) as (door, model):
        named = {"X-Hermes-Session-Key": "kitchen"}
        first = await ask(door.client, "I am Ann.", headers=named)
        second = await ask(door.client, "Who am I?", headers=named)
        assert text_of(second) == "Ann."
        assert second.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
        _, secret = await door.new_key("other")
        third = await ask(await door.with_key(secret), "Who am I?", headers=named)
        assert text_of(third) == "Who knows?"
        assert history(model) == ["Who am I?"]
        assert third.headers["x-hermes-session-id"] != first.headers["x-hermes-session-id"]


async def test_a_new_session_key_takes_the_history_that_came_with_it(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Hello, Ann."), say("Ann."), say("Bob.")) as (door, model):
        named = {"X-Hermes-Session-Key": "kitchen"}
        talk = ("Before", agent_said("Yes"), "I am Ann.")
        first = await ask(door.client, *talk, headers=named)
        assert history(model) == ["Before", "Yes", "I am Ann."]
        second = await ask(door.client, "Other", agent_said("No"), "Who am I?", headers=named)
        assert session_of(second) == session_of(first)
        assert history(model) == ["Before", "Yes", "I am Ann.", "Hello, Ann.", "Who am I?"]


async def test_sessions_of_others_are_out_of_reach(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Mine."), say("Yours.")) as (door, model):
        own = await ask(door.client, "My secret")
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        answer = await ask(other, "Hi", headers={"X-Hermes-Session-Id": session_of(own)})
        assert text_of(answer) == "Yours."
        assert session_of(answer) != session_of(own)
        assert history(model) == ["Hi"]
        assert len(await door.ledger.history(session_of(own))) == 2


async def test_two_keys_may_choose_the_same_session_id(tmp_path: Path) -> None:
    script = (say("Ann it is."), say("Bob it is."), say("Bob."), say("Ann."), say("Still Bob."))
    async with door_with(tmp_path, *script) as (door, model):
        named, (_, secret) = {"X-Hermes-Session-Id": "main-1"}, await door.new_key("other")
        bob = await door.with_key(secret)
        ann_first = await ask(door.client, "I am Ann.", headers=named)
        talk = ("Before", agent_said("Yes"), "I am Bob.")
        bob_first = await ask(bob, *talk, headers=named)
        assert history(model) == ["Before", "Yes", "I am Bob."]
        bob_second = await ask(bob, "Who am I?", headers=named)
        assert history(model) == ["Before", "Yes", "I am Bob.", "Bob it is.", "Who am I?"]
        assert session_of(bob_second) == session_of(bob_first)
        assert session_of(ann_first) == "main-1" != session_of(bob_first)
        await ask(door.client, "Who am I?", headers=named)
        assert history(model) == ["I am Ann.", "Ann it is.", "Who am I?"]
        await door.ledger.delete_session("main-1")
        again = await ask(bob, "And now?", headers=named)
        assert session_of(again) == session_of(bob_first), "a name stays what it was"


async def test_a_retry_finds_its_run_under_an_id_that_another_key_has(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("One."), say("Two."), say("Three.")) as (door, model):
        named, (_, secret) = {"X-Hermes-Session-Id": "main-1"}, await door.new_key("other")
        bob = await door.with_key(secret)
        await ask(door.client, "Hi", headers=named)
        first = await ask(bob, "Pay", headers=named)
        again = await ask(bob, "Pay", headers={**named, "X-Stainless-Retry-Count": "1"})
        assert again.headers["x-hermes-run-id"] == first.headers["x-hermes-run-id"]
        assert len(model.requests) == 2


async def test_a_session_is_opened_under_the_id_that_a_client_chose(tmp_path: Path) -> None:
    async with door_with(tmp_path, say("Hello, Ann."), say("Ann.")) as (door, model):
        named = {"X-Hermes-Session-Id": "notebook-1"}
        talk = ("Before", agent_said("Yes"), "I am Ann.")
        first = await ask(door.client, *talk, headers=named)
        assert session_of(first) == "notebook-1"
        assert history(model) == ["Before", "Yes", "I am Ann."]
        second = await ask(door.client, "Who am I?", headers=named)
        assert session_of(second) == "notebook-1"
        assert history(model) == ["Before", "Yes", "I am Ann.", "Hello, Ann.", "Who am I?"]
        assert await door.ledger.session("notebook-1") is not None


@pytest.mark.parametrize("odd", ["../etc", "a b", ".x"])
async def test_an_odd_session_id_is_refused(tmp_path: Path, odd: str) -> None:
    async with door_with(tmp_path) as (door, _):
        answer = await ask(door.client, "Hi", headers={"X-Hermes-Session-Id": odd})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "X-Hermes-Session-Id"


async def test_two_ways_to_name_a_session_at_once_are_refused(tmp_path: Path) -> None:
    async with door_with(tmp_path) as (door, _):
        both = {"X-Hermes-Session-Id": "a", "X-Hermes-Session-Key": "b"}
        answer = await ask(door.client, "Hi", headers=both)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "conflicting_headers"


async def test_results_that_no_call_waits_for_are_refused_in_a_named_session(
    tmp_path: Path,
) -> None:
    made = {"id": "call_x", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call_x", "content": "rain"}
    async with door_with(tmp_path) as (door, _):
        talk = ("Weather?", {"role": "assistant", "content": None, "tool_calls": [made]}, result)
        answer = await ask(door.client, *talk, headers={"X-Hermes-Session-Key": "kitchen"})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "tool_call_not_found"


async def ended_run(door: HttpDoor) -> RunState:
    """Return how the only run ended."""
    [run] = await door.ledger.runs(RunQuery())
    return (await door.runs.wait(run)).state


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_interrupts_its_turn(tmp_path: Path, stream: bool) -> None:
    never = asyncio.Event()
    async with door_with(tmp_path, Reply(pieces=("Long",), before_end=never)) as (door, model):
        await leave(door, model, body("Hi", stream=stream))
        assert await ended_run(door) is RunState.INCOMPLETE
        assert model.cancelled == 1


async def leave(
    door: HttpDoor, model: ScriptedModel, request: dict[str, Any], **headers: str
) -> None:
    """Send a request and close the connection as soon as the model is at work."""
    leaving = await door.with_key(KEY)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(leaving.post(PATH, json=request, headers=headers))
        await model.called(1)
        task.cancel()
    await leaving.aclose()


async def test_with_an_idempotency_key_the_turn_goes_on_and_the_repeat_gets_it(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    async with door_with(tmp_path, Reply(pieces=("Long",), before_end=go)) as (door, model):
        same = body("Hi", stream=True)
        key = {"Idempotency-Key": "abc"}
        await leave(door, model, same, **key)
        go.set()
        assert await ended_run(door) is RunState.COMPLETED
        repeats = [await door.client.post(PATH, json=same, headers=key) for _ in range(2)]
        [run] = await door.ledger.runs(RunQuery())
        for answer in repeats:
            assert said(streamed(answer)) == "Long"
            assert answer.headers["x-hermes-run-id"] == run.id
        assert len(model.requests) == 1
        other = await ask(door.client, "Something else", headers=key)
        assert other.status_code == 409


async def test_a_repeat_joins_the_stream_that_is_still_running(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with door_with(tmp_path, Reply(pieces=("Lo", "ng"), before_end=go)) as (door, model):
        key = {"Idempotency-Key": "abc"}
        async with asyncio.TaskGroup() as group:
            both = [
                group.create_task(ask(door.client, "Hi", stream=True, headers=key))
                for _ in range(2)
            ]
            await model.called(1)
            go.set()
        assert [said(streamed(task.result())) for task in both] == ["Long", "Long"]
        assert len(model.requests) == 1


async def test_a_stopped_run_ends_its_stream_as_partial(tmp_path: Path) -> None:
    tools, started, never = ScriptedTools(), asyncio.Event(), asyncio.Event()
    tools.add("wait", waits(started, never))
    script = (calls(call("wait"), text="Waiting."),)
    async with door_with(tmp_path, *script, tools=tools) as (door, _):
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask(door.client, "Hi", stream=True))
            await started.wait()
            [run] = await door.ledger.runs(RunQuery())
            assert await door.runs.stop(run)
        events = streamed(asking.result())
        assert said(events) == "Waiting."
        assert events[-1][1]["hermes"]["error_code"] == "interrupted"


async def test_only_a_conversation_that_can_go_on_gets_a_title(tmp_path: Path) -> None:
    side = ScriptedModel(default=say("A Title"))
    script = (say("Hello"), calls(call("weather")), say("Sunny."), say("Hello again"))
    titles = Settings()
    async with door_with(tmp_path, *script, side=side, agent=titles) as (door, _):
        assert text_of(await ask(door.client, "Hi")) == "Hello"
        first = await ask(door.client, "Weather?", tools=[WEATHER])
        message = first.json()["choices"][0]["message"]
        result = {
            "role": "tool",
            "tool_call_id": message["tool_calls"][0]["id"],
            "content": "25 degrees",
        }
        second = await ask(door.client, "Weather?", message, result, tools=[WEATHER])
        assert text_of(second) == "Sunny."
        named = {"X-Hermes-Session-Key": "kitchen"}
        assert text_of(await ask(door.client, "Hi", headers=named)) == "Hello again"
        await side.called(1)
        [titled] = side.requests
        assert "Hello again" in str(titled.messages[0])


async def test_sessions_of_requests_only_are_deleted_when_old(tmp_path: Path) -> None:
    async with door_with(tmp_path, *(say("Hello.") for _ in range(3))) as (door, _):
        unnamed = session_of(await ask(door.client, "Hi"))
        key, chosen = {"X-Hermes-Session-Key": "mine"}, {"X-Hermes-Session-Id": "mine-too"}
        named = [session_of(await ask(door.client, "Hi", headers=each)) for each in (key, chosen)]
        now, day = door.context.clock.now(), 86400.0
        await door.runs.tidy(now + 29 * day)
        assert await door.ledger.session(unnamed) is not None
        await door.runs.tidy(now + 31 * day)
        assert await door.ledger.session(unnamed) is None
        assert [await door.ledger.session(each) is not None for each in named] == [True, True]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (Sessions(auto_prune=False), {"unnamed", "ended", "named"}),
        (Sessions(), {"ended", "named"}),
        (Sessions(auto_prune=True), {"named", "ended"}),
        (Sessions(auto_prune=True, retention_days=7), {"named"}),
    ],
)
async def test_what_is_deleted_is_a_setting(
    tmp_path: Path, settings: Sessions, left: set[str]
) -> None:
    async with door_with(tmp_path, *(say("Hello.") for _ in range(3))) as (door, _):
        names = {"unnamed": None, "ended": "a", "named": "b"}
        sessions = {
            name: session_of(
                await ask(door.client, "Hi", headers={"X-Hermes-Session-Key": key} if key else None)
            )
            for name, key in names.items()
        }
        now = door.context.clock.now()
        await door.ledger.end_session(sessions["ended"], "reset", now)
        async with asyncio.TaskGroup() as group:
            runs = Runs(door.core.gateway, group, sessions=settings)
            await runs.tidy(now + 40 * 86400.0)
        found = {name for name, each in sessions.items() if await door.ledger.session(each)}
        assert found == left


async def test_two_hundred_turns_of_a_web_chat_are_stored_once(tmp_path: Path) -> None:
    def prose(number: int, length: int) -> str:
        return f"mark{number:03} " + " ".join(f"word{number * at % 997}" for at in range(length))

    asked = [prose(at, 5) for at in range(200)]
    answers = [prose(at + 500, 8) for at in range(200)]
    async with door_with(tmp_path, *map(say, answers), say("Another way.")) as (door, _):
        empty = (await door.ledger.stats()).bytes
        talk: list[Any] = []
        sessions = set()
        for question, answer in zip(asked, answers, strict=True):
            talk.append(question)
            given = await ask(door.client, {"role": "system", "content": "Be kind. " * 50}, *talk)
            sessions.add(session_of(given))
            talk.append(agent_said(answer))
        grown = (await door.ledger.stats()).bytes - empty
        assert grown < 3 * sum(map(len, asked + answers))
        [hit] = await door.ledger.search(SearchQuery(text="mark042"))
        assert {hit.session_id} == sessions
        assert (await door.ledger.stats()).turns == 200
        assert (await door.ledger.spent(session_id=hit.session_id)).calls == 200
        [old] = await door.ledger.runs(RunQuery(limit=1, offset=100))
        assert old.outcome is not None
        assert old.outcome.text == answers[99]
        assert (await door.ledger.run(old.id)) == old
        again = await ask(door.client, *talk[:100], "And now?")
        [main] = sessions
        branch = await door.ledger.session(session_of(again))
        assert branch is not None
        assert branch.parent_id == main, "what was said long ago can still be taken up"
        told = [each.message for each in await door.ledger.history(branch.id)]
        assert len(told) == 102
        assert isinstance(told[-2], UserMessage)
        assert content_text(told[-2].content) == "And now?"
