"""Commands inside commands: wrappers, nested shells, options that carry code.

The tables are in `tables.txt`; a command that is in none of them runs nothing but itself.
`nested` reports too much rather than too little: taking a harmless word for a command
costs nothing.
"""

import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from itertools import filterfalse

from msgspec import Struct

from hermes.execution.policy.code import language_of, programs
from hermes.execution.policy.command import (
    STDIN_FILES,
    TABLES,
    ShellCommand,
    base_name,
    command_start,
    listed,
    pattern,
    patterns,
    readings,
)
from hermes.execution.policy.expansion import is_unknown
from hermes.execution.policy.named import PRINTED, filled, named
from hermes.execution.policy.syntax import COMPUTED

SHELLS = listed("shells")
SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset"})


class NestedCommand(Struct, frozen=True):
    """Another command line; `via` names what runs it."""

    argv: tuple[str, ...]
    via: str


class NestedText(Struct, frozen=True):
    """A program: a shell script, unless it says otherwise."""

    text: str
    via: str
    language: str = "shell"
    fresh: bool = True
    """False where it runs in the same shell and sees its variables."""
    lenient: bool = False
    """Whether it may just as well be no program at all."""


Nested = NestedCommand | NestedText


_WRAPPERS = TABLES["wrappers"]
_PACKAGES = frozenset({"npx", "bunx", "pnpx", "uvx"})
_RUNNERS = TABLES["runners"]
_MANAGERS = frozenset({"npm", "pnpm", "yarn", "bun"})
_BEFORE_PROGRAMS = {"run": 1, "run-script": 1, "exec": 1, "workspace": 2}
"""Words in front of a program, and how many they are with what belongs to them."""
_RUNNER_VALUES = TABLES["words"]["runner-values"]
_CODE_OPTIONS = TABLES["code options"]
_KEY = re.compile(r"^(?:-*[A-Za-z][\w.:-]*(?:=|(?<=Command)\s))?!?")
"""What stands in front of code: `exec=…`, `--browser=…`, `ProxyCommand …`, `alias.x=!…`."""
_PLAIN_SETTING = pattern("plain-settings")
_CODE_VARIABLE = re.compile("|".join(map(translate, listed("code-variables"))))
_CARRIERS = patterns("carriers")
_PRINTERS = frozenset({"echo", "printf"})


def nested(command: ShellCommand) -> Iterator[Nested]:
    name = command.name
    if name in _TOOLS:
        yield from _TOOLS[name](command)
    if name in SHELLS or name in {"eval", "source", "."}:
        yield from _shell(command)
    if name in _RUNNERS:
        yield from _runner(command)
    if name in _MANAGERS:
        yield from _managed(command)
    if name in _WRAPPERS:
        yield from _wrapped(command)
    yield from _in_options(command)
    if name in _CARRIERS:
        yield from _carried(command, _CARRIERS[name])
    for program in programs(command):
        yield NestedText(program, name, language_of(name))
    yield from _among_arguments(command)
    for key, value in assignments(command):
        if _CODE_VARIABLE.match(key) and not is_unknown(value):
            yield NestedText(value, "environment", lenient=True)


def _in_options(command: ShellCommand) -> Iterator[Nested]:
    name, own = command.name, command.args
    if name in _PACKAGES:  # what is behind the package belongs to it
        own = own[: command_start(own, _WRAPPERS[name])]
    options = _CODE_OPTIONS.get(name, "").split()
    values = command.with_argv((command.path, *own)).values_of(*options)
    for value in filterfalse(_PLAIN_SETTING.match, values):
        yield NestedText(_KEY.sub("", value), "option", lenient=name == "git")


def assignments(command: ShellCommand) -> list[tuple[str, str]]:
    """Return the variables that a command sets, for itself or for others."""
    pairs = list(command.assigns)
    if command.name in SETTERS or command.name in {"env", "sudo", "make", "gmake"}:
        pairs += [(a.partition("=")[0], a.partition("=")[2]) for a in command.args if "=" in a]
    return pairs


