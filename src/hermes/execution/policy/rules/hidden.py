"""Code that nobody has seen: computed, decoded or downloaded, then run.

Also variables, settings and queries that carry code.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

from hermes.execution.policy.code import language_of
from hermes.execution.policy.command import Finding, Ground, Input, ShellCommand, listed, words
from hermes.execution.policy.floor import mentions_floor
from hermes.execution.policy.nested import SHELLS, STDIN_FILES, assignments, is_followed, shell_code
from hermes.execution.policy.reader.expansion import COMPUTED, is_unknown
from hermes.execution.policy.rules.network import NETWORK, reads_secret
from hermes.execution.policy.rules.places import absolute, written_paths

_FETCHERS = listed("fetchers")
_DECODERS = listed("decoders")
_SOURCES = _FETCHERS | _DECODERS
_HOOKS = listed("hooks")
_TEXT_TOOLS = listed("text-tools")
_SCRIPTED = words("make gmake awk gawk sed crontab at psql mysql")
_LOADER = re.compile(
    r"(?:LD_PRELOAD|LD_LIBRARY_PATH|LD_AUDIT|DYLD_\w+|PYTHONSTARTUP|PYTHONINSPECT|PERL5OPT|PERL5LIB|"
    r"RUBYOPT|BASH_ENV|ENV|PROMPT_COMMAND|IFS|GCONV_PATH|GIT_SSH|GIT_SSH_COMMAND|LESSOPEN|"
    r"GIT_EXTERNAL_DIFF|SHELLOPTS|BASHOPTS|PS4|BASH_FUNC_\S*|GIT_EXEC_PATH|GIT_CONFIG_\w+|"
    r"PIP_INDEX_URL|PIP_EXTRA_INDEX_URL|NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|"
    r"HERMES_YOLO_MODE|HERMES_HOME|SUDO_ASKPASS|SSH_ASKPASS)$"
)
_HARMLESS_VALUES = {
    "NODE_OPTIONS": re.compile(r"(?!.*(?:--require|-r\s|--import|--loader|--eval)).*$"),
    "IFS": re.compile(r"\W{0,4}$"),
    "GIT_SSH_COMMAND": re.compile(r"ssh(?:\s+-[\w]\s*[\w./~=-]*)*$"),
    "LD_LIBRARY_PATH": re.compile(r"(?:/usr|/opt)/"),
    "PS4": re.compile(r"[^`$]*$"),
    "ENV": re.compile(r"(?:dev|development|prod|production|test|testing|staging|local|ci)$"),
}
_WRITABLE = re.compile(r"(?:^|:)(?:\.|/tmp|/var/tmp|/dev/shm|\./|\.\.|$|:)")
_GIT_HARMLESS = re.compile(
    r"(?i)(?:color|user|author|committer|advice|init|pull|push|fetch|log|status|commit|branch|tag|"
    r"i18n|column|format|safe|core\.(?:quotepath|autocrlf|eol|filemode|ignorecase|longpaths))\b"
)
_HARMLESS_SETTING = re.compile(r"(?:cat|less|more|true|false|vi|vim|nano|:|auto|never|always|)$")


def check(command: ShellCommand, _ground: Ground) -> Iterator[Finding]:
    name = command.name
    if command.computed or any(c in command.path for c in "*?"):
        yield Finding("the name of the command is computed")
    elif not name.isascii():
        yield Finding("the name of the command has letters that imitate others")
    elif name in SHELLS or name in {"source", ".", "eval"}:
        yield from _shell(command)
    elif language_of(name):
        yield from _interpreter(command)
    else:
        yield from _script_reader(command)
    yield from _settings(command)
    if _SQL_CLIENTS.match(name):
        yield from _sql(command)


def _script_reader(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings for other commands that run what they read."""
    name = command.name
    if name in {"at", "batch", "crontab"} and command.feed.kind is not Input.NONE:
        yield Finding("it schedules commands", name)
    elif name == "make" and command.piped and re.search(r"-f\s*(?:-|/dev/)", command.line):
        yield Finding("it runs a makefile from a pipe", "| make")
    elif name in {"xargs", "parallel"} and command.piped and command.feed.text is None:
        if any(a.rsplit("/", 1)[-1] in SHELLS for a in command.operands()):
            yield _unseen(command.feed.upstream, "shell")
    elif name in {"sed", "gsed"}:
        scripts = (*command.values_of("-e", "--expression"), *command.operands()[:1])
        if any(_sed_runs(script) for script in scripts):
            yield Finding("sed runs a command", "sed e")
    if name in _SCRIPTED and command.inner and "/dev/fd/63" in command.line:
        yield _unseen(command.inner, name)
    harmless = name in _TEXT_TOOLS or is_followed(name)
    if not harmless and any(mentions_floor(a) for a in command.args):
        yield Finding("an argument is a command that is never run")


def _unseen(sources: tuple[ShellCommand, ...], runner: str) -> Finding:
    names = {c.name for c in sources}
    if names & _FETCHERS:
        return Finding("it runs code straight from the network", "curl | sh")
    decoders = sorted(names & _DECODERS)
    if decoders:
        return Finding(f"it decodes and runs hidden code ({decoders[0]})")
    return Finding(f"the {runner} runs code that nobody can see beforehand")


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
    if reads_input and command.piped:
        return True
    return bool(operands) and is_unknown(operands[0]) and bool(command.inner)


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


