"""Follows a script through every branch and lists the commands it would run.

Each simple command becomes one `ShellCommand` for each value its variables can have. What
a command runs in turn (`nested`) is followed as well, so the list is flat: rules look at
commands and never at syntax. A script with assignments is walked twice, because a loop or
a function may use a value that is assigned further down.
"""

import base64
import binascii
import posixpath
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from time import thread_time

from msgspec import Struct, structs

from hermes.execution.policy.code import inspect, language_of
from hermes.execution.policy.command import (
    TOO_COMPLICATED,
    UNREADABLE,
    Feed,
    Finding,
    Ground,
    Input,
    Paths,
    ShellCommand,
    absolute,
    base_name,
    opaque,
)
from hermes.execution.policy.floor import FORK_BOMB, guess_name
from hermes.execution.policy.nested import (
    SETTERS,
    SHELLS,
    Nested,
    NestedCommand,
    NestedText,
    nested,
    runs,
    unpacks,
)
from hermes.execution.policy.reader.expansion import (
    COMPUTED,
    NUMBER,
    PROCESS_FILE,
    UNKNOWN,
    UNSET,
    Expander,
    Scope,
    is_unknown,
    variables_in,
)
from hermes.execution.policy.reader.grammar import parse_text, read_scripts
from hermes.execution.policy.reader.lexer import ShellSyntaxError, decode_escapes
from hermes.execution.policy.reader.syntax import (
    Assign,
    Compound,
    Function,
    Node,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Subst,
)
from hermes.execution.policy.rules.network import READS_SECRET, is_store
from hermes.execution.policy.rules.places import join, written_paths
from hermes.execution.policy.rules.variables import changes_programs

COMPUTED_NAME = opaque("the name of the command is computed")
_ASSIGNERS = SETTERS | {"read", "mapfile", "readarray", "getopts", "printf", "wait"}
_FORMAT = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?([bcdqsux]))")
_MAX_LENGTH = 65_536


def static_output(command: ShellCommand) -> str | None:
    """Return what `command` prints, or None if only running it would tell."""
    printer = _PRINTERS.get(command.name)
    if printer is None or command.writes:
        return None
    text = printer(command)
    return None if text is None or len(text) > _MAX_LENGTH else text


def _echo(command: ShellCommand) -> str | None:
    words = list(command.args)
    options = ""
    while words and re.fullmatch(r"-[neE]+", words[0]):
        options += words.pop(0)
    text = " ".join(words)
    text = decode_escapes(text) if "e" in options else text
    return text if "n" in options else text + "\n"


def _printf(command: ShellCommand) -> str | None:
    words = list(command.args)
    if words[:1] == ["--"]:
        words.pop(0)
    return None if not words or words[0] == "-v" else render_printf(words[0], words[1:])


def render_printf(template: str, values: list[str]) -> str:
    """Return what `printf template values…` prints, for the formats that matter here."""
    pending = list(values)
    template = decode_escapes(template)
    out: list[str] = []

    def one(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "%"
        value = pending.pop(0) if pending else ""
        return decode_escapes(value) if match.group(1) == "b" else value

    while True:
        before = len(pending)
        out.append(_FORMAT.sub(one, template))
        if not pending or len(pending) == before or len(out) > 64:
            return "".join(out)


def _decoded(command: ShellCommand) -> str | None:
    text, letters = command.feed.text, command.letters()
    if text is None or is_unknown(text):
        return None
    try:
        if command.name == "rev":
            return "\n".join(line[::-1] for line in text.split("\n"))
        if command.name == "xxd":
            return bytes.fromhex("".join(text.split())).decode() if letters >= {"r", "p"} else None
        decodes = letters & {"d", "D"} or command.has_long("decode")
        return base64.b64decode("".join(text.split())).decode() if decodes else None
    except (binascii.Error, ValueError):
        return None


def _which(command: ShellCommand) -> str | None:
    operands = command.operands()
    if len(operands) != 1 or (command.name == "command" and not command.letters() & {"v", "V"}):
        return None
    return operands[0] + "\n"


_PRINTERS: dict[str, Callable[[ShellCommand], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": lambda command: command.feed.text if set(command.args) <= {"-", "-u"} else None,
    **dict.fromkeys(("base64", "xxd", "rev"), _decoded),
    **dict.fromkeys(("which", "command"), _which),
    "mktemp": lambda _: "/tmp/tmp.made\n",  # noqa: S108
    "pwd": lambda command: f"{command.cwd}\n" if command.cwd and len(command.cwds) == 1 else None,
    **dict.fromkeys(("true", ":"), lambda command: None if command.reads else ""),
}


MAX_COMMANDS = 400
MAX_NESTING = 12
MAX_STAGES = 64
"""Commands in one pipeline; nobody reads a longer one either."""
MAX_WORDS = 1200
"""Words of one command."""
MAX_SECONDS = 0.25
"""Of processor time; what takes longer to follow is not followed to its end."""
MAX_PLACES = 6
"""Directories that a script may be in at one point."""

_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})
_COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"})
_NUMERIC = frozenset({"wc", "nproc", "expr", "id", "tput", "getconf", "date"})
"""Commands that print a number, unless an argument says otherwise."""
_NAMED_BY_TEXT = frozenset({"unset", "test", "[", "let", *_ASSIGNERS})
"""Builtins that evaluate the subscript of a variable they are given as text."""
_MAKES_NOTHING = frozenset({"chmod", "chown", "chgrp", "touch", "mkdir", "rm", "unlink", "rmdir"})
_MAX_FILE = 65_536


