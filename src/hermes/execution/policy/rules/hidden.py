"""Code that nobody has seen: computed, decoded or downloaded, then run.

Also variables, settings and queries that carry code.
"""

import re
from collections.abc import Iterator, Sequence

from hermes.execution.policy.code import language_of
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
from hermes.execution.policy.nested import SHELLS, is_followed, runs, shell_code
from hermes.execution.policy.reader.expansion import COMPUTED, is_unknown
from hermes.execution.policy.rules.commands import COMMANDS
from hermes.execution.policy.rules.network import NETWORK, reads_secret

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
    elif name in SHELLS or name in {"source", ".", "eval"}:
        yield from _shell(command)
    elif language_of(name):
        yield from _interpreter(command)
    else:
        yield from _script_reader(command)
    yield from _unfamiliar(command, ground)
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


def _shell(command: ShellCommand) -> Iterator[Finding]:
    inner = tuple(c for c in command.inner if c.name != ":")
    depth = command.via.count("$(") + 1
    printers = {c.name for c in inner if c.via.count("$(") == depth}
    if printers and printers <= _HOOKS:
        return
    if any(c.name in _SOURCES for c in inner) or _hides_code(command):
        yield _unseen(inner or command.feed.upstream, "shell")


def _hides_code(command: ShellCommand) -> bool:
    """Return whether a shell would run something that is not known."""
    name = command.name
    operands = command.operands()
    if name == "eval":
        return is_unknown(" ".join(command.args))
    code = shell_code(command) if name in SHELLS else None
    if code is not None:
        decoded = {c.name for c in command.feed.upstream} & _DECODERS
        return is_unknown(code.text) or (command.piped and bool(decoded))
    if any(a.startswith("/dev/fd/") for a in (*command.args, *command.reads)):
        return True
    if name in {"source", "."}:
        reads_input = bool(command.args) and command.args[0] in STDIN_FILES
    else:
        reads_input = not operands or "s" in command.letters() or operands[0] in STDIN_FILES
    if reads_input and command.feed.kind in {Input.PIPE, Input.FILE}:
        return True
    return bool(operands) and is_unknown(operands[0])


def _interpreter(command: ShellCommand) -> Iterator[Finding]:
    coded = any(
        re.match(r"-[a-zA-Z]*[ceEr]$", a) or a in {"-m", "--eval", "eval"} for a in command.args
    )
    operands = command.operands()
    reads_input = not operands or operands[0] in STDIN_FILES
    if command.piped and reads_input and not coded and command.feed.text is None:
        yield _unseen(command.feed.upstream, command.name)
    if any("/dev/fd/" in a for a in (*command.args, *command.reads)):
        yield _unseen(command.inner, command.name)


def _sed_runs(script: str) -> bool:
    """Return whether a sed script has the `e` command or flag."""
    if re.search(r"(?:^|[;\n{\d$/])\s*e(?:\s+\S.*|\s*)$", script[:2000]):
        return True
    pieces = script.split(script[1]) if script[:1] == "s" and len(script) > 3 else []
    return len(pieces) == 4 and "e" in pieces[3]


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
