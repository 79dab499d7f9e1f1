"""What a stopping or a crashed process leaves of its runs."""

import asyncio
from pathlib import Path

from fakes.core import Core, running_core
from fakes.runs_on import asked, finished, restarted, runs_on
from hermes.control.lanes.lane import TurnRunnerPort
from hermes.control.runs.runs import Runs, new_run
from hermes.domain.errors import StoreError
from hermes.domain.events import MessageCompleted, TextDelta, TurnFinished, TurnJob, TurnStarted
from hermes.domain.inbound import RouteTerms
from hermes.domain.profile import AgentProfile
from hermes.domain.runs import OpenedRun, Run, RunState, SessionChoice
from hermes.domain.turn import TurnState
from hermes.testing.model import Reply, ScriptedModel, say


async def unwatched(core: Core) -> OpenedRun:
    """Run a turn for a run that nobody watches."""
    gateway = core.gateway
    request = asked("go", logged=True)
    new = new_run(request, gateway, str)
    opened = await core.ledger.open_run(new)
    gateway.take(opened.entry)
    return opened


async def text_in_log(runs: Runs, run: Run) -> str:
    """Return the answer as somebody builds it who follows the log."""
    text, growing = "", ""
    async with asyncio.timeout(10):
        async for logged in runs.log(run):
            match logged.event:
                case TextDelta(text=piece):
                    growing += piece
                case MessageCompleted(message=message):
                    text, growing = message.text, ""
                case TurnStarted(earlier=earlier) if earlier:
                    text, growing = earlier[-1].text, ""
                case TurnFinished(text=last):
                    assert growing == ""
                    assert last == text
    return text


async def test_the_log_of_a_run_tells_what_was_said_when_nobody_logged_it(tmp_path: Path) -> None:
    async with running_core(tmp_path, ScriptedModel([say("Said.")])) as core:
        opened = await unwatched(core)
        await core.gateway.idle(opened.run.session_id)
        await core.ledger.log_run(opened.run.id, [TextDelta("Sa")], 1.0)
        async with runs_on(core) as runs:
            await restarted(core, runs)
            await finished(runs, opened.run)
            assert await text_in_log(runs, opened.run) == "Said."


async def test_a_queued_run_does_not_hold_up_the_end_and_is_kept(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Reply(before=never)])
    choice = SessionChoice(key="agent:main:api_server:one")
    async with asyncio.timeout(10), running_core(tmp_path, model) as core:
        async with runs_on(core) as runs:
            first = (await runs.start(asked("one", choice=choice, logged=True))).run
            await model.called(1)
            queued = (await runs.start(asked("two", choice=choice, logged=True))).run
            events = asyncio.create_task(_events(runs, queued))
            followed = asyncio.create_task(_followed(runs, queued))
            core.gateway.drain()
            await core.gateway.suspend()
            await runs.close(5.0)
        last = (await events)[-1]
        assert isinstance(last, TurnFinished)
        assert last.outcome is TurnState.INTERRUPTED
        assert last.error is not None
        assert last.error.code == "shutdown"
        assert await followed == 0
    async with running_core(tmp_path, ScriptedModel([say("1"), say("2")])) as core:
        async with runs_on(core) as runs:
            await restarted(core, runs)
            texts = [(await finished(runs, run)).outcome for run in (first, queued)]
    assert [outcome.text for outcome in texts if outcome] == ["1", "2"]


async def test_followers_see_the_end_of_a_run_that_ends_while_draining(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Said.",), before=go)])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        run = (await runs.start(asked("go", logged=True))).run
        await model.called(1)
        async with asyncio.TaskGroup() as group:
            told = group.create_task(text_in_log(runs, run))
            core.gateway.drain()
            go.set()
        assert told.result() == "Said."


async def _events(runs: Runs, run: Run) -> list[object]:
    return [event async for event in runs.events(run)]


async def _followed(runs: Runs, run: Run) -> int:
    return len([logged async for logged in runs.log(run)])


class FailingOnce:
    """A runner whose first turn is left open, as by a ledger that fails for a moment."""

    def __init__(self, inner: TurnRunnerPort) -> None:
        self._inner = inner
        self._failed = False
        self.models: list[tuple[str, str]] = []

    async def run(self, job: TurnJob) -> None:
        self.models.append((job.profile.provider, job.profile.model))
        if not self._failed:
            self._failed = True
            raise StoreError("The ledger could not be used.")
        await self._inner.run(job)

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        await self._inner.after_turn(profile, session_id)


async def test_a_run_whose_lane_failed_goes_on_without_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel([say("After all.")])
    async with running_core(tmp_path, model, runner=FailingOnce) as core:
        async with runs_on(core) as runs:
            run = (await runs.start(asked("go", logged=True))).run
            await core.gateway.idle(run.session_id)
            stored = await core.ledger.run(run.id)
            assert stored is not None
            assert stored.state.open
            # What the gateway does now and then.
            await restarted(core, runs)
            ended = await finished(runs, run)
            assert ended.state is RunState.COMPLETED
            assert await text_in_log(runs, run) == "After all."
            assert runs.open_runs == 0


async def test_a_run_that_goes_on_keeps_the_model_that_its_request_named(tmp_path: Path) -> None:
    seen: list[FailingOnce] = []

    def failing(inner: TurnRunnerPort) -> FailingOnce:
        seen.append(FailingOnce(inner))
        return seen[0]

    terms = RouteTerms(model="m-2", provider="model_routes.local")
    async with running_core(tmp_path, ScriptedModel([say("So.")]), runner=failing) as core:
        async with runs_on(core) as runs:
            run = (await runs.start(asked("go", routed=terms))).run
            await core.gateway.idle(run.session_id)
            await restarted(core, runs)
            assert (await finished(runs, run)).state is RunState.COMPLETED
    assert seen[0].models == [(terms.provider, terms.model)] * 2


async def test_looking_again_does_not_disturb_runs_under_way(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Done.",), before=go)])
    async with running_core(tmp_path, model) as core, runs_on(core) as runs:
        run = (await runs.start(asked("go", logged=True))).run
        for _ in range(3):
            await restarted(core, runs)
        go.set()
        assert (await finished(runs, run)).state is RunState.COMPLETED
        assert await text_in_log(runs, run) == "Done."
        assert len(model.requests) == 1
