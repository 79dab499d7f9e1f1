"""Rules: what about a command needs a person, and why.

Beside the rows of the table (`table`) and what is said of variables (`variables`): programs and
verbs that nobody has described, and code that nobody has seen: computed, decoded or downloaded,
then run.
"""

import re
from collections.abc import Iterator
from functools import cache

from hermes.execution.policy import variables
from hermes.execution.policy.code import SQL_CLIENTS, language_of, programs, sed_acts, sql
from hermes.execution.policy.command import (
    STDIN_FILES,
    TABLES,
    Finding,
    Ground,
    Input,
    ShellCommand,
    base_name,
    listed,
    opaque,
    pattern,
    readings,
    words,
)
from hermes.execution.policy.expansion import is_unknown
from hermes.execution.policy.floor import ELSEWHERE, mentions_floor
from hermes.execution.policy.nested import SHELLS, shell_code
from hermes.execution.policy.python import is_local
from hermes.execution.policy.syntax import COMPUTED
from hermes.execution.policy.table import COMMANDS, may_be_options

_STDINS = [[name] for name in STDIN_FILES]
_FETCHERS = listed("fetchers")
_SOURCES = _FETCHERS | listed("decoders")
_HOOKS = listed("hooks")
_TEXT_TOOLS = listed("text-tools")
_DESTROYS = pattern("destroys")
_WORDY = (
    _TEXT_TOOLS | SHELLS | listed("wordy") | listed("readers") | listed("viewers")
    | listed("blind") - listed("runs-others")
)  # fmt: skip
_SCRIPTED = words("make gmake awk gawk sed crontab at psql mysql")
_PROMPTS = words("shell console tinker repl dbshell sh")
_ACTS_BY_OPTIONS = words("find tar python node perl ruby php sort rsync")
_FILE_LISTERS = words(
    "git ls find fd fdfind which command rg grep npm pwd dirname basename mktemp head tail"
)
_READS_COMMANDS = pattern("reads-commands")
_TALKERS = words("ed red ex script lftp ftp sftp maxima mongo mongosh gdb lldb")
_OBEYS_INPUT = words(
    "patch git gpg docker podman kubectl helm crontab redis-cli sqlite3 psql mysql npm"
)
_OTHER_NAMES = frozenset({"words", "variables", "python parts", "one-liners"})
_KNOWN = listed("programs").union(
    SHELLS, COMMANDS.names(), *(TABLES[s] for s in TABLES if s not in _OTHER_NAMES)
)
_CHOICES = words("-c -configuration --configuration --config --buildtype --mode --profile")
"""Options that choose how something is built."""
_PLACES = pattern("program-places")
"""Where programs are that go by their name."""
_ENDLESS = frozenset({"/dev/zero", "/dev/urandom", "/dev/random"})
FLOOR_AS_TEXT = opaque("an argument is a command that is never run", ELSEWHERE)
_FACTS = words("--version -version -V version --help -h help")
"""What anybody may ask of any program."""
_VARIANT = re.compile(
    r"(?<=.)@.*|[\d.]+$|^\w+-[\w-]+-(?=(?:g?cc|g\+\+|ar|as|ld|nm|objdump|objcopy|readelf|size|strip|gdb)$)"
)
"""A version behind a name, a machine in front of it."""
_NOT_TYPED = frozenset({"link", "maybe", "function"})


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    name = command.name
    if command.computed:
        yield opaque("the name of the command is computed")
    elif not name.isascii():
        yield opaque("the name of the command has letters that imitate others")
    elif is_interpreter(name):
        yield from _interpreter(command)
    else:
        yield from _script_reader(command)
        if name not in _TEXT_TOOLS and any(
            mentions_floor(a, ground.user_homes) for a in command.args
        ):
            yield FLOOR_AS_TEXT
    if name.rstrip("0123456789.") in _ACTS_BY_OPTIONS and _given_options(command):
        yield opaque("what it is given may be options that act", "computed options")
    yield from _unfamiliar(command, ground)
    yield from _verbs(command)
    yield from variables.check(command, ground)
    if SQL_CLIENTS.match(name):
        yield from sql(command)


def _given_options(command: ShellCommand) -> bool:
    """Return whether a word that is computed, and not by a list of files, may be an option."""
    source = command.feed.upstream[-1:] if "xargs" in command.via else command.inner
    listed_files = bool(source) and {c.name for c in source} <= _FILE_LISTERS
    listed_files = listed_files or "find" in command.via or "-m" in command.args
    return not listed_files and may_be_options(command.args, COMPUTED)


def _interpreter(command: ShellCommand) -> Iterator[Finding]:
    depth = command.via.count("$(") + 1
    printers = {c.name for c in command.inner if c.via.count("$(") == depth and c.name != ":"}
    settings = printers and printers <= _HOOKS
    if not settings and (_SOURCES & {c.name for c in command.inner} or _runs_unread(command)):
        yield _unseen(command.inner or command.feed.upstream, command.name)


def is_interpreter(name: str) -> bool:
    return name in SHELLS or name in {"source", ".", "eval"} or bool(language_of(name))


