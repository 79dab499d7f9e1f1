"""Nothing that can be typed breaks the policy or keeps it busy."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.command_corpus import read_corpus, strict_policy
from hermes.domain.approvals import Gate, Verdict
from hermes.execution.policy.command import TooLong
from hermes.execution.policy.host import MAX_INLINE
from hermes.execution.policy.judge import CommandPolicy, PolicySettings

POLICY = strict_policy()
PIECES = [
    "rm",
    "ls",
    "-rf",
    "/",
    " ",
    "\n",
    ";",
    "&&",
    "|",
    "$(",
    ")",
    "(",
    "`",
    "'",
    '"',
    "\\",
    "${x",
    "}",
    "{",
    "<<E",
    "\nE\n",
    "<(",
    "((",
    "))",
    "[[",
    "]]",
    "if",
    "then",
    "fi",
    "case",
    "esac",
    "in",
    "do",
    "done",
    "for",
    "$x",
    "x=",
    "=(",
    "#",
    "{a,b}",
    "$'",
    "\x00",
    "\x02",
    "\u200b",
    "*",
    "~",
]


@pytest.mark.parametrize(
    "command",
    ["find", "find | head", "cd src && find", f"python3 -c 'import {'a' * 400}'", "git", "fd"],
)
def test_commands_without_words_and_with_long_ones_get_a_verdict(command: str) -> None:
    assert isinstance(POLICY.judge(command, cwd="/home/user/work"), Verdict)


@pytest.mark.parametrize("text", ["{\U000f0001", "ls {a,\U000f0000}", "r{m,\U000f0002} x"])
def test_letters_that_the_reader_uses_itself_ask(text: str) -> None:
    assert POLICY.judge(text, cwd="/home/user/work").gate == Gate.ASK


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_arbitrary_text_gets_a_verdict(text: str) -> None:
    assert isinstance(POLICY.judge(text), Verdict)


@given(st.lists(st.sampled_from(PIECES), max_size=40))
@settings(max_examples=500, deadline=None)
def test_arbitrary_shell_fragments_get_a_verdict(pieces: list[str]) -> None:
    assert isinstance(POLICY.judge("".join(pieces)), Verdict)


@given(st.sampled_from(read_corpus("floor")), st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_rubbish_on_the_next_line_does_not_unblock_the_floor(sample: object, rubbish: str) -> None:
    command = "rm -rf /\n" + rubbish
    assert POLICY.judge(command).gate != Gate.ALLOW


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "ls; " * 250_000,
        "$(" * 100_000,
        "((" * 20_000,
        "{" * 30_000,
        "`" * 30_000,
        "\\" * 30_000,
        "'" * 30_001,
        "a=b " * 8_000,
        "x=$x$x;" * 4_000,
        "{1..99999999}",
        "{a,b}" * 40,
        "{" * 200 + "a,b" + "}" * 200,
        "f(){ f; f; f; };" + "f;" * 500,
        "a() { b; b; }; b() { c; c; }; c() { d; d; }; d() { a; a; }; " * 20 + "a",
        "bash -c " * 2_000 + "ls",
        "env " * 5_000 + "ls",
        "sudo " * 3_000 + "rm -rf x",
        "eval " * 3_000,
        "x=1; " + "for i in $x; do " * 30 + "x=$i$x" + "; done" * 30,
        "cat " + "<<A " * 2_000,
        "echo " + "${x:-" * 500,
        "[[ " + "(" * 10_000,
        "case x in " + "a) ls;; " * 3_000 + "esac",
        "python3 -c '" + "(" * 5_000 + "'",
        "sed -e 's" + "/a" * 5_000 + "'",
        "psql -c '" + "delete from x " * 2_000 + "'",
        "git " + "-c a.b=c " * 2_000 + "status",
        "echo " + "/*" * 5_000 + " > /" + "*/" * 2_000,
        "rm " + "\u200b" * 10_000,
        "chmod " + "+w," * 5_000 + " x",
        "perl -e '" + "open " * 3_000 + "'",
        "|".join(["cat"] * 2_000),
        "node -e '" + "1." * 5_000 + "!'",
        "docker run " + "--mount=" * 3_000,
        "curl -d @" + "/proc/" * 4_000,
        "GIT_SSH_COMMAND='ssh" + " -a" * 45 + "!' git fetch",
        "GIT_SSH_COMMAND='ssh" + " -a a" * 5_000 + "!' git fetch",
        "NODE_OPTIONS='" + "--no-warnings" * 2_000 + "!' ls",
        "|".join(["cat"] * 500),
        "touch a{1..999};" * 2_000,
        "a=(" + "x " * 400 + ");" + "echo ${a[@]};" * 2_000,
        "$x " + "mkfs " * 6_000,
        "$x " + "rm -r " * 5_000,
        "cd a || cd b; echo x > y;" * 1_000,
        "awk '" + "[[" * 4_000 + "'",
        "python3 -c '" + "[" * 8_000 + "'",
        "curl " + "[0" * 4_000,
        "psql -c '" + "[a" * 4_000 + "'",
        "bash -c '" + "[a" * 4_000 + "'",
        "sed '" + "\n" * 8_000 + "'",
        "cat /x/" + ".hermes/" * 1_000,
        "git -c core.x=" + "a=$" * 2_666 + " status",
    ],
    ids=lambda text: text[:16],
)
def test_huge_and_nested_commands_are_judged_quickly(text: str) -> None:
    started = time.process_time()
    verdict = POLICY.judge(text)
    assert time.process_time() - started < 2.0
    assert isinstance(verdict, Verdict)


def test_a_place_that_cannot_be_looked_at_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(path)

    monkeypatch.setattr("os.path.realpath", refuse)
    assert POLICY.judge("rm -rf /proc/1/root/*").gate != Gate.ALLOW
    assert POLICY.judge_write("/proc/1/root/x").gate != Gate.ALLOW


@pytest.mark.parametrize(
    "text",
    [
        "git -c core.x=" + "a=$" * 2_666 + " status",
        "awk '" + "[[" * 4_000 + "'",
        "ls " + "[0" * 4_000,
        "sed '" + "p;" * 7_900 + "' f",
    ],
    ids=lambda text: text[:12],
)
def test_one_long_word_is_judged_at_once(text: str) -> None:
    started = time.process_time()
    POLICY.judge(text, cwd="/home/user/work")
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("filler", ["a" * 1_000_000, "ls; " * 250_000, "echo hi\n" * 100_000])
def test_a_command_that_is_too_long_to_read_asks(filler: str) -> None:
    assert POLICY.judge(filler).gate == Gate.ASK


def test_the_floor_is_seen_at_the_head_of_a_command_that_is_too_long() -> None:
    assert POLICY.judge("rm -rf /; " + "ls; " * 250_000).gate == Gate.BLOCK


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "\t"])
def test_nothing_is_harmless(text: str) -> None:
    assert POLICY.judge(text).gate == Gate.ALLOW


def test_reasons_contain_nothing_unprintable() -> None:
    verdict = POLICY.judge("echo x > /etc/\x1b[31m$x")
    assert verdict.reason.isprintable()


def test_what_takes_long_is_not_judged_on_the_event_loop() -> None:
    doubled = "".join(f"a{i}=$a{i - 1}$a{i - 1};" for i in range(30))
    inline = CommandPolicy(PolicySettings(user_home="/home/user"), MAX_INLINE)
    assert inline.judge(doubled).gate is Gate.ASK  # it grows too long to be read
    with pytest.raises(TooLong):
        inline.judge(f"a={'x' * 300}; echo $a$a$a")
