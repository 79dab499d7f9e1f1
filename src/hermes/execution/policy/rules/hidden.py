"""Code that nobody has seen: computed, decoded or downloaded, then run.

Also variables, settings and queries that carry code. The names of variables are judged by a table
and by their shape, values by the few that people really give them. What a variable is set to
in a roundabout way (`read PATH`) is never judged: it asks.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate

from hermes.execution.policy.code import language_of, programs
from hermes.execution.policy.command import (
    STDIN_FILES,
    TABLES,
    Finding,
    Ground,
    Input,
    ShellCommand,
    listed,
    opaque,
    pattern,
    words,
)
from hermes.execution.policy.floor import mentions_floor
from hermes.execution.policy.nested import SHELLS, assignments, is_followed, runs, shell_code
from hermes.execution.policy.reader.expansion import COMPUTED, is_unknown
from hermes.execution.policy.rules.commands import COMMANDS
from hermes.execution.policy.rules.network import NETWORK, reads_secret

_STDINS = [[name] for name in STDIN_FILES]
_FETCHERS = listed("fetchers")
_DECODERS = listed("decoders")
_SOURCES = _FETCHERS | _DECODERS
_HOOKS = listed("hooks")
_TEXT_TOOLS = listed("text-tools")
_SCRIPTED = words("make gmake awk gawk sed crontab at psql mysql")
_OTHER_NAMES = frozenset({"words", "variables", "python parts"})
_KNOWN = listed("programs").union(
    SHELLS, COMMANDS.names(), *(TABLES[s] for s in TABLES if s not in _OTHER_NAMES)
)
_PLACES = pattern("program-places")
"""Where programs are that go by their name."""
FLOOR_AS_TEXT = opaque("an argument is a command that is never run")
_NOT_TYPED = frozenset({"link", "maybe", "function"})


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    name = command.name
    if command.computed:
        yield opaque("the name of the command is computed")
    elif not name.isascii():
        yield Finding("the name of the command has letters that imitate others")
    elif name in SHELLS or name in {"source", ".", "eval"} or language_of(name):
        depth = command.via.count("$(") + 1
        printers = {c.name for c in command.inner if c.via.count("$(") == depth and c.name != ":"}
        settings = printers and printers <= _HOOKS
        if not settings and (_SOURCES & {c.name for c in command.inner} or _runs_unread(command)):
            yield _unseen(command.inner or command.feed.upstream, command.name)
    else:
        yield from _script_reader(command)
    yield from _unfamiliar(command, ground)
    yield from _variables(command, ground)
    if _SQL_CLIENTS.match(name):
        yield from _sql(command)


def _unfamiliar(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a program that nobody has described, or one in an odd place."""
    if command.computed or command.remote or _NOT_TYPED & set(command.via):
        return
    if "/" not in command.path:
        name = command.name.rstrip("0123456789.") or command.name
        # A module of the project is a script like any other.
        module = bool(command.via) and language_of(command.via[-1]) == "python"
        if not module and not {command.name, name} & _KNOWN:
            yield Finding(f"nobody has told the policy what {command.name} does", command.name)
    elif command.path.startswith("/") and not _PLACES.match(command.path):
        here = [cwd for cwd in command.cwds if cwd] or list(ground.user_homes)
        if not any(command.path.startswith(f"{cwd}/") for cwd in here):
            yield Finding(f"{command.path} is a program in an unusual place", command.path)


