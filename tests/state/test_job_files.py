"""`cron/jobs.json`: kept as people have it, never half written, never lost."""

import asyncio
import json
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes.domain.errors import Conflict, NotFound, StoreError
from hermes.domain.jobs import Job, JobRepeat, JobState, Schedule, ScheduleKind
from hermes.state.jobs import JobFiles

HOURLY = Schedule(kind=ScheduleKind.INTERVAL, minutes=60, display="every 1h")


def job(job_id: str = "0123456789ab", **more: Any) -> Job:
    return Job(
        id=job_id, name="News", prompt="Read", schedule=HOURLY, created_at="2026-11-16", **more
    )


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    return JobFiles(tmp_path / "cron")


def raw(files: JobFiles) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files.path.read_text(encoding="utf-8"))
    return content


def write(files: JobFiles, *entries: Any, **more: Any) -> None:
    files.path.parent.mkdir(exist_ok=True)
    files.path.write_text(json.dumps({"jobs": entries, **more}), encoding="utf-8")


async def test_without_a_file_there_are_no_jobs_and_reading_makes_none(files: JobFiles) -> None:
    assert await files.jobs() == []
    assert await files.job("0123456789ab") is None
    assert not files.path.parent.exists()


async def test_a_job_comes_back_as_it_was_added(files: JobFiles) -> None:
    made = job(skills=("a", "b"), skill="a", repeat=JobRepeat(times=3), deliver="telegram:1")
    assert await files.add_job(made) == made
    assert await JobFiles(files.path.parent).jobs() == [made]
    assert stat.S_IMODE(files.path.stat().st_mode) == 0o600
    assert set(raw(files)) == {"jobs", "updated_at"}
    assert raw(files)["jobs"][0]["schedule"] == {
        "kind": "interval",
        "minutes": 60,
        "display": "every 1h",
    }


async def test_an_id_is_given_once(files: JobFiles) -> None:
    await files.add_job(job())
    with pytest.raises(Conflict):
        await files.add_job(job())
    assert len(await files.jobs()) == 1


async def test_a_change_leaves_everything_else_in_the_file_as_it_was(files: JobFiles) -> None:
    entry = {
        "id": "aaaaaaaaaaaa",
        "name": "Old",
        "prompt": None,
        "schedule": {"kind": "cron", "expr": "0 9 * * *", "display": "0 9 * * *", "mine": 1},
        "created_at": "2025-01-01T00:00:00",
        "deliver": ["telegram", "local"],
        "profile": "kept",
        "suggestion": {"by": "somebody"},
    }
    stranger = {"no": "id"}
    write(files, entry, stranger, "not even an object", version=7)
    await files.change_job("aaaaaaaaaaaa", lambda old: replace(old, name="New"))
    after = raw(files)
    assert after["version"] == 7
    assert after["jobs"] == [{**entry, "name": "New"}, stranger, "not even an object"]


async def test_a_change_that_changes_nothing_writes_nothing(files: JobFiles) -> None:
    await files.add_job(job())
    before = files.path.stat().st_ino
    assert await files.change_job("0123456789ab", lambda old: old) == job()
    assert files.path.stat().st_ino == before


async def test_an_unknown_job_cannot_be_changed_or_removed(files: JobFiles) -> None:
    with pytest.raises(NotFound):
        await files.change_job("ffffffffffff", lambda old: old)
    assert await files.remove_job("ffffffffffff") is False


async def test_removing_takes_away_this_job_only(files: JobFiles) -> None:
    write(files, {"id": "a", "schedule": {"kind": "once"}}, 5, {"id": "b", "x": 1})
    assert await files.remove_job("a") is True
    assert raw(files)["jobs"] == [5, {"id": "b", "x": 1}]


async def test_a_change_that_fails_changes_nothing(files: JobFiles) -> None:
    await files.add_job(job())

    def refuse(_old: Job) -> Job:
        raise Conflict("no")

    with pytest.raises(Conflict):
        await files.change_job("0123456789ab", refuse)
    assert await files.jobs() == [job()]


@pytest.mark.parametrize(
    "content", ["{", '{"jobs": ', "[]", "5", '{"jobs": {}}', '{"jobs": null}', "\x00\x00", "\xff"]
)
async def test_a_broken_file_is_named_and_never_written_over(files: JobFiles, content: str) -> None:
    files.path.parent.mkdir()
    files.path.write_text(content, encoding="latin-1")
    before = files.path.read_bytes()
    for work in (
        files.jobs(),
        files.add_job(job()),
        files.change_job("a", lambda old: old),
        files.remove_job("a"),
    ):
        with pytest.raises(StoreError, match=r"jobs\.json") as caught:
            await work
        assert caught.value.hint
    assert files.path.read_bytes() == before


async def test_forms_that_other_versions_wrote_are_understood(files: JobFiles) -> None:
    write(
        files,
        {
            "id": "a",
            "prompt": "Read the news and tell me what is in them",
            "skill": "news",
            "schedule": {"kind": "interval", "minutes": 30.0},
            "repeat": 3,
            "deliver": ["telegram", "local"],
            "context_from": "b",
            "enabled": False,
            "state": "resting",
            "origin": None,
        },
    )
    (found,) = await files.jobs()
    assert found.name == "Read the news and tell me what is in them"
    assert (found.skills, found.repeat.times, found.deliver) == (("news",), 3, "telegram,local")
    assert (found.context_from, found.state, found.schedule.minutes) == (
        ("b",),
        JobState.PAUSED,
        30,
    )
    assert found.last_error is None


