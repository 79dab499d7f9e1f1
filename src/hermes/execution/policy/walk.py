"""Follows a script through every branch and lists the commands it would run.

What a command runs in turn (`nested`) is followed as well, so the list is flat: rules look at
commands and never at syntax. Loops over written words are followed once for each word. A script
with assignments is walked twice, because a loop or a function may use a value that is
assigned further down.
"""

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise, takewhile
from time import thread_time

from msgspec import structs

from hermes.execution.policy import syntax
from hermes.execution.policy.code import inspect
from hermes.execution.policy.command import (
    TOO_COMPLICATED,
    Feed,
    Finding,
    Ground,
    Input,
    ShellCommand,
    TooLong,
    base_name,
    listed,
    may_match,
    opaque,
    real_path,
    unreadable,
    where,
)
from hermes.execution.policy.expansion import NUMBER, UNKNOWN, Variables, is_unknown
from hermes.execution.policy.floor import (
    FORK_BOMB,
    find_roots,
    floor_finding,
    mentions_floor,
)
from hermes.execution.policy.grammar import parse_text, read_scripts
from hermes.execution.policy.made import MadeFiles
from hermes.execution.policy.named import (
    INPUT,
    PRINTED,
    SLOT,
    Origins,
    filled,
    named,
    printed,
    prints_number,
)
from hermes.execution.policy.nested import (
    SETTERS,
    SHELLS,
    Nested,
    NestedCommand,
    NestedText,
    nested,
)
from hermes.execution.policy.places import join
from hermes.execution.policy.reach import READS_SECRET, is_store
from hermes.execution.policy.rules import is_interpreter
from hermes.execution.policy.syntax import COMPUTED
from hermes.execution.policy.variables import changes_programs

COMPUTED_NAME = opaque("the name of the command is computed")
MAX_COMMANDS = 400
MAX_NESTING = 12
MAX_STAGES = 64
"""Commands in one pipeline; nobody reads a longer one either."""
MAX_WORDS = 1200
MAX_SECONDS = 0.5
"""Of processor time; what takes longer to follow is not followed to its end."""
MAX_INLINE_SECONDS = 0.015
"""Of the event loop; then another process judges."""
MAX_INLINE_BODY = 16_384
"""Bytes of a function of an earlier call that are read there."""
MAX_PLACES = 6
"""Directories that a script may be in at one point."""
MAX_ROUNDS = 12
"""Words of a loop that are followed one by one."""

_GLOB = re.compile(r"[*?\[]")
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})
_COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"})
_READERS = frozenset({"read", "mapfile", "readarray"})
_MOVES = frozenset({"cd", "pushd", "popd", "chdir"})
_ASSIGNERS = SETTERS | _READERS | {"getopts", "printf", "wait", "unset"}
_NAMED_BY_TEXT = frozenset({"test", "[", "let", *_ASSIGNERS})
"""Builtins that evaluate the subscript of a variable they are given as text."""
_SET_BY_BASH = (
    *("OLDPWD", "DIRSTACK", "_", "COPROC", "REPLY", "MAPFILE", "OPTARG"),
    *("BASH_COMMAND", "BASH_ARGV", "BASH_REMATCH", "BASH_SOURCE", "BASH_EXECUTION_STRING"),
)
PROGRAMS = listed("readers") | listed("network") | listed("blind") | SHELLS | {"sudo", "make"}
PROCESS_FILE = "/dev/fd/63"
"""What a process substitution looks like as an argument."""


