"""Follows one call: what it changes, what it runs, which files it leaves behind."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from msgspec import Struct

from hermes.execution.policy.calls import Call, Danger, Ground, Source, make_call
from hermes.execution.policy.code import inspect_code
from hermes.execution.policy.grammar import read_scripts
from hermes.execution.policy.inner import CodeText, Inner, ShellText
from hermes.execution.policy.languages import language_of
from hermes.execution.policy.names import guess_name
from hermes.execution.policy.outputs import static_output
from hermes.execution.policy.places import absolute, join
from hermes.execution.policy.scope import COMPUTED, UNKNOWN, Scope, is_unknown
from hermes.execution.policy.syntax import Script
from hermes.execution.policy.unwrap import unwrap

__all__ = ["MAX_CALLS", "SETTERS", "TOO_COMPLICATED", "UNREADABLE", "CallFollower", "Feed"]

MAX_CALLS = 2500
MAX_NESTING = 12
SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
UNREADABLE = Danger("unreadable", "it cannot be read as a shell script")
TOO_COMPLICATED = Danger("unreadable", "it is too long or too deeply nested to be judged")


class Feed(Struct, frozen=True):
    """What a command reads."""

    source: Source = Source.NONE
    text: str | None = None
    upstream: tuple[Call, ...] = ()


class CallFollower(ABC):
    """The state of a walk, and the part of it that deals with single calls."""

    def __init__(self, ground: Ground) -> None:
        self.calls: list[Call] = []
        self.dangers: list[Danger] = []
        self.ground = ground
        self.cwd = ground.cwd
        self.functions: dict[str, Script] = {}
        self.running: list[Script] = []
        self.files: dict[str, tuple[str, ...]] = {}
        self.via: tuple[str, ...] = ()
        self.nesting = 0
        self.assigned = False
        self.scope = self._fresh_scope()

    def _fresh_scope(self) -> Scope:
        scope = Scope()
        scope.values = {
            "HOME": (self.ground.user_home,),
            "IFS": (" \t\n",),
            "SHELL": ("/bin/bash",),
            "BASH": ("/bin/bash",),
            "PATH": ("/usr/local/bin:/usr/bin:/bin",),
            "HERMES_HOME": (self.ground.hermes_home,),
        }
        if self.ground.cwd is not None:
            scope.values["PWD"] = (self.ground.cwd,)
        return scope

    @abstractmethod
    def script(self, script: Script, feed: Feed | None = None) -> None:
        """Follow every pipeline of `script`."""

    def call_function(self, name: str, feed: Feed) -> None:
        """Follow the body of a function."""
        # By identity: a function may define another one of its own name.
        body = self.functions[name]
        if any(body is b for b in self.running) or len(self.running) > MAX_NESTING:
            return
        self.running.append(body)
        self.script(body, feed)
        self.running.pop()

    def assign(self, name: str, value: str) -> None:
        """Note a value that a variable may have."""
        self.assigned = True
        self.scope.assign(name, value)

    def emit(self, call: Call) -> None:
        """Add a call and follow what it runs."""
        guessed = guess_name(call.path)
        if guessed != call.name:
            call = make_call([guessed, *call.args], call)
        self.calls.append(call)
        if len(self.calls) > MAX_CALLS or self.nesting > MAX_NESTING:
            if TOO_COMPLICATED not in self.dangers:
                self.dangers.append(TOO_COMPLICATED)
            return
        self._effects(call)
        self.nesting += 1
        for inner in (*unwrap(call), *self._from_files(call)):
            self._inner(call, inner)
        self.nesting -= 1
        self._remember(call)

    def _remember(self, call: Call) -> None:
        """Note what a script writes to a file, in case it runs that file later."""
        paths = call.writes
        text: str | None = None
        if call.name == "tee":
            text, paths = call.stdin, (*paths, *call.operands())
        elif paths:
            text = static_output(make_call([call.path, *call.args], call, writes=()))
        if text is None:
            return
        for path in paths:
            key = absolute(path, call.cwd)
            before = self.files.get(key, ())
            whole = before[-1] + text if before else text
            # Replaced or appended to: either may be what is run in the end.
            self.files[key] = tuple(dict.fromkeys((*before[-4:], text, whole)))

    def _from_files(self, call: Call) -> Iterator[Inner]:
        """Yield the text of files that `call` runs and this script has made."""
        if not self.files or call.name == "tee":
            return
        if "/" in call.path:
            for text in self.files.get(absolute(call.path, call.cwd), ()):
                yield ShellText(text, call.path)
        language = language_of(call)
        if not language:
            return
        for arg in (*call.args, *call.reads):
            for text in self.files.get(absolute(arg, call.cwd), ()):
                shell = language == "shell"
                yield ShellText(text, call.name) if shell else CodeText(language, text)

    def _inner(self, call: Call, inner: Inner) -> None:
        if isinstance(inner, CodeText):
            self.code(inner, call)
        elif isinstance(inner, ShellText):
            self._nested_text(call, inner)
        elif inner.argv:
            name = inner.argv[0]
            self.emit(
                make_call(list(inner.argv), call, writes=(), via=(*call.via, inner.via),
                          assigns=() if inner.via != "env" else call.assigns)
            )  # fmt: skip
            if name in self.functions:
                self.call_function(name, Feed(call.source, call.stdin, call.upstream))

    def code(self, program: CodeText, call: Call | None = None) -> None:
        """Follow a program in another language."""
        call = call or make_call([program.language], cwd=self.cwd)
        findings = inspect_code(program.language, program.text)
        self.dangers.extend(findings.dangers)
        for text in findings.scripts:
            self._nested_text(call, ShellText(text, program.language), lenient=True)
        for command in findings.commands:
            argv = [self._at_home(word) for word in command]
            self.emit(make_call(argv, via=(*call.via, program.language), cwd=call.cwd))

    def _at_home(self, word: str) -> str:
        at_home = word == "~" or word.startswith("~/")
        return self.ground.user_home + word[1:] if at_home else word

    def _nested_text(self, call: Call, inner: ShellText, *, lenient: bool = False) -> None:
        if not inner.text.strip() or inner.text in {UNKNOWN, COMPUTED}:
            return
        via, self.via = self.via, (*call.via, inner.via)
        positional = self.scope.positional
        if inner.fresh:
            self.scope.positional = inner.positional
        cwd = self.cwd
        feed = Feed(call.source, None, call.upstream)
        if call.stdin is not None and call.stdin.strip() != inner.text.strip():
            feed = Feed(call.source, call.stdin, call.upstream)
        for script in self._read(inner.text, lenient=lenient):
            self.script(script, feed)
        if inner.fresh:
            self.cwd = cwd
        self.scope.positional = positional
        self.via = via

    def _read(self, text: str, *, lenient: bool) -> list[Script]:
        """Parse a nested script; a mere string of a program need not be one."""
        scripts, whole = read_scripts(text, self.nesting)
        if not whole and not lenient:
            self.dangers.append(UNREADABLE)
        return scripts

    def _effects(self, call: Call) -> None:
        """Keep track of what a builtin or a function changes."""
        if call.name in {"cd", "pushd", "chdir"}:
            operands = call.operands()
            target = operands[0] if operands else self.ground.user_home
            self.cwd = join(self.cwd, target)
        elif call.name in {"read", "mapfile", "readarray", "getopts"}:
            for name in call.operands() or ["REPLY", "MAPFILE"]:
                self.assign(name, _first_line(call))
        elif call.name == "printf" and call.args[:1] == ("-v",) and len(call.args) > 2:
            output = static_output(make_call(["printf", *call.args[2:]]))
            self.assign(call.args[1], COMPUTED if output is None else output)
        elif call.name == "set" and "--" in call.args:
            self.scope.positional = call.args[call.args.index("--") + 1 :]
        elif call.name == "shift":
            self.scope.positional = None
        elif call.name in SETTERS:
            self._declare(call)
        elif call.path in self.functions:
            positional, self.scope.positional = self.scope.positional, call.args
            self.call_function(call.path, Feed(call.source, call.stdin, call.upstream))
            self.scope.positional = positional

    def _declare(self, call: Call) -> None:
        for arg in call.args:
            name, equals, value = arg.partition("=")
            if equals and name.isidentifier():
                self.assign(name, value)


def _first_line(call: Call) -> str:
    if call.stdin is None or is_unknown(call.stdin):
        return COMPUTED
    return call.stdin.split("\n", 1)[0]
