"""The chat without a terminal: lines in, lines out, through a real pipe."""

import asyncio
import os
import re
import sys
from pathlib import Path

DEMO = Path(__file__).parent / "demo_chat.py"


async def begin(folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        str(DEMO),
        ".",
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def chat(folder: Path, typed: str) -> tuple[int, str]:
    process = await begin(folder)
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


async def test_a_line_typed_before_the_question_is_the_next_message(tmp_path: Path) -> None:
    code, output = await chat(
        tmp_path, "/busy queue\napprove it\n1\n/approve always\nlist the 3 files\nyes\n"
    )

    assert code == 0
    assert "The decision was denied: The input has ended: nobody can answer." in output
    assert [said in output for said in ("You said: 1", "You said: list the 3 files")] == [True] * 2
    assert "allowed" not in output


async def test_a_question_is_answered_with_the_code_that_is_shown_with_it(tmp_path: Path) -> None:
    process = await begin(tmp_path)
    written, output = process.stdin, process.stdout
    assert written is not None
    assert output is not None

    async def shown(pattern: str) -> str:
        text = ""
        async with asyncio.timeout(30):
            while not (found := re.search(pattern, text)):
                line = await output.readline()
                assert line, text
                text += line.decode()
        return found[1]

    def type_line(text: str) -> None:
        written.write(f"{text}\n".encode())

    type_line("/busy queue\napprove it")
    code = await shown("To answer, type (...) and the number.* Denied in 5m 00s")
    type_line("/approve")
    assert code in await shown("(.*appeared after that was typed[^.]*[.][^.]*[.])")
    type_line(f"{code} what")
    await shown("(To answer)")
    type_line(f"{code} 3")
    assert await shown("(Always allow this)")
    again = await shown("type (...) and")
    type_line(f"{code} 2\n{again} 2")
    await shown(r"(allowed \(always\))")
    await shown(f"You said: ({code} 2)")

    type_line("question two")
    code = await shown("type (...) and the number.*or your own words")
    type_line(f"{code} something green")
    await shown("You chose (something green)")
    type_line("approve three")
    code = await shown("type (...) and")
    type_line(f"{code} 5 too risky")
    await shown("denied: (too risky)")
    written.close()
    async with asyncio.timeout(30):
        assert await process.wait() == 0


async def test_what_becomes_of_processes_is_a_line_of_its_own_whatever_the_model_does(
    tmp_path: Path,
) -> None:
    process = await begin(tmp_path)
    assert process.stdin
    assert process.stdout
    output = ""

    async def seen(pattern: str) -> None:
        nonlocal output
        while not re.search(pattern, output, re.DOTALL):
            assert process.stdout
            piece = (await process.stdout.read(4096)).decode()
            assert piece, output
            output += piece

    async with asyncio.timeout(30):
        process.stdin.write(b"server please\n")
        await seen("not be reached.*not be reached")
        held, ended = "· Renamed to *.held: .envrc.\n", "· Background process p1 ended with exit"
        assert output.index(held) < output.index(ended) < output.index("Started.")
        assert [output.count(each) for each in (held, ended, "· The task s1 is done")] == [1, 1, 1]
        output = ""
        process.stdin.write(b"/title talk\n/new\n/resume talk\n")
        await seen("❯ server please\n  Started.\n· Background process p1 .*\n· The task s1 is done")
        process.stdin.write(b"/history\n")
        await seen("> server please\n  Started.\n· Background process p1 .*\n· The task s1 is done")
        process.stdin.write(b"/retry\n")
        await seen("❯ server please\n· Renamed to .*not be reached.*not be reached")
        process.stdin.close()
        await process.wait()
    assert not re.search("put it back|no rule|is tidy|[>❯] (The|Back)", output)
