"""The grammar reads scripts the way bash does: bash itself is the referee."""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hermes.execution.policy.command import Ground
from hermes.execution.policy.expansion import Variables, is_unknown
from hermes.execution.policy.grammar import parse, read_scripts
from hermes.execution.policy.syntax import ShellSyntaxError, Simple
from hermes.execution.policy.walk import walk

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="bash is the referee")
GROUND = Ground(user_home="/home/user", hermes_home="/home/user/.hermes")

WORD_PIECES = [
    "a",
    "b",
    "'",
    '"',
    "\\",
    "'x y'",
    '"x y"',
    "\\ ",
    "$x",
    "${x}",
    '"$x"',
    "${y:-d e}",
    "$'\\t'",
    "$'\\x41'",
    "{a,b}",
    "{1..3}",
    ",",
    "{",
    "}",
    "$y",
    "\\$",
    '"\\""',
    "''",
    '""',
    "${x#o}",
    "${x%e}",
    "${x^^}",
    "${x:1:1}",
    "${x/n/N}",
    "$'\\''",
    "=",
    "-",
    "${z-q}",
    "\\'",
]


@given(st.lists(st.sampled_from(WORD_PIECES), min_size=1, max_size=7))
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much],
)
def test_words_expand_to_what_bash_makes_of_them(pieces: list[str]) -> None:
    word = "".join(pieces)
    # Bash does not split a word that has a lone dollar in it; splitting is the careful reading.
    assume(not re.search(r"\$(?:$|[^\w{'\"])", word))
    done = subprocess.run(
        [BASH, "-c", f"set -f; x='one two'; y=; unset z; printf '%s\\0' @ {word}"],
        capture_output=True,
        env={"PATH": ""},
        check=False,
    )
    try:
        script = parse(f"printf @ {word}")
    except ShellSyntaxError:
        return
    if done.returncode or done.stderr:
        return
    node = script.items[0].commands[0]
    assert isinstance(node, Simple)
    variables = Variables("/home/user", lambda _script, _kind: None)
    variables.values = {"x": "one two", "y": ""}
    fields = [f for part in node.words[1:] for f in variables.fields(part)]
    if variables.doubts or any(is_unknown(f) for f in fields):
        return
    assert [f.encode() for f in fields] == done.stdout.split(b"\0")[:-1]


SCRIPTS = [
    "MARK",
    "(MARK)",
    "{ MARK; }",
    "if true; then MARK; fi",
    "true && MARK",
    "echo $(MARK)",
    'echo "`MARK`"',
    "cat <<E\n$(MARK)\nE",
    "cat <<'E'\n'\"`\nE\nMARK",
    "x=MARK; $x",
    "f() { MARK; }; f",
    "case a in a) MARK;; esac",
    "for i in 1; do MARK; done",
    "! MARK",
    "echo a; MARK",
    "eval MARK",
    "echo 'a' \"b\" && MARK # c",
    "x=$((1<<2)); MARK",
    "[[ a == b ]] || MARK",
    "echo {a,b}; MARK",
    "while :; do MARK; break; done",
    "a=(1 $(MARK))",
    "echo ${x:-$(MARK)}",
    ": <<< $(MARK)",
    'set -- MARK; "$@"',
    "coproc MARK",
    "time MARK",
]
PIECES = [
    "'",
    '"',
    "\\",
    "`",
    "$(",
    ")",
    "(",
    "{ ",
    "; }",
    ";",
    "&&",
    "||",
    "|",
    "\n",
    " ",
    "<<E",
    "<<'E'",
    "\nE\n",
    "<<<",
    "<(",
    "if ",
    " then ",
    " fi",
    "else ",
    " do ",
    " done",
    "case a in ",
    "a)",
    ";;",
    " esac",
    "$((",
    "))",
    "((",
    "[[ ",
    " ]]",
    "${x:-",
    "}",
    "$'",
    "\\'",
    "#",
    " #",
    "f()",
    "{a,b}",
    "!",
    "=",
    "a=(",
    "&",
    "|&",
    "\\\n",
    "function ",
    "$",
    "MARK",
]


def mutated(chooser: random.Random) -> str:
    text = chooser.choice(SCRIPTS)
    for _ in range(chooser.randint(1, 3)):
        at = chooser.randint(0, len(text))
        kind = chooser.random()
        if kind < 0.6:
            text = text[:at] + chooser.choice(PIECES) + text[at:]
        elif kind < 0.8:
            text = text[:at] + text[at + chooser.randint(1, 3) :]
        else:
            joint = chooser.choice([";", "\n", " && ", " | ", " $("])
            text = text[:at] + joint + chooser.choice(SCRIPTS) + text[at:]
    return text


def bash_runs_mark(script: str, directory: Path) -> bool:
    """Run `script` where nothing but builtins and MARK exists; tell whether MARK ran."""
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [BASH, "-c", 'ulimit -u 200 -f 10 -t 1; eval "$0"', script],
            cwd=directory,
            env={"PATH": "", "BASH_FUNC_MARK%%": f"() {{ echo hit >&{writer}; }}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writer],
        )
        os.close(writer)
        writer = -1
        with process, os.fdopen(reader, "rb") as answers:
            reader = -1
            return bool(answers.read())
    finally:
        for descriptor in (reader, writer):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.mark.parametrize("seed", range(150))
def test_a_command_that_bash_runs_is_always_seen(seed: int, tmp_path: Path) -> None:
    script = mutated(random.Random(seed))
    if not bash_runs_mark(script, tmp_path):
        return
    scripts, trouble = read_scripts(script)
    walks = [walk(s, GROUND) for s in scripts]
    calls = [c for found in walks for c in found.commands]
    seen = any(c.name == "MARK" or c.computed or "*" in c.path for c in calls)
    assert seen or trouble or any(found.findings for found in walks), script


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_plain_script_parses_and_shows_its_command(script: str) -> None:
    found = walk(parse(script), GROUND)
    assert any(c.name == "MARK" or c.computed for c in found.commands)
