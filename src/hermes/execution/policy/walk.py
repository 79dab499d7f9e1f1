"""Follows a script through every branch and lists the commands it would run.

Each simple command becomes one `Call` for each value its variables can have.
What a command runs in turn (`unwrap`) is followed as well, so the list is
flat: rules look at calls and never at syntax. A script with assignments is
walked twice, because a loop or a function may use a value that is assigned
further down.
"""

from msgspec import Struct

from hermes.execution.policy.calls import Call, Ground, Source, make_call
from hermes.execution.policy.expand import PROCESS_FILE, Expander, variables_in
from hermes.execution.policy.floor import FORK_BOMB
from hermes.execution.policy.follow import (
    MAX_CALLS,
    SETTERS,
    TOO_COMPLICATED,
    UNREADABLE,
    CallFollower,
    Feed,
)
from hermes.execution.policy.grammar import ShellSyntaxError, parse_text
from hermes.execution.policy.outputs import static_output
from hermes.execution.policy.scope import COMPUTED, UNKNOWN
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

__all__ = ["Walk", "walk"]

_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})


class _Redirected(Struct, frozen=True):
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    feed: Feed


class Walk(CallFollower):
    """The calls of a script and the dangers found while following it."""

    def again(self) -> None:
        """Forget the calls but keep what was learnt about variables and functions."""
        self.calls = []
        self.dangers = []
        self.cwd = self.ground.cwd

    # --- structure ---

    def script(self, script: Script, feed: Feed | None = None) -> None:
        """Follow every pipeline of `script`."""
        for pipeline in script.items:
            if len(self.calls) > MAX_CALLS:
                self.dangers.append(TOO_COMPLICATED)
                return
            self._pipeline(pipeline, feed or Feed())

    def _pipeline(self, pipeline: Pipeline, feed: Feed) -> None:
        start = len(self.calls)
        cwd = self.cwd
        for index, node in enumerate(pipeline.commands):
            if index:
                upstream = (*feed.upstream, *self.calls[start:])
                feed = Feed(Source.PIPE, self._last_output(start, upstream), upstream)
            self._node(node, feed)
        if len(pipeline.commands) > 1:
            self.cwd = cwd

    def _last_output(self, start: int, upstream: tuple[Call, ...]) -> str | None:
        """Return what the previous stage prints, if it is one command whose output is known."""
        if not upstream or len(self.calls) == start:
            return None
        last = self.calls[-1]
        stages = self.calls[start:]
        if last.via != self.via or any(c.via == self.via and c.upstream == last.upstream
                                        and c is not last for c in stages):  # fmt: skip
            return None
        return static_output(last)

    def _node(self, node: Node, feed: Feed) -> None:
        if isinstance(node, Simple):
            self._simple(node, feed)
        elif isinstance(node, Function):
            self._define(node)
        else:
            self._compound(node, feed)

    def _define(self, node: Function) -> None:
        self.functions[node.name] = node.body
        if _bombs(node):
            self.dangers.append(FORK_BOMB)
        positional, self.scope.positional = self.scope.positional, None
        self.call_function(node.name, Feed())
        self.scope.positional = positional

    def _compound(self, node: Compound, feed: Feed) -> None:
        redirected = self._redirects(node.redirects, feed)
        start = len(self.calls)
        fields = [f for word in node.words for f in self._expander().fields(word)]
        if node.kind == "for":
            for field in fields or [UNKNOWN]:
                self.assign(node.variable, field)
        cwd = self.cwd
        for body in node.bodies:
            self.script(body, redirected.feed)
        if node.kind == "subshell":
            self.cwd = cwd
        if redirected.writes:
            upstream = tuple(self.calls[start:])
            self.emit(make_call([":"], writes=redirected.writes, upstream=upstream,
                                 cwd=self.cwd, via=self.via))  # fmt: skip

    # --- simple commands ---

    def _expander(self) -> Expander:
        return Expander(self.scope, self.ground.user_home, self._substitution)

    def _substitution(self, script: Script, kind: str) -> str | None:
        start = len(self.calls)
        via, self.via = self.via, (*self.via, "$(")
        cwd = self.cwd
        self.script(script)
        self.cwd = cwd
        made = self.calls[start:]
        own = [c for c in made if c.via == self.via]
        self.via = via
        output = static_output(own[-1]) if len(script.items) == 1 and own else None
        if not script.items:
            output = ""
        if kind == "$(":
            return output
        path = f"{PROCESS_FILE}{len(self.files)}"
        self.files[path] = (output or "",)
        return path

    def _redirects(self, redirects: tuple[Redirect, ...], feed: Feed) -> _Redirected:
        writes: list[str] = []
        reads: list[str] = []
        for redirect in redirects:
            expander = self._expander()
            if redirect.body is not None or redirect.op.startswith("<<"):
                feed = Feed(Source.TEXT, expander.text(redirect.body) + "\n", feed.upstream)
                continue
            target = expander.text(redirect.target)
            if redirect.op == "<":
                reads.append(target)
                piped = _is_substitution(redirect.target, "<(")
                source = Source.PIPE if piped else Source.FILE
                upstream = tuple(self.calls) if piped else feed.upstream
                feed = Feed(source, None, upstream)
            elif redirect.op in _WRITES and not target.isdigit() and target != "-":
                writes.append(target)
        return _Redirected(tuple(writes), tuple(reads), feed)

    def _simple(self, node: Simple, feed: Feed) -> None:
        values = tuple(a.value for a in node.assigns if a.value is not None)
        names = variables_in((*node.words, *values))
        for choice in self.scope.choices(names) if names else [{}]:
            self.scope.choice = choice
            self._once(node, feed)
        self.scope.choice = {}

    def _once(self, node: Simple, feed: Feed) -> None:
        start = len(self.calls)
        assigns = [self._value(assign) for assign in node.assigns]
        expander = self._expander()
        argv = [field for word in node.words for field in expander.fields(word)]
        redirected = self._redirects(node.redirects, feed)
        inner = tuple(self.calls[start:])
        if node.words and not argv:
            argv = [UNKNOWN] if not inner else [COMPUTED]
        if not argv or argv[0] in SETTERS:
            for assign, value in zip(node.assigns, assigns, strict=True):
                if assign.items is None:
                    self.assign(assign.name, value)
        if not argv:
            argv = [":"]
        self.emit(
            make_call(
                argv,
                writes=redirected.writes,
                reads=redirected.reads,
                assigns=tuple(zip([a.name for a in node.assigns], assigns, strict=True)),
                source=redirected.feed.source,
                stdin=redirected.feed.text,
                upstream=redirected.feed.upstream,
                inner=inner,
                cwd=self.cwd,
                via=self.via,
            )
        )

    def _value(self, assign: Assign) -> str:
        expander = self._expander()
        if assign.items is not None:
            items = tuple(f for word in assign.items for f in expander.fields(word))
            self.scope.assign_array(assign.name, items, append=assign.append)
            self.assigned = True
            return " ".join(items)
        value = expander.text(assign.value)
        if assign.append:
            value = (self.scope.get(assign.name) or "") + value
        if "$(" in value or "`" in value:
            # Prompts and arithmetic run substitutions that are stored as text.
            self._text_with_substitutions(value)
        return value

    def _text_with_substitutions(self, value: str) -> None:
        try:
            self._expander().text(parse_text(value))
        except ShellSyntaxError:
            self.dangers.append(UNREADABLE)


def _is_substitution(word: Word | None, kind: str) -> bool:
    return word is not None and any(isinstance(p, Subst) and p.kind == kind for p in word.parts)


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
    if found.scope.overflow:
        found.dangers.append(TOO_COMPLICATED)
    return found
