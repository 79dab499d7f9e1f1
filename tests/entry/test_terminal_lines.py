"""The chat without a terminal: lines in, lines out, through a real pipe."""

import asyncio
import os
import sys
from pathlib import Path

DEMO = Path(__file__).parent / "demo_chat.py"


async def chat(folder: Path, typed: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DEMO),
        ".",
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate(typed.encode())
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_a_piped_chat_answers_and_ends_with_its_input(tmp_path: Path) -> None:
    code, output = await chat(tmp_path, "/busy queue\nhello there\ntools\n")

    assert code == 0
    assert "You said: hello there" in output
    assert "┊ 📖 read_file notes.txt 0.3s" in output
    assert "Done." in output
    assert "\x1b" not in output


async def test_a_piped_chat_can_be_left(tmp_path: Path) -> None:
    code, output = await chat(tmp_path, "/quit\nnever seen\n")

    assert code == 0
    assert "never seen" not in output


async def test_a_failure_of_a_command_is_a_line(tmp_path: Path) -> None:
    _, output = await chat(tmp_path, "/nonsense\n/skin mono\n/image\n/undo\n")

    assert "There is no command /nonsense" in output
    assert "needs a terminal with a movable cursor" in output
    assert "Which file?" in output
    assert "Nothing has been said yet" in output
