"""The rules of jobs, on a real file and a real ledger."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from hermes.control.jobs.jobs import AgentJobs, JobChange, JobDraft
from hermes.control.jobs.schedules import instant_of
from hermes.domain.errors import Conflict, NotFound, UsageError
from hermes.domain.jobs import Instant, InstantStatus, Job, JobOrigin, JobRepeat, JobState
from hermes.state.jobs import JobFiles
from hermes.state.sqlite.ledger import SqliteLedger
from hermes.testing.clock import FakeClock

BERLIN = ZoneInfo("Europe/Berlin")
HERE = JobOrigin(platform="telegram", chat_id="7")


class Desk:
    """A job book with everything that belongs to it."""

    def __init__(self, folder: Path, ledger: SqliteLedger) -> None:
        self.clock = FakeClock()
        self.files = JobFiles(folder / "cron")
        self.ledger = ledger
        self.book = AgentJobs(self.files, ledger, self.clock, BERLIN)

    async def make(self, schedule: str = "every 30m", **more: Any) -> Job:
        return await self.book.create(JobDraft(schedule=schedule, **{"prompt": "Read", **more}))

    def next_run(self, job: Job) -> float:
        """Seconds until the job is due."""
        due = instant_of(job.next_run_at, BERLIN)
        assert due is not None
        return due - self.clock.now()

    async def finish(self, job: Job, **fields: Any) -> Job:
        """Do what the scheduler does after a run."""
        return await self.files.change_job(job.id, lambda old: replace(old, **fields))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path / "backups")
    yield Desk(tmp_path, ledger)
    await ledger.close()


async def test_a_new_job_is_scheduled_and_in_the_file(desk: Desk) -> None:
    made = await desk.make(
        name=" Morning\n news ", skills=("news", "news", "web"), repeat=3, deliver="telegram:1:2"
    )
    assert len(made.id) == 12
    assert int(made.id, 16) >= 0
    assert made.name == "Morning news"
    assert (made.skills, made.skill) == (("news", "web"), "news")
    assert made.repeat == JobRepeat(times=3)
    assert (made.enabled, made.state) == (True, JobState.SCHEDULED)
    assert made.schedule_display == "every 30m"
    assert desk.next_run(made) == 1800
    assert made.created_at == "2027-01-15T09:00:00+01:00"
    assert await desk.book.jobs() == [made]
    assert await desk.book.job(made.id) == made
    (entry,) = json.loads(desk.files.path.read_text(encoding="utf-8"))["jobs"]
    assert (entry["repeat"], entry["deliver"]) == ({"times": 3, "completed": 0}, "telegram:1:2")


async def test_without_a_name_a_job_is_called_after_its_prompt_or_script(desk: Desk) -> None:
    assert (await desk.make(prompt="  Read\nthe news  ")).name == "Read the news"
    assert (await desk.make(prompt="x" * 5000)).name == "x" * 50
    scripted = await desk.make(prompt="", script="watch.sh", no_agent=True)
    assert (scripted.name, scripted.script, scripted.no_agent) == ("watch.sh", "watch.sh", True)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"prompt": "  "}, "needs a prompt"),
        ({"prompt": "x", "no_agent": True}, "needs a script"),
        ({"prompt": "x" * 5001}, "longer than 5000"),
        ({"prompt": "a\x00b"}, "null character"),
        ({"name": "x" * 201}, "longer than 200"),
        ({"name": "\x01"}, "cannot be empty"),
        ({"schedule": "sometime"}, "not a schedule"),
        ({"repeat": 0}, "0 times"),
        ({"repeat": -1}, "-1 times"),
        ({"skills": ("",)}, "skill"),
        ({"skills": ("a\nb",)}, "skill"),
        ({"skills": tuple(str(n) for n in range(51))}, "50 skills"),
    ],
)
async def test_what_cannot_be_a_job_is_refused(
    desk: Desk, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        await desk.make(**fields)
    assert not desk.files.path.exists()


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
async def test_places_to_deliver_to(desk: Desk, deliver: str) -> None:
    assert (await desk.make(deliver=deliver)).deliver == deliver


@pytest.mark.parametrize(
    "deliver",
    ["", ",", "local,", "Telegram", "telegram:", "telegram::1", "local:1", "a b", "tele\ngram"],
)
async def test_what_is_no_place_to_deliver_to_is_refused(desk: Desk, deliver: str) -> None:
    with pytest.raises(UsageError):
        await desk.make(deliver=deliver)


async def test_origin_needs_a_chat_in_which_the_job_was_made(desk: Desk) -> None:
    with pytest.raises(UsageError, match="origin") as caught:
        await desk.make(deliver="origin")
    assert caught.value.hint
    assert (await desk.make(deliver="origin, local", origin=HERE)).deliver == "origin,local"


async def test_a_change_is_made_whole_or_not_at_all(desk: Desk) -> None:
    made = await desk.make()
    with pytest.raises(UsageError):
        await desk.book.change(made.id, JobChange(name="New", schedule="sometime"))
    assert await desk.book.job(made.id) == made
    changed = await desk.book.change(
        made.id, JobChange(name="New", prompt="Write", deliver="all", skills=("b",), repeat=2)
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
    assert (await desk.book.change(made.id, JobChange())) == changed
    emptied = await desk.book.change(made.id, JobChange(skills=(), repeat=None))
    assert (emptied.skills, emptied.skill, emptied.repeat.times) == ((), None, None)


async def test_a_prompt_can_be_taken_away_only_from_a_job_with_a_script(desk: Desk) -> None:
    made, scripted = await desk.make(), await desk.make(script="a.sh")
    with pytest.raises(UsageError, match="needs a prompt"):
        await desk.book.change(made.id, JobChange(prompt=" "))
    assert (await desk.book.change(scripted.id, JobChange(prompt=""))).prompt == ""


async def test_a_new_schedule_is_reckoned_from_now(desk: Desk) -> None:
    made = await desk.make()
    desk.clock.advance(600)
    changed = await desk.book.change(made.id, JobChange(schedule="every 2h"))
    assert (desk.next_run(changed), changed.schedule_display) == (7200, "every 2h")


async def test_a_paused_job_has_no_next_instant_and_goes_on_from_now(desk: Desk) -> None:
    made = await desk.make("0 9 * * *")
    paused = await desk.book.pause(made.id, " holidays ")
    assert (paused.enabled, paused.state, paused.next_run_at) == (False, JobState.PAUSED, None)
    assert (paused.paused_at, paused.paused_reason) == ("2027-01-15T09:00:00+01:00", "holidays")
    desk.clock.advance(3 * 86400)
    again = await desk.book.pause(made.id)
    assert (again.paused_at, again.paused_reason) == (paused.paused_at, "holidays")
    resumed = await desk.book.resume(made.id)
    assert (resumed.enabled, resumed.state) == (True, JobState.SCHEDULED)
    assert (resumed.paused_at, resumed.paused_reason) == (None, None)
    assert resumed.next_run_at == "2027-01-19T09:00:00+01:00"
    assert await desk.book.resume(made.id) == resumed


async def test_a_new_schedule_does_not_wake_a_paused_job(desk: Desk) -> None:
    made = await desk.make()
    await desk.book.pause(made.id)
    changed = await desk.book.change(made.id, JobChange(schedule="every 1h"))
    assert (changed.state, changed.next_run_at) == (JobState.PAUSED, None)
    woken = await desk.book.change(made.id, JobChange(enabled=True))
    assert (woken.state, desk.next_run(woken)) == (JobState.SCHEDULED, 3600)
    asleep = await desk.book.change(made.id, JobChange(enabled=False, name="Asleep"))
    assert (asleep.state, asleep.name) == (JobState.PAUSED, "Asleep")


async def test_a_job_whose_time_passed_while_it_rested_needs_a_new_one(desk: Desk) -> None:
    made = await desk.make("30m")
    await desk.book.pause(made.id)
    desk.clock.advance(3600)
    with pytest.raises(Conflict, match="has passed"):
        await desk.book.resume(made.id)
    changed = await desk.book.change(made.id, JobChange(schedule="10m", enabled=True))
    assert desk.next_run(changed) == 600


async def test_a_job_can_be_made_due_at_once_unless_it_is_paused(desk: Desk) -> None:
    made = await desk.make()
    desk.clock.advance(60)
    assert desk.next_run(await desk.book.run_now(made.id)) == 0
    await desk.book.pause(made.id)
    with pytest.raises(Conflict, match="paused"):
        await desk.book.run_now(made.id)


async def test_a_job_that_ran_as_often_as_it_was_to_is_not_run_again(desk: Desk) -> None:
    made = await desk.make(repeat=2)
    await desk.finish(
        made,
        repeat=JobRepeat(times=2, completed=2),
        state=JobState.COMPLETED,
        next_run_at=None,
    )
    for work in (desk.book.run_now(made.id), desk.book.resume(made.id), desk.book.pause(made.id)):
        with pytest.raises(Conflict):
            await work
    with pytest.raises(UsageError, match="2 times already"):
        await desk.book.change(made.id, JobChange(repeat=2))
    await desk.book.change(made.id, JobChange(repeat=3))
    resumed = await desk.book.resume(made.id)
    assert (resumed.state, desk.next_run(resumed)) == (JobState.SCHEDULED, 1800)
    assert resumed.repeat == JobRepeat(times=3, completed=2)


async def test_a_completed_job_starts_over_with_a_new_schedule(desk: Desk) -> None:
    made = await desk.make("30m", repeat=1)
    await desk.finish(made, repeat=JobRepeat(times=1, completed=1), state=JobState.COMPLETED)
    changed = await desk.book.change(made.id, JobChange(schedule="1h"))
    assert (changed.state, changed.repeat.completed) == (JobState.SCHEDULED, 0)
    assert desk.next_run(changed) == 3600


async def test_a_job_that_cannot_be_understood_runs_again_after_it_got_a_schedule(
    desk: Desk,
) -> None:
    desk.files.path.parent.mkdir()
    entry = {"id": "abc", "prompt": "Read", "schedule": "each full moon", "mine": 1}
    desk.files.path.write_text(json.dumps({"jobs": [entry]}), encoding="utf-8")
    with pytest.raises(Conflict, match="schedule"):
        await desk.book.run_now("abc")
    mended = await desk.book.change("abc", JobChange(schedule="every 1h"))
    assert (mended.state, mended.last_error) == (JobState.SCHEDULED, None)
    assert desk.next_run(mended) == 3600
    assert desk.next_run(await desk.book.run_now("abc")) == 0


async def test_what_is_not_there_is_not_found(desk: Desk) -> None:
    book, missing = desk.book, "ffffffffffff"
    for work in (
        book.job(missing),
        book.change(missing, JobChange(name="x")),
        book.pause(missing),
        book.resume(missing),
        book.run_now(missing),
        book.remove(missing),
        book.history(missing, limit=5),
    ):
        with pytest.raises(NotFound):
            await work


async def test_a_removed_job_is_gone(desk: Desk) -> None:
    made, other = await desk.make(), await desk.make()
    await desk.book.remove(made.id)
    assert await desk.book.jobs() == [other]


async def test_history_comes_newest_first_and_only_of_this_job(desk: Desk) -> None:
    made, other = await desk.make(), await desk.make()
    for number in range(4):
        await desk.ledger.claim_instant(Instant(job_id=made.id, due_at=float(number)))
    await desk.ledger.claim_instant(Instant(job_id=other.id, due_at=9.0))
    done = Instant(job_id=made.id, due_at=3.0, status=InstantStatus.FAILED, error="no model")
    await desk.ledger.settle_instant(done)
    found = await desk.book.history(made.id, limit=3)
    assert [each.due_at for each in found] == [3.0, 2.0, 1.0]
    assert found[0] == done
