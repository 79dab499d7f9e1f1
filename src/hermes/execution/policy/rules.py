"""Rules: what about a command needs a person, and why.

Names, verbs and flags are rows of `commands.txt`: `names ; shape ; reason ; kind`; an indented line
continues the row before it. A reason that begins with `?` asks in every mode, most of them about
code that nobody can see; one with `!` is the floor. The shape is
`verbs : flags : unless`, and each part may be missing:

- `verbs`: alternatives separated by commas, each one or more words that the operands
  begin with; `*` and `?` are globs. Global options in front of a verb do not hide it.
  A `!` in front: any verb but these.
- `flags`: words, one of which must be given. `-f` is a letter of a cluster, `--force` a
  long option or an abbreviation of it, `--force*` every long option that begins so,
  `~regex` is searched in the whole line, anything else is a glob over single arguments.
- `unless`: flags that make it harmless.

The kind is the danger's name in `command_allowlist`: by default the command's name and its
verb or flag; `@` is the name alone.

If the verb is not known, or an unquoted argument that is not known could become one of
the flags, the command asks as well.

The rest is about code that nobody has seen: computed, decoded or downloaded, then run; variables,
settings and queries that carry code. The names of variables are judged by a table and by their
shape, values by the few that people really give them. What a variable is set to in a
roundabout way (`read PATH`) is never judged: it asks.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase, translate
from functools import cache
from importlib.resources import files
from itertools import pairwise

from msgspec import Struct

from hermes.execution.policy.code import language_of, programs
from hermes.execution.policy.command import (
    STDIN_FILES,
    TABLES,
    Finding,
    Ground,
    Input,
    ShellCommand,
    base_name,
    command_start,
    listed,
    only_local,
    opaque,
    pattern,
    readings,
    words,
)
from hermes.execution.policy.expansion import UNKNOWN, is_unknown
from hermes.execution.policy.floor import ELSEWHERE, floor_finding, mentions_floor
from hermes.execution.policy.nested import SHELLS, assignments, shell_code
from hermes.execution.policy.places import is_foreign
from hermes.execution.policy.syntax import COMPUTED


class _Rule(Struct, frozen=True):
    verbs: tuple[tuple[str, ...], ...]
    negated: bool
    flags: tuple[str, ...]
    unless: tuple[str, ...]
    reason: str
    kind: str


class RuleTable:
    def __init__(self, text: str) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        for row in text.replace("\n  ", " ").split("\n"):
            if row and row[0] != "#":
                names, rule = _parse(row)
                for name in names:
                    self._rules.setdefault(name, []).append(rule)

    def names(self) -> Iterable[str]:
        return self._rules

    def check(self, command: ShellCommand) -> Iterator[Finding]:
        name, args = command.name, command.args
        rules = self._rules.get(name)
        if rules is None:
            return
        found = readings(name, args)
        if found and is_unknown(found[0][0][0][:1]) and any(r.verbs for r in rules):
            yield Finding(f"what {name} would do is computed")
        for rule in rules:
            for operands, rest in (rule.verbs and found) or [([], args)]:
                verb = _verb(rule, operands)
                excuses = rest[: rest.index("--")] if "--" in rest else rest
                if rule.reason[0] == "!":
                    excuses = excuses[:1]
                if verb is None or any(_excuses(f, excuses) for f in rule.unless):
                    continue
                flag = next((f for f in rule.flags if _given(f, rest)), None)
                if flag is not None or not rule.flags:
                    shown = verb or (flag if flag and flag[0] not in "*~" else "")
                    kind = rule.kind or f"{name} {shown}".strip()
                    kind = name if kind == "@" else kind
                    if rule.reason[0] == "!":
                        yield floor_finding(rule.reason[1:], command)
                    else:
                        hides = rule.reason[0] == "?"
                        yield Finding(rule.reason.lstrip("?"), kind, opaque=hides)
                elif rule.verbs and _may_be_options(rest, UNKNOWN + COMPUTED):
                    yield Finding(f"the options of {name} {verb} are computed")


def _may_be_options(args: tuple[str, ...], marks: str) -> bool:
    """Return whether a word that is not known, and is no option's value, may become an option."""
    pairs = pairwise(("", *args))
    return any(a and a[0] in marks and before[:1] != "-" for before, a in pairs)


def _parse(row: str) -> tuple[list[str], _Rule]:
    names, shape, reason, kind = (*(c.strip() for c in row.split(" ;")), "")[:4]
    verbs, flags, unless = (*(p.strip() for p in re.split(r"(?:^|\s):(?=\s|$)", shape)), "", "")[:3]
    if not reason:
        raise ValueError(f"a rule without a reason: {row}")
    negated = verbs.startswith("!")
    paths = tuple(tuple(v.split()) for v in verbs.lstrip("!").split(",") if v)
    return names.split(), _Rule(paths, negated, (*flags.split(),), (*unless.split(),), reason, kind)