class _Redirected(Struct, frozen=True):
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    feed: Feed


class Walk:
    """The commands of a script and what was found while following it."""

    def __init__(self, ground: Ground) -> None:
        self.commands: list[ShellCommand] = []
        self.findings: list[Finding] = []
        self.ground = ground
        self.scope = Scope()
        self.scope.values = {
            "HOME": (ground.user_home,),
            "IFS": (" \t\n",),
            "SHELL": ("/bin/bash",),
            "BASH": ("/bin/bash",),
            "PATH": ("/usr/local/bin:/usr/bin:/bin",),
            "HERMES_HOME": (ground.hermes_home,),
            # Known by name: to signal these is to signal Hermes.
            "PPID": ("$PPID",),
            "$": ("$$",),
            **ground.carried.exports,
        }
        self.scope.values["OLDPWD"] = (COMPUTED,)
        self.scope.values["PWD"] = (COMPUTED if ground.cwd is None else ground.cwd,)
        self.functions: dict[str, Script] = dict(ground.carried.functions)
        self.files: dict[str, tuple[str, ...]] = {}
        """What the script makes, with every text that may be in it, if that is known."""
        self.exported: set[str] = set()
        self.exports_all = False
        self._cwds: tuple[str | None, ...] = (ground.cwd,)
        self._paths = Paths()
        self._via: tuple[str, ...] = ()
        self._running: list[Script] = []
        self._input = Feed()
        """The input of the shell itself, which `exec < file` changes."""
        self._nesting = 0
        self._assigned = False
        self._until = thread_time() + MAX_SECONDS

    def whole(self, script: Script, feed: Feed | None = None) -> None:
        """Follow a whole script, again if it assigns variables."""
        self.script(script, feed)
        if self._assigned:
            self.commands, self.findings, self._cwds = [], [], (self.ground.cwd,)
            self.script(script, feed)
        if self.scope.overflow:
            self.findings.append(TOO_COMPLICATED)
        self.findings.extend(opaque(doubt) for doubt in dict.fromkeys(self.scope.doubts))

    # --- structure ---

    def script(self, script: Script, feed: Feed | None = None) -> None:
        # Where the script is if a `cd` has failed.
        failed: tuple[str | None, ...] = ()
        for pipeline in script.items:
            if self.exhausted() or len(pipeline.commands) > MAX_STAGES:
                self.findings.append(TOO_COMPLICATED)
                return
            if not pipeline.follows:
                self._cwds = _either(failed, self._cwds)
            before = self._cwds
            self._pipeline(pipeline, feed or self._input)
            failed = _either(failed, before) if self._cwds != before else failed
        self._cwds = _either(failed, self._cwds)

    def exhausted(self) -> bool:
        """Return whether there is too much to be followed, or it has taken too long."""
        return len(self.commands) > MAX_COMMANDS or thread_time() > self._until

    def _pipeline(self, pipeline: Pipeline, feed: Feed) -> None:
        start, cwds = len(self.commands), self._cwds
        for index, node in enumerate(pipeline.commands):
            if index:
                upstream = (*feed.upstream, *self.commands[start:])
                output = self._output_since(start)
                start = len(self.commands)
                feed = Feed(Input.PIPE, output, upstream)
            self._node(node, feed)
        if len(pipeline.commands) > 1 or pipeline.background:
            self._cwds = cwds

    def _output_since(self, start: int) -> str | None:
        """Return what the previous stage prints, if it is one command whose output is known."""
        own = [c for c in self.commands[start:] if c.via == self._via]
        return static_output(own[0]) if len(own) == 1 else None

    def _node(self, node: Node, feed: Feed) -> None:
        if isinstance(node, Simple):
            names = variables_in((*node.words, *(a.value for a in node.assigns if a.value)))
            for choice in self.scope.choices(names) if names else [{}]:
                self.scope.choice = choice
                self._simple(node, feed)
            self.scope.choice = {}
        elif isinstance(node, Function):
            self.functions[node.name] = node.body
            if _bombs(node):
                self.findings.append(FORK_BOMB)
            self._call_function(node.name, Feed(), None)
        else:
            self._compound(node, feed)

    def _call_function(self, name: str, feed: Feed, args: tuple[str, ...] | None) -> None:
        # By identity: a function may define another one of its own name.
        body = self.functions[name]
        if any(body is b for b in self._running) or len(self._running) > MAX_NESTING:
            return
        positional, self.scope.positional = self.scope.positional, args
        choice, self.scope.choice = self.scope.choice, {}
        self._running.append(body)
        self.script(body, feed)
        self._running.pop()
        self.scope.positional, self.scope.choice = positional, choice

    def _compound(self, node: Compound, feed: Feed) -> None:
        redirected = self._redirects(node.redirects, feed)
        start, cwds = len(self.commands), self._cwds
        fields = [f for word in node.words for f in self._expander().fields(word)]
        if node.kind == "test" and any(f in _COMPARISONS for f in fields):
            for text in fields:
                self.scope.arithmetic(text)
        if node.kind == "for":
            for field in fields or [UNKNOWN]:
                self._set(node.variable, field)
        for body in node.bodies:
            self.script(body, redirected.feed)
            self._cwds = _either(cwds, self._cwds)
        if node.kind == "subshell":
            self._cwds = cwds
        if redirected.writes:
            feed = Feed(upstream=tuple(self.commands[start:]))
            self._emit(self._command(":", writes=redirected.writes, feed=feed))
        if any(is_store(path, self._command(":"), self.ground) for path in redirected.reads):
            self.findings.append(READS_SECRET)

    # --- simple commands ---

    def _command(self, path: str, **fields: object) -> ShellCommand:
        return ShellCommand(
            path=path,
            name=base_name(path),
            cwds=self._cwds,
            paths=self._paths,
            via=self._via,
            **fields,  # type: ignore[arg-type]
        )

    def _expander(self) -> Expander:
        return Expander(self.scope, self.ground.user_home, self._substitution)

    def _substitution(self, script: Script, kind: str) -> str | None:
        start = len(self.commands)
        via, cwds, choice = self._via, self._cwds, self.scope.choice
        self._via = (*via, "$(")
        written = Feed(Input.PIPE, None, tuple(self.commands)) if kind == ">(" else None
        self.script(script, written)
        own = [c for c in self.commands[start:] if c.via == self._via]
        self._via, self._cwds, self.scope.choice = via, cwds, choice
        output = static_output(own[-1]) if len(script.items) == 1 and own else None
        if not script.items:
            output = ""
        if kind == "$(":
            return NUMBER if output is None and own and _prints_number(own[-1]) else output
        path = f"{PROCESS_FILE}{len(self.files)}"
        self.files[path] = (output or "",)
        return path

    def _redirects(self, redirects: tuple[Redirect, ...], feed: Feed) -> _Redirected:
        writes: list[str] = []
        reads: list[str] = []
        for redirect in redirects:
            expander, fd = self._expander(), redirect.fd
            if fd.startswith("{"):
                self._set(fd[1:-1], COMPUTED)
            text = expander.text(redirect.body if redirect.body is not None else redirect.target)
            if redirect.op.startswith("<") and (
                fd not in {"", "0"} or redirect.op == "<>" or (redirect.op == "<&" and text != "-")
            ):
                self.findings.append(opaque("it reads from a descriptor of its own"))
            if redirect.body is not None or redirect.op.startswith("<<"):
                feed = Feed(Input.TEXT, text + "\n", feed.upstream)
            elif redirect.op == "<":
                reads.append(text)
                parts = redirect.target.parts if redirect.target is not None else ()
                if any(isinstance(p, Subst) and p.kind == "<(" for p in parts):
                    feed = Feed(Input.PIPE, None, tuple(self.commands))
                else:
                    feed = Feed(Input.FILE, None, feed.upstream)
            elif redirect.op == "<&":
                reads.append(f"/dev/fd/{text}")
            elif redirect.op in _WRITES and not text.rstrip("-").isdigit() and text != "-":
                writes.append(text)
        return _Redirected(tuple(writes), tuple(reads), feed)

    def _simple(self, node: Simple, feed: Feed) -> None:
        start = len(self.commands)
        assigns = [(assign.name, self._value(assign)) for assign in node.assigns]
        expander = self._expander()
        argv = [field for word in node.words for field in expander.fields(word)]
        if len(argv) > MAX_WORDS:
            self.findings.append(TOO_COMPLICATED)
            argv = argv[:100]
        redirected = self._redirects(node.redirects, feed)
        inner = tuple(self.commands[start:])
        if node.words and not argv:
            argv = [COMPUTED if inner else UNKNOWN]
        if node.words and not node.words[0].static():
            self.findings.append(COMPUTED_NAME)
        readers = {"read", "mapfile", "readarray"}
        for assign, (name, value) in zip(node.assigns, assigns, strict=True):
            if assign.items is None and not (name == "IFS" and argv and argv[0] in readers):
                self._assign(name, value)
        self._emit(
            self._command(
                argv[0] if argv else ":",
                args=tuple(argv[1:]),
                writes=redirected.writes,
                reads=redirected.reads,
                assigns=tuple(assigns),
                feed=redirected.feed,
                inner=inner,
            )
        )

    def _assign(self, name: str, value: str) -> None:
        self._assigned = True
        self.scope.assign(name, value)

    def _set(self, name: str, *values: str) -> None:
        """Note what a builtin or a loop makes of a variable."""
        if changes_programs(name):
            self.findings.append(opaque(f"{name} would be set in a roundabout way"))
        for value in values:
            self._assign(name, value)

    def _value(self, assign: Assign) -> str:
        expander = self._expander()
        if assign.items is not None:
            items = tuple(f for word in assign.items for f in expander.fields(word))
            self.scope.assign_array(assign.name, items, append=assign.append)
            self._assigned = True
            return " ".join(items)
        value = expander.text(assign.value)
        if assign.append:
            value = (self.scope.get(assign.name) or "") + value
        if "$(" in value or "`" in value:
            # Prompts and arithmetic run substitutions that are stored as text.
            try:
                self._expander().text(parse_text(value))
            except ShellSyntaxError:
                self.findings.append(UNREADABLE)
        return value

    # --- one command: what it changes, runs and leaves behind ---

    def _emit(self, command: ShellCommand) -> None:
        guessed = guess_name(command)
        if guessed != command.name:
            command = command.with_argv([guessed, *command.args])
        if command.path in self.functions:
            command = structs.replace(command, via=(*command.via, "function"))
        self.commands.append(command)
        if self.exhausted() or self._nesting > MAX_NESTING:
            self.findings.append(TOO_COMPLICATED)
            return
        self._effects(command)
        self._nesting += 1
        for inner in (*nested(command), *self._from_files(command), *_behind_link(command)):
            self._nested(command, inner)
        self._nesting -= 1
        self._remember(command)

    def _effects(self, command: ShellCommand) -> None:
        """Keep track of what a builtin or a function changes."""
        name, args = command.name, command.args
        if name in {"cd", "pushd", "popd", "chdir"}:
            operand = (*command.operands(), "-" if name == "popd" else self.ground.user_home)[0]
            self._cwds = tuple(dict.fromkeys(join(cwd, operand) for cwd in self._cwds))
            for cwd in self._cwds:
                self._assign("PWD", COMPUTED if cwd is None else cwd)
        elif name in _ASSIGNERS:
            self._builtin_assigns(command)
        elif name in {"shift", "set"}:
            given = args[args.index("--") + 1 :] if name == "set" and "--" in args else None
            self.scope.positional = given if self.scope.positional in {None, given} else None
            self.exports_all = self.exports_all or (name == "set" and "a" in command.letters())
        elif name == "unset":
            for variable in command.operands():
                self._assign(variable, UNSET)
        elif name == "exec" and not args and command.feed.kind is not Input.NONE:
            self._input = command.feed
            self.findings.append(opaque("it replaces the input of the shell"))
        elif command.path in self.functions:
            self._call_function(command.path, command.feed, args)
        self._subscripts(command)

    def _subscripts(self, command: ShellCommand) -> None:
        name, args = command.name, command.args
        named = args if name != "printf" or (args[:1] and args[0][:2] == "-v") else ()
        if name in _NAMED_BY_TEXT and any("[" in a and re.search(r"[$`]", a) for a in named):
            self.findings.append(opaque(f"{name} would evaluate a subscript"))

    def _builtin_assigns(self, command: ShellCommand) -> None:
        name, args, text = command.name, command.args, command.feed.text
        if name in SETTERS:
            exports = name == "export" or "x" in command.letters()
            if name != "export" and command.letters() & set("nilucI"):
                self.findings.append(opaque(f"{name} gives a variable another meaning"))
            for variable, equals, value in (arg.partition("=") for arg in args):
                if equals:
                    self._assign(variable, value)
                if exports:
                    self.exported.add(variable)
            self.exported |= {variable for variable, _ in command.assigns if exports}
        elif name != "printf":
            line = COMPUTED if text is None or is_unknown(text) else text.split("\n", 1)[0]
            for variable in command.operands() or ["REPLY", "MAPFILE"]:
                self._set(variable, line, COMPUTED)
        elif args and args[0][:2] == "-v":
            variable, *rest = (args[0][2:], *args[1:]) if args[0] != "-v" else args[1:] or ("",)
            output = static_output(command.with_argv(["printf", *rest]))
            self._set(variable, COMPUTED if output is None else output, COMPUTED)

    # --- files that are made and then run ---

    def _remember(self, command: ShellCommand) -> None:
        """Note what a script writes, in case it runs that file later."""
        if command.name in _MAKES_NOTHING:
            return
        self._remember_links(command)
        text = None
        if command.name == "tee":
            text = command.feed.text
        elif command.writes:
            text = static_output(command.with_argv([command.path, *command.args], writes=()))
        for path in written_paths(command):
            for key in (absolute(path, cwd) for cwd in command.cwds):
                before = self.files.get(key, ())
                # Replaced or appended to: either may be what is run in the end.
                whole = (before[-1] if before else "") + (text or "")
                texts = (*before[-4:], text, whole) if text is not None else ()
                self.files[key] = tuple(dict.fromkeys(texts))
        for folder in unpacks(command):
            self.files[absolute(posixpath.join(folder, "*"), command.cwd)] = ()

    def _remember_links(self, command: ShellCommand) -> None:
        letters = command.letters()
        if command.name not in {"ln", "link", "cp"} or not (
            command.name != "cp" or letters & {"s", "l"}
        ):
            return
        *targets, link = command.operands() or [""]
        base = posixpath.dirname(link) if "s" in letters else ""
        for target in targets:
            source = join(command.cwd, posixpath.join(base, target)) or target
            for place in (link, posixpath.join(link, posixpath.basename(target))):
                self._paths.link(absolute(place, command.cwd), source)

    def _from_files(self, command: ShellCommand) -> Iterator[Nested]:
        """Yield the text of files that `command` runs and this session has made."""
        carried = self.ground.carried.files
        if not (self.files or carried) or command.name == "tee":
            return
        shell = command.name in SHELLS or command.name in {"source", "."}
        language = "shell" if shell else language_of(command.name)
        for path in runs(command):
            for clean in (absolute(path, cwd) for cwd in command.cwds):
                texts = _made(clean, self.files)
                if texts is None:
                    texts = _made(clean, carried) or _on_disk(clean, _made(clean, carried))
                if texts is None:
                    continue
                if not texts:
                    self.findings.append(opaque("it runs a file that was just made", "made, run"))
                for text in texts:
                    other = language or ("" if text.startswith("#!") else "shell")
                    yield NestedText(text, command.name, other or _shebang(text))

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
            self._emit(command.with_argv(inner.argv, writes=(), via=via, assigns=assigns))
            if inner.argv[0] in self.functions:
                self._call_function(inner.argv[0], command.feed, inner.argv[1:])

    def program(self, language: str, text: str, command: ShellCommand | None = None) -> None:
        """Follow a program in another language."""
        known = inspect(language, text)
        self.findings.extend(known.doubts)
        base = command or self._command(language)
        for script in known.scripts:
            self._text(base, NestedText(script, language, lenient=True))

    def _text(self, command: ShellCommand, inner: NestedText) -> None:
        if inner.text in {UNKNOWN, COMPUTED}:
            # Of shells and `eval` the rules know more: what prints the text.
            if not inner.lenient and inner.via not in {*SHELLS, "eval", "source"}:
                self.findings.append(opaque(f"what {inner.via} would run is computed"))
            return
        via, positional, cwds = self._via, self.scope.positional, self._cwds
        choice, self.scope.choice = self.scope.choice, {}
        self._via = (*command.via, inner.via, *(["maybe"] if inner.lenient else []))
        feed = command.feed
        if feed.text is not None and feed.text.strip() == inner.text.strip():
            feed = Feed(feed.kind, None, feed.upstream)
        if inner.fresh:
            self.scope.positional = inner.positional
            if inner.zero:
                self._assign("0", inner.zero)
        scripts, readable = read_scripts(inner.text, self._nesting)
        if not readable and not inner.lenient:
            self.findings.append(UNREADABLE)
        for script in scripts:
            self.script(script, feed)
        if inner.fresh:
            self._cwds = cwds
        self.scope.positional, self.scope.choice = positional, choice
        self._via = via


