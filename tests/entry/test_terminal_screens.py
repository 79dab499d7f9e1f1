"""The chat at a real terminal: screens as a person sees them."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fakes.tmux import Tmux

pytestmark = [
    pytest.mark.xdist_group("tmux"),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

SCREENS = Path(__file__).parent / "screens"
DEMO = Path(__file__).parent / "demo_chat.py"
LOCALE = "LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=screen-256color"
IDLE = r"^❯$"

Start = Callable[..., Tmux]


def idle(screen: str) -> bool:
    """The prompt waits, above the status bar."""
    lines = screen.split("\n")
    return len(lines) > 1 and lines[-2] == "❯" and "demo" in lines[-1]


def answered(text: str) -> Callable[[str], bool]:
    return lambda screen: text in screen and idle(screen)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Tmux] = []

    def begin(
        *options: str, columns: int = 80, rows: int = 40, environ: str = "", ready: str = IDLE
    ) -> Tmux:
        terminal = Tmux(tmp_path, columns=columns, rows=rows)
        opened.append(terminal)
        arguments = " ".join(options)
        terminal.run(f"{LOCALE} {environ} {sys.executable} {DEMO} . {arguments}")
        terminal.wait_for(ready)
        return terminal

    yield begin
    for terminal in opened:
        terminal.close()


def signalled(folder: Path, number: signal.Signals) -> None:
    os.kill(int((folder / "pid").read_text(encoding="ascii")), number)


def matches(name: str, screen: str) -> None:
    """Compare a screen with the one that is kept; HERMES_UPDATE_SCREENS=1 keeps it anew."""
    spinner = re.compile(r"^\(.{1,12}?\) [a-z ]+\.{1,3} +\d+s$", re.MULTILINE)
    steady = spinner.sub("(face) verb... 0s", screen)
    steady = re.sub(r"· \d+s\b", "· 0s", steady)
    path = SCREENS / f"{name}.txt"
    if os.environ.get("HERMES_UPDATE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(steady + "\n", encoding="utf-8")
    assert steady + "\n" == path.read_text(encoding="utf-8")


def test_the_first_start_shows_banner_prompt_and_status(start: Start) -> None:
    matches("first_start", start().screen())


def test_a_chat_with_tools_shows_lines_diffs_and_markdown(start: Start) -> None:
    terminal = start()

    terminal.type("tools please")
    terminal.keys("Enter")

    matches("tools", terminal.wait_for(answered("Done.")))


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 15)])
def test_an_approval_stands_above_the_input_until_it_is_answered_there(
    start: Start, columns: int, rows: int
) -> None:
    terminal = start(columns=columns, rows=rows)
    terminal.type("approve it")
    terminal.keys("Enter")
    terminal.wait_for("Tab to answer")
    terminal.type("also fix bug 12")

    matches(f"approval_{columns}", terminal.wait_for("bug 12\nEnter: interrupt"))
    terminal.choose(3)
    matches(f"approval_always_{columns}", terminal.wait_for("Yes, always"))
    terminal.choose(2)

    terminal.wait_for(r"allowed \(always\)")
    terminal.wait_for("The decision was approved")
    terminal.wait_for("^❯ also fix bug 12")


def test_the_whole_command_can_be_read_page_by_page(start: Start) -> None:
    terminal = start(columns=40, rows=15)
    terminal.type("long one")
    terminal.keys("Enter")
    matches("approval_long", terminal.wait_for("Tab to answer"))

    seen = terminal.screen()
    while "rm -rf ~" not in seen:
        first = re.search(r"lines (\d+)-", seen)
        assert first
        terminal.keys("PageDown")
        seen = terminal.wait_for(rf"lines (?!{first[1]}-)\d+-")

    terminal.keys("PageUp")
    terminal.wait_for(lambda screen: "rm -rf ~" not in screen)


def test_a_command_cannot_imitate_the_lines_around_it(start: Start) -> None:
    terminal = start(rows=24)
    terminal.type("forged")
    terminal.keys("Enter")

    matches("approval_forged", terminal.wait_for("Tab to answer ·"))


def test_an_approval_is_denied_with_a_reason_or_by_the_marked_choice(start: Start) -> None:
    terminal = start()
    terminal.type("approve one")
    terminal.keys("Enter")
    terminal.choose(5)
    terminal.wait_for("Enter sends")
    terminal.type("too risky")
    terminal.keys("Enter")
    terminal.wait_for("The decision was denied: too risky")

    terminal.type("approve two")
    terminal.keys("Enter")
    terminal.choose(4)

    terminal.wait_for("The decision was denied: no reason")


TYPED_AHEAD = [
    "also fix bug 12 please",
    "list the 3 files",
    "1",
    "3 3 3 y y yes",
    "1\t1",
    "run it again\n1\n3\n",
]


@pytest.mark.parametrize("text", TYPED_AHEAD)
def test_what_is_typed_while_the_question_appears_stays_in_the_input(
    start: Start, tmp_path: Path, text: str
) -> None:
    terminal = start()
    terminal.type("soon")
    terminal.keys("Enter")
    terminal.wait_for("Working on it")
    half = len(text) // 2

    terminal.type(text[:half])
    signalled(tmp_path, signal.SIGUSR1)
    terminal.type(text[half:])

    typed = "".join(text.split())
    terminal.wait_for(
        lambda screen: "Tab to answer" in screen and f"❯{typed}" in "".join(screen.split())
    )
    terminal.choose(4)
    terminal.wait_for("The decision was denied")


def test_a_paste_with_newlines_stays_in_the_input(start: Start) -> None:
    terminal = start()
    terminal.type("approve it")
    terminal.keys("Enter")
    terminal.wait_for("Tab to answer")

    terminal.paste("1\n2\n\t3\n")

    terminal.wait_for(r"❯ 1\n  2\n")
    assert "Tab to answer" in terminal.screen()


def test_a_question_that_is_answered_elsewhere_goes_and_the_text_stays(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.type("elsewhere")
    terminal.keys("Enter")
    terminal.choose(5)
    terminal.wait_for("Enter sends")
    terminal.type("because it is")

    signalled(tmp_path, signal.SIGUSR1)

    terminal.wait_for("Somebody else decided")
    terminal.wait_for("^❯ because it is")


def test_a_question_takes_a_choice_words_of_ones_own_or_a_line_typed_after_it(
    start: Start,
) -> None:
    terminal = start()
    terminal.type("question one")
    terminal.keys("Enter")
    terminal.wait_for("Which colour")
    terminal.choose(2)
    terminal.wait_for("You chose blue")

    terminal.type("question two")
    terminal.keys("Enter")
    terminal.wait_for("1. red")
    terminal.choose(3)
    terminal.wait_for("Enter sends")
    terminal.type("green")
    terminal.keys("Enter")

    terminal.wait_for("You chose green")


def test_ctrl_c_interrupts_the_turn_and_a_second_one_leaves(start: Start) -> None:
    terminal = start()
    terminal.type("forever")
    terminal.keys("Enter")
    matches("working", terminal.wait_for(r"Working on it\n\(.*\n⚕ ❯\n"))

    terminal.keys("C-c")
    matches("interrupted", terminal.wait_for(r"· interrupted\n\n❯\n"))
    terminal.keys("C-c")

    terminal.wait_for("EXIT 0")


def test_text_typed_while_it_works_interrupts_and_says_so(start: Start) -> None:
    terminal = start()
    terminal.type("forever")
    terminal.keys("Enter")
    terminal.wait_for("^⚕ ❯")

    terminal.type("something else")
    terminal.wait_for("Enter: interrupt, stops the running turn")
    terminal.keys("Enter")

    screen = terminal.wait_for("You said: something else")
    assert "· interrupted" in screen


def test_text_typed_while_it_works_steers_the_turn(start: Start) -> None:
    terminal = start("--steer")
    terminal.type("steerable")
    terminal.keys("Enter")
    terminal.wait_for("^⚕ ❯")

    terminal.type("be quick")
    terminal.keys("Enter")

    screen = terminal.wait_for("Heard meanwhile: be quick")
    assert "added to the running turn: be quick" in screen


def stop_turn(terminal: Tmux) -> None:
    """Press Ctrl+C; a first one may still meet the command before, which it ends instead."""
    stopped = "stopping the turn|You said"
    terminal.keys("C-c")
    try:
        terminal.wait_for(stopped, seconds=3)
    except AssertionError:
        terminal.keys("C-c")
        terminal.wait_for(stopped)


def test_a_queued_message_is_answered_after_the_turn(start: Start) -> None:
    terminal = start()
    terminal.type("approve first")
    terminal.keys("Enter")
    terminal.choose(4)
    terminal.wait_for("The decision was denied")
    terminal.type("forever")
    terminal.keys("Enter")
    terminal.wait_for("^⚕ ❯")

    terminal.type("/queue afterwards")
    terminal.keys("Enter")
    terminal.wait_for("1 queued")
    stop_turn(terminal)

    terminal.wait_for("You said: afterwards")


def test_questions_stand_above_their_answers_in_the_order_they_were_said(start: Start) -> None:
    terminal = start()
    terminal.type("/busy queue")
    terminal.keys("Enter")
    terminal.wait_for("queue$")
    terminal.type("soon please")
    terminal.keys("Enter")
    terminal.wait_for("Working on it")
    for text in ("second one", "third one"):
        terminal.type(text)
        terminal.keys("Enter")
    terminal.wait_for(r"^❯ second one\n❯ third one\n")
    signalled(terminal.folder, signal.SIGUSR1)
    terminal.choose(4)

    screen = terminal.wait_for(answered("You said: third one"))
    said = ["soon please", "The decision was", "❯ second one", "You said: second one",
            "❯ third one", "You said: third one"]  # fmt: skip
    assert [screen.count(each) for each in said] == [1] * 6
    assert sorted(said, key=screen.index) == said


def test_undo_and_retry_take_what_was_typed_not_what_references_stand_for(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    (tmp_path / "work" / "a.txt").write_text("inside the file\n", encoding="utf-8")
    terminal.type("explain @file:a.txt please")
    terminal.keys("Enter")
    terminal.wait_for(answered("inside the file"))

    terminal.type("/retry")
    terminal.keys("Enter")
    terminal.wait_for(lambda text: text.count("inside the file") == 2 and idle(text))
    terminal.type("/undo")
    terminal.keys("Enter")
    screen = terminal.wait_for("from: explain @file:a.txt please\n\n❯ explain @file:a.txt please\n")
    assert screen.count("Referenced above") == 2


def test_text_that_starts_over_is_not_shown_twice(start: Start) -> None:
    terminal = start()

    terminal.type("reset")
    terminal.keys("Enter")

    screen = terminal.wait_for(
        lambda text: "Second paragraph." in text and text.endswith("interrupt")
    )
    assert screen.count("First paragraph.") == 1
    assert screen.count("Second para") == 1


def test_a_resumed_conversation_begins_with_a_recap(start: Start) -> None:
    terminal = start("--resume", ready=r"^❯$")

    matches("resume", terminal.wait_for(answered("earlier 11")))


def test_a_narrow_terminal_shows_everything_that_matters(start: Start) -> None:
    terminal = start(columns=40)
    matches("narrow_start", terminal.screen())
    terminal.type("tools please")
    terminal.keys("Enter")
    terminal.wait_for("Done.")

    terminal.type("approve it")
    terminal.keys("Enter")

    screen = terminal.wait_for("Tab to answer")
    matches("narrow_approval", screen)
    assert max(len(line) for line in screen.split("\n")) <= 40


def test_without_colour_there_is_none(start: Start) -> None:
    terminal = start(environ="NO_COLOR=1")
    terminal.type("tools please")
    terminal.keys("Enter")
    terminal.wait_for("Done.")

    colours = re.findall(r"\x1b\[[0-9;]*m", terminal.screen(colours=True))

    assert not [code for code in colours if re.search(r"[\[;](3[0-8]|4[0-8]|9\d|10\d)\b", code)]
    matches("no_colour", terminal.wait_for(answered("Done.")))


def test_a_dumb_terminal_gets_plain_lines(start: Start) -> None:
    terminal = start(environ="TERM=dumb LC_ALL=C", ready="^>")

    terminal.type("tools please")
    terminal.keys("Enter")
    screen = terminal.wait_for("Done")
    assert "| ? read_file notes.txt 0.3s" in screen
    terminal.type("approve it")
    terminal.keys("Enter")
    asked = terminal.wait_for("To answer, type")
    terminal.type(f"{re.findall('To answer, type (...)', asked)[-1]} 4")
    terminal.keys("Enter")
    terminal.wait_for("The decision was denied")
    terminal.type("/quit")
    terminal.keys("Enter")

    screen = terminal.wait_for("EXIT 0")
    assert screen.isascii()


def test_a_dumb_terminal_keeps_the_letters_of_its_locale(start: Start) -> None:
    terminal = start(environ="TERM=dumb", ready="^>")

    terminal.type("für José 漢字")
    terminal.keys("Enter")

    terminal.wait_for(r"^> für José 漢字\nYou said: für José 漢字\n>$")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_killed_chat_leaves_the_terminal_clean(
    start: Start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    terminal = start()
    terminal.type("forever")
    terminal.keys("Enter")
    terminal.wait_for("^⚕ ❯")

    signalled(tmp_path, number)

    screen = terminal.wait_for(f"EXIT {code}")
    assert "⚕ ❯" not in screen
    assert (tmp_path / "after").read_text("utf-8") == (tmp_path / "before").read_text("utf-8")
    assert terminal.cursor_shown()
    raw = terminal.raw()
    assert raw.rindex("\x1b[?2004l") > raw.rindex("\x1b[?2004h")


def test_ctrl_d_leaves_and_the_terminal_is_clean(start: Start, tmp_path: Path) -> None:
    terminal = start()

    terminal.keys("C-d")

    terminal.wait_for("EXIT 0")
    assert (tmp_path / "after").read_text("utf-8") == (tmp_path / "before").read_text("utf-8")


def test_a_long_paste_is_a_placeholder_and_whole_when_sent(start: Start) -> None:
    terminal = start()

    terminal.paste("\n".join(f"line {number}" for number in range(6)))
    terminal.wait_for(r"\[pasted #1: 6 lines, 41 characters\]")
    terminal.keys("Enter")

    terminal.wait_for("You said: line 0 line 1 line 2 line 3 line 4 line 5")


def test_commands_complete_with_their_descriptions(start: Start) -> None:
    terminal = start()

    terminal.type("/un")
    terminal.wait_for("Take back the last exchanges")
    terminal.keys("Tab")
    terminal.wait_for("^❯ /undo")
    terminal.keys("Enter")

    terminal.wait_for("Nothing has been said yet")


def test_the_editor_changes_the_input(start: Start, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf 'from the editor' > \"$1\"\n", encoding="utf-8")
    editor.chmod(0o755)
    terminal = start(environ=f"VISUAL={editor}")

    terminal.keys("C-g")
    terminal.wait_for("^❯ from the editor")
    terminal.keys("Enter")

    terminal.wait_for("You said: from the editor")


def test_history_is_kept_for_the_next_start_and_for_its_owner_only(
    start: Start, tmp_path: Path
) -> None:
    terminal = start()
    terminal.type("remember this")
    terminal.keys("Enter")
    terminal.wait_for("You said: remember this")
    terminal.keys("C-d")
    terminal.wait_for("EXIT 0")

    terminal.run(f"{LOCALE} {sys.executable} {DEMO} .")
    terminal.wait_for(lambda text: "EXIT" not in text and idle(text))
    terminal.keys("Up")

    terminal.wait_for("^❯ remember this")
    assert (tmp_path / "history").stat().st_mode & 0o777 == 0o600


def test_a_failed_turn_says_what_is_wrong_and_what_to_do(start: Start) -> None:
    terminal = start()

    terminal.type("broken")
    terminal.keys("Enter")

    screen = terminal.wait_for("✗ The model could not be reached.")
    assert "→ Try another script." in screen


def test_wide_characters_do_not_break_the_lines(start: Start) -> None:
    terminal = start(columns=40)

    terminal.type("漢字かな混じり文" * 4)
    terminal.keys("Enter")
    screen = terminal.wait_for(answered("You said"))

    assert screen.replace("\n", "").replace(" ", "").count("漢字かな混じり文") == 8