def shell_code(command: ShellCommand) -> NestedText | None:
    """Return the script that a shell is given with -c or on its input, if it is known."""
    args = tuple("-" + a[1:] if a[:1] == "+" else a for a in command.args)
    # Wherever the `o` of a cluster stands, its value is the next word.
    args = tuple(re.sub(r"^-([^\WcC]*)([oO])(\w+)$", r"-\1\3\2", a) for a in args)
    operand = command_start(args, "-o -O --rcfile --init-file", assigns=False)
    for index, arg in enumerate(args[:operand]):
        given = re.match(r"-[abd-zA-Z]*c([^-].*)?$|--command$", arg, re.DOTALL)
        if given is not None:
            code = [a for a in command.args[index + 1 :] if not re.match(r"[-+][a-zA-Z]+$|--$", a)]
            if given[1] and (command.name == "fish" or not given[1].isalpha()):
                code.insert(0, given[1])  # glued to its option
            return NestedText(code[0], command.name) if code else None
    reads_input = operand is None or args[operand] in STDIN_FILES or "s" in command.letters()
    if reads_input and command.feed.text is not None:
        return NestedText(command.feed.text, command.name)
    return None


def _shell(command: ShellCommand) -> Iterator[Nested]:
    code = shell_code(command) if command.name in SHELLS else None
    if code is not None:
        yield code
        return
    # Nobody works out what is printed, but what is written there is searched for the floor.
    printers = [c for c in (*command.feed.upstream, *command.inner) if c.name in _PRINTERS]
    for text in (arg for printer in printers for arg in printer.args):
        yield NestedText(text, command.name, lenient=True)


def _wrapped(command: ShellCommand) -> Iterator[Nested]:
    *valued, last = _WRAPPERS[command.name].split() or ["0"]
    skip = int(last) if last.isdigit() else 0
    options = " ".join((*valued, last))
    if command.name == "command" and command.letters() & {"v", "V"}:
        return
    start = command_start(command.args, options, skip)
    if start is None:
        if command.name in {"sudo", "doas"} and command.feed.text is not None:
            yield NestedText(command.feed.text, command.name)
        return
    via = "container" if command.name in {"chroot", "proot"} else command.name
    yield NestedCommand(command.args[start:], via)
    if any(a.startswith("-") for a in command.args[:start]):
        yield from _rediscovered(command.args[start + 1 :], via)


_WORTH_FINDING = SHELLS | listed("worth-finding")
_FATAL = listed("fatal")
_AS_COMMAND = re.compile(
    rf"-*(?:[\w.-]+=['\"]?)?(?:{'|'.join(map(re.escape, _WORTH_FINDING))})\s|[^\n]*\|\s*\w*sh\b"
)
"""A text that is a command, as the value of an option or a variable."""
_WRITTEN_DOWN = (
    listed("text-tools") | listed("readers") | _FATAL | (listed("blind") - listed("runs-others"))
)


def _among_arguments(command: ShellCommand) -> Iterator[Nested]:
    """Yield what any program might run for all anybody knows: one of the worst, by its name."""
    own = command.assigns if command.name != ":" else ()
    elsewhere = command.name in _WRITTEN_DOWN or command.name in _TOOLS or command.remote
    if "argument" in command.via:
        return
    for text in (*(value for _, value in own), *(() if elsewhere else command.args)):
        if _AS_COMMAND.match(text):
            yield NestedText(_KEY.sub("", text), "argument", lenient=True)
    for index, arg in enumerate(command.args[:-1] if not elsewhere else ()):
        name = base_name(arg)
        if name in _FATAL or (name in SHELLS and command.args[index + 1] == "-c"):
            yield NestedCommand(command.args[index:], "argument")
            return


def _rediscovered(args: tuple[str, ...], via: str) -> Iterator[Nested]:
    """Yield the command that stands behind an option that was not expected to take a value."""
    found = [i for i, arg in enumerate(args) if arg in _WORTH_FINDING][:1]
    yield from (NestedCommand(args[i:], via) for i in found)


def _runner(command: ShellCommand) -> Iterator[Nested]:
    for verb in _RUNNERS[command.name].split():
        if verb in command.args[:3]:
            rest = command.args[command.args.index(verb) + 1 :]
            start = command_start(rest, _RUNNER_VALUES, 2 if command.name == "ip" else 0)
            if start is not None:
                yield NestedCommand(rest[start:], command.name)
            yield from _rediscovered(rest, command.name)


