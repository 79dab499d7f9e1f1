"""The rules of jobs, on a real file and a real ledger."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from fakes.ledgers import record_instant
from hermes.control.jobs.jobs import AgentJobs, ChangedJob, JobDraft
from hermes.control.jobs.schedules import instant_of
from hermes.domain.errors import Conflict, NotFound, UsageError
from hermes.domain.jobs import Instant, InstantStatus, Job, JobOrigin, JobRepeat, JobState
from hermes.state.jobs import JobFiles
from hermes.state.sqlite.ledger import SqliteLedger
from hermes.testing import FakeClock

BERLIN = ZoneInfo("Europe/Berlin")
HERE = JobOrigin(platform="telegram", chat_id="7")


class Setup:
    """Jobs with everything that belongs to them."""

    def __init__(self, folder: Path, ledger: SqliteLedger) -> None:
        self.clock = FakeClock()
        self.files = JobFiles(folder / "cron")
        self.database = folder / "state.db"
        self.jobs = AgentJobs(self.files, ledger, self.clock, BERLIN)

    async def make(self, schedule: str = "every 30m", **more: Any) -> Job:
        return await self.jobs.create(JobDraft(schedule=schedule, **{"prompt": "Read", **more}))

    def next_run(self, job: Job) -> float:
        """Seconds until the job is due."""
        due = instant_of(job.next_run_at, BERLIN)
        assert due is not None
        return due - self.clock.now()

    async def finish(self, job: Job, **fields: Any) -> Job:
        """Do what the scheduler does after a run."""
        return await self.files.change_job(job.id, lambda old: replace(old, **fields))


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path / "backups")
    yield Setup(tmp_path, ledger)
    await ledger.close()


async def test_a_new_job_is_scheduled_and_in_the_file(setup: Setup) -> None:
    made = await setup.make(
        name=" Morning\n news ", skills=("news", "news", "web"), repeat=3, deliver="telegram:1:2"
    )
    assert len(made.id) == 12
    assert int(made.id, 16) >= 0
    assert made.name == "Morning news"
    assert (made.skills, made.skill) == (("news", "web"), "news")
    assert made.repeat == JobRepeat(times=3)
    assert (made.enabled, made.state) == (True, JobState.SCHEDULED)
    assert made.schedule_display == "every 30m"
    assert setup.next_run(made) == 1800
    assert made.created_at == "2027-01-15T09:00:00+01:00"
    assert await setup.jobs.jobs() == [made]
    assert await setup.jobs.job(made.id) == made
    (entry,) = json.loads(setup.files.path.read_text(encoding="utf-8"))["jobs"]
    assert (entry["repeat"], entry["deliver"]) == ({"times": 3, "completed": 0}, "telegram:1:2")


async def test_without_a_name_a_job_is_called_after_its_prompt(setup: Setup) -> None:
    assert (await setup.make(prompt="  Read\nthe news  ")).name == "Read the news"
    assert (await setup.make(prompt="x" * 5000)).name == "x" * 50


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"prompt": "  "}, "needs a prompt"),
        ({"prompt": "a\x00b"}, "null character"),
        ({"name": "\x01"}, "cannot be empty"),
        ({"schedule": "sometime"}, "not a schedule"),
        ({"skills": ("",)}, "skill"),
        ({"skills": ("a\nb",)}, "skill"),
    ],
)
async def test_what_cannot_be_a_job_is_refused(
    setup: Setup, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        await setup.make(**fields)
    assert not setup.files.path.exists()


@pytest.mark.parametrize(
    "deliver",
    [
        "local",
        "all",
        "telegram",
        "telegram:-100123",
        "telegram:-100123:45",
        "matrix:!room:example.org",
        "local,telegram:1,slack",
    ],
)
async def test_places_to_deliver_to(setup: Setup, deliver: str) -> None:
    assert (await setup.make(deliver=deliver)).deliver == deliver


@pytest.mark.parametrize(
    "deliver",
    ["", ",", "local,", "Telegram", "telegram:", "telegram::1", "local:1", "a b", "tele\ngram"],
)
async def test_what_is_no_place_to_deliver_to_is_refused(setup: Setup, deliver: str) -> None:
    with pytest.raises(UsageError):
        await setup.make(deliver=deliver)


async def test_origin_needs_a_chat_in_which_the_job_was_made(setup: Setup) -> None:
    with pytest.raises(UsageError, match="origin") as caught:
        await setup.make(deliver="origin")
    assert caught.value.hint
    made = await setup.finish(await setup.make(), origin=HERE)
    changed = await setup.jobs.change(made.id, ChangedJob(deliver="origin, local"))
    assert changed.deliver == "origin,local"


async def test_a_change_is_made_whole_or_not_at_all(setup: Setup) -> None:
    made = await setup.make()
    with pytest.raises(UsageError):
        await setup.jobs.change(made.id, ChangedJob(name="New", schedule="sometime"))
    assert await setup.jobs.job(made.id) == made
    changed = await setup.jobs.change(
        made.id, ChangedJob(name="New", prompt="Write", deliver="all", skills=("b",), repeat=2)
    )
    assert changed == replace(
        made,
        name="New",
        prompt="Write",
        deliver="all",
        skills=("b",),
        skill="b",
        repeat=JobRepeat(times=2),
    )
    assert (await setup.jobs.change(made.id, ChangedJob())) == changed
    emptied = await setup.jobs.change(made.id, ChangedJob(skills=(), repeat=None))
    assert (emptied.skills, emptied.skill, emptied.repeat.times) == ((), None, None)


async def test_a_prompt_can_be_taken_away_only_from_a_job_with_a_script(setup: Setup) -> None:
    made, scripted = await setup.make(), await setup.finish(await setup.make(), script="a.sh")
    with pytest.raises(UsageError, match="needs a prompt"):
        await setup.jobs.change(made.id, ChangedJob(prompt=" "))
    assert (await setup.jobs.change(scripted.id, ChangedJob(prompt=""))).prompt == ""


async def test_a_new_schedule_is_reckoned_from_now(setup: Setup) -> None:
    made = await setup.make()
    setup.clock.advance(600)
    changed = await setup.jobs.change(made.id, ChangedJob(schedule="every 2h"))
    assert (setup.next_run(changed), changed.schedule_display) == (7200, "every 2h")


async def test_a_paused_job_has_no_next_instant_and_goes_on_from_now(setup: Setup) -> None:
    made = await setup.make("0 9 * * *")
    paused = await setup.jobs.pause(made.id, " holidays ")
    assert (paused.enabled, paused.state, paused.next_run_at) == (False, JobState.PAUSED, None)
    assert (paused.paused_at, paused.paused_reason) == ("2027-01-15T09:00:00+01:00", "holidays")
    setup.clock.advance(3 * 86400)
    again = await setup.jobs.pause(made.id)
    assert (again.paused_at, again.paused_reason) == (paused.paused_at, "holidays")
    resumed = await setup.jobs.resume(made.id)
    assert (resumed.enabled, resumed.state) == (True, JobState.SCHEDULED)
    assert (resumed.paused_at, resumed.paused_reason) == (None, None)
    assert resumed.next_run_at == "2027-01-19T09:00:00+01:00"
    assert await setup.jobs.resume(made.id) == resumed


async def test_a_new_schedule_does_not_wake_a_paused_job(setup: Setup) -> None:
    made = await setup.make()
    await setup.jobs.pause(made.id)
    changed = await setup.jobs.change(made.id, ChangedJob(schedule="every 1h"))
    assert (changed.state, changed.next_run_at) == (JobState.PAUSED, None)
    woken = await setup.jobs.change(made.id, ChangedJob(enabled=True))
    assert (woken.state, setup.next_run(woken)) == (JobState.SCHEDULED, 3600)
    asleep = await setup.jobs.change(made.id, ChangedJob(enabled=False, name="Asleep"))
    assert (asleep.state, asleep.name) == (JobState.PAUSED, "Asleep")


async def test_a_job_whose_time_passed_while_it_rested_needs_a_new_one(setup: Setup) -> None:
    made = await setup.make("30m")
    await setup.jobs.pause(made.id)
    setup.clock.advance(3600)
    with pytest.raises(Conflict, match="has passed"):
        await setup.jobs.resume(made.id)
    changed = await setup.jobs.change(made.id, ChangedJob(schedule="10m", enabled=True))
    assert setup.next_run(changed) == 600


async def test_a_job_can_be_made_due_at_once_unless_it_is_paused(setup: Setup) -> None:
    made = await setup.make()
    setup.clock.advance(60)
    assert setup.next_run(await setup.jobs.run_now(made.id)) == 0
    await setup.jobs.pause(made.id)
    with pytest.raises(Conflict, match="paused"):
        await setup.jobs.run_now(made.id)


async def test_a_job_that_ran_as_often_as_it_was_to_is_not_run_again(setup: Setup) -> None:
    made = await setup.make(repeat=2)
    await setup.finish(
        made,
        repeat=JobRepeat(times=2, completed=2),
        state=JobState.COMPLETED,
        next_run_at=None,
    )
    for work in (
        setup.jobs.run_now(made.id),
        setup.jobs.resume(made.id),
        setup.jobs.pause(made.id),
    ):
        with pytest.raises(Conflict):
            await work
    with pytest.raises(UsageError, match="2 times already"):
        await setup.jobs.change(made.id, ChangedJob(repeat=2))
    await setup.jobs.change(made.id, ChangedJob(repeat=3))
    resumed = await setup.jobs.resume(made.id)
    assert (resumed.state, setup.next_run(resumed)) == (JobState.SCHEDULED, 1800)
    assert resumed.repeat == JobRepeat(times=3, completed=2)


async def test_a_completed_job_starts_over_with_a_new_schedule(setup: Setup) -> None:
    made = await setup.make("30m", repeat=1)
    await setup.finish(made, repeat=JobRepeat(times=1, completed=1), state=JobState.COMPLETED)
    changed = await setup.jobs.change(made.id, ChangedJob(schedule="1h"))
    assert (changed.state, changed.repeat.completed) == (JobState.SCHEDULED, 0)
    assert setup.next_run(changed) == 3600


async def test_a_job_that_cannot_be_understood_runs_again_after_it_got_a_schedule(
    setup: Setup,
) -> None:
    setup.files.path.parent.mkdir()
    entry = {"id": "abc", "prompt": "Read", "schedule": "each full moon", "mine": 1}
    setup.files.path.write_text(json.dumps({"jobs": [entry]}), encoding="utf-8")
    with pytest.raises(Conflict, match="schedule"):
        await setup.jobs.run_now("abc")
    mended = await setup.jobs.change("abc", ChangedJob(schedule="every 1h"))
    assert (mended.state, mended.last_error) == (JobState.SCHEDULED, None)
    assert setup.next_run(mended) == 3600
    assert setup.next_run(await setup.jobs.run_now("abc")) == 0


async def test_what_is_not_there_is_not_found(setup: Setup) -> None:
    jobs, missing = setup.jobs, "ffffffffffff"
    for work in (
        jobs.job(missing),
        jobs.change(missing, ChangedJob(name="x")),
        jobs.pause(missing),
        jobs.resume(missing),
        jobs.run_now(missing),
        jobs.remove(missing),
        jobs.history(missing, limit=5),
    ):
        with pytest.raises(NotFound):
            await work


async def test_a_removed_job_is_gone(setup: Setup) -> None:
    made, other = await setup.make(), await setup.make()
    await setup.jobs.remove(made.id)
    assert await setup.jobs.jobs() == [other]


async def test_history_comes_newest_first_and_only_of_this_job(setup: Setup) -> None:
    made, other = await setup.make(), await setup.make()
    for number in range(4):
        record_instant(setup.database, Instant(job_id=made.id, due_at=float(number)))
    record_instant(setup.database, Instant(job_id=other.id, due_at=9.0))
    done = Instant(
        job_id=made.id,
        due_at=4.0,
        status=InstantStatus.FAILED,
        error="no model",
        detail={"output": ["a", 1, None]},
    )
    record_instant(setup.database, done)
    found = await setup.jobs.history(made.id, limit=3)
    assert [each.due_at for each in found] == [4.0, 3.0, 2.0]
    assert found[0] == done
