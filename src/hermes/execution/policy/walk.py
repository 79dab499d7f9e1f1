"""Follows a script through every branch and lists the commands it would run.

Each simple command becomes one `Call` for each value its variables can have.
What a command runs in turn (`unwrap`) is followed as well, so the list is
flat: rules look at calls and never at syntax. A script with assignments is
walked twice, because a loop or a function may use a value that is assigned
further down.
"""

from msgspec import Struct

from hermes.execution.policy.calls import Call, Danger, Ground, Source, make_call
from hermes.execution.policy.code import inspect_code
from hermes.execution.policy.expand import Expander, variables_in
from hermes.execution.policy.floor import FORK_BOMB
from hermes.execution.policy.grammar import ShellSyntaxError, parse, parse_text, salvage
from hermes.execution.policy.names import guess_name
from hermes.execution.policy.outputs import static_output
from hermes.execution.policy.places import join
from hermes.execution.policy.scope import COMPUTED, UNKNOWN, Scope, is_unknown
from hermes.execution.policy.syntax import (
    Assign,
    Compound,
    Function,
    Node,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Subst,
    Word,
)
from hermes.execution.policy.unwrap import CodeText, Run, ShellText, unwrap

__all__ = ["Walk", "walk"]

_MAX_CALLS = 2500
_MAX_NESTING = 12
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})
_SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset"})

UNREADABLE = Danger("unreadable", "it cannot be read as a shell script")
TOO_COMPLICATED = Danger("unreadable", "it is too long or too deeply nested to be judged")


class _Feed(Struct, frozen=True):
    source: Source = Source.NONE
    text: str | None = None
    upstream: tuple[Call, ...] = ()


class _Redirected(Struct, frozen=True):
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    feed: _Feed