def _script_reader(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings for other commands that run what they read."""
    name = command.name
    if name in {"at", "batch", "crontab"} and command.feed.kind is not Input.NONE:
        yield Finding("it schedules commands", name)
    elif name == "make" and command.piped and re.search(r"-f\s*(?:-|/dev/)", command.line):
        yield opaque("it runs a makefile from a pipe", "| make")
    elif name in {"xargs", "parallel"} and command.piped and command.feed.text is None:
        if any(a.rsplit("/", 1)[-1] in SHELLS for a in command.operands()):
            yield _unseen(command.feed.upstream, "shell")
    elif name in {"sed", "gsed"}:
        scripts = (*command.values_of("-e", "--expression"), *command.operands()[:1])
        if any(_sed_runs(script) for script in scripts):
            yield opaque("sed runs a command", "sed e")
    if name in _SCRIPTED and command.inner and "/dev/fd/63" in command.line:
        yield _unseen(command.inner, name)
    harmless = name in _TEXT_TOOLS or is_followed(name)
    if not harmless and any(mentions_floor(a) for a in command.args):
        yield FLOOR_AS_TEXT


def _unseen(sources: tuple[ShellCommand, ...], runner: str) -> Finding:
    names = {c.name for c in sources}
    if names & _FETCHERS:
        return opaque("it runs code straight from the network", "curl | sh")
    decoders = sorted(names & _DECODERS)
    if decoders:
        return opaque(f"it decodes and runs hidden code ({decoders[0]})")
    return opaque(f"the {runner} runs code that nobody can see beforehand")


def _runs_unread(command: ShellCommand) -> bool:
    """Return whether a shell or an interpreter would run something that is not written out."""
    name, operands = command.name, command.operands()
    if name == "eval":
        return is_unknown(" ".join(command.args))
    code = shell_code(command) if name in SHELLS else None
    if code is not None:
        return is_unknown(code.text)
    if any("/dev/fd/" in a for a in (*command.args, *command.reads)):
        return True
    shell = not language_of(name)
    if not shell and (any(programs(command)) or "-m" in command.args):
        return False
    reads = not operands and name not in {"source", "."}
    reads = reads or operands[:1] in _STDINS or (shell and "s" in command.letters())
    channels = {Input.PIPE, Input.FILE} if shell else {Input.PIPE}
    unread = reads and command.feed.kind in channels and command.feed.text is None
    return unread or (shell and bool(operands) and is_unknown(operands[0]))


def _sed_runs(script: str) -> bool:
    """Return whether a sed script has the `e` command or flag."""
    if re.search(r"(?:^|[;\n{\d$/])\s*e(?:\s+\S.*|\s*)$", script[:2000]):
        return True
    pieces = script.split(script[1]) if script[:1] == "s" and len(script) > 3 else []
    return len(pieces) == 4 and "e" in pieces[3]


# --- variables that decide what other programs run ---

_HARMLESS_VALUES = TABLES["variables"]
_CODE_NAMES = re.compile("|".join(map(translate, listed("code-variables"))))
_ORDINARY = re.compile("|".join(map(translate, listed("plain-variables"))))
_WORD = re.compile(r"[\w./~:,=+@%-]*$")
_USUAL_PROGRAMS = listed("usual-programs")
_OPTION = re.compile(r"-{1,2}[\w][\w.:=/~-]*$")
_PATH_ELEMENT = re.compile(r"/(?!tmp\b|var/tmp\b|dev/shm\b)[\w./+@-]*$")
_TOOLS = re.compile(r"(?:^|/)(?:node_modules/\.bin|\.?venv/bin|vendor/bin)/?$")
_GIT_HARMLESS = pattern("git-settings")


def changes_programs(name: str) -> bool:
    """Return whether a variable of this name decides what programs run."""
    return name == "PATH" or (_CODE_NAMES.match(name) is not None and not _ORDINARY.match(name))


def _variables(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for variables and git settings that change what other commands do."""
    for name, value in assignments(command):
        if name == "PATH":
            if not all(_usual(e, command, ground) for e in value.split(":")):
                yield opaque("PATH would find programs in a writable place", "PATH=")
        elif (name == "HISTFILE" and value in {"", "/dev/null"}) or (
            name in {"HISTSIZE", "HISTFILESIZE"} and value == "0"
        ):
            yield Finding("it turns the shell history off", "HISTFILE=")
        elif changes_programs(name) and not _harmless(name, value):
            yield opaque(f"{name} changes what other programs run", f"{name}=")
    if command.name == "git":
        for setting in command.values_of("-c", "--config", "--config-env"):
            key, _, value = setting.partition("=")
            if not _GIT_HARMLESS.match(key) and not _runs_nothing(value):
                yield opaque("it changes what git runs", "git -c")


def _harmless(name: str, value: str) -> bool:
    known = _HARMLESS_VALUES.get(name)
    return re.match(known, value) is not None if known is not None else _runs_nothing(value)


def _runs_nothing(value: str) -> bool:
    """Return whether a value names a usual program with plain options, or nothing."""
    program, *options = value.split() or [":"]
    keys = [o for o in options if not _OPTION.match(o)]
    plain = all(_WORD.match(o) for o in keys) and (program == "ssh" or not keys)
    return program in _USUAL_PROGRAMS and plain and "ommand" not in value


def _usual(element: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether an element of PATH is a place where programs are meant to be."""
    if is_unknown(element):
        # `$PATH` itself, or a directory that a variable names.
        named = is_unknown(element[:1]) and COMPUTED not in element
        return len(element) == 1 or (named and "/bin" in element)
    if _TOOLS.search(element):
        return True
    if any(cwd and element.startswith(f"{cwd}/") for cwd in command.cwds):
        return False
    home = any(element.startswith(f"{h}/") for h in ground.user_homes)
    return home or _PATH_ELEMENT.match(element) is not None


# --- SQL ---

_SQL_CLIENTS = pattern("sql-clients")
_SQL_DROP = pattern("sql-drop")
_SQL_ROWS = (
    (re.compile(r"\bdelete\s+from\s+[^;]*", re.IGNORECASE), "sql delete"),
    (re.compile(r"\bupdate\s+\S+\s+set\s[^;]*", re.IGNORECASE), "sql update"),
)
_SQL_WHERE = pattern("sql-where")
_SQL_PROGRAM = pattern("sql-program")


def _sql(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings in what a database client is given to run."""
    upstream = command.feed.upstream
    texts = [*command.args, command.feed.text or "", *(a for up in upstream for a in up.args)]
    # `DROP/**/TABLE` is `DROP TABLE`.
    for text in [re.sub(r"/\*.*?\*/", " ", t, flags=re.DOTALL) for t in texts]:
        if _SQL_DROP.search(text):
            yield Finding("it drops or truncates", "sql drop")
        for rows, kind in _SQL_ROWS:
            if any(not _SQL_WHERE.search(match.group()) for match in rows.finditer(text)):
                yield Finding("it changes every row of a table", kind)
        if _SQL_PROGRAM.search(text):
            yield opaque("the query runs a program or writes files", "sql program")
    plain = upstream and upstream[-1].name in {"cat", "gunzip", "zcat", "pg_dump"}
    if command.piped and command.feed.text is None and not plain:
        yield Finding("what the database would run is computed", f"| {command.name}")


# --- sequences: make a file executable and run it, read a secret and send it ---


def sequence_findings(commands: Sequence[ShellCommand], ground: Ground) -> Iterator[Finding]:
    """Yield the dangers that only two commands make together."""
    executable: set[str] = set()
    secret = False
    for command in commands:
        mode = command.args[0] if command.args else ""
        if command.name == "chmod" and ("x" in mode or "7" in mode):
            executable |= {c for o in command.operands()[1:] for c in command.where(o)}
        if executable and {c for path in runs(command) for c in command.where(path)} & executable:
            yield Finding("it makes a file executable and runs it", "chmod +x, run")
        secret = secret or (
            bool(command.assigns) and any(reads_secret(c, ground) for c in command.inner)
        )
        if secret and command.name in NETWORK and any(COMPUTED in a for a in command.args):
            yield Finding("it sends secrets over the network")
