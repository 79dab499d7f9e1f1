"""Hard limits on tokens and money, checked before each call."""

from pathlib import Path

from fakes.core import ScriptedTools, returns, running_core, untitled
from hermes.domain.settings import Settings
from hermes.domain.settings.models import Budget
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage
from hermes.testing.model import Reply, ScriptedModel, call, say

BIG = Usage(input_tokens=900, output_tokens=100)


def limited(**limits: float) -> Settings:
    return untitled(budget=Budget(**limits))  # type: ignore[arg-type]


async def test_a_session_that_reached_its_token_limit_makes_no_further_call(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("ok", usage=BIG))
    async with running_core(tmp_path, model, settings=limited(session_tokens=1500)) as core:
        assert (await core.ask("1")).outcome is TurnState.DONE
        assert (await core.ask("2")).outcome is TurnState.DONE
        refused = await core.ask("3")
        assert refused.outcome is TurnState.FAILED
        assert refused.error is not None
        assert "2,000 of 1,500 tokens" in refused.error.message
        assert "budget.session_tokens" in refused.error.hint
        assert len(model.requests) == 2


async def test_a_limit_is_checked_between_the_calls_of_one_turn(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("more"))
    model = ScriptedModel(default=lambda _: Reply(tool_calls=(call("look"),), usage=BIG))
    async with running_core(
        tmp_path, model, tools=tools, settings=limited(session_tokens=2500)
    ) as core:
        assert (await core.ask("go")).outcome is TurnState.FAILED
        assert len(model.requests) == 3


async def test_money_spent_today_counts_over_all_sessions(tmp_path: Path) -> None:
    model = ScriptedModel(default=Reply(pieces=("ok",), cost_usd=0.6))
    settings = limited(day_usd=1.0)
    async with running_core(tmp_path, model, settings=settings) as core:
        await core.ask("1")
    async with running_core(tmp_path, model, settings=settings) as core:
        assert (await core.ask("2")).outcome is TurnState.DONE
        refused = await core.ask("3")
        assert refused.error is not None
        assert refused.error.code == "budget"
        assert "$1.2000 of $1.00" in refused.error.message
