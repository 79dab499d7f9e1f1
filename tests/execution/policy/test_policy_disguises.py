"""Whatever a dangerous command is wrapped in, it is never simply allowed."""

import base64
import re
import shlex
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes.command_corpus import read_corpus, strict_policy
from hermes.domain.approvals import Gate

POLICY = strict_policy()
CORPUS = [s.command for s in (*read_corpus("floor"), *read_corpus("danger"))]
# A wrapper that passes no arguments really does empty "$1" and "$@", and one
# that closes a bracket can complete a fragment that was merely broken.
DANGEROUS = [
    c
    for c in CORPUS
    if not re.search(r"\$[@*0-9]", c)
    and "cannot be read as a shell script" not in POLICY.judge(c).reason
]
FLOOR = [s.command for s in read_corpus("floor")]


def encoded(command: str) -> str:
    return base64.b64encode(command.encode()).decode()


WRAPPERS: dict[str, Callable[[str], str]] = {
    "bash -c": lambda c: f"bash -c {shlex.quote(c)}",
    "sh -lc": lambda c: f"sh -lc {shlex.quote(c)}",
    "env": lambda c: f"env FOO=1 bash -c {shlex.quote(c)}",
    "nohup": lambda c: f"nohup timeout 5 nice bash -c {shlex.quote(c)} &",
    "eval": lambda c: f"eval {shlex.quote(c)}",
    "group": lambda c: f"{{ {c}\n}}",
    "subshell": lambda c: f"( {c}\n)",
    "if": lambda c: f"if true; then\n{c}\nfi",
    "else": lambda c: f"if false; then ls; else\n{c}\nfi",
    "loop": lambda c: f"for i in 1 2; do\n{c}\ndone",
    "while": lambda c: f"while read -r line; do\n{c}\ndone < list.txt",
    "case": lambda c: f"case $x in a) ls;; *)\n{c}\n;; esac",
    "and": lambda c: f"true && {c}",
    "or": lambda c: f"ls || {c}",
    "after": lambda c: f"ls -la; {c}",
    "before": lambda c: f"{c}\nls -la",
    "pipe": lambda c: f"echo hi | {{ {c}\n}}",
    "substitution": lambda c: f"echo $({c}\n)",
    "quoted substitution": lambda c: f'echo "x: $({c}\n)"',
    "comment": lambda c: f"# just looking\n{c}",
    "function": lambda c: f"work() {{\n{c}\n}}\nwork",
    "variable": lambda c: f'cmd={shlex.quote(c)}; bash -c "$cmd"',
    "here-string": lambda c: f"bash <<< {shlex.quote(c)}",
    "here-document": lambda c: f"bash <<'HERE_END'\n{c}\nHERE_END",
    "base64": lambda c: f"echo {encoded(c)} | base64 -d | bash",
    "printf": lambda c: f"printf '%s' {shlex.quote(c)} | sh",
    "file": lambda c: f"cat > job.sh <<'FILE_END'\n{c}\nFILE_END\nbash job.sh",
    "trap": lambda c: f"trap {shlex.quote(c)} EXIT",
    "xargs": lambda c: f"echo x | xargs -I{{}} bash -c {shlex.quote(c)}",
    "find": lambda c: f"find . -exec bash -c {shlex.quote(c)} \\;",
    "ssh": lambda c: f"ssh localhost {shlex.quote(c)}",
    "python": lambda c: f"python3 -c {shlex.quote(f'import os; os.system({c!r})')}",
}


@given(st.sampled_from(DANGEROUS), st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=3))
@settings(max_examples=400, deadline=None)
@example("rm -rf /", ["base64", "here-document", "bash -c"])
def test_wrapping_a_dangerous_command_never_makes_it_harmless(
    command: str, names: list[str]
) -> None:
    script = command
    for name in names:
        script = WRAPPERS[name](script)
    assert POLICY.judge(script).gate != Gate.ALLOW, script


def test_every_wrapper_hides_nothing_of_the_floor() -> None:
    off = strict_policy(mode="off", allowlist=("?*",))
    shown = ["rm -rf /", "rm -rf ~", "reboot", "kill -9 -1", "dd if=x of=/dev/sda", "mkfs.ext4 /x"]
    for command in shown:
        for name, wrap in WRAPPERS.items():
            verdict = off.judge(wrap(command))
            # What is decoded is not worked out: it asks a person, in every mode.
            wanted = Gate.ASK if name == "base64" else Gate.BLOCK
            assert verdict.gate == wanted, (name, command, verdict)


def test_quoting_a_dangerous_command_as_text_leaves_it_harmless() -> None:
    for command in FLOOR:
        if command.isascii() and command.isprintable():
            assert POLICY.judge(f"echo {shlex.quote(command)}").gate == Gate.ALLOW, command
