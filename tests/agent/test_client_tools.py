"""Tools that the client carries out: handed over, answered, left unanswered, cut off."""

from pathlib import Path

from msgspec.structs import replace

from fakes.core import Core, ScriptedTools, message, returns, running_core
from hermes.domain.events import TurnFinished
from hermes.domain.inbound import InboundMessage
from hermes.domain.messages import AssistantMessage, ToolMessage, ToolOutcome, UserMessage
from hermes.domain.turn import ClientResult, ClientTool, TurnOptions, TurnState
from hermes.testing.model import ScriptedModel, call, calls, say

WEATHER = ClientTool(
    name="get_weather",
    description="The weather somewhere.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
)
OPTIONS = TurnOptions(client_tools=(WEATHER,))


async def ask(core: Core, text: str, **more: object) -> TurnFinished:
    inbound: InboundMessage = replace(message(text, core.session.id), **more)
    ticket = await core.gateway.submit("main", inbound, session_id=core.session.id)
    finished = await (await ticket.stream()).wait()
    await core.idle()
    return finished


async def test_a_call_of_a_client_tool_ends_the_turn_and_is_handed_over(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("get_weather", "w", city="Rome"), text="Let me look.")])
    async with running_core(tmp_path, model) as core:
        finished = await ask(core, "weather?", options=OPTIONS)
        assert finished.outcome is TurnState.DONE
        assert [(each.name, each.arguments) for each in finished.handed] == [
            ("get_weather", '{"city":"Rome"}')
        ]
        assert finished.handed[0].id.startswith("call_")
        assert finished.handed[0].id != "w"
        assert [spec.name for spec in model.requests[0].tools] == ["get_weather"]
        assert await core.ledger.handed_call(finished.handed[0].id) == core.session.id


async def test_the_result_takes_its_seat_and_the_next_turn_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("get_weather", city="Rome")), say("It is sunny.")])
    async with running_core(tmp_path, model) as core:
        handed = (await ask(core, "weather?", options=OPTIONS)).handed
        result = ClientResult(call_id=handed[0].id, content="sunny")
        finished = await ask(core, "", options=OPTIONS, results=(result,))
        assert finished.text == "It is sunny."
        shown = model.requests[1].messages
        assert [type(each) for each in shown] == [UserMessage, AssistantMessage, ToolMessage]
        assert isinstance(shown[2], ToolMessage)
        assert (shown[2].content, shown[2].name) == ("sunny", "get_weather")
        assert await core.ledger.handed_call(handed[0].id) is None


async def test_our_own_tools_run_here_while_the_client_is_asked_for_its_own(
    tmp_path: Path,
) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    both = calls(call("look", "a"), call("get_weather", "b"))
    model = ScriptedModel([both, say("Both known.")])
    async with running_core(tmp_path, model, tools=tools) as core:
        handed = (await ask(core, "go", options=OPTIONS)).handed
        assert [each.name for each in handed] == ["get_weather"]
        assert [name for name, _ in tools.ran] == ["look"]
        result = ClientResult(call_id=handed[0].id, content="rain")
        await ask(core, "", options=OPTIONS, results=(result,))
        results = [each for each in model.requests[1].messages if isinstance(each, ToolMessage)]
        assert [(each.name, each.content) for each in results] == [
            ("look", "seen"),
            ("get_weather", "rain"),
        ]


async def test_a_client_that_says_something_else_leaves_a_valid_history(tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("get_weather")), say("Never mind then.")])
    async with running_core(tmp_path, model) as core:
        await ask(core, "weather?", options=OPTIONS)
        await ask(core, "forget it")
        results = [each for each in model.requests[1].messages if isinstance(each, ToolMessage)]
        assert [each.outcome for each in results] == [ToolOutcome.SKIPPED]


async def test_a_client_tool_hides_one_of_ours_with_the_same_name(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("get_weather", returns("ours"))
    model = ScriptedModel([calls(call("get_weather"))])
    async with running_core(tmp_path, model, tools=tools) as core:
        finished = await ask(core, "weather?", options=OPTIONS)
        assert len(finished.handed) == 1
        assert tools.ran == []
        assert [spec.client for spec in model.requests[0].tools] == [True]


class _PowerCut(Exception):
    """What ends a turn the way a dying process would."""


async def test_a_crash_before_the_end_hands_the_calls_over_after_the_restart(
    tmp_path: Path,
) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"), replay_safe=True)

    async def dies(*_: object, **__: object) -> None:
        raise _PowerCut

    model = ScriptedModel([calls(call("look"), call("get_weather"))])
    async with running_core(tmp_path, model, tools=tools, owner="dead") as core:
        session_id = core.session.id
        # The turn dies after its reply is committed: its end is never written.
        core.ledger.finish_turn = dies  # type: ignore[method-assign]
        inbound = replace(message("go", session_id), options=OPTIONS)
        await core.gateway.submit("main", inbound, session_id=session_id)
        await core.idle()
    again = ScriptedModel([])
    async with running_core(tmp_path, again, tools=tools, session_id=session_id) as core:
        assert len(await core.gateway.recover(session_id)) == 1
        await core.idle()
        history = await core.ledger.history(session_id)
        replies = [s.message for s in history if isinstance(s.message, AssistantMessage)]
        handed = next(each for each in replies[0].tool_calls if each.name == "get_weather")
        assert await core.ledger.handed_call(handed.id) == session_id
        results = [s.message for s in history if isinstance(s.message, ToolMessage)]
        assert [each.name for each in results] == ["look"]
        assert again.requests == []
        assert await core.ledger.open_turns() == []


async def test_options_reach_the_model_call(tmp_path: Path) -> None:
    options = TurnOptions(
        instructions="Speak like a pirate.",
        max_tokens=7,
        temperature=0.25,
        tool_choice="get_weather",
        client_tools=(WEATHER,),
        response_schema={"type": "object"},
        reasoning_effort="low",
    )
    model = ScriptedModel([say("Arr.")])
    async with running_core(tmp_path, model) as core:
        await ask(core, "hello", options=options)
        request = model.requests[0]
        assert "Speak like a pirate." in request.system
        assert (request.max_tokens, request.temperature) == (7, 0.25)
        assert request.tool_choice == "get_weather"
        assert request.response_schema == {"type": "object"}
        assert request.reasoning_effort == "low"
        session = await core.ledger.session(core.session.id)
        assert session is not None
        assert "pirate" not in (session.system_prompt or "")