def _managed(command: ShellCommand) -> Iterator[Nested]:
    """Yield the program that a manager of packages runs by its name, without a verb."""
    for operands, _ in readings(command.name, command.args):
        verb, program = operands[0], operands[0] if command.name != "npm" else ""
        while verb in _BEFORE_PROGRAMS and len(operands) > _BEFORE_PROGRAMS[verb]:
            operands = operands[_BEFORE_PROGRAMS[verb] :]  # noqa: PLW2901
            verb = program = operands[0]
        if verb in {"create", "init"} and len(operands) > 1:
            yield NestedCommand((f"create-{operands[1]}",), command.name)
        if language_of(program) or (program in TABLES["verbs"] and program != "pkg"):
            rest = command.args[command.args.index(program) + 1 :]
            yield NestedCommand((program, *rest[rest[:1] == ("--",) :]), command.name)


def _carried(command: ShellCommand, pattern: re.Pattern[str]) -> Iterator[Nested]:
    texts = [*command.args, command.feed.text or ""]
    if command.name in {"tmux", "watch", "cmd", "cmd.exe"}:
        watches = command.name == "watch"
        options = "-n -q --interval --equexit" if watches else "-n -d -t -s"
        start = command_start(command.args, options, not watches, assigns=False)
        texts.append(" ".join(command.args[start:]) if start is not None else "")
    for text in texts:
        for match in pattern.finditer(text[:4000]):
            code = "".join(g or "" for g in match.groups()).replace("$$", "$")
            yield NestedText(code, command.name, lenient=True)


def _builtin(command: ShellCommand) -> Iterator[Nested]:
    """Yield what `eval`, `trap`, `alias` and `source` run in this very shell."""
    name, args = command.name, command.args
    texts = {
        "eval": [" ".join(args)],
        "trap": command.operands()[:1],
        # Whatever is typed behind the alias goes to its command.
        "alias": [arg.partition("=")[2] + " $*" for arg in args],
    }.get(name, [])
    if not texts and command.feed.text is not None and args and args[0] in STDIN_FILES:
        texts = [command.feed.text]
    for text in texts:
        yield NestedText(text, name if name != "." else "source", fresh=False)


def _find(command: ShellCommand) -> Iterator[Nested]:
    for index, arg in enumerate(command.spelled):
        short = command.name in {"fd", "fdfind"} and arg in {"-x", "-X"}
        if short or arg in {"-exec", "-execdir", "-ok", "-okdir", "--exec", "--exec-batch"}:
            rest = command.spelled[index + 1 :]
            end = next((i for i, word in enumerate(rest) if word in {";", "+"}), len(rest))
            argv = (*(word.replace("{}", COMPUTED) for word in rest[:end]), COMPUTED)
            yield NestedCommand(argv if arg[1] in "xX-" else argv[:-1], "find")


def _xargs(command: ShellCommand) -> Iterator[Nested]:
    """Yield what is run for each item of a list: nobody knows what the items are."""
    args = command.args
    cut = next((i for i, a in enumerate(args) if a.startswith(":::")), len(args))
    start = command_start(args[:cut], TABLES["words"]["xargs-values"], assigns=False)
    if start is None:
        if command.name == "parallel":
            yield NestedText(COMPUTED, command.name)
        return
    marks = [*command.values_of("-I", "--replace"), "{}"]
    own = filled_in = [*args[start:cut]]
    for mark in filter(None, marks):
        filled_in = [word.replace(mark, COMPUTED) for word in filled_in]
    placed = filled_in != own and any(re.match(r"-\w*I|--replace", a) for a in args[:start])
    filled_in += [] if placed else [COMPUTED]
    yield NestedCommand(tuple(filled_in), "xargs")
    paths = named((*command.feed.upstream, *command.inner))
    if paths:
        yield NestedCommand(filled(filled_in, paths), PRINTED)
    listed_here = (command.feed.text or "").split()
    if listed_here or args[cut + 1 :]:
        yield NestedCommand((*args[start:cut], *listed_here, *args[cut + 1 :]), "xargs")


def _git(command: ShellCommand) -> Iterator[Nested]:
    operands = command.operands()
    if operands[:1] == ["config"] and len(operands) >= 3:
        yield NestedText(operands[-1].lstrip("!"), "git", lenient=True)
    if operands[:2] == ["bisect", "run"]:
        yield NestedCommand(command.args[command.args.index("run") + 1 :], "git")
    if operands[:2] == ["submodule", "foreach"]:
        yield NestedText(" ".join(operands[2:]), "git")
    for operand in operands:
        if operand.startswith("ext::"):
            yield NestedText(operand[5:], "git")