def _settings(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings for variables and git settings that change what other commands do."""
    for name, value in assignments(command):
        if name == "PATH" and _WRITABLE.match(value):
            yield Finding("PATH would find programs in a writable place", "PATH=")
        elif (name == "HISTFILE" and value in {"", "/dev/null"}) or (
            name in {"HISTSIZE", "HISTFILESIZE"} and value == "0"
        ):
            yield Finding("it turns the shell history off", "HISTFILE=")
        elif _LOADER.match(name):
            harmless = _HARMLESS_VALUES.get(name)
            if harmless is None or not harmless.match(value):
                yield Finding(f"{name} changes what other programs run", f"{name}=")
    if command.name == "git":
        for setting in command.values_of("-c", "--config-env"):
            key, _, value = setting.partition("=")
            if not _GIT_HARMLESS.match(key) and not _HARMLESS_SETTING.match(value):
                yield Finding("it changes what git runs", "git -c")


# --- SQL ---

_SQL_CLIENTS = re.compile(
    r"(?:psql|mysql|mariadb|sqlite3?|sqlcmd|cqlsh|clickhouse(?:-client)?|duckdb|isql|usql|pgcli|"
    r"mycli|litecli|bq|snowsql|sqlplus|cockroach|influx)$"
)
_SQL_DROP = re.compile(
    r"\b(?:drop\s+(?:table|database|schema|view|index|user|role|column|keyspace|owned|tablespace)|"
    r"truncate(?:\s+table)?\s+\w|alter\s+table\s[^;]*\bdrop\b|shutdown\b|revoke\b|vacuum\s+into)",
    re.IGNORECASE,
)
_SQL_ROWS = (
    (re.compile(r"\bdelete\s+from\s+[^;]*", re.IGNORECASE), "sql delete"),
    (re.compile(r"\bupdate\s+\S+\s+set\s[^;]*", re.IGNORECASE), "sql update"),
)
_SQL_WHERE = re.compile(
    r"\bwhere\b(?!\s*\(?\s*(?:1\s*=\s*1|true|'?\w'?\s*=\s*'?\w'?\s*(?:;|$)))", re.IGNORECASE
)
_SQL_PROGRAM = re.compile(
    r"\b(?:copy\s[^;]*\b(?:to|from)\s+program|pg_read_file|lo_export|into\s+outfile|xp_cmdshell|"
    r"writefile\s*\()",
    re.IGNORECASE,
)


def _sql(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings in what a database client is given to run."""
    upstream = command.feed.upstream
    texts = [*command.args, command.feed.text or "", *(a for up in upstream for a in up.args)]
    # `DROP/**/TABLE` is `DROP TABLE`.
    for text in [re.sub(r"/\*.*?\*/", " ", t, flags=re.DOTALL) for t in texts]:
        if _SQL_DROP.search(text):
            yield Finding("it drops or truncates", "sql drop")
        for pattern, grant in _SQL_ROWS:
            if any(not _SQL_WHERE.search(match.group()) for match in pattern.finditer(text)):
                yield Finding("it changes every row of a table", grant)
        if _SQL_PROGRAM.search(text):
            yield Finding("the query runs a program or writes files", "sql program")
    plain = upstream and upstream[-1].name in {"cat", "gunzip", "zcat", "pg_dump"}
    if command.piped and command.feed.text is None and not plain:
        yield Finding("what the database would run is computed", f"| {command.name}")


# --- sequences: make a file, then run it ---


def sequence_findings(commands: Sequence[ShellCommand], ground: Ground) -> Iterator[Finding]:
    """Yield the dangers of running what the same script has just fetched or made executable."""
    fetched: set[str] = set()
    executable: set[str] = set()
    secret = False
    for command in commands:
        mode = command.args[0] if command.args else ""
        if command.name == "chmod" and ("x" in mode or "7" in mode):
            executable |= {absolute(o, command.cwd) for o in command.operands()[1:]}
        ran = {absolute(path, command.cwd) for path in _runs(command)}
        if ran & fetched:
            yield Finding("it runs a file that it has just downloaded", "download, run")
        elif ran & executable:
            yield Finding("it makes a file executable and runs it", "chmod +x, run")
        fetched |= {absolute(path, command.cwd) for path in _fetches(command)}
        secret = secret or (
            bool(command.assigns) and any(reads_secret(c, ground) for c in command.inner)
        )
        if secret and command.name in NETWORK and any(COMPUTED in a for a in command.args):
            yield Finding("it sends secrets over the network")


def _runs(command: ShellCommand) -> list[str]:
    if "/" in command.path:
        return [command.path]
    interpreters = command.name in {"source", ".", "make"} or language_of(command.name)
    if command.name in SHELLS or interpreters:
        return [*command.operands(), *command.reads]
    return []


def _fetches(command: ShellCommand) -> Iterator[str]:
    chain = {command.name, *(u.name for u in command.feed.upstream)}
    if not chain & _SOURCES:
        return
    yield from written_paths(command)
    keeps_name = command.name == "wget" or command.letters() & {"O", "J"}
    if command.name in _FETCHERS and keeps_name:
        for operand in command.operands():
            if "/" in operand:
                yield posixpath.basename(operand.split("?")[0])
