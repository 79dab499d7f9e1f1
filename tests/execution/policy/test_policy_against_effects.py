"""What is allowed has no effect outside of the project: real bash in a sandbox is the referee.

Scripts are made of every construct of the grammar, nested, around words that would do harm:
text is stored, taken apart, handed on and evaluated in every way the generator knows. Each
script that the policy allows is run where stubs stand for the commands of the floor and a
home lies open. A stub that ran, or a file outside of the project that changed, is a bug; a
new file there is not.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from fakes.command_corpus import strict_policy
from hermes.domain.approvals import Gate

BWRAP = shutil.which("bwrap") or ""
POLICY = strict_policy()
CWD = "/home/user/work"
STUBS = ("reboot", "shutdown", "poweroff", "halt", "mkfs.ext4")


class Bed:
    """A home that may be harmed, in a sandbox made anew for each script."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._stubs = root / "stubs"
        self._stubs.mkdir()
        for name in STUBS:
            stub = self._stubs / name
            stub.write_text("#!/bin/sh\necho fired >> /marks/fired\n")
            stub.chmod(0o755)

    def harmed(self, script: str) -> list[str]:
        """Run `script`; return what it has done outside of the project."""
        home, marks = self.root / "home", self.root / "marks"
        for folder in (home, marks):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for name, text in _HOME.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        command = [BWRAP, "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
        for system in ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives"):
            if Path(system).exists():
                command += ["--ro-bind", system, system]
        command += ["--tmpfs", "/tmp", "--bind", str(home), "/home/user"]
        command += ["--bind", str(marks), "/marks", "--ro-bind", str(self._stubs), "/stubs"]
        command += ["--chdir", CWD, "--clearenv", "--setenv", "HOME", "/home/user"]
        command += ["--setenv", "PATH", "/stubs:/usr/bin:/bin", "--"]
        limited = f"ulimit -t 3 -f 2000 -u 500 2>/dev/null; eval -- {_quoted(script)}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*command, "/bin/bash", "-c", limited],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
                check=False,
            )
        after = dict(self._files(home))
        # The policy looks whether a file is there that would be overwritten: here it is not.
        ordinary = {"outside/keep"}
        changed = [n for n, text in _HOME.items() if after.get(n, "") != text and n not in ordinary]
        changed += ordinary - set(after)
        made = [name for name in after if name.startswith(".") and name not in _HOME]
        outside = [name for name in (*changed, *made) if not name.startswith("work/")]
        return [*outside, *(["a stub ran"] if any(marks.iterdir()) else [])]

    def _files(self, home: Path) -> Iterator[tuple[str, str]]:
        for path in home.rglob("*"):
            if path.is_symlink() or path.is_file():
                text = str(path.readlink()) if path.is_symlink() else path.read_text("latin-1")
                yield str(path.relative_to(home)), text


_HOME = {
    ".bashrc": "# mine\n",
    ".ssh/authorized_keys": "key\n",
    "outside/keep": "kept\n",
    "outside/.env": "A=1\n",
    "work/a.txt": "reboot\n",
    "work/b.txt": "ls\nreboot\n",
    "work/sub/c.txt": "c\n",
}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    if not BWRAP:
        pytest.skip("bubblewrap is the bed")
    made = Bed(tmp_path_factory.mktemp("bed"))
    if made.harmed("reboot; echo x >> ~/.bashrc") != [".bashrc", "a stub ran"]:
        pytest.skip("bubblewrap does not work here")
    return made


HARM = st.sampled_from(
    [
        "reboot",
        "rm -rf ~/outside",
        "rm -rf /home/user/outside",
        "rm -rf ../outside",
        "echo x > ~/.bashrc",
        "cp a.txt ~/.bashrc",
        "tee ~/.ssh/authorized_keys < a.txt",
        "ln -sf a.txt ~/.bashrc",
        "mv ~/.bashrc a.txt",
        "shutdown now",
        "truncate -s 0 ~/.bashrc",
        "sed -i s/mine/yours/ ~/.bashrc",
        "find ~/outside -delete",
        "rm ~/outside/*",
    ]
)
HARMLESS = st.sampled_from(
    ["ls", "echo hi", "true", ":", "cat a.txt", "pwd", "printf x", "wc -l a.txt", "test -f a.txt"]
)
NAMES = st.sampled_from(["x", "y", "IFS", "HOME", "PATH", "f"])
COMMANDS = HARM | HARMLESS