def _unfamiliar(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a program that nobody has described, or one in an odd place."""
    if command.computed or command.remote or _NOT_TYPED & set(command.via):
        return
    if "/" not in command.path or command.path[0] == "@":
        name = _VARIANT.sub("", command.name) or command.name
        runner = command.via[-1] if command.via else ""
        top = name.partition(".")[0]
        # A module of the project is a script like any other; so is what a project gives its tools.
        module = language_of(runner) == "python" and (is_local(top, command.cwd) or {top} & _KNOWN)
        known = (
            module
            or (runner and ":" in name)
            or {_VARIANT.sub("", command.path), command.path, command.name, name} & _KNOWN
        )
        if not known and not _FACTS & {" ".join(command.args)}:
            yield Finding(f"`{command.name}` is not a command I know", command.name)
    elif command.path.startswith("/") and not _PLACES.match(command.path):
        here = [cwd for cwd in command.cwds if cwd] or list(ground.user_homes)
        if not any(command.path.startswith(f"{cwd}/") for cwd in here):
            yield Finding(f"{command.path} is a program in an unusual place", command.path)


def _verbs(command: ShellCommand) -> Iterator[Finding]:
    """Yield a finding for a verb that is not known to only look or to work on the project."""
    if command.name not in _WORDY:
        chosen = {*command.values_of(*_CHOICES)}
        for word in (*command.operands()[:6], *(a for a in command.args if a[:3] == "--d")):
            if _DESTROYS.match(word) and word not in chosen:
                yield Finding(
                    f"`{command.name} {word}` may change something beyond the project",
                    f"{command.name} {word}",
                )
    known = _harmless_verbs(command.name)
    if known is None or _only_told(command):
        return
    for found, _ in readings(command.name, command.spelled):
        operands = [o for o in found if o[:1] != "+"] or found
        if not known.match(".".join(operands[:4]).lower()):
            verb = " ".join(operands[:2] if known.match(f"{operands[0]}.list") else operands[:1])
            yield Finding(
                f"`{command.name} {verb}` is not known to be harmless", f"{command.name} {verb}"
            )


def _only_told(command: ShellCommand) -> bool:
    """Return whether a command only tells how it is used, or what it would do."""
    dry = [a for a in command.args if a.startswith("--dry")]
    tried = command.name in {"kubectl", "oc"} and dry == ["--dry-run=client"]
    helped = command.args[-1:] == ("--help",) and command.name != "redis-cli"
    return "--" not in command.args and (tried or helped)


@cache
def _harmless_verbs(name: str) -> re.Pattern[str] | None:
    row = TABLES["verbs"].get(name)
    verbs = "|".join(
        re.escape(v).replace(r"\*", "[^.]*").replace(r"\$", "$") for v in _shared(row or "")
    )
    return re.compile(rf"(?:{verbs})(?:\.|$)") if row is not None else None


def _shared(row: str) -> Iterator[str]:
    for word in row.split():
        before, at, name = word.rpartition("@")
        yield from (before + v for v in _shared(TABLES["verbs"][f"@{name}"])) if at else (word,)


def _script_reader(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings for other commands that run what they read, or read without end."""
    name = command.name
    endless = name == "yes" and (command.writes or "$(" in command.via)
    if endless or (_ENDLESS & {*command.reads} and name != "head"):
        yield Finding("it never ends", "endless")
    unknown = command.piped and command.feed.text is None
    if name in {"xargs", "parallel"} and unknown and SHELLS & {*map(base_name, command.operands())}:
        yield _unseen(command.feed.upstream, "shell")
    if name in {"sed", "gsed"} and sed_acts(command):
        yield opaque("sed may run a command, or read or write another file", "sed e")
    if command.feed.kind is not Input.NONE:
        yield from _prompt(command)
    if name in _SCRIPTED and re.search(r"-f\s*(?:-(?:\s|$)|/dev/)|/dev/fd/63", command.line):
        yield _unseen(command.inner or command.feed.upstream, name)


def _prompt(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings for commands that take their input for orders."""
    if command.name in _TALKERS or _PROMPTS & {*command.operands()[:2]} or prompts(command):
        yield opaque(f"`{command.name}` runs what it reads", f"| {command.name}")
    if command.name in _OBEYS_INPUT and _FETCHERS & {c.name for c in command.feed.upstream}:
        yield Finding(
            f"`{command.name}` would obey what comes straight from the network", "curl | sh"
        )


def prompts(command: ShellCommand) -> bool:
    """Return whether a program is known to read commands as it is called here."""
    return _READS_COMMANDS.match(f"{command.name} {command.line}") is not None


def _unseen(sources: tuple[ShellCommand, ...], runner: str) -> Finding:
    if _FETCHERS & {c.name for c in sources}:
        return opaque("it runs code straight from the network", "curl | sh")
    return opaque(f"the {runner} runs code that nobody can see beforehand")


def _runs_unread(command: ShellCommand) -> bool:
    """Return whether a shell or an interpreter would run something that is not written out."""
    name, operands = command.name, command.operands()
    if name == "eval":
        return is_unknown(" ".join(command.args))
    code = shell_code(command) if name in SHELLS else None
    if code is not None:
        return is_unknown(code.text)
    if any(re.search("/dev/(?:fd|tcp|udp)/", a) for a in (*command.args, *command.reads)):
        return True
    shell = not language_of(name)
    if not shell and (any(programs(command)) or "-m" in command.args):
        return False
    reads = not operands and name not in {"source", "."}
    reads = reads or operands[:1] in _STDINS or (shell and "s" in command.letters())
    channels = {Input.PIPE, Input.FILE} if shell else {Input.PIPE}
    unread = reads and command.feed.kind in channels and command.feed.text is None
    return unread or (shell and bool(operands) and is_unknown(operands[0]))