def _either(first: tuple[str | None, ...], then: tuple[str | None, ...]) -> tuple[str | None, ...]:
    places = tuple(dict.fromkeys((*(p for p in first if p not in then), *then)))
    return places if len(places) <= MAX_PLACES else (None,)


def _prints_number(command: ShellCommand) -> bool:
    return command.name in _NUMERIC and not any(re.search(r"[\[$`*?]", a) for a in command.args)


def _made(path: str, files: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the texts of a file that was made; None if it was not."""
    if path in files or not files:
        return files.get(path)
    for made, texts in files.items():
        if fnmatchcase(path, made) or (any(c in path for c in "*?[") and fnmatchcase(made, path)):
            return texts
    return None


def _on_disk(path: str, made: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the text of a file that an earlier call has made."""
    if made is None:
        return None
    try:
        if not Path(path).is_file():
            return ()
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except (OSError, ValueError):
        return ()
    return () if len(data) > _MAX_FILE or b"\0" in data else (data.decode(errors="replace"),)


def _shebang(text: str) -> str:
    name = base_name(text.partition("\n")[0].removeprefix("#!").replace("env ", "/").strip())
    return "shell" if name.split(" ")[0] in SHELLS else language_of(name.split(" ")[0]) or "other"


def _behind_link(command: ShellCommand) -> Iterator[Nested]:
    """Yield the command that a path on the disk really is."""
    if "/" in command.path and "link" not in command.via and not command.computed:
        for clean in command.where(command.path)[len(command.cwds) :]:
            if base_name(clean) != command.name:
                yield NestedCommand((clean, *command.args), "link")


def _bombs(node: Function) -> bool:
    """Return whether a function starts itself again in the background or a pipe."""
    stack = list(node.body.items)
    while stack:
        pipeline = stack.pop()
        for command in pipeline.commands:
            if isinstance(command, Compound):
                stack.extend(item for body in command.bodies for item in body.items)
            elif isinstance(command, Simple) and command.words:
                spawns = pipeline.background or len(pipeline.commands) > 1
                if spawns and command.words[0].literal() == node.name:
                    return True
    return False


def walk(script: Script, ground: Ground, feed: Feed | None = None) -> Walk:
    """Follow `script` and return what it would run."""
    found = Walk(ground)
    found.whole(script, feed)
    return found