@pytest.mark.parametrize(
    ("fields", "odd"),
    [
        ({}, "schedule"),
        ({"schedule": "every 5m"}, "schedule"),
        ({"schedule": {"kind": "lunar"}}, "schedule"),
        ({"schedule": {"kind": "interval", "minutes": "many"}}, "schedule"),
        ({"schedule": {"kind": "once"}, "origin": "here", "skills": [1]}, "origin, skills"),
    ],
)
async def test_a_job_that_cannot_be_understood_is_listed_in_error_beside_the_others(
    files: JobFiles, fields: dict[str, Any], odd: str
) -> None:
    await files.add_job(job())
    good = raw(files)["jobs"][0]
    write(files, {"id": "b", **fields}, good)
    bad, fine = await files.jobs()
    assert fine == job()
    assert bad.state is JobState.ERROR
    assert bad.last_error == f"This cannot be understood in jobs.json: {odd}."
    renamed = await files.change_job("b", lambda old: replace(old, name="B"))
    assert renamed.state is JobState.ERROR
    assert raw(files)["jobs"] == [{"id": "b", **fields, "name": "B"}, good]


async def test_a_new_schedule_mends_a_job_that_had_none(files: JobFiles) -> None:
    write(files, {"id": "b", "schedule": None, "x": 1})
    mended = await files.change_job(
        "b",
        lambda old: replace(old, schedule=HOURLY, state=JobState.SCHEDULED, last_error=None),
    )
    assert (mended.state, mended.schedule, mended.last_error) == (
        JobState.SCHEDULED,
        HOURLY,
        None,
    )
    assert raw(files)["jobs"][0]["x"] == 1


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entry=st.dictionaries(st.sampled_from(Job.__struct_fields__), JSON))
async def test_whatever_stands_in_an_entry_it_neither_breaks_the_list_nor_gets_lost(
    files: JobFiles, entry: dict[str, Any]
) -> None:
    entry = {**entry, "id": "a"}
    write(files, entry)
    (found,) = await files.jobs()
    assert found.id == "a"
    await files.change_job("a", lambda old: replace(old, paused_reason="for a test"))
    assert raw(files)["jobs"] == [{**entry, "paused_reason": "for a test"}]


async def test_a_link_stays_a_link(files: JobFiles, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.json"
    target.write_text("", encoding="utf-8")
    files.path.parent.mkdir()
    files.path.symlink_to(target)
    await files.add_job(job())
    assert files.path.is_symlink()
    assert json.loads(target.read_text(encoding="utf-8"))["jobs"][0]["name"] == "News"


async def test_a_folder_that_cannot_be_used_is_explained(files: JobFiles) -> None:
    files.path.parent.write_text("a file in its place", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        await files.add_job(job())
    assert caught.value.hint


WRITER = """
import asyncio, sys
from pathlib import Path
from msgspec.structs import replace
from hermes.domain.jobs import Job, Schedule, ScheduleKind
from hermes.state.jobs import JobFiles

async def main(folder, name, count):
    files = JobFiles(Path(folder))
    schedule = Schedule(kind=ScheduleKind.INTERVAL, minutes=5)
    print("here", flush=True)
    sys.stdin.readline()
    for number in range(count):
        job = Job(id=f"{name}-{number}", name=name, schedule=schedule, created_at="")
        await files.add_job(job)
        await files.change_job("shared", lambda old: replace(old, prompt=old.prompt + name))
        print(number, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def writer(files: JobFiles, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(files.path.parent), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def start(*children: subprocess.Popen[str]) -> None:
    """Let them all begin once all are there, so that they really meet."""
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()


async def test_two_processes_and_many_callers_lose_nothing(files: JobFiles) -> None:
    await files.add_job(job("shared"))
    children = [writer(files, name, 15) for name in ("x", "y")]
    await asyncio.to_thread(start, *children)
    async with asyncio.TaskGroup() as group:
        for number in range(15):
            group.create_task(files.add_job(job(f"z-{number}")))
    for child in children:
        await asyncio.to_thread(child.communicate)
        assert child.returncode == 0
    found = {each.id: each for each in await files.jobs()}
    assert set(found) == {"shared"} | {f"{name}-{n}" for name in "xyz" for n in range(15)}
    assert sorted(found["shared"].prompt.removeprefix("Read")) == ["x"] * 15 + ["y"] * 15


async def test_killed_while_writing_the_file_is_whole_and_has_all_that_was_confirmed(
    files: JobFiles,
) -> None:
    # A large file takes long to write: readers look, and the end comes, in the middle of it.
    write(files, {**msgspec.to_builtins(job("shared")), "ballast": "x" * 4_000_000})
    for round_number in range(6):
        child = writer(files, f"r{round_number}", 100_000)
        await asyncio.to_thread(start, child)
        assert child.stdout is not None
        for _ in range(3 + round_number):
            confirmed = int(await asyncio.to_thread(child.stdout.readline))
            for _ in range(round_number):
                assert await files.job("shared") is not None
        child.send_signal(signal.SIGKILL)
        rest, _ = await asyncio.to_thread(child.communicate)
        confirmed = max([confirmed, *(int(line) for line in rest.split("\n")[:-1])])
        ids = {each.id for each in await files.jobs()}
        assert {f"r{round_number}-{n}" for n in range(confirmed + 1)} <= ids
    await files.add_job(job("after"))
    assert await files.job("after") == job("after")