_SSH_VALUES = TABLES["letters"]["ssh"]
_LOCALHOST = re.compile(r"(?:.*@)?(?:localhost|127\.\d+\.\d+\.\d+|::1|\[::1\]|0\.0\.0\.0)$")


def _ssh(command: ShellCommand) -> Iterator[Nested]:
    host = command_start(command.args, _SSH_VALUES)
    if host is None:
        return
    via = "local-ssh" if _LOCALHOST.match(command.args[host]) else "ssh"
    start = command_start(command.args[host + 1 :], _SSH_VALUES, assigns=False)
    if start is not None:
        yield NestedText(" ".join(command.args[host + 1 + start :]), via)
    elif command.feed.text is not None:
        yield NestedText(command.feed.text, via)


_DOCKER_VALUES = TABLES["words"]["docker-values"]


_MOUNTED = re.compile(r'(?i)(?:^|[,\s])"?(?:src|source|device)=([^",]*)')


def mounted(command: ShellCommand) -> Iterator[str]:
    """Yield the places of the host that a container gets, as they are written."""
    for volume in command.values_of("-v", "--volume"):
        host, colon, _ = volume.partition(":")
        yield from (host,) if colon else ()
    for value in command.values_of("--mount", "-o", "--opt"):
        yield from _MOUNTED.findall(value)


def _docker(command: ShellCommand) -> Iterator[Nested]:
    given = {*command.args, command.name[-7:]}
    reaches = any(mounted(command)) or bool(given & {"--privileged", "compose"})
    entry = ["", *command.values_of("--entrypoint")][-1].split()
    for index, verb in enumerate(command.args):
        rest = command.args[index + 1 :]
        start = command_start(rest, _DOCKER_VALUES, 0 if entry else 1)
        if start is not None and (verb == "exec" or (verb == "run" and reaches)):
            own = (*entry, *rest[start + 1 :]) if entry else rest[start:]
            yield NestedCommand(own, "container")


def _after_dashes(command: ShellCommand) -> Iterator[Nested]:
    mark = "--args" if command.name == "gdb" else "--"
    if mark in command.args:
        yield NestedCommand(command.args[command.args.index(mark) + 1 :], "container")


def _script(command: ShellCommand) -> Iterator[Nested]:
    """Yield the module or the script that is run, if it is the command of that name."""
    for index, arg in enumerate(command.args):
        option = re.match(r"-[A-Zabdefghi-lnopq-vx-z]*m(.*)$", arg)
        rest = command.args[index + 1 :]
        if option is not None:
            module = (option[1], *rest) if option[1] else rest
            yield NestedCommand(module, command.name)
            yield from _profiled(command, module)
        elif base_name(arg) in TABLES["verbs"] or "/.bin/" in arg:
            yield NestedCommand((base_name(arg), *rest), command.name)
        if option is not None or arg[:1] != "-" or "c" in arg:
            return


def _profiled(command: ShellCommand, module: tuple[str, ...]) -> Iterator[Nested]:
    """Yield the program that a profiler of Python runs, or the statements that are timed."""
    start = command_start(module[1:], "-s -o --sort --outfile", assigns=False)
    if module[:1] in {("cProfile",), ("profile",)} and start is not None:
        named = ["-m"] if "-m" in module[: start + 1] else []
        yield NestedCommand((command.path, *named, *module[start + 1 :]), command.name)
    if module[:1] == ("timeit",):
        timed = command.with_argv(module)
        for code in (*timed.operands(), *timed.values_of("-s", "--setup")):
            yield NestedText(code, command.name, "python")


_TOOLS: dict[str, Callable[[ShellCommand], Iterator[Nested]]] = {
    **dict.fromkeys(("eval", "trap", "alias", "source", "."), _builtin),
    **dict.fromkeys(("find", "gfind", "fd", "fdfind"), _find),
    **dict.fromkeys(("xargs", "gxargs", "parallel"), _xargs),
    **dict.fromkeys(("python", "python3", "pypy", "pypy3", "php", "node"), _script),
    **dict.fromkeys(("ssh", "autossh"), _ssh),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose"), _docker),
    **dict.fromkeys(("kubectl", "oc", "mosh", "runuser", "gdb"), _after_dashes),
    "git": _git,
}
