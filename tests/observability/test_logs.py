import asyncio
import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from fakes.chat_kit import ChatKit
from fakes.command_door import RecordingDoor
from fakes.scripted_turns import Play
from hermes.config.secrets import Redactor, Secrets
from hermes.domain.settings.doors import Logging
from hermes.execution.clock import SystemClock
from hermes.observability.logs import configure_logging, tag_session
from hermes.testing import temporary_ledger

SECRET = "hunter2hunter2"
REDACTOR = Redactor(Secrets({"MY_KEY": SECRET}))
log = logging.getLogger("hermes.test")


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    root = logging.getLogger()
    level = root.level
    with configure_logging(tmp_path / "logs", Logging(), REDACTOR):
        yield tmp_path / "logs"
    root.setLevel(level)
    logging.getLogger("hermes").setLevel(logging.NOTSET)


def test_no_file_is_made_before_the_first_line(logs: Path) -> None:
    assert not logs.exists()
    log.info("hello")
    assert [file.name for file in logs.iterdir()] == ["agent.log"]
    assert (logs / "agent.log").stat().st_mode & 0o777 == 0o600


def test_everything_goes_to_one_file_and_what_needs_attention_also_to_another(logs: Path) -> None:
    log.debug("too small")
    log.info("normal")
    log.warning("odd")
    assert [line.split(": ")[1] for line in (logs / "agent.log").read_text().splitlines()] == [
        "normal",
        "odd",
    ]
    assert "normal" not in (logs / "errors.log").read_text()
    assert "WARNING hermes.test: odd" in (logs / "errors.log").read_text()


def test_libraries_are_heard_from_warning_on(logs: Path) -> None:
    logging.getLogger("somelib").info("chatter")
    logging.getLogger("somelib").warning("trouble")
    text = (logs / "agent.log").read_text()
    assert "chatter" not in text
    assert "trouble" in text


def test_no_secret_reaches_a_file_by_message_arguments_or_traceback(logs: Path) -> None:
    log.warning(f"in the message {SECRET}")  # noqa: G004 - the point of the test
    log.warning("in an argument %s", {"key": SECRET})
    try:
        int(f"in the exception {SECRET}")
    except ValueError:
        log.exception("failed")
    text = (logs / "agent.log").read_text() + (logs / "errors.log").read_text()
    assert SECRET not in text
    assert text.count("***MY_KEY***") == 6
    assert "in the exception ***MY_KEY***'\n" in text


async def test_lines_carry_the_session_also_in_child_tasks(logs: Path) -> None:
    async def child() -> None:
        log.info("child")

    log.info("outside")
    with tag_session("s1"):
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
        await asyncio.to_thread(log.info, "thread")
    log.info("after")
    lines = (logs / "agent.log").read_text().splitlines()
    assert ["[s1] " in line for line in lines] == [False, True, True, False]


async def test_lines_of_a_turn_carry_its_session(logs: Path, tmp_path: Path) -> None:
    async def speaks(play: Play) -> None:
        log.info("in the turn")
        await play.say("done")

    async with temporary_ledger(tmp_path) as ledger:
        kit = ChatKit(ledger, SystemClock(), tmp_path, {"hello": speaks})
        door = RecordingDoor(kit)
        async with kit.gateway.running():
            await door.ask("hello")
    assert door.session is not None
    text = (logs / "agent.log").read_text()
    assert f"[{door.session.id}] {log.name}: in the turn" in text


def test_files_rotate_and_only_some_are_kept(tmp_path: Path) -> None:
    settings = Logging(max_size_mb=1, backup_count=1)
    with configure_logging(tmp_path, settings, REDACTOR):
        for _ in range(50):
            log.info("x" * 60_000)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["agent.log", "agent.log.1"]
    assert all(file.stat().st_size <= 1024 * 1024 for file in tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_costs_one_warning_and_no_exception(
    tmp_path: Path,
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    said = io.StringIO()
    with configure_logging(blocked / "logs", Logging(), REDACTOR), redirect_stderr(said):
        log.info("one")
        log.info("two")
    assert said.getvalue().count("cannot be written") == 1


WRONG_CALL = """
import logging, pathlib, sys
from hermes.domain.settings.doors import Logging
from hermes.config.secrets import Redactor, Secrets
from hermes.observability.logs import configure_logging
configure_logging(pathlib.Path(sys.argv[1]), Logging(), Redactor(Secrets({})))
logging.getLogger("hermes.x").info("%d", sys.argv[2])
logging.getLogger("hermes.x").info("fine with \\udcff")
"""


def test_a_wrong_log_call_costs_its_own_line_only_and_odd_text_is_escaped(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRONG_CALL, str(tmp_path), SECRET],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == "hermes: a log line was lost: TypeError\n"
    assert (tmp_path / "agent.log").read_text().endswith("hermes.x: fine with \\udcff\n")


def test_configuring_again_replaces_the_earlier_setup(logs: Path, tmp_path: Path) -> None:
    with configure_logging(tmp_path / "other", Logging(level="DEBUG"), REDACTOR):
        log.debug("detail")
    assert "detail" in (tmp_path / "other" / "agent.log").read_text()
    assert not logs.exists()
