"""Compaction: room is made without losing or parting anything."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fakes.core import ScriptedTools, events, returns, running_core, untitled
from hermes.agent.compaction import split_point
from hermes.domain.events import Notice
from hermes.domain.messages import (
    AssistantMessage,
    InputKind,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from hermes.domain.ports.model import FailureKind, ModelFailure, ModelInfo
from hermes.domain.session import StoredMessage
from hermes.domain.settings.agent import Compression
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage
from hermes.testing.model import Reply, ScriptedModel, call, calls, say

SMALL = ModelInfo(provider="scripted", model="small", context_window=1000)
SETTINGS = untitled(compression=Compression(protect_last_n=2, target_ratio=0.2))
FULL = Usage(input_tokens=790, output_tokens=10)
OVERFLOW = ModelFailure(FailureKind.CONTEXT_OVERFLOW, "too long")


async def test_a_full_context_is_compacted_before_the_next_call(tmp_path: Path) -> None:
    long = "word " * 700
    model = ScriptedModel(default=say("ok"), info=SMALL)
    side = ScriptedModel(default=say("They talked about words."), info=SMALL)
    async with running_core(tmp_path, model, side=side, settings=SETTINGS) as core:
        await core.ask(long)
        await core.ask("short")
        assert len(side.requests) == 1
        first = model.requests[-1].messages[0]
        assert isinstance(first, UserMessage)
        assert first.kind is InputKind.SUMMARY
        assert "They talked about words." in str(first.content)
        kept = await core.ledger.transcript(core.session.id)
        assert any(str(s.message).count("word word") for s in kept if not s.active)
        assert (await core.ledger.spent(session_id=core.session.id)).calls == 3


async def test_an_overflow_the_provider_reports_is_cured_and_the_turn_goes_on(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("one"), say("two"), OVERFLOW, say("three")])
    side = ScriptedModel([say("summary")])
    async with running_core(tmp_path, model, side=side, settings=SETTINGS) as core:
        await core.ask("1")
        await core.ask("2")
        assert (await core.ask("3")).text == "three"
        assert "summary" in str(model.requests[-1].messages[0])
        assert str(model.requests[-1].messages[-1]).count("'3'") == 1


async def test_when_the_summary_cannot_be_had_nothing_is_dropped(tmp_path: Path) -> None:
    failure = ModelFailure(FailureKind.SERVER, "down")
    model = ScriptedModel(
        [Reply(pieces=("one",), usage=FULL), Reply(pieces=("two",)), say("three")], info=SMALL
    )
    side = ScriptedModel(default=failure)
    async with running_core(tmp_path, model, side=side, settings=SETTINGS) as core:
        await core.ask("word " * 700)
        seen = await events(await core.say("2"))
        assert any(isinstance(e, Notice) and e.code == "compaction_failed" for e in seen)
        assert len(await core.messages()) == 4


async def test_an_overflow_that_cannot_be_cured_ends_with_an_explanation(tmp_path: Path) -> None:
    model = ScriptedModel(default=OVERFLOW)
    async with running_core(
        tmp_path, model, side=ScriptedModel(default=say("s")), settings=SETTINGS
    ) as core:
        finished = await core.ask("only this")
        assert finished.outcome is TurnState.FAILED
        assert finished.error is not None
        assert "new session" in finished.error.hint


async def test_a_long_turn_of_tools_can_be_compacted_and_keeps_the_request(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("x" * 400))
    steps = [calls(call("look", f"c{n}")) for n in range(6)]
    model = ScriptedModel([*steps, OVERFLOW, say("done")])
    side = ScriptedModel(default=say("looked around"))
    async with running_core(tmp_path, model, tools=tools, side=side, settings=SETTINGS) as core:
        assert (await core.ask("find the needle")).text == "done"
        final = model.requests[-1].messages
        assert "find the needle" in str(final[0])
        assert isinstance(final[1], AssistantMessage)


def _history(shape: list[int]) -> list[StoredMessage]:
    messages: list[Message] = []
    for number, results in enumerate(shape):
        messages.append(UserMessage(content=f"ask {number} " * 20))
        ids = [f"{number}-{n}" for n in range(results)]
        messages.append(
            AssistantMessage(
                tool_calls=tuple(ToolCall(id=i, name="t", arguments="{}") for i in ids)
            )
        )
        messages += [ToolMessage(call_id=i, name="t", content="r" * 200) for i in ids]
    return [
        StoredMessage(id=n, session_id="s", turn_id=None, seq=n, at=0.0, message=m)
        for n, m in enumerate(messages)
    ]


@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    budget=st.integers(1, 2000),
    protect=st.integers(1, 20),
)
def test_the_cut_never_parts_a_call_from_its_result(
    shape: list[int], budget: int, protect: int
) -> None:
    history = _history(shape)
    cut = split_point(history, budget, protect)
    assert 0 <= cut < len(history)
    assert not isinstance(history[cut].message, ToolMessage)
