"""The pure parts of the terminal: widths, bars, pickers, pastes, skins, keys."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes.control.commands.builtin import builtin_registry
from hermes.domain.approvals import ApprovalKind, ApprovalRequest, Choice
from hermes.domain.errors import ConfigError, NotFound, UsageError
from hermes.domain.inbound import image_type
from hermes.domain.messages import (
    AssistantMessage,
    FinishReason,
    InputKind,
    ToolMessage,
    UserMessage,
)
from hermes.domain.session import Session, StoredMessage
from hermes.domain.wording import elapsed_words, short_number, visible
from hermes.entry.terminal.input import CompletionSources, CtrlC, InterruptKey, Pastes, suggest
from hermes.entry.terminal.overview import (
    banner_lines,
    recap_lines,
    spinner_line,
    status_line,
)
from hermes.entry.terminal.paint import (
    Colours,
    Painter,
    TerminalKind,
    ascii_text,
    cut,
    terminal_kind,
    wrap,
)
from hermes.entry.terminal.questions import (
    approval_picker,
    list_picker,
    request_picker,
)
from hermes.entry.terminal.skins import BUILT_IN, load_skin, skin_names
from hermes.entry.terminal.tty import copy_sequence
from hermes.streaming.units import width

WIDE = st.text(alphabet="ab 漢字🙂é", max_size=80)


@given(WIDE, st.integers(1, 60))
def test_cut_and_wrapped_text_fits(text: str, cells: int) -> None:
    assert width(cut(text, cells)) <= cells
    assert all(width(line) <= max(cells, 2) for line in wrap(text, cells))


@given(WIDE, st.integers(2, 60))
def test_wrapping_loses_nothing_but_blanks(text: str, cells: int) -> None:
    assert "".join(wrap(text, cells)).replace(" ", "") == text.replace(" ", "")


def test_wide_characters_take_two_cells() -> None:
    assert width("漢字") == 4


@given(st.integers(10, 120), st.booleans(), st.text(alphabet="ab漢", max_size=40))
def test_the_status_bar_is_exactly_as_wide_as_the_terminal(
    cells: int, working: bool, title: str
) -> None:
    parts = [
        (0, "some-long-model-name"),
        (2, "ctx 25%"),
        (1 if working else 6, "queue"),
        (7, title),
    ]

    assert width(status_line(parts, cells)) == cells


def test_the_status_bar_keeps_the_model_longest() -> None:
    parts = [(0, "demo"), (1, ""), (2, "ctx 10%"), (5, "5 tok"), (3, "0s"), (6, "queue")]

    assert status_line(parts, 60).strip() == "demo · ctx 10% · 5 tok · 0s · queue"
    assert status_line(parts, 22).strip() == "demo · ctx 10% · 0s"
    assert status_line(parts, 8).strip() == "demo"


def test_numbers_and_times_are_short() -> None:
    assert [short_number(n) for n in (999, 1500, 123_456, 2_500_000)] == [
        "999",
        "1.5k",
        "123k",
        "2.5M",
    ]
    assert [elapsed_words(s) for s in (5, 65, 3725)] == ["5s", "1m 05s", "1h 02m"]


def test_the_spinner_moves_and_is_plain_without_unicode() -> None:
    spinner = load_skin("default").spinner
    frames = {spinner_line(spinner, t / 5, thinking=True, unicode=True) for t in range(40)}

    assert len(frames) > 8
    assert spinner_line(spinner, 0.0, thinking=False, unicode=False).isascii()


@pytest.mark.parametrize(
    ("text", "collapsed"),
    [
        ("short", False),
        ("1\n2\n3\n4", False),
        ("1\n2\n3\n4\n5", True),
        ("x" * 1999, False),
        ("x" * 2000, True),
    ],
)
def test_a_long_paste_is_a_placeholder_until_it_is_sent(text: str, collapsed: bool) -> None:
    pastes = Pastes()

    shown = pastes.collapse(text)

    assert shown.startswith("[pasted #1") is collapsed
    assert pastes.expand(f"see {shown} please") == f"see {text} please"


def test_a_placeholder_nobody_pasted_stays_as_it_is() -> None:
    assert Pastes().expand("[pasted #9: 5 lines, 3 characters]").startswith("[pasted #9")


def request(kind: ApprovalKind, choices: tuple[str, ...]) -> ApprovalRequest:
    return ApprovalRequest(
        id="a",
        kind=kind,
        agent_id="main",
        session_id="s",
        turn_id="t",
        call_id="c",
        tool="terminal",
        arguments_hash="",
        subject="rm -r build\x1b[2J",
        reason="recursive delete",
        pattern="rm -r",
        choices=choices,
        created_at=0.0,
    )


def test_an_approval_offers_the_choices_and_a_reason_and_marks_deny() -> None:
    picker = request_picker(request(ApprovalKind.APPROVAL, tuple(Choice)))

    values = [option.value for option in picker.options]
    assert values == ["once", "session", "always", "deny", "deny"]
    assert values[picker.selected] == "deny"
    picker.press("down")
    picker.press("enter")
    assert picker.typing == picker.options[4]
    picker.press("enter", "not now")
    assert (picker.chosen, picker.text) == (picker.options[4], "not now")


@pytest.mark.parametrize("more", range(1, 12))
def test_going_on_from_deny_never_comes_round_to_what_allows(more: int) -> None:
    picker = request_picker(request(ApprovalKind.APPROVAL, tuple(Choice)))
    for key in ("down", "pagedown"):
        for _ in range(more):
            picker.press(key)
        assert picker.options[picker.selected].value == "deny"
    for _ in range(more + 10):
        picker.press("up")
    assert picker.selected == 0


def test_a_question_wants_words_if_none_of_its_choices_fits() -> None:
    picker = request_picker(request(ApprovalKind.QUESTION, ("red", "blue")))
    picker.press("3")
    picker.press("enter")
    picker.press("enter", "  ")
    assert picker.typing == picker.options[2]
    picker.press("enter", " green ")

    assert (picker.chosen, picker.text) == (picker.options[2], "green")


@given(st.lists(st.sampled_from(["up", "down", "enter", "3", "pageup", "pagedown"]), max_size=12))
def test_a_list_always_has_something_selected(keys: list[str]) -> None:
    picker = list_picker("Which?", [f"option {number}" for number in range(25)])

    for key in keys:
        picker.press(key)
        styles = [style for style, _ in picker.lines(40, "hint")]
        assert styles.count("selected") == 1
        assert len(styles) <= 12


@given(st.text(max_size=300), st.integers(20, 100), st.integers(8, 30))
def test_what_a_question_quotes_is_printable_behind_a_bar_and_complete(
    text: str, cells: int, rows: int
) -> None:
    picker = approval_picker(
        replace(request(ApprovalKind.APPROVAL, tuple(Choice)), subject=text, reason=text[:30])
    )
    read: dict[str, None] = {}
    for _ in range(len(text) + 1):
        lines = picker.lines(cells, "hint", rows=rows, pointer="")
        assert all(
            "\n" not in line and "\r" not in line and "\x1b" not in line for _, line in lines
        )
        read |= dict.fromkeys(line for style, line in lines if style == "body")
        picker.press("pagedown")

    assert all(line.startswith("│ ") for line in read)
    whole = {f"│ {line}" for line in wrap(visible(text), cells - 2) if line.strip()}
    assert set(read) == whole


@pytest.mark.parametrize(
    "text", ["a" * 300_000, " " * 300_000 + "x", "漢" * 300_000, "x\n" * 90_000]
)
def test_text_of_any_shape_is_wrapped_without_standing_still(text: str) -> None:
    assert "".join(wrap(text, 38)).replace(" ", "") == text.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"TERM": "xterm-256color", "LANG": "C.UTF-8"}, (Colours.EIGHT_BIT, True, True)),
        ({"TERM": "xterm", "LC_ALL": "en_US.ISO-8859-1"}, (Colours.STANDARD, False, True)),
        ({"TERM": "xterm", "NO_COLOR": "1", "LANG": "C.utf8"}, (Colours.NONE, True, True)),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, (Colours.TRUECOLOR, True, True)),
        ({"TERM": "xterm", "LC_ALL": "POSIX"}, (Colours.STANDARD, False, True)),
        ({"TERM": "dumb", "LANG": "C.UTF-8"}, (Colours.NONE, True, False)),
        ({"TERM": "dumb", "LC_ALL": "C"}, (Colours.NONE, False, False)),
    ],
)
def test_the_terminal_is_judged_by_its_environment(
    environ: dict[str, str], kind: tuple[Colours, bool, bool]
) -> None:
    found = terminal_kind(environ, is_tty=True, encoding="utf-8")

    assert (found.colours, found.unicode, found.cursor) == kind


@given(st.text())
def test_ascii_text_is_ascii(text: str) -> None:
    assert ascii_text(text).isascii()


def test_built_in_skins_load_and_a_persons_own_win(tmp_path: Path) -> None:
    (tmp_path / "sea.yaml").write_text("branding: {prompt_symbol: '~'}\n", "utf-8")
    (tmp_path / "mono.yaml").write_text("code_theme: xcode\n", "utf-8")

    assert [load_skin(name, tmp_path).name for name in BUILT_IN] == list(BUILT_IN)
    assert skin_names(tmp_path) == ["default", "mono", "ember", "sea"]
    assert load_skin("sea", tmp_path).branding.prompt_symbol == "~"
    assert load_skin("sea", tmp_path).spinner.thinking_verbs
    assert load_skin("mono", tmp_path).code_theme == "xcode"


def test_a_skin_that_cannot_be_read_is_explained(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [", "utf-8")
    (tmp_path / "odd.yaml").write_text("colors: 3", "utf-8")

    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        load_skin("bad", tmp_path)
    with pytest.raises(ConfigError, match="odd"):
        load_skin("odd", tmp_path)
    with pytest.raises(NotFound):
        load_skin("../bad", tmp_path)


@pytest.mark.parametrize(
    ("colours", "code"),
    [
        (Colours.TRUECOLOR, "38;2;230;180;80"),
        (Colours.EIGHT_BIT, "38;5;179"),
        (Colours.STANDARD, "93"),
    ],
)
def test_colours_come_down_to_what_there_is(colours: Colours, code: str) -> None:
    kind = TerminalKind(colours=colours, unicode=True, cursor=True)
    paint = Painter(load_skin("default"), kind)

    assert paint("x", "prompt") == f"\x1b[{code}mx\x1b[0m"


@pytest.mark.parametrize("cells", [40, 80, 120])
def test_the_banner_fits(cells: int) -> None:
    details = [
        "some-provider/a-rather-long-model-name-2026",
        "23 tools",
        "20260101_000000_abcdef01",
    ]

    lines = banner_lines("⚕ Hermes 1.0", details, cells)

    assert all(width(text) <= cells for _, text in lines)
    assert any("23 tools" in text for _, text in lines)


def stored(seq: int, message: UserMessage | AssistantMessage | ToolMessage) -> StoredMessage:
    return StoredMessage(id=seq, session_id="s", turn_id=None, seq=seq, at=0.0, message=message)


def test_the_recap_is_short() -> None:
    session = Session(
        id="s", agent_id="main", source="cli", started_at=0.0, updated_at=0.0, title="talk"
    )
    history = [
        message
        for number in range(12)
        for message in (
            stored(number * 3, UserMessage(content=f"q{number} " + "x" * 400)),
            stored(number * 3 + 1, ToolMessage(call_id="c", name="t", content="r")),
            stored(number * 3 + 2, AssistantMessage(text="a\nb\nc\nd\n" + "y" * 300)),
        )
    ]
    history.append(stored(99, UserMessage(content="a notice", kind=InputKind.NOTICE)))

    lines = recap_lines(session, history)

    assert lines[0] == ("head", "talk · 2 earlier exchanges not shown")
    asked = [text for who, text in lines if who == "you"]
    answers = [text for who, text in lines if who == "agent"]
    assert len(asked) == len(answers) == 10
    assert max(len(text) for text in asked) == 300
    assert answers[0] == "a\nb\nc… (1 tool call)"
    stopped = AssistantMessage(text="half", finish=FinishReason.INTERRUPTED)
    cut = [history[0], stored(1, stopped), history[3], history[4]]
    answers = [text for who, text in recap_lines(session, cut) if who == "agent"]
    assert answers == ["half (not finished)", "(1 tool call) (not finished)"]


@pytest.mark.parametrize(
    ("presses", "outcome"),
    [
        ([(0.0, True, False)], CtrlC.STOP_TURN),
        ([(0.0, True, False), (1.0, True, False)], CtrlC.LEAVE),
        ([(0.0, True, False), (5.0, True, False)], CtrlC.STOP_TURN),
        ([(0.0, False, False)], CtrlC.WARN),
        ([(0.0, False, False), (1.9, False, False)], CtrlC.LEAVE),
        ([(0.0, False, True)], CtrlC.CLEAR_INPUT),
        ([(0.0, False, True), (0.5, False, False)], CtrlC.WARN),
    ],
)
def test_ctrl_c_stops_warns_and_leaves(
    presses: list[tuple[float, bool, bool]], outcome: CtrlC
) -> None:
    key = InterruptKey()

    results = [
        key.press(now, working=working, command=False, has_text=has_text)
        for now, working, has_text in presses
    ]

    assert results[-1] is outcome


@pytest.fixture
def sources(tmp_path: Path) -> CompletionSources:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").touch()
    (tmp_path / "my notes.txt").touch()
    (tmp_path / ".env").touch()
    return CompletionSources(
        specs=builtin_registry().commands(terminal=True),
        cwd=lambda: tmp_path,
        arguments={"skin": lambda: ["default", "mono"]},
    )


@pytest.mark.parametrize(
    ("before", "texts"),
    [
        ("/und", ["/undo "]),
        ("/fo", ["/fork "]),
        ("/busy ", ["interrupt", "queue", "steer"]),
        ("/busy q", ["queue"]),
        ("/skin m", ["mono"]),
        ("/undo 2 3", []),
        ("//un", []),
        ("see @fi", ["@file:"]),
        ("@file:", ['"my notes.txt"', "src/"]),
        ("look at @file:src/m", ["src/main.py"]),
        ("@file:.e", []),
        ("@folder:", ["src/"]),
        ("mail me@file", []),
        ("plain words", []),
    ],
)
def test_completion_offers_what_fits(
    sources: CompletionSources, before: str, texts: list[str]
) -> None:
    assert [each.text for each in suggest(before, sources)] == texts


@given(st.text(alphabet="/@:.~ abfile\"'\n", max_size=30))
def test_completion_replaces_only_what_was_typed(before: str) -> None:
    found = suggest(
        before,
        CompletionSources(
            specs=builtin_registry().commands(terminal=True), cwd=lambda: Path("/nonexistent")
        ),
    )

    assert all(0 <= -each.start_position <= len(before) for each in found)


def test_pictures_are_known_by_their_first_bytes() -> None:
    assert image_type(b"\x89PNG\r\n\x1a\n...") == "image/png"
    assert image_type(b"RIFF1234WEBPVP8 ") == "image/webp"
    assert image_type(b"#!/bin/sh") is None


def test_copying_too_much_is_refused() -> None:
    assert copy_sequence("hi") == "\x1b]52;c;aGk=\x07"
    with pytest.raises(UsageError):
        copy_sequence("x" * 200_000)
