"""A pending approval outlives the process that asked."""

from pathlib import Path

import pytest

from fakes.asking_child import asked_and_killed, options
from fakes.command import Hermes
from fakes.model import Call, FakeModelServer, Script, Step
from hermes.app.build import open_app
from hermes.domain.approvals import Choice
from hermes.domain.messages import AssistantMessage, ToolMessage, ToolOutcome


def wipe(*names: str) -> Step:
    """Delete directories, leaving a mark for each time that is done."""
    return Step(
        calls=[
            Call(name="terminal", arguments={"command": f"rm -rf {name} && echo {name} >> marks"})
            for name in names
        ]
    )


@pytest.mark.parametrize(
    ("choice", "outcome", "marks"),
    [(Choice.ONCE, ToolOutcome.OK, "tmp\n"), (Choice.DENY, ToolOutcome.REFUSED, "")],
)
async def test_an_answer_after_a_kill_resumes_the_turn_and_the_command_runs_once(
    tmp_path: Path, choice: Choice, outcome: ToolOutcome, marks: str
) -> None:
    script = Script(steps=[wipe("tmp")], default=Step(text="All clean."))
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url)
        (hermes.work / "tmp").mkdir()
        (hermes.work / "marks").touch()
        ((session_id, approval_id),) = await asked_and_killed(hermes)
        assert (hermes.work / "tmp").exists()
        async with open_app(options(hermes.home, hermes.work)) as app:
            (pending,) = await app.ledger.pending_approvals(session_id)
            assert pending.request.id == approval_id
            assert await app.answers.answer(approval_id, choice, by="ann")
            assert await app.answers.answer(approval_id, choice, by="bob") is None
            assert len(await app.gateway.recover(session_id)) == 1
            await app.gateway.idle(session_id)
            history = [s.message for s in await app.ledger.history(session_id)]
    results = [m.outcome for m in history if isinstance(m, ToolMessage)]
    assert results == [outcome]
    assert isinstance(history[-1], AssistantMessage)
    assert history[-1].text == "All clean."
    assert (hermes.work / "marks").read_text() == marks
    assert (hermes.work / "tmp").exists() is (choice is Choice.DENY)


async def test_a_request_still_pending_after_a_restart_can_be_answered_while_it_waits(
    tmp_path: Path,
) -> None:
    script = Script(steps=[wipe("tmp")], default=Step(text="All clean."))
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url)
        ((session_id, approval_id),) = await asked_and_killed(hermes)
        async with open_app(options(hermes.home, hermes.work)) as app:
            await app.gateway.recover(session_id)
            await app.answers.answer(approval_id, Choice.ONCE, by="ann")
            await app.gateway.idle(session_id)
            assert len(await app.ledger.approvals()) == 1
    assert (hermes.work / "marks").read_text() == "tmp\n"


async def test_two_requests_of_one_reply_are_asked_one_after_the_other(tmp_path: Path) -> None:
    script = Script(steps=[wipe("one", "one")], default=Step(text="Done."))
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url)
        ((session_id, first),) = await asked_and_killed(hermes)
        async with open_app(options(hermes.home, hermes.work)) as app:
            await app.answers.answer(first, Choice.SESSION, by="ann")
            await app.gateway.recover(session_id)
            await app.gateway.idle(session_id)
    assert (hermes.work / "marks").read_text() == "one\none\n"
