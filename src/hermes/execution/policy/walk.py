"""Follows a script through every branch and lists the commands it would run.

Each simple command becomes one `ShellCommand` for each value its variables can have. What
a command runs in turn (`nested`) is followed as well, so the list is flat: rules look at
commands and never at syntax. A script with assignments is walked twice, because a loop or
a function may use a value that is assigned further down.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from hermes.execution.policy.code import inspect, language_of
from hermes.execution.policy.command import (
    TOO_COMPLICATED,
    UNREADABLE,
    Feed,
    Finding,
    Ground,
    Input,
    ShellCommand,
    base_name,
)
from hermes.execution.policy.floor import FORK_BOMB, guess_name
from hermes.execution.policy.nested import SETTERS, SHELLS, Nested, NestedText, nested
from hermes.execution.policy.reader.expansion import (
    COMPUTED,
    PROCESS_FILE,
    UNKNOWN,
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
from hermes.execution.policy.rules.places import absolute, join

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
    "pwd": lambda command: None if command.cwd is None else command.cwd + "\n",
    **dict.fromkeys(("true", ":"), lambda command: None if command.reads else ""),
}


MAX_COMMANDS = 500
MAX_NESTING = 12
MAX_STAGES = 64
"""Commands in one pipeline; nobody reads a longer one either."""
MAX_WORDS = 1200
"""Words of one command."""

_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})


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
        }
        if ground.cwd is not None:
            self.scope.values["PWD"] = (ground.cwd,)
        self._cwd = ground.cwd
        self._via: tuple[str, ...] = ()
        self._functions: dict[str, Script] = {}
        self._running: list[Script] = []
        self._input = Feed()
        """The input of the shell itself, which `exec < file` changes."""
        self._files: dict[str, tuple[str, ...]] = {}
        self._nesting = 0
        self._assigned = False

    def whole(self, script: Script) -> None:
        """Follow a whole script, again if it assigns variables."""
        self.script(script)
        if self._assigned:
            self.commands, self.findings, self._cwd = [], [], self.ground.cwd
            self.script(script)
        if self.scope.overflow:
            self.findings.append(TOO_COMPLICATED)

    # --- structure ---

    def script(self, script: Script, feed: Feed | None = None) -> None:
        for pipeline in script.items:
            if len(self.commands) > MAX_COMMANDS or len(pipeline.commands) > MAX_STAGES:
                self.findings.append(TOO_COMPLICATED)
                return
            self._pipeline(pipeline, feed or self._input)

    def _pipeline(self, pipeline: Pipeline, feed: Feed) -> None:
        start, cwd = len(self.commands), self._cwd
        for index, node in enumerate(pipeline.commands):
            if index:
                upstream = (*feed.upstream, *self.commands[start:])
                output = self._output_since(start)
                start = len(self.commands)
                feed = Feed(Input.PIPE, output, upstream)
            self._node(node, feed)
        if len(pipeline.commands) > 1:
            self._cwd = cwd

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
            self._functions[node.name] = node.body
            if _bombs(node):
                self.findings.append(FORK_BOMB)
            self._call_function(node.name, Feed(), None)
        else:
            self._compound(node, feed)

    def _call_function(self, name: str, feed: Feed, args: tuple[str, ...] | None) -> None:
        # By identity: a function may define another one of its own name.
        body = self._functions[name]
        if any(body is b for b in self._running) or len(self._running) > MAX_NESTING:
            return
        positional, self.scope.positional = self.scope.positional, args
        self._running.append(body)
        self.script(body, feed)
        self._running.pop()
        self.scope.positional = positional

    def _compound(self, node: Compound, feed: Feed) -> None:
        redirected = self._redirects(node.redirects, feed)
        start, cwd = len(self.commands), self._cwd
        fields = [f for word in node.words for f in self._expander().fields(word)]
        if node.kind == "for":
            for field in fields or [UNKNOWN]:
                self._assign(node.variable, field)
        for body in node.bodies:
            self.script(body, redirected.feed)
        if node.kind == "subshell":
            self._cwd = cwd
        if redirected.writes:
            feed = Feed(upstream=tuple(self.commands[start:]))
            self._emit(self._command(":", writes=redirected.writes, feed=feed))

    # --- simple commands ---

    def _command(self, path: str, **fields: object) -> ShellCommand:
        name = base_name(path)
        return ShellCommand(path=path, name=name, cwd=self._cwd, via=self._via, **fields)  # type: ignore[arg-type]

    def _expander(self) -> Expander:
        return Expander(self.scope, self.ground.user_home, self._substitution)

    def _substitution(self, script: Script, kind: str) -> str | None:
        start = len(self.commands)
        via, cwd = self._via, self._cwd
        self._via = (*via, "$(")
        written = Feed(Input.PIPE, None, tuple(self.commands)) if kind == ">(" else None
        self.script(script, written)
        own = [c for c in self.commands[start:] if c.via == self._via]
        self._via, self._cwd = via, cwd
        output = static_output(own[-1]) if len(script.items) == 1 and own else None
        if not script.items:
            output = ""
        if kind == "$(":
            return output
        path = f"{PROCESS_FILE}{len(self._files)}"
        self._files[path] = (output or "",)
        return path

    def _redirects(self, redirects: tuple[Redirect, ...], feed: Feed) -> _Redirected:
        writes: list[str] = []
        reads: list[str] = []
        for redirect in redirects:
            expander = self._expander()
            if redirect.body is not None or redirect.op.startswith("<<"):
                feed = Feed(Input.TEXT, expander.text(redirect.body) + "\n", feed.upstream)
                continue
            target = expander.text(redirect.target)
            if redirect.op == "<":
                reads.append(target)
                parts = redirect.target.parts if redirect.target is not None else ()
                if any(isinstance(p, Subst) and p.kind == "<(" for p in parts):
                    feed = Feed(Input.PIPE, None, tuple(self.commands))
                else:
                    feed = Feed(Input.FILE, None, feed.upstream)
            elif redirect.op == "<&":
                reads.append(f"/dev/fd/{target}")
            elif redirect.op in _WRITES and not target.isdigit() and target != "-":
                writes.append(target)
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
        if not argv or argv[0] in SETTERS:
            for assign, (name, value) in zip(node.assigns, assigns, strict=True):
                if assign.items is None:
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
        self.commands.append(command)
        if len(self.commands) > MAX_COMMANDS or self._nesting > MAX_NESTING:
            self.findings.append(TOO_COMPLICATED)
            return
        self._effects(command)
        self._nesting += 1
        for inner in (*nested(command), *self._from_files(command)):
            self._nested(command, inner)
        self._nesting -= 1
        self._remember(command)

    def _effects(self, command: ShellCommand) -> None:
        """Keep track of what a builtin or a function changes."""
        name, args = command.name, command.args
        if name in {"cd", "pushd", "chdir"}:
            self._cwd = join(self._cwd, (*command.operands(), self.ground.user_home)[0])
        elif name in _ASSIGNERS:
            for variable, value in _assigned(command):
                self._assign(variable, value)
        elif name == "set" and "--" in args:
            self.scope.positional = args[args.index("--") + 1 :]
        elif name == "shift":
            self.scope.positional = None
        elif name == "exec" and not args and command.feed.kind is not Input.NONE:
            self._input = command.feed
        elif command.path in self._functions:
            self._call_function(command.path, command.feed, args)

    def _remember(self, command: ShellCommand) -> None:
        """Note what a script writes to a file, in case it runs that file later."""
        paths = command.writes
        text: str | None = None
        if command.name == "tee":
            text, paths = command.feed.text, (*paths, *command.operands())
        elif paths:
            text = static_output(command.with_argv([command.path, *command.args], writes=()))
        if text is None:
            return
        for path in paths:
            key = absolute(path, command.cwd)
            before = self._files.get(key, ())
            # Replaced or appended to: either may be what is run in the end.
            whole = before[-1] + text if before else text
            self._files[key] = tuple(dict.fromkeys((*before[-4:], text, whole)))

    def _from_files(self, command: ShellCommand) -> Iterator[Nested]:
        """Yield the text of files that `command` runs and this script has made."""
        if not self._files or command.name == "tee":
            return
        shell = command.name in SHELLS or command.name in {"source", "."}
        language = "shell" if shell else language_of(command.name)
        paths: tuple[str, ...] = (
            (*command.args, *command.reads) if language not in {"", "awk"} else ()
        )
        if "/" in command.path:
            paths, language = (command.path, *paths), language or "shell"
        for path in paths:
            for text in self._files.get(absolute(path, command.cwd), ()):
                yield NestedText(text, command.name, language)

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
            self._emit(command.with_argv(inner.argv, writes=(), via=via, assigns=assigns))
            if inner.argv[0] in self._functions:
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
                self.findings.append(Finding(f"what {inner.via} would run is computed"))
            return
        via, positional, cwd = self._via, self.scope.positional, self._cwd
        self._via = (*command.via, inner.via)
        feed = command.feed
        if feed.text is not None and feed.text.strip() == inner.text.strip():
            feed = Feed(feed.kind, None, feed.upstream)
        if inner.fresh:
            self.scope.positional = inner.positional
        scripts, readable = read_scripts(inner.text, self._nesting)
        if not readable and not inner.lenient:
            self.findings.append(UNREADABLE)
        for script in scripts:
            self.script(script, feed)
        if inner.fresh:
            self._cwd = cwd
        self.scope.positional = positional
        self._via = via


_ASSIGNERS = SETTERS | {"read", "mapfile", "readarray", "getopts", "printf"}


def _assigned(command: ShellCommand) -> Iterator[tuple[str, str]]:
    """Yield the variables that a builtin sets, with their values."""
    args, text = command.args, command.feed.text
    if command.name in SETTERS:
        for variable, equals, value in (arg.partition("=") for arg in args):
            if equals and variable.isidentifier():
                yield variable, value
    elif command.name != "printf":
        line = COMPUTED if text is None or is_unknown(text) else text.split("\n", 1)[0]
        yield from ((variable, line) for variable in command.operands() or ["REPLY", "MAPFILE"])
    elif args[:1] == ("-v",) and len(args) > 2:
        output = static_output(command.with_argv(["printf", *args[2:]]))
        yield args[1], COMPUTED if output is None else output


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


def walk(script: Script, ground: Ground) -> Walk:
    """Follow `script` and return what it would run."""
    found = Walk(ground)
    found.whole(script)
    return found
