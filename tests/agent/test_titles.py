"""Titles: one cheap call after the first exchange, and never another."""

from pathlib import Path

from fakes.core import running_core
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.settings import Settings
from hermes.testing.model import ScriptedModel, say

TITLED = Settings()


async def title_after(tmp_path: Path, side: ScriptedModel, *questions: str) -> str | None:
    model = ScriptedModel(default=say("an answer"))
    async with running_core(tmp_path, model, side=side, settings=TITLED) as core:
        for question in questions:
            await core.ask(question)
            await core.idle()
        session_id, ledger = core.session.id, core.ledger
        await core.gateway.settled()
        session = await ledger.session(session_id)
        assert session is not None
        return session.title


async def test_the_first_exchange_gives_the_title(tmp_path: Path) -> None:
    side = ScriptedModel([say('"Trip to Rome."\n')])
    assert await title_after(tmp_path, side, "plan a trip to Rome") == "Trip to Rome"


async def test_later_exchanges_make_no_further_call(tmp_path: Path) -> None:
    side = ScriptedModel([say("First")], default=say("Second"))
    assert await title_after(tmp_path, side, "one", "two", "three") == "First"
    assert len(side.requests) == 1


async def test_without_a_model_the_question_is_the_title(tmp_path: Path) -> None:
    side = ScriptedModel(default=ModelFailure(FailureKind.SERVER, "down"))
    title = await title_after(tmp_path, side, "why  is the sky\nblue?")
    assert title == "why is the sky blue?"


async def test_a_title_that_is_taken_is_numbered(tmp_path: Path) -> None:
    side = ScriptedModel(default=say("Same"))
    assert await title_after(tmp_path, side, "one") == "Same"
    assert await title_after(tmp_path, side, "two") == "Same #2"