def _verb(rule: _Rule, operands: list[str]) -> str | None:
    """Return the verb of the rule that the operands begin with."""
    for path in rule.verbs:
        if len(operands) >= len(path) and all(
            fnmatchcase(o.lower(), v) for o, v in zip(operands, path, strict=False)
        ):
            return None if rule.negated else " ".join(operands[: len(path)])
    return "" if (rule.negated and operands) or not rule.verbs else None


def _given(flag: str, args: tuple[str, ...]) -> bool:
    if flag[0] == "~":
        return (
            _compiled(flag[1:]).search(" ".join(a.replace(" ", "\x03") for a in args)) is not None
        )
    if len(flag) == 2 and flag[0] == "-" and flag != "--":
        return any(a[:1] == "-" and a[1:2] != "-" and flag[1] in a[1:] for a in args)
    if flag[:2] == "--" and len(flag) > 2 and flag[-1] != "*" and "=" not in flag:
        return any(a[:2] == "--" and len(a) > 2 and flag.startswith(a.split("=")[0]) for a in args)
    return any(fnmatchcase(a.lower(), flag.lower()) for a in args)


def _excuses(flag: str, args: tuple[str, ...]) -> bool:
    """Return whether a flag makes a command harmless: it has to stand there as it is."""
    if flag == "@local":
        return only_local(args)
    # The value of an option may be glued to it.
    return _given(flag, tuple(a for a in args if a[1:2] == "-" or not re.match(r"-\w{5}|-.*\W", a)))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile on first use: most runs meet few of the commands in the tables."""
    return re.compile(pattern)


COMMANDS = RuleTable((files("hermes.execution.policy") / "commands.txt").read_text("utf-8"))


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
_TALKERS = words("ed red ex script lftp ftp sftp maxima mongo mongosh gdb lldb")
_OBEYS_INPUT = words(
    "patch git gpg docker podman kubectl helm crontab redis-cli sqlite3 psql mysql npm"
)
_OTHER_NAMES = frozenset({"words", "variables", "python parts", "one-liners"})
_KNOWN = listed("programs").union(
    SHELLS, COMMANDS.names(), *(TABLES[s] for s in TABLES if s not in _OTHER_NAMES)
)
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
    yield from _variables(command, ground)
    if _SQL_CLIENTS.match(name):
        yield from _sql(command)


def _given_options(command: ShellCommand) -> bool:
    """Return whether a word that is computed, and not by a list of files, may be an option."""
    source = command.feed.upstream[-1:] if "xargs" in command.via else command.inner
    listed_files = bool(source) and {c.name for c in source} <= _FILE_LISTERS
    listed_files = listed_files or "find" in command.via or "-m" in command.args
    return not listed_files and _may_be_options(command.args, COMPUTED)


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
    if "/" not in command.path:
        name = _VARIANT.sub("", command.name) or command.name
        runner = command.via[-1] if command.via else ""
        # A module of the project is a script like any other; so is what a project gives its tools.
        script = language_of(runner) == "python" or (runner and ":" in name)
        known = script or name[:7] == "create-" or {command.name, name} & _KNOWN
        if not known and not _FACTS & {" ".join(command.args)}:
            yield Finding(f"`{command.name}` is not a command I know", command.name)
    elif command.path.startswith("/") and not _PLACES.match(command.path):
        here = [cwd for cwd in command.cwds if cwd] or list(ground.user_homes)
        if not any(command.path.startswith(f"{cwd}/") for cwd in here):
            yield Finding(f"{command.path} is a program in an unusual place", command.path)


def _verbs(command: ShellCommand) -> Iterator[Finding]:
    """Yield a finding for a verb that is not known to only look or to work on the project."""
    if command.name not in _WORDY:
        for word in (*command.operands()[:6], *(a for a in command.args if a[:3] == "--d")):
            named = word.endswith("release") and word not in command.operands()[:1]
            if _DESTROYS.match(word) and not named:
                yield Finding(
                    f"`{command.name} {word}` may change something beyond the project",
                    f"{command.name} {word}",
                )
    known = _harmless_verbs(command.name)
    if known is None or _only_told(command):
        return
    for found, _ in readings(command.name, command.args):
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
    if name in {"sed", "gsed"} and _sed_acts(command):
        yield opaque("sed may run a command, or read or write another file", "sed e")
    if command.feed.kind is not Input.NONE:
        yield from _prompt(command)
    if name in _SCRIPTED and re.search(r"-f\s*(?:-(?:\s|$)|/dev/)|/dev/fd/63", command.line):
        yield _unseen(command.inner or command.feed.upstream, name)


def _prompt(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings for commands that take their input for orders."""
    if command.name in _TALKERS or _PROMPTS & {*command.operands()[:2]}:
        yield opaque(f"`{command.name}` runs what it reads", f"| {command.name}")
    if command.name in _OBEYS_INPUT and _FETCHERS & {c.name for c in command.feed.upstream}:
        yield Finding(
            f"`{command.name}` would obey what comes straight from the network", "curl | sh"
        )


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