@st.composite
def words(draw: DrawFn) -> str:
    """One word: a piece of something harmful, written in some way."""
    text = draw(COMMANDS)
    name = draw(NAMES)
    first, _, rest = text.partition(" ")
    shapes = [
        text,
        f"'{text}'",
        f'"{text}"',
        first,
        rest or first,
        f"{first[:1]}''{first[1:]}",
        f"\\{first}",
        f"${name}",
        f'"${name}"',
        f"${{{name}:-{text}}}",
        f"${{{name}-{first}}}",
        f"${{{name}:+{text}}}",
        f"${{{name}:={first}}}",
        f"${{{name}[0]}}",
        f"${{{name}[1]}}",
        f'"${{{name}[@]}}"',
        f"${{!{name}}}",
        f"${{{name}%z}}",
        f"${{{name}#z}}",
        f"${{{name},,}}",
        f"${{{name}@P}}",
        "$1",
        '"$@"',
        "$*",
        "$_",
        "$REPLY",
        f"$(echo '{text}')",
        f"`echo {first}`",
        f"$(printf %s '{text}')",
        "$(cat a.txt)",
        "$(<a.txt)",
        f"$(tr A-Z a-z <<< '{text.upper()}')",
        f"$(rev <<< '{text[::-1]}')",
        f"$(tail -n1 <<< $'x\\n{text}')",
        f"{{{first},{first}}}",
        f"{first[:1]}[{first[1:2]}]{first[2:]}",
        f"$'\\x{ord(first[0]):02x}{first[1:]}'",
        "~/outside/keep",
        "~/.bashrc",
        "../.bashrc",
        "link",
        "s.sh",
        "./s.sh",
        "$((x))",
        "<(echo reboot)",
    ]
    return draw(st.sampled_from(shapes))


@st.composite
def stores(draw: DrawFn) -> str:
    """Something that keeps a text for later: in a variable, a function, an alias, a file."""
    word, name, text = draw(words()), draw(NAMES), draw(COMMANDS)
    shapes = [
        f"{name}={word}",
        f"{name}='{text}'",
        f"{name}+={word}",
        f"{name}=(ls {word})",
        f"{name}[1]={word}",
        f"export {name}={word}",
        f"declare {name}={word}",
        f"declare -n {name}=x",
        f"declare -l {name}={word}",
        f"unset {name}",
        f"read {name} <<< {word}",
        f"read -r y {name} <<< 'ls {text}'",
        f"{{ read y; read {name}; }} <<< $'ls\\n{text}'",
        f"read {name} < a.txt",
        f"mapfile -t {name} < b.txt",
        f"printf -v {name} %s {word}",
        f"set -- {word}",
        f": ${{{name}:={word}}}",
        f"f() {{ {text}; }}",
        f"f() {{ {word}; }}",
        'f() { "$@"; }',
        f"ls() {{ {word}; }}",
        f"alias f='{text}'",
        f"shopt -s expand_aliases; alias f='{text}'",
        f"echo '{text}' > s.sh",
        f"echo {word} > s.sh",
        f"cat > s.sh <<E\n{text}\nE",
        f"cat > s.sh <<'E'\n{word}\nE",
        f"cp {word} s.sh",
        f"printf '%s' {word} | tee s.sh > /dev/null",
        "chmod +x s.sh",
        "cp /stubs/reboot s.sh",
        "ln -s /stubs/reboot s.sh",
        "ln -sf ~/.bashrc link",
        "ln -sfn ~/outside link",
        f"cd {word}",
        "cd ~ || cd /",
        "cd nowhere; cd ..",
        "cd ~ && true",
        "cd sub && cd ..",
        "(cd ~)",
        "exec 5< a.txt",
        "exec < a.txt",
        f"trap {word} EXIT",
        f"trap '{text}' EXIT",
        "x='a[$(reboot)]'",
        "set -a",
        "coproc sh",
        "PATH=.:$PATH",
    ]
    return draw(st.sampled_from(shapes))


