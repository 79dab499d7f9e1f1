"""Tools that run commands they find in their arguments or on their input."""

import re
from collections.abc import Callable, Iterator

from hermes.execution.policy.calls import Call
from hermes.execution.policy.inner import Inner, Run, ShellText, command_start
from hermes.execution.policy.scope import COMPUTED
from hermes.execution.policy.vocabulary import words

__all__ = ["TOOLS", "sed_command"]

_EDITORS = frozenset({"vi", "vim", "nvim", "view", "ex", "gvim", "vimdiff"})
_LINE_EDITORS = frozenset({"ed", "ex", "red", "vi", "vim"})


def _eval(call: Call) -> Iterator[Inner]:
    yield ShellText(" ".join(call.args), "eval", fresh=False)


def _source(call: Call) -> Iterator[Inner]:
    if call.stdin is not None and call.args[:1] in (("/dev/stdin",), ("-",), ("/dev/fd/0",)):
        yield ShellText(call.stdin, "source", fresh=False)


def _trap(call: Call) -> Iterator[Inner]:
    operands = call.operands()
    if operands:
        yield ShellText(operands[0], "trap", fresh=False)


def _alias(call: Call) -> Iterator[Inner]:
    for arg in call.args:
        _, equals, code = arg.partition("=")
        if equals:
            yield ShellText(code, "alias", fresh=False)


def _find(call: Call) -> Iterator[Inner]:
    for index, arg in enumerate(call.args):
        if arg in {"-exec", "-execdir", "-ok", "-okdir"}:
            argv: list[str] = []
            for word in call.args[index + 1 :]:
                if word in {";", "+"}:
                    break
                argv.append(word.replace("{}", COMPUTED))
            if argv:
                yield Run(tuple(argv), "find")


def _fd(call: Call) -> Iterator[Inner]:
    for index, arg in enumerate(call.args):
        if arg in {"-x", "-X", "--exec", "--exec-batch"} and call.args[index + 1 :]:
            yield Run((*call.args[index + 1 :], COMPUTED), "find")


def _xargs(call: Call) -> Iterator[Inner]:
    takes_value = words(
    "-I -n -P -L -d -E -s -a --max-args --max-procs --delimiter "
                            "--arg-file --replace --max-lines --max-chars"
)  # fmt: skip
    start = command_start(call.args, takes_value, 0)
    if start is None:
        return
    marks = [v for v in call.values_of("-I", "--replace") if v] or ["{}"]
    argv = list(call.args[start:])
    for mark in marks:
        argv = [a.replace(mark, COMPUTED) for a in argv]
    yield Run((*argv, COMPUTED), "xargs")
    if call.stdin is not None:
        yield Run((*call.args[start:], *call.stdin.split()), "xargs")


def _parallel(call: Call) -> Iterator[Inner]:
    cut = next((i for i, a in enumerate(call.args) if a.startswith(":::")), len(call.args))
    head = call.args[:cut]
    start = command_start(head, words("-j -n -N -P -a -I --jobs --colsep -d -S"), 0)
    inputs = [a for a in call.args[cut:] if not a.startswith(":::")]
    if start is None:
        for line in [*inputs, *(call.stdin or "").split("\n")]:
            yield ShellText(line, "parallel")
        return
    command = " ".join(head[start:])
    for value in [COMPUTED, *inputs]:
        yield ShellText(f"{command} {value}", "parallel")


def _joined(call: Call) -> Iterator[Inner]:
    start = command_start(call.args, frozenset({"-n", "--interval", "-d"}), 0)
    if start is not None:
        yield ShellText(" ".join(call.args[start:]), call.name)


def _git(call: Call) -> Iterator[Inner]:
    for setting in call.values_of("-c", "--config-env"):
        key, _, value = setting.partition("=")
        if key.startswith("alias.") and not value.startswith("!"):
            yield Run(("git", *value.split()), "git")
        elif "." in key:
            yield ShellText(value.lstrip("!"), "git")
    yield from _git_verb(call, call.operands())


def _git_verb(call: Call, operands: list[str]) -> Iterator[Inner]:
    verb = operands[0] if operands else ""
    if verb == "config" and len(operands) >= 3:
        yield ShellText(operands[-1].lstrip("!"), "git")
    if operands[:2] == ["bisect", "run"]:
        yield Run(call.args[call.args.index("run") + 1 :], "git")
    if operands[:2] == ["submodule", "foreach"]:
        yield ShellText(" ".join(operands[2:]), "git")
    if verb in _GIT_RUNS:
        for value in call.values_of(*_GIT_RUN_OPTIONS):
            yield ShellText(value, "git")
    for operand in operands:
        if operand.startswith("ext::"):
            yield ShellText(operand[5:], "git")


_GIT_RUNS = words("rebase filter-branch difftool mergetool fetch pull push clone ls-remote")
_GIT_RUN_OPTIONS = (
    "-x",
    "--exec",
    "--extcmd",
    "--upload-pack",
    "--receive-pack",
    "-u",
    "--tree-filter",
    "--index-filter",
    "--msg-filter",
    "--env-filter",
    "--commit-filter",
)