class Walk:
    """The calls of a script and the dangers found while following it."""

    def __init__(self, ground: Ground) -> None:
        self.calls: list[Call] = []
        self.dangers: list[Danger] = []
        self._ground = ground
        self._cwd = ground.cwd
        self._functions: dict[str, Script] = {}
        self._running: list[str] = []
        self._via: tuple[str, ...] = ()
        self._nesting = 0
        self.assigned = False
        self._scope = self._fresh_scope()

    def _fresh_scope(self) -> Scope:
        scope = Scope()
        scope.values = {
            "HOME": (self._ground.user_home,),
            "IFS": (" \t\n",),
            "SHELL": ("/bin/bash",),
            "BASH": ("/bin/bash",),
            "PATH": ("/usr/local/bin:/usr/bin:/bin",),
            "HERMES_HOME": (self._ground.hermes_home,),
            "0": ("bash",),
        }
        if self._ground.cwd is not None:
            scope.values["PWD"] = (self._ground.cwd,)
        return scope

    def again(self) -> None:
        """Forget the calls but keep what was learnt about variables and functions."""
        self.calls = []
        self.dangers = []
        self._cwd = self._ground.cwd

    # --- structure ---

    def script(self, script: Script, feed: _Feed | None = None) -> None:
        """Follow every pipeline of `script`."""
        for pipeline in script.items:
            if len(self.calls) > _MAX_CALLS:
                self.dangers.append(TOO_COMPLICATED)
                return
            self._pipeline(pipeline, feed or _Feed())

    def _pipeline(self, pipeline: Pipeline, feed: _Feed) -> None:
        start = len(self.calls)
        cwd = self._cwd
        for index, node in enumerate(pipeline.commands):
            if index:
                upstream = (*feed.upstream, *self.calls[start:])
                feed = _Feed(Source.PIPE, self._last_output(start, upstream), upstream)
            self._node(node, feed)
        if len(pipeline.commands) > 1:
            self._cwd = cwd

    def _last_output(self, start: int, upstream: tuple[Call, ...]) -> str | None:
        """Return what the previous stage prints, if it is one command whose output is known."""
        if not upstream or len(self.calls) == start:
            return None
        last = self.calls[-1]
        stages = self.calls[start:]
        if last.via != self._via or any(c.via == self._via and c.upstream == last.upstream
                                        and c is not last for c in stages):  # fmt: skip
            return None
        return static_output(last)

    def _node(self, node: Node, feed: _Feed) -> None:
        if isinstance(node, Simple):
            self._simple(node, feed)
        elif isinstance(node, Function):
            self._define(node)
        else:
            self._compound(node, feed)

    def _define(self, node: Function) -> None:
        self._functions[node.name] = node.body
        if _bombs(node):
            self.dangers.append(FORK_BOMB)
        positional, self._scope.positional = self._scope.positional, None
        self._call_function(node.name, _Feed())
        self._scope.positional = positional

    def _call_function(self, name: str, feed: _Feed) -> None:
        if name in self._running or len(self._running) > _MAX_NESTING:
            return
        self._running.append(name)
        self.script(self._functions[name], feed)
        self._running.pop()

    def _compound(self, node: Compound, feed: _Feed) -> None:
        redirected = self._redirects(node.redirects, feed)
        start = len(self.calls)
        fields = [f for word in node.words for f in self._expander().fields(word)]
        if node.kind == "for":
            for field in fields or [UNKNOWN]:
                self._assign(node.variable, field)
        cwd = self._cwd
        for body in node.bodies:
            self.script(body, redirected.feed)
        if node.kind == "subshell":
            self._cwd = cwd
        if redirected.writes:
            upstream = tuple(self.calls[start:])
            self._emit(make_call([":"], writes=redirected.writes, upstream=upstream,
                                 cwd=self._cwd, via=self._via))  # fmt: skip

    # --- simple commands ---

    def _expander(self) -> Expander:
        return Expander(self._scope, self._ground.user_home, self._substitution)

    def _substitution(self, script: Script) -> str | None:
        start = len(self.calls)
        via, self._via = self._via, (*self._via, "$(")
        cwd = self._cwd
        self.script(script)
        self._cwd = cwd
        made = self.calls[start:]
        own = [c for c in made if c.via == self._via]
        self._via = via
        if len(script.items) != 1 or not own:
            return None
        return static_output(own[-1])

    def _redirects(self, redirects: tuple[Redirect, ...], feed: _Feed) -> _Redirected:
        writes: list[str] = []
        reads: list[str] = []
        for redirect in redirects:
            expander = self._expander()
            if redirect.body is not None or redirect.op.startswith("<<"):
                feed = _Feed(Source.TEXT, expander.text(redirect.body) + "\n", feed.upstream)
                continue
            target = expander.text(redirect.target)
            if redirect.op == "<":
                reads.append(target)
                piped = _is_substitution(redirect.target, "<(")
                source = Source.PIPE if piped else Source.FILE
                upstream = tuple(self.calls) if piped else feed.upstream
                feed = _Feed(source, None, upstream)
            elif redirect.op in _WRITES and not target.isdigit() and target != "-":
                writes.append(target)
        return _Redirected(tuple(writes), tuple(reads), feed)

    def _simple(self, node: Simple, feed: _Feed) -> None:
        values = tuple(a.value for a in node.assigns if a.value is not None)
        names = variables_in((*node.words, *values))
        for choice in self._scope.choices(names) if names else [{}]:
            self._scope.choice = choice
            self._once(node, feed)
        self._scope.choice = {}

    def _once(self, node: Simple, feed: _Feed) -> None:
        start = len(self.calls)
        assigns = [self._value(assign) for assign in node.assigns]
        expander = self._expander()
        argv = [field for word in node.words for field in expander.fields(word)]
        redirected = self._redirects(node.redirects, feed)
        inner = tuple(self.calls[start:])
        if node.words and not argv:
            argv = [UNKNOWN] if not inner else [COMPUTED]
        if not argv or argv[0] in _SETTERS:
            for assign, value in zip(node.assigns, assigns, strict=True):
                if assign.items is None:
                    self._assign(assign.name, value)
        if not argv:
            argv = [":"]
        self._emit(
            make_call(
                argv,
                writes=redirected.writes,
                reads=redirected.reads,
                assigns=tuple(zip([a.name for a in node.assigns], assigns, strict=True)),
                source=redirected.feed.source,
                stdin=redirected.feed.text,
                upstream=redirected.feed.upstream,
                inner=inner,
                cwd=self._cwd,
                via=self._via,
            )
        )

    def _value(self, assign: Assign) -> str:
        expander = self._expander()
        if assign.items is not None:
            items = tuple(f for word in assign.items for f in expander.fields(word))
            self._scope.assign_array(assign.name, items, append=assign.append)
            self.assigned = True
            return " ".join(items)
        value = expander.text(assign.value)
        if assign.append:
            value = (self._scope.get(assign.name) or "") + value
        if "$(" in value or "`" in value:
            # Prompts and arithmetic run substitutions that are stored as text.
            self._text_with_substitutions(value)
        return value

    def _text_with_substitutions(self, value: str) -> None:
        try:
            self._expander().text(parse_text(value))
        except ShellSyntaxError:
            self.dangers.append(UNREADABLE)

    def _assign(self, name: str, value: str) -> None:
        self.assigned = True
        self._scope.assign(name, value)

    # --- calls ---

    def _emit(self, call: Call) -> None:
        guessed = guess_name(call.path)
        if guessed != call.name:
            call = make_call([guessed, *call.args], call)
        self.calls.append(call)
        if len(self.calls) > _MAX_CALLS or self._nesting > _MAX_NESTING:
            if TOO_COMPLICATED not in self.dangers:
                self.dangers.append(TOO_COMPLICATED)
            return
        self._effects(call)
        self._nesting += 1
        for inner in unwrap(call):
            self._inner(call, inner)
        self._nesting -= 1

    def _inner(self, call: Call, inner: Run | ShellText | CodeText) -> None:
        if isinstance(inner, CodeText):
            self.code(inner, call)
        elif isinstance(inner, ShellText):
            self._nested_text(call, inner)
        elif inner.argv:
            name = inner.argv[0]
            self._emit(
                make_call(list(inner.argv), call, writes=(), via=(*call.via, inner.via),
                          assigns=() if inner.via != "env" else call.assigns)
            )  # fmt: skip
            if name in self._functions:
                self._call_function(name, _Feed(call.source, call.stdin, call.upstream))

    def code(self, program: CodeText, call: Call | None = None) -> None:
        """Follow a program in another language."""
        call = call or make_call([program.language], cwd=self._cwd)
        findings = inspect_code(program.language, program.text)
        self.dangers.extend(findings.dangers)
        for text in findings.scripts:
            self._nested_text(call, ShellText(text, program.language), lenient=True)
        for command in findings.commands:
            argv = [self._at_home(word) for word in command]
            self._emit(make_call(argv, via=(*call.via, program.language), cwd=call.cwd))

    def _at_home(self, word: str) -> str:
        at_home = word == "~" or word.startswith("~/")
        return self._ground.user_home + word[1:] if at_home else word

    def _nested_text(self, call: Call, inner: ShellText, *, lenient: bool = False) -> None:
        if not inner.text.strip() or inner.text in {UNKNOWN, COMPUTED}:
            return
        via, self._via = self._via, (*call.via, inner.via)
        positional = self._scope.positional
        if inner.fresh:
            self._scope.positional = inner.positional
        cwd = self._cwd
        feed = _Feed(call.source, None, call.upstream)
        if call.stdin is not None and call.stdin.strip() != inner.text.strip():
            feed = _Feed(call.source, call.stdin, call.upstream)
        for script in self._read(inner.text, lenient=lenient):
            self.script(script, feed)
        if inner.fresh:
            self._cwd = cwd
        self._scope.positional = positional
        self._via = via

    def _read(self, text: str, *, lenient: bool) -> list[Script]:
        """Parse a nested script; a mere string of a program need not be one."""
        try:
            return [parse(text, self._nesting)]
        except ShellSyntaxError:
            if not lenient:
                self.dangers.append(UNREADABLE)
            return salvage(text)

    def _effects(self, call: Call) -> None:
        """Keep track of what a builtin or a function changes."""
        if call.name in {"cd", "pushd", "chdir"}:
            operands = call.operands()
            target = operands[0] if operands else self._ground.user_home
            self._cwd = join(self._cwd, target)
        elif call.name in {"read", "mapfile", "readarray", "getopts"}:
            for name in call.operands() or ["REPLY", "MAPFILE"]:
                self._assign(name, _first_line(call))
        elif call.name == "printf" and call.args[:1] == ("-v",) and len(call.args) > 2:
            output = static_output(make_call(["printf", *call.args[2:]]))
            self._assign(call.args[1], COMPUTED if output is None else output)
        elif call.name == "set" and "--" in call.args:
            self._scope.positional = call.args[call.args.index("--") + 1 :]
        elif call.name == "shift":
            self._scope.positional = None
        elif call.name in _SETTERS:
            self._declare(call)
        elif call.path in self._functions and call.path not in self._running:
            positional, self._scope.positional = self._scope.positional, call.args
            self._call_function(call.path, _Feed(call.source, call.stdin, call.upstream))
            self._scope.positional = positional

    def _declare(self, call: Call) -> None:
        for arg in call.args:
            name, equals, value = arg.partition("=")
            if equals and name.isidentifier():
                self._assign(name, value)


def _first_line(call: Call) -> str:
    if call.stdin is None or is_unknown(call.stdin):
        return COMPUTED
    return call.stdin.split("\n", 1)[0]


def _is_substitution(word: Word | None, kind: str) -> bool:
    return word is not None and any(
        isinstance(p, Subst) and p.kind == kind for p in word.parts
    )


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
    found.script(script)
    if found.assigned:
        found.again()
        found.script(script)
    return found