@st.composite
def runs(draw: DrawFn) -> str:
    """Something that runs a word, or writes where it says."""
    word, text = draw(words()), draw(COMMANDS)
    shapes = [
        word,
        f"{word} {draw(words())}",
        f"eval {word}",
        f'eval "{word}"',
        f"bash -c {word}",
        f'bash -c "{word}"',
        f"sh -c '$0' {word}",
        f"bash -c '\"$@\"' _ {word}",
        # Without `-s` a second word would be a script of the project, which may run.
        f"bash -s <<< {word}",
        f'bash <<< "{word}"',
        f"echo {word} | sh",
        f"printf '%s' {word} | bash -s",
        "cat a.txt | sh",
        "cat b.txt | { read y; sh; }",
        "sh < a.txt",
        "bash s.sh",
        "./s.sh",
        ". ./s.sh",
        "bash <&5",
        "sh link",
        f"source <(echo {word})",
        f"source /dev/stdin <<< {word}",
        f"bash <(echo {word})",
        f"echo {word} > >(sh)",
        f"echo {word} | tee >(bash) > /dev/null",
        f"xargs -I{{}} sh -c {{}} <<< {word}",
        f"echo {word} | xargs",
        f"xargs {word} < a.txt",
        f"env {word}",
        f"env x=1 {word}",
        f"command {word}",
        f"builtin {word}",
        f"exec {word}",
        f"nohup {word}",
        f"timeout 1 {word}",
        f"time {word}",
        f"! {word}",
        f"find . -maxdepth 0 -exec {word} \\;",
        f"find . -maxdepth 0 -exec sh -c {word} \\;",
        f"awk 'BEGIN{{system(\"{text}\")}}'",
        f"awk -v x={word} 'BEGIN{{system(x)}}'",
        f"sed '1e {text}' a.txt",
        "sed 's/.*/reboot/e' a.txt",
        f"python3 -c 'import os; os.system(\"{text}\")'",
        f"python3 -c 'print({word})'",
        f"perl -e 'system(\"{text}\")'",
        f"echo hi > {word}",
        f"echo hi >> {word}",
        f"cat a.txt > {word}",
        f"cp a.txt {word}",
        f"mv s.sh {word}",
        f"tee {word} < a.txt",
        f"ln -sf a.txt {word}",
        f"dd if=a.txt of={word}",
        f"sort a.txt -o {word}",
        f"touch {word}",
        f"sed -i s/a/b/ {word}",
        f"rm {word}",
        f"rm -r {word}",
        f"find {word} -delete",
        f"git init {word}",
        f"make -f - <<< $'x:\\n\\t{text}'",
        f"echo {word} > s.sh && bash s.sh",
        "f",
        "f reboot",
        f"f {word}",
        "ls",
        "((x))",
        "[[ x -eq 0 ]]",
        "echo $((x))",
        "echo ${y[x]}",
        "fc -s",
        f"echo {word} >&${{COPROC[1]}}",
        f"while read -r x; do {word}; done < b.txt",
        f"tar cf /dev/null a.txt --checkpoint=1 --checkpoint-action=exec='{text}'",
        f"BASH_ENV=a.txt bash -c {draw(HARMLESS)!r}",
        f"PAGER='{text}' git -p --version",
        f"git -c alias.z='!{text}' z",
        f"printf -v 'y[$({text})]' z",
        "> ~/.bashrc",
        "echo x > link",
        "echo x > link/new",
        "echo x > ../new",
        "echo x > sub/new",
        "echo x > new",
    ]
    return draw(st.sampled_from(shapes))