def _editor(call: Call) -> Iterator[Inner]:
    commands = [*call.values_of("-c", "--cmd", "-S"), *(a[1:] for a in call.args if a[:1] == "+")]
    if call.name in _LINE_EDITORS and call.stdin is not None:
        commands.extend(call.stdin.split("\n"))
    for command in commands:
        _, bang, code = command.partition("!")
        if bang:
            yield ShellText(code, call.name)
        for quoted in re.findall(r"system(?:list)?\(\s*(['\"])(.*?)\1", command):
            yield ShellText(quoted[1], call.name)


def _make(call: Call) -> Iterator[Inner]:
    texts = list(call.values_of("--eval", "-E"))
    if call.stdin is not None and any(
        v in {"-", "/dev/stdin"} for v in call.values_of("-f", "--file", "--makefile")
    ):
        texts.append(call.stdin)
    for text in texts:
        for code in re.findall(r"\$\(shell\s+(.*)\)", text):
            yield ShellText(code, "make")
        for code in re.findall(r"(?:^\t|\\n\\t|:[^=\n]*;)[-@+]*(.*)", text, re.MULTILINE):
            yield ShellText(code.replace("$$", "$"), "make")
    for arg in call.args:
        key, equals, value = arg.partition("=")
        if equals and key in {"SHELL", ".SHELLFLAGS", "CC", "MAKE"}:
            yield ShellText(value, "make")


def _database(call: Call) -> Iterator[Inner]:
    for text in [*call.args, call.stdin or ""]:
        for code in re.findall(r"(?:^|\n)\s*\.(?:shell|system)\s+(.*)", text):
            yield ShellText(code, call.name)
        for code in re.findall(r"\\!\s*(.*)", text):
            yield ShellText(code, call.name)
        for code in re.findall(r"(?:^|;)\s*(?:system|\\!)\s+(.*)", text):
            yield ShellText(code, call.name)


def _at(call: Call) -> Iterator[Inner]:
    if call.stdin is not None:
        yield ShellText(call.stdin, call.name)


def _crontab(call: Call) -> Iterator[Inner]:
    for line in (call.stdin or "").split("\n"):
        match = re.match(r"\s*(?:@\w+|(?:\S+\s+){5})(.*)", line)
        if match is not None and not line.lstrip().startswith("#"):
            yield ShellText(match.group(1), "cron")


def _gdb(call: Call) -> Iterator[Inner]:
    for command in call.values_of("-ex", "--eval-command", "-iex"):
        match = re.match(r"\s*(?:shell|!|python)\s*(.*)", command)
        if match is not None:
            yield ShellText(match.group(1), "gdb")
    if "--args" in call.args:
        rest = call.args[call.args.index("--args") + 1 :]
        if rest:
            yield Run(rest, "gdb")


def _cmd_exe(call: Call) -> Iterator[Inner]:
    for index, arg in enumerate(call.args):
        if arg.lower() in {"/c", "/k", "//c"}:
            yield ShellText(" ".join(call.args[index + 1 :]), "cmd")


def _sed(call: Call) -> Iterator[Inner]:
    for script in (*call.values_of("-e", "--expression"), *call.operands()[:1]):
        code = sed_command(script)
        if code is not None:
            yield ShellText(code or COMPUTED, "sed")


def sed_command(script: str) -> str | None:
    """Return what the `e` command or flag of a sed script runs, or None."""
    match = re.search(r"(?:^|[;\n{\d$/])\s*e(?:\s+(\S.*)|\s*)$", script[:_MAX_SED])
    if match is not None:
        return match.group(1) or ""
    pieces = script.split(script[1]) if script[:1] == "s" and len(script) > 3 else []
    runs = len(pieces) == 4 and "e" in pieces[3]
    return pieces[2] if runs else None


_MAX_SED = 2000


def _npx(call: Call) -> Iterator[Inner]:
    for value in call.values_of("-c", "--call"):
        yield ShellText(value, "npx")
    start = command_start(call.args, frozenset({"-p", "--package"}), 0)
    if start is not None:
        yield Run(call.args[start:], "npx")


TOOLS: dict[str, Callable[[Call], Iterator[Inner]]] = {
    "eval": _eval,
    "trap": _trap,
    "source": _source,
    ".": _source,
    "alias": _alias,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "xargs": _xargs,
    "gxargs": _xargs,
    "parallel": _parallel,
    "watch": _joined,
    "git": _git,
    **dict.fromkeys(_EDITORS, _editor),
    "ed": _editor,
    "red": _editor,
    "make": _make,
    "gmake": _make,
    "sqlite3": _database,
    "psql": _database,
    "mysql": _database,
    "mariadb": _database,
    "at": _at,
    "batch": _at,
    "crontab": _crontab,
    "gdb": _gdb,
    "cmd": _cmd_exe,
    "cmd.exe": _cmd_exe,
    "sed": _sed,
    "gsed": _sed,
    "npx": _npx,
    "bunx": _npx,
}