# --- sed: a script is harmless if it is made of these commands; any other runs, reads or writes ---


def _sed_text(mark: str, brackets: str = "") -> str:
    """Return the pattern of a text up to the delimiter that the group `mark` has found."""
    return rf"(?:{brackets}(?!(?P={mark}))[^\\\n]|\\.)*+(?P={mark})"


def _sed_regex(mark: str) -> str:
    # A delimiter in brackets does not end the expression, and is an error for older makes of sed.
    inside = r"(?:\[:\w+:\]|\[(?![:.=])|\\(?!\])|[^\]\[\\\n])"
    return _sed_text(mark, rf"\[\^?+\]?+{inside}*+\]|(?!\[)")


def _sed_address(mark: str) -> str:
    regex = rf"\\?(?P<{mark}>(?<=\\)[^\w\s\\]|/){_sed_regex(mark)}[IM]*+"
    return rf"(?:\d++(?:~\d++)?|[+~]\d++|\$|{regex})[ \t]*+"


_SED_COMMAND = re.compile(
    rf"[\s;}}]++|#[^\n]*+|:[ \t]*+[\w.-]++(?=[\s;}}]|$)"
    # Addresses, then what stands alone, jumps, `s`, `y`, a text up to the end of its line.
    rf"|(?:{_sed_address('a')}(?:,[ \t]*+{_sed_address('b')})?)?[!\s]*+"
    r"(?:\{|(?:[pPdDnNhHgGxzF=]|[qQlL][ \t]*+\d*+|[btT][ \t]*+[\w.-]*+"
    rf"|s(?P<s>[^\w\s\\]){_sed_regex('s')}{_sed_text('s')}[gpiImM0-9]*+"
    rf"|y(?P<y>[^\w\s\\]){_sed_text('y')}{_sed_text('y')}"
    r")(?=[ \t]*+(?:[;\n}#]|$))|[aic](?:[^\\\n]|\\.)*+)",
    re.DOTALL,
)


def _sed_acts(command: ShellCommand) -> bool:
    """Return whether a sed script has more than commands that are known to be harmless."""
    scripts = [*command.values_of("-e", "--expression")]
    files = [*command.values_of("-f", "--file")]
    if STDIN_FILES & {*files}:
        scripts.append(COMPUTED if command.feed.text is None else command.feed.text)
    operands = command.operands()
    if any(re.match(r"-[a-zA-Z]*i\w", a) for a in command.args):
        scripts += operands[:1]  # `-ie` is a suffix, and no script
    if not (scripts or files):
        # Of `-i ''` the second word is a part of the option for some makes of sed.
        scripts = operands[: 2 if operands[:1] == [""] else 1]
    return not sed_harmless("\n".join(scripts))


def sed_harmless(script: str) -> bool:
    position = 0
    while position < len(script):
        found = _SED_COMMAND.match(script, position)
        if found is None:
            return False
        position = found.end()
    return True


# --- variables that decide what other programs run ---

_HARMLESS_VALUES = TABLES["variables"]
_CODE_NAMES = re.compile("|".join(map(translate, listed("code-variables"))))
_ORDINARY = re.compile("|".join(map(translate, listed("plain-variables"))))
_WORD = re.compile(r"[\w./~:,=+@%-]*$")
_USUAL_PROGRAMS = listed("usual-programs")
_OPTION = re.compile(r"-{1,2}[\w][\w.:=/~-]*$")
_PATH_ELEMENT = re.compile(r"/(?!tmp\b|var/tmp\b|dev/shm\b)[\w./+@-]*$")
_GIT_HARMLESS = pattern("git-settings")
_GIT_RUNS = re.compile(r"(?i)core\.(?:pager|editor)$|pager\.|sequence\.editor$")
_OUTPUTS = pattern("output-variables")


def changes_programs(name: str) -> bool:
    return name == "PATH" or (_CODE_NAMES.match(name) is not None and not _ORDINARY.match(name))