class Walk:
    """The commands of a script and what was found while following it."""

    def __init__(self, ground: Ground) -> None:
        self.commands: list[ShellCommand] = []
        self.findings: list[Finding] = []
        self.ground = ground
        self.variables = Variables(ground.user_home, self._substitution)
        self.variables.values = {
            "HOME": ground.user_home,
            "IFS": " \t\n",
            "SHELL": "/bin/bash",
            "BASH": "/bin/bash",
            "HERMES_HOME": ground.hermes_home,
            # Known by name: to signal these is to signal Hermes.
            "PPID": "$PPID",
            "$": "$$",
            **dict.fromkeys(_SET_BY_BASH, COMPUTED),
            **ground.carried.exports,
        }
        self.functions: dict[str, syntax.Script] = {}
        self._stored: Callable[[bytes], syntax.Script] = cache(pickle.loads)
        """Reads what an earlier call has defined."""
        self.made = MadeFiles(ground)
        self.exported: set[str] = set()
        self.exports_all = False
        self._origins = Origins()
        self._taken: set[str] = set()
        """Variables of loops that the loop itself changes, or that have too many values."""
        self._cwds: tuple[str | None, ...] = (ground.cwd,)
        self._look_up = cache(self._where)
        self._via: tuple[str, ...] = ()
        self._running: dict[str, syntax.Script] = {}
        self._called: set[str] = set()
        self._programs: set[tuple[str, str | None]] = set()
        """What one program has imported by now, and where."""
        self._input = Feed()
        """The input of the shell itself, which `exec < file` changes."""
        self._background = self._began = 0
        """How many background jobs lie around this place, and the function that is being run."""
        self._nesting = 0
        self._assigned = False
        self._inline = ground.longest < sys.maxsize
        self._until = thread_time() + (MAX_INLINE_SECONDS if self._inline else MAX_SECONDS)

    def whole(self, script: syntax.Script, feed: Feed | None = None) -> None:
        self.script(script, feed)
        if self._assigned:
            self.commands, self.findings, self.made = [], [], MadeFiles(self.ground)
            self._cwds = (self.ground.cwd,)
            self.script(script, feed)
        self.findings.extend(opaque(doubt) for doubt in self.variables.doubts)

    def read(self) -> dict[str, str]:
        """Return what was read that earlier calls have left behind: files, exports, functions."""
        left = self.ground.carried
        exports = {f"${n}": left.exports[n] for n in self.variables.read & left.exports.keys()}
        functions = {f"{n}()": repr(left.functions[n]) for n in self._called & {*left.functions}}
        return {**self.made.read, **exports, **functions}

    # --- structure ---

    def script(self, script: syntax.Script, feed: Feed | None = None) -> None:
        # Where the script is if a `cd` has failed.
        failed: tuple[str | None, ...] = ()
        branch = self.variables.branch
        for pipeline in script.items:
            if self.exhausted() or len(pipeline.commands) > MAX_STAGES:
                self.findings.append(TOO_COMPLICATED)
                return
            if not pipeline.follows:
                self._cwds = _either(failed, self._cwds)
            if not pipeline.follows or self.variables.branch == branch:
                self.variables.branch = (*branch, id(pipeline)) if pipeline.chained else branch
            before = self._cwds
            self._pipeline(pipeline, feed or self._input)
            failed = _either(failed, before) if self._cwds != before else failed
        self.variables.branch = branch
        self._cwds = _either(failed, self._cwds)

    def exhausted(self) -> bool:
        late = thread_time() > self._until
        if late and self._inline:
            raise TooLong
        return late or len(self.commands) > MAX_COMMANDS

    def _where(self, path: str, cwds: tuple[str | None, ...]) -> tuple[str, ...]:
        self.exhausted()  # one command may name very many paths
        places = where(path, cwds)
        found = [way for place in places for way in self._found(place)]
        return tuple(dict.fromkeys((*places, *found)))

    def _found(self, place: str) -> Iterator[str]:
        """Yield where a glob leads through links among the folders of the project."""
        project = self.ground.project
        if not project or not place.startswith(f"{project}/"):
            return
        *parts, name = place[len(project) + 1 :].split("/")
        folders = [project] if _GLOB.search("/".join(parts)) else []
        for part in parts:
            if _GLOB.search(part):
                below = takewhile(self._has_time, ((f, n) for f in folders for n in _names(f)))
                folders = [f"{f}/{n}" for f, n in below if may_match(n, part)]
            else:
                folders = [f"{f}/{part}" for f in folders]
        for folder in takewhile(self._has_time, folders):
            yield f"{real_path(folder)}/{name}"

    def _has_time(self, _: object) -> bool:
        return not self.exhausted()

    def _pipeline(self, pipeline: syntax.Pipeline, feed: Feed) -> None:
        start, cwds, branch = len(self.commands), self._cwds, self.variables.branch
        forks = len(pipeline.commands) > 1 or pipeline.background
        self._background += pipeline.background
        for index, node in enumerate(pipeline.commands):
            if forks:
                self.variables.branch = (*branch, id(node))
                words = node.words if isinstance(node, syntax.Simple) else ()
                if words and words[0].literal() in self._running:
                    # A function starts itself again in the background or a pipe.
                    self.findings.append(FORK_BOMB)
            if index:
                stage = self.commands[start:]
                output = printed(stage[0]) if len(stage) == 1 else None
                feed = Feed(Input.PIPE, output, (*feed.upstream, *stage))
                start = len(self.commands)
            self._node(node, feed)
        self._background -= pipeline.background
        self.variables.branch = branch
        if forks:
            self._cwds = cwds

    def _node(self, node: syntax.Node, feed: Feed) -> None:
        # PWD is known where the script surely is.
        self.variables.cwd = self._cwds[0] if len(self._cwds) == 1 else None
        if isinstance(node, syntax.Simple):
            self._simple(node, feed)
        elif isinstance(node, syntax.Function):
            if node.name in PROGRAMS:
                self.findings.append(opaque(f"`{node.name}` would mean something else"))
            before = self._function(node.name)
            self.functions[node.name] = node.body
            branch = self.variables.branch
            self.variables.branch = (*branch, id(node))
            self._call_function(node.name, node.body, Feed())
            self.variables.branch = branch
            self.functions[node.name] = _both(before, node.body)
        else:
            self._compound(node, feed)

    def _function(self, name: str) -> syntax.Script | None:
        stored = self.ground.carried.functions.get(name)
        if stored is None or name in self.functions:
            return self.functions.get(name)
        if self._inline and len(stored) > MAX_INLINE_BODY:
            raise TooLong
        return self._stored(stored)

    def defined(self) -> dict[str, bytes]:
        """Return the functions that the script leaves behind."""
        return {name: pickle.dumps(body) for name, body in self.functions.items()}

    def _call_function(self, name: str, body: syntax.Script, feed: Feed) -> None:
        # By identity: a function may define another one of its own name.
        self._called.add(name)
        if any(body is b for b in self._running.values()) or len(self._running) > MAX_NESTING:
            if self._background > self._began:
                self.findings.append(FORK_BOMB)
            return
        if not self._running:
            self._began = self._background
        before, self._running = self._running, {**self._running, name: body}
        self.script(body, feed)
        self._running = before

    def _compound(self, node: syntax.Compound, feed: Feed) -> None:
        start, cwds = len(self.commands), self._cwds
        writes, reads, feed = self._redirects(node.redirects, feed)
        self._origins.note(INPUT, named(self.commands[start:]))
        start = len(self.commands)
        fields = [f for word in node.words for f in self.variables.fields(word)]
        if node.kind == "test" and any(f in _COMPARISONS for f in fields):
            for text in fields:
                self.variables.arithmetic(text)
        if node.kind == "for":
            origin = self._origins.of(node.words, self.commands[start:])
            self._origins.note(node.variable, origin)
            self._loop(node, fields, feed)
        branch = self.variables.branch
        for body in node.bodies if node.kind != "for" else ():
            if node.kind != "group":
                self.variables.branch = (*branch, id(body))
            self.script(body, feed)
            self._cwds = _either(cwds, self._cwds)
        self.variables.branch = branch
        if node.kind == "subshell":
            self._cwds = cwds
        if writes:
            feed = Feed(upstream=tuple(self.commands[start:]))
            self._emit(self._command(":", writes=writes, feed=feed))
        if any(is_store(path, self._command(":"), self.ground) for path in reads):
            self.findings.append(READS_SECRET)

    def _loop(self, node: syntax.Compound, fields: list[str], feed: Feed) -> None:
        values, name = self.variables.values, node.variable
        if len(fields) > MAX_ROUNDS or not fields:
            self._taken.add(name)
        self._assigned = True
        for field in [COMPUTED] if name in self._taken else fields:
            self._set(name, field)
            values[name] = field
            cwds = self._cwds
            self.script(node.bodies[0], feed)
            self._cwds = _either(cwds, self._cwds)
            if values[name] != field:
                self._taken.add(name)
        if name in self._taken or len(fields) > 1:
            values[name] = COMPUTED

    # --- simple commands ---

    def _command(self, path: str, **fields: object) -> ShellCommand:
        return ShellCommand(
            path=path,
            name=base_name(path),
            cwds=self._cwds,
            look_up=self._look_up,
            via=self._via,
            **fields,  # type: ignore[arg-type]
        )

    def _substitution(self, script: syntax.Script, kind: str) -> str | None:
        start = len(self.commands)
        via, cwds = self._via, self._cwds
        self._via = (*via, "$(")
        self.script(script, Feed(Input.PIPE, None, tuple(self.commands)) if kind == ">(" else None)
        own = self.commands[start:]
        self._via, self._cwds = via, cwds
        if kind != "$(":
            return PROCESS_FILE
        if not script.items:
            return ""
        # Only of one plain command anybody knows what it prints, and of a pipe by its end.
        stages = script.items[0].commands if len(script.items) == 1 else ()
        plain = bool(stages) and all(isinstance(node, syntax.Simple) for node in stages)
        if not plain or len(own) != len(stages):
            return None
        output = printed(own[-1])
        return NUMBER if output is None and prints_number(own[-1]) else output

    def _redirects(
        self, redirects: tuple[syntax.Redirect, ...], feed: Feed
    ) -> tuple[tuple[str, ...], tuple[str, ...], Feed]:
        """Return what is written, what is read, and the input that a command gets."""
        writes: list[str] = []
        reads: list[str] = []
        for redirect in redirects:
            fd = redirect.fd
            if fd.startswith("{"):
                self._set(fd[1:-1], COMPUTED)
            text = self.variables.text(redirect.word)
            if redirect.op.startswith("<") and (
                fd not in {"", "0"} or redirect.op == "<>" or (redirect.op == "<&" and text != "-")
            ):
                self.findings.append(opaque("it reads from a descriptor of its own"))
            if redirect.op.startswith("<<"):
                feed = Feed(Input.TEXT, text + "\n", feed.upstream)
            elif redirect.op == "<":
                reads.append(text)
                if any(isinstance(p, syntax.Subst) and p.kind == "<(" for p in redirect.word.parts):
                    feed = Feed(Input.PIPE, None, tuple(self.commands))
                else:
                    feed = Feed(Input.FILE, None, feed.upstream)
            elif redirect.op == "<&":
                reads.append(f"/dev/fd/{text}")
            elif redirect.op in _WRITES and not text.rstrip("-").isdigit() and text != "-":
                writes.append(text)
        return tuple(writes), tuple(reads), feed

    def _simple(self, node: syntax.Simple, feed: Feed) -> None:
        start = len(self.commands)
        assigns = [(assign.name, self._value(assign)) for assign in node.assigns]
        argv: list[str] = []
        for word in node.words:
            argv += self.variables.fields(word) if len(argv) <= MAX_WORDS else ()
        if sum(map(len, argv)) > self.ground.longest:
            raise TooLong
        if len(argv) > MAX_WORDS:
            self.findings.append(TOO_COMPLICATED)
            argv = argv[:100]
        writes, reads, feed = self._redirects(node.redirects, feed)
        inner = tuple(self.commands[start:])
        if node.words and not argv:
            argv = [COMPUTED if inner else UNKNOWN]
        if node.words and not node.words[0].static():
            self.findings.append(COMPUTED_NAME)
        if any(is_interpreter(base_name(word)) for word in argv):
            self._files_as_code(node.words, argv)
        branch = self.variables.branch
        if assigns and argv and argv[0] not in SETTERS:
            # For this command alone.
            self.variables.branch = (*branch, id(node))
        for name, value in assigns:
            if not (name == "IFS" and argv and argv[0] in _READERS):
                self._assign(name, value)
        name, *args = argv or [":"]
        fields = {"writes": writes, "reads": reads, "feed": feed, "inner": inner}
        command = self._command(name, args=tuple(args), assigns=tuple(assigns), **fields)
        self._emit(command)
        words = (*node.words, *(redirect.word for redirect in node.redirects))
        self._as_printed(command, self._origins.of(words, inner))
        self.variables.branch = branch

    def _as_printed(self, command: ShellCommand, paths: tuple[str, ...]) -> None:
        """Judge a command as if what it is given by others were written there."""
        words = (*command.args, *command.writes, *command.reads)
        if command.name in _MOVES | _ASSIGNERS:
            read = self._origins.known(INPUT) if command.name in _READERS else ()
            origin = (*paths, *read, *named(command.feed.upstream))
            for variable in command.operands():
                self._origins.note(variable.partition("=")[0], origin)
        elif paths and any(map(SLOT.search, words)):
            via = (*command.via, PRINTED)
            ways = [filled(part, paths) for part in (command.args, command.writes, command.reads)]
            args, writes, reads = ways
            self._emit(structs.replace(command, args=args, writes=writes, reads=reads, via=via))

    def _files_as_code(self, words: tuple[syntax.Word, ...], argv: list[str]) -> None:
        """Note whether the names of files that a glob finds are put into code."""
        code = argv[0] == "eval" or any(a[:1] == "-" and a[-1:] in "ceE" for a in argv)
        names = [p.name for word in words for p in word.parts if isinstance(p, syntax.Param)]
        if code and any(c in (self.variables.get(name) or "") for name in names for c in "*?["):
            self.findings.append(opaque("the name of a file would be run as code"))

    def _assign(self, name: str, value: str) -> None:
        self._assigned = True
        self.variables.assign(name, value)

    def _set(self, name: str, value: str) -> None:
        """Note what a builtin or a loop makes of a variable."""
        if changes_programs(name):
            self.findings.append(opaque(f"`{name}` would be set in a roundabout way"))
        if value == COMPUTED:
            self._assign(name, value)

    def _value(self, assign: syntax.Assign) -> str:
        start = len(self.commands)
        value = self.variables.text(assign.value)
        origin = self._origins.of([assign.value], self.commands[start:])
        self._origins.note(assign.name, origin)
        if "$(" in value or "`" in value:
            # Prompts and arithmetic run substitutions that are stored as text.
            try:
                self.variables.text(parse_text(value))
            except syntax.ShellSyntaxError as error:
                self.findings.append(unreadable(str(error)))
        if assign.computed:
            self._assign(assign.name, COMPUTED)
        return COMPUTED + value if assign.computed else value

    # --- one command: what it changes, runs and leaves behind ---

    def _emit(self, command: ShellCommand) -> None:
        if self._function(command.path):
            command = structs.replace(command, via=(*command.via, "function"))
        self.commands.append(command)
        if self.exhausted() or self._nesting > MAX_NESTING:
            self.findings.append(TOO_COMPLICATED)
            return
        first = len(self.commands) == 1
        self.findings.extend(self.made.check(command, first=first))
        if command.via[-1:] != (PRINTED,):
            self._effects(command)
        self._nesting += 1
        files = self.made.texts(command, first=first)
        for inner in (*nested(command), *files, *_behind_link(command)):
            self._nested(command, inner)
        self._nesting -= 1
        text = printed(structs.replace(command, writes=())) if command.writes else None
        if PRINTED not in command.via:  # it may name other files, or none
            self.made.remember(command, text)

    def _effects(self, command: ShellCommand) -> None:
        """Keep track of what a builtin or a function changes."""
        name, args = command.name, command.args
        if name in _MOVES:
            operand = (*command.operands(), "-" if name == "popd" else self.ground.user_home)[0]
            self._cwds = tuple(dict.fromkeys(join(cwd, operand) for cwd in self._cwds))
        elif name in _ASSIGNERS:
            self._builtin_assigns(command)
        elif name == "set":
            self.exports_all = self.exports_all or "a" in command.letters()
        elif name == "exec" and not args and command.feed.kind is not Input.NONE:
            self._input = command.feed
            self.findings.append(opaque("it replaces the input of the shell"))
        elif body := self._function(command.path):
            self._call_function(command.path, body, command.feed)
        self._subscripts(command)

    def _subscripts(self, command: ShellCommand) -> None:
        """Note names of variables that a builtin is given as text: it runs what they hold."""
        name, args = command.name, command.args
        if name not in _NAMED_BY_TEXT or (name == "printf" and args[:1] != ("-v",)):
            return
        for arg in args if name == "let" else ():
            self.variables.arithmetic(arg)
        names = [b for a, b in pairwise(args) if a == "-v"]
        if name not in {"test", "[", "printf", "wait", "getopts"}:
            names = [a.partition("=")[0] for a in args if a[:1] != "-"]
        written = any("[" in a and re.search(r"[$`]", a) for a in args)
        if written or any(COMPUTED in n or is_unknown(n[:1]) for n in names):
            self.findings.append(opaque(f"`{name}` would evaluate a subscript"))

    def _builtin_assigns(self, command: ShellCommand) -> None:
        name, args = command.name, command.args
        if name in SETTERS:
            if name != "export" and command.letters() & set("nilucI"):
                self.findings.append(opaque(f"`{name}` gives a variable another meaning"))
            given = [arg.partition("=") for arg in args]
            for variable, equals, value in given:
                if equals:
                    self._assign(variable, value)
            if name == "export" or "x" in command.letters():
                self.exported |= {v for v, *_ in (*given, *command.assigns)}
        elif name != "printf":
            for variable in command.operands() or ["REPLY", "MAPFILE"]:
                self._set(variable, COMPUTED)
        elif args and args[0][:2] == "-v":
            self._set(args[0][2:] or "".join(args[1:2]), COMPUTED)

    # --- what a command runs in turn ---

    def _nested(self, command: ShellCommand, inner: Nested) -> None:
        if isinstance(inner, NestedText):
            if inner.language == "shell":
                self._text(command, inner)
            else:
                self.program(inner.language, inner.text, command)
        elif inner.argv:
            assigns = command.assigns if inner.via == "env" else ()
            via = (*command.via, inner.via)
            for place in command.values_of("-C", "--chdir") if inner.via == "env" else ():
                command = structs.replace(command, cwds=(join(command.cwd, place),))
            below = tuple(find_roots(command.args)) if inner.via == "find" else ()
            if below and "-execdir" in command.args:
                command = structs.replace(command, cwds=(None,))
            fields = {"writes": (), "via": via, "assigns": assigns, "found_below": below}
            self._emit(command.with_argv(inner.argv, **fields))
            if body := self._function(inner.argv[0]):
                self._call_function(inner.argv[0], body, command.feed)

    def program(self, language: str, text: str, command: ShellCommand | None = None) -> None:
        if len(text) > self.ground.longest:
            raise TooLong
        base = command or self._command(language)
        if (text, base.cwd) in self._programs:
            return  # modules import each other
        if (base.feed.text or "").strip() == text.strip():
            base = structs.replace(base, feed=Feed(base.feed.kind, None, base.feed.upstream))
        outermost, self._programs = self._programs, {*self._programs, (text, base.cwd)}
        doubts, files = inspect(language, text, base.cwd)
        self.findings.extend(doubts)
        if doubts and mentions_floor(text, self.ground.user_homes):
            self.findings.append(floor_finding("the program does what is never run", base))
        for script in files:
            self._text(base, NestedText(script, language, lenient=True))
        self._programs = self._programs if outermost else set()

    def _text(self, command: ShellCommand, inner: NestedText) -> None:
        if inner.text in {UNKNOWN, COMPUTED}:
            # Of shells and `eval` the rules know more: what prints the text.
            if not inner.lenient and inner.via not in {*SHELLS, "eval", "source"}:
                self.findings.append(opaque(f"what {inner.via} would run is computed"))
            return
        via, cwds = self._via, self._cwds
        self._via = (*command.via, inner.via, *(["maybe"] if inner.lenient else []))
        self._cwds = command.cwds
        if inner.via == "local-ssh":
            self._cwds = (self.ground.user_home,)
        feed = command.feed
        if feed.text is not None and feed.text.strip() == inner.text.strip():
            feed = Feed(feed.kind, None, feed.upstream)
        if len(inner.text) > self.ground.longest:
            raise TooLong
        scripts, trouble = read_scripts(inner.text, self._nesting)
        if trouble and not inner.lenient:
            self.findings.append(unreadable(trouble))
        for script in scripts:
            self.script(script, feed)
        if inner.fresh or self._cwds == command.cwds:
            self._cwds = cwds
        self._via = via