CONSTRUCTS = {
    "list": "@; @2",
    "lines": "@\n@2",
    "and": "@ && @2",
    "or": "@ || @2",
    "pipe": "@ | @2",
    "pipe with errors": "@ |& @2",
    "background": "@ & @2",
    "negation": "! @",
    "time": "time @",
    "subshell": "( @\n)",
    "group": "{ @\n}",
    "if": "if @\nthen @2\nfi",
    "else": "if false; then @\nelif false; then ls; else @2\nfi",
    "for over words": "for x in ls reboot; do @\ndone",
    "for over files": "for x in *.txt; do @\ndone",
    "for over parameters": "set -- reboot; for x; do @\ndone",
    "for with numbers": "for ((x=0; x<1; x++)); do @\ndone",
    "while": "while true; do @\nbreak; done",
    "while reading": "while read -r x; do @\ndone < b.txt",
    "until": "until @\ndo break; done",
    "select": "select x in reboot ls; do @\nbreak; done <<< 1",
    "case": "case a in a) @\n;; *) ls;; esac",
    "case that falls through": "case a in (a|b) ls ;& c) @\n;;& *) @2\nesac",
    "test": "[[ -n a && a == a* ]] && @",
    "test with a command": '[[ -n "$(@\n)" ]]',
    "test of a number": "[[ $(@\n) -eq 0 ]]",
    "arithmetic": "(( 1 )) && @",
    "arithmetic with a command": "echo $(( $(@\n) + 0 ))",
    "function": "f() { @\n}; f reboot",
    "function keyword": "function g { @\n}\ng ls",
    "function with a redirection": "f() { @\n} > out.txt; f",
    "substitution": "echo $(@\n)",
    "quoted substitution": 'x="$(@\n)"',
    "substitution in a default": 'echo "${zz:-$(@\n)}"',
    "array": "a=(ls $(@\n))",
    "array element": "a[0]=$(@\n)",
    "array subscript": "echo ${a[$(@\n)]}",
    "nameref": "declare -n x=y; y=$(@\n); $x",
    "here-document": "cat <<E\n$(@\n)\nE",
    "here-document with tabs": "cat <<-E\n\t$(@\n)\n\tE",
    "here-document in quotes": "cat <<'E'\n@\nE",
    "here-string": 'cat <<< "$(@\n)"',
    "here-document for a shell": "bash <<'E'\n@\nE",
    "process substitution": "cat <(@\n)",
    "process substitution for output": "echo hi > >(@\n)",
    "coprocess": "coproc { @\n}; wait",
    "named coprocess": "coproc NAME { @\n}; wait",
    "braces": "echo {a,$(@\n)}",
    "glob": "echo *.tx[t] $(@\n)",
    "extended glob": "shopt -s extglob\necho @(a|b) $(@\n)",
    "tilde": "echo ~ ~+ $(@\n)",
    "alias": "shopt -s expand_aliases\nalias k=#\nk",
    "trap": "trap # EXIT",
    "trap on every command": "trap # DEBUG; ls",
    "redirection": "@ > out.txt 2>&1",
    "redirection of a group": "{ @\n} > out.txt 2>> out.txt",
    "other descriptors": "exec 3> out.txt; @ >&3; exec 3>&-",
    "named descriptor": "exec {fd}> out.txt; @ >&$fd",
    "input from a descriptor": "exec 5< a.txt; { @\n} <&5",
    "shell": "bash -c #",
    "eval": "eval #",
    "source": "echo # > s.sh; . ./s.sh",
    "source from a process": ". <(echo #)",
    "comment": "# @",
    "parameters": "set -- reboot; @",
}
"""Every construct of the grammar; `@` and `@2` are commands, `#` is one in quotes."""


def around(construct: str, first: str, second: str = "ls") -> str:
    template = CONSTRUCTS[construct]
    if construct != "comment":
        template = template.replace("#", _quoted(first))
    if construct == "extended glob":
        return f"shopt -s extglob\necho @(a|b) $({first}\n)"
    return template.replace("@2", second).replace("@", first)


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(around, st.sampled_from(sorted(CONSTRUCTS)), inner, inner)


SCRIPTS = st.lists(
    st.recursive(stores() | runs(), nested, max_leaves=4), min_size=1, max_size=4
).map("\n".join)


def check(script: str, bed: Bed) -> None:
    if POLICY.judge(script, cwd=CWD).gate is Gate.ALLOW:
        assert bed.harmed(script) == [], script


def test_every_construct_around_every_other_hides_no_harm(bed: Bed) -> None:
    """A stub that would run inside of two constructs is found, or does not run."""
    allowed = [
        script
        for outer in CONSTRUCTS
        for inner in CONSTRUCTS
        for script in [around(outer, around(inner, "reboot"), "reboot")]
        if POLICY.judge(script, cwd=CWD).gate is Gate.ALLOW
    ]
    assert len(allowed) < len(CONSTRUCTS) * 5, "most of them would run it"
    # Many in one sandbox; if anything comes of it, one by one.
    for start in range(0, len(allowed), 40):
        several = allowed[start : start + 40]
        if bed.harmed("\n".join(f"timeout 2 bash -c {_quoted(s)} < /dev/null" for s in several)):
            assert [s for s in several if bed.harmed(s)] == []


def test_every_harm_inside_every_construct_asks(bed: Bed) -> None:
    harms = ("rm -rf ~/outside", "echo x > ~/.bashrc", "ln -sf a.txt ~/.bashrc", "shutdown now")
    for construct in CONSTRUCTS:
        for harm in harms:
            check(around(construct, harm, harm), bed)


@given(SCRIPTS)
@settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_what_is_allowed_has_no_effect_outside_of_the_project(bed: Bed, script: str) -> None:
    check(script, bed)


@pytest.mark.slow
@given(SCRIPTS)
@settings(
    max_examples=40_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@pytest.mark.timeout(3600)
def test_what_is_allowed_has_no_effect_outside_of_the_project_at_length(
    bed: Bed, script: str
) -> None:
    check(script, bed)