def _variables(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for variables and git settings that change what other commands do."""
    for name, value in assignments(command):
        if name == "PATH":
            if not all(_usual(e, command) for e in value.split(":")):
                yield opaque("PATH would find programs in a writable place", "PATH=")
        elif changes_programs(name) and not _harmless(name, value):
            yield opaque(f"`{name}` changes what other programs run", f"{name}=")
        elif command.name != ":" and not _OUTPUTS.match(name):
            pieces = re.split(r"[:,;=\s]", value)
            if any(is_foreign(piece, command, ground) for piece in pieces):
                yield Finding(f"`{name}` points outside of the project", f"{name}=")
    if command.name == "git":
        yield from _git_settings(command)


def _git_settings(command: ShellCommand) -> Iterator[Finding]:
    found = readings("git", command.args)
    before = command.args[: -1 - len(found[0][1])] if found else command.args
    for setting in command.with_argv(("git", *before, "")).values_of("-c", "--config-env"):
        key, _, value = setting.partition("=")
        if not _GIT_HARMLESS.match(key) and not (_GIT_RUNS.match(key) and _runs_nothing(value)):
            yield opaque("it changes what git runs", "git -c")
    for operands, rest in found[:1]:
        if operands[0] == "config" and not _git_config(rest):
            yield opaque("it may change what git runs", "git config")


def _git_config(rest: tuple[str, ...]) -> bool:
    """Return whether `git config` only looks, or sets what is known to run nothing."""
    first = command_start(rest, "-f --file --blob --type --default -t", assigns=False)
    options, operands = rest[:first], rest[first:] if first is not None else ()
    looks = any(a.startswith(("--get", "--list")) or a == "-l" for a in options)
    if looks or len(operands) < 2 or operands[0] in {"get", "list"}:
        return True
    if len(operands) > 2 or any(a[:1] == "-" for a in operands[1:]) or "-f" in options:
        return False
    key, value = operands
    plain = re.match(r"alias\.[\w-]+$", key) and re.match(r"[a-z][a-z-]*(?: -[\w=:-]+)*$", value)
    return bool(plain) or _GIT_HARMLESS.match(key) is not None


def _harmless(name: str, value: str) -> bool:
    known = _HARMLESS_VALUES.get(name)
    if known is not None:
        return re.match(known, value) is not None
    return _runs_nothing(value)


def _runs_nothing(value: str) -> bool:
    """Return whether a value names a usual program with plain options, or nothing."""
    program, *options = value.split() or [":"]
    keys = [o for o in options if not _OPTION.match(o)]
    plain = all(_WORD.match(o) for o in keys) and (program == "ssh" or not keys)
    return program in _USUAL_PROGRAMS and plain and "ommand" not in value


def _usual(element: str, command: ShellCommand) -> bool:
    """Return whether an element of PATH is a place where programs are meant to be."""
    if is_unknown(element):
        # `$PATH` itself, or a directory that a variable names.
        named = is_unknown(element[:1]) and COMPUTED not in element
        return len(element) == 1 or (named and element.endswith("/bin"))
    if re.search(r"(?:^|/)(?:node_modules/\.bin|\.?venv/bin|vendor/bin)/?$", element):
        return True
    if any(cwd and element.startswith(f"{cwd}/") for cwd in command.cwds):
        return False
    return _PATH_ELEMENT.match(element) is not None


# --- SQL ---

_SQL_CLIENTS = pattern("sql-clients")
_SQL_HARMLESS = pattern("sql-harmless")
_SQL_PROGRAM = pattern("sql-program")
_SQL_TEXT = re.compile(r"\s|^[.\\][a-zA-Z!]+$")
_SQL_STRING = re.compile(r"'[^']*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""What is no part of a statement, whichever comes first."""


def _sql(command: ShellCommand) -> Iterator[Finding]:
    texts = [a for a in command.args if _SQL_TEXT.search(a) and a[:1] != "-"]
    if command.name in {"sqlite3", "sqlite", "duckdb"}:
        texts += command.operands()[1:]
    else:
        texts += command.values_of("-c", "-e", "-q", "--command", "--execute")
    for text in (*texts, command.feed.text or ""):
        bare = _SQL_STRING.sub(" ", text)
        bare = re.sub(r"(?m)^[ \t]*([.\\][^\n]*)$", r";\1;", bare)
        if _SQL_PROGRAM.search(bare):
            yield opaque("the query runs a program, or reads or writes files", "sql program")
        elif not all(_SQL_HARMLESS.match(statement) for statement in bare.split(";")):
            yield Finding("the query is not known to be harmless", "sql")
    if command.piped and command.feed.text is None:
        yield Finding("what the database would run is computed", f"| {command.name}")