def _names(folder: str) -> Iterator[str]:
    """Yield what is in a folder; nothing if it is none."""
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        yield from (entry.name for entry in entries)


def _either(first: tuple[str | None, ...], then: tuple[str | None, ...]) -> tuple[str | None, ...]:
    places = tuple(dict.fromkeys((*(p for p in first if p not in then), *then)))
    return places if len(places) <= MAX_PLACES else (None,)


def _both(before: syntax.Script | None, then: syntax.Script) -> syntax.Script:
    """Return a function that was defined before and may have been defined anew, or not."""
    # A definition may stand behind `false &&`, in another process, or behind the end of a script.
    if before is None:
        return then
    new = tuple(item for item in then.items if item not in before.items)
    return structs.replace(before, items=(*before.items, *new)) if new else before


def _behind_link(command: ShellCommand) -> Iterator[Nested]:
    """Yield the command that a path on the disk really is."""
    if "/" in command.path and "link" not in command.via and not command.computed:
        for clean in command.where(command.path)[len(command.cwds) :]:
            if base_name(clean) != command.name:
                yield NestedCommand((clean, *command.args), "link")


def walk(script: syntax.Script, ground: Ground, feed: Feed | None = None) -> Walk:
    found = Walk(ground)
    found.whole(script, feed)
    return found
