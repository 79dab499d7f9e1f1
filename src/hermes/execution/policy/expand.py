"""Static evaluation of words: quotes, braces, tilde, parameters, splitting.

Globs are kept as they are written. What cannot be known is marked with one of
the characters of `hermes.execution.policy.scope`, which no command contains.
"""

import re
from collections.abc import Callable

from hermes.execution.policy.braces import expand_braces
from hermes.execution.policy.grammar import parse_text
from hermes.execution.policy.parameters import apply_operator
from hermes.execution.policy.scope import COMPUTED, UNKNOWN, UNKNOWN_QUOTED, Scope
from hermes.execution.policy.syntax import Arith, Lit, Param, Part, Script, Subst, Word

__all__ = ["PROCESS_FILE", "Expander", "variables_in"]

PROCESS_FILE = "/dev/fd/63"
"""What a process substitution looks like as an argument."""

_TILDE = re.compile(r"~([A-Za-z0-9_.+-]*)(?=/|$)")
_SPACE = re.compile(r"[ \t\n]+")


class Expander:
    """Evaluates words in a scope.

    `run` tells what a substitution prints, if that is known; for a process
    substitution it returns the name of the file it looks like.
    """

    def __init__(self, scope: Scope, home: str, run: Callable[[Script, str], str | None]) -> None:
        self._scope = scope
        self._home = home
        self._run = run

    def fields(self, word: Word) -> list[str]:
        """Return the words that `word` becomes."""
        first = word.parts[0] if len(word.parts) == 1 else None
        if isinstance(first, Lit) and (first.quoted or "{" not in first.text):
            return [first.text if first.quoted else self._tilde(first.text)]
        out: list[str] = []
        expanded, certain = expand_braces(word.parts)
        self._scope.overflow = self._scope.overflow or not certain
        for parts in expanded:
            out.extend(self._split(parts))
        return out

    def text(self, word: Word | None) -> str:
        """Return the value of `word` where the shell does not split it."""
        if word is None:
            return ""
        pieces: list[str] = []
        for index, part in enumerate(word.parts):
            if isinstance(part, Lit):
                leading = index == 0 and not part.quoted
                pieces.append(self._tilde(part.text) if leading else part.text)
            else:
                pieces.append(" ".join(self._values(part)))
        return "".join(pieces)

    def _split(self, parts: tuple[Part, ...]) -> list[str]:
        """Join parts to fields; unquoted values break at white space."""
        fields: list[str] = []
        current: str | None = None
        for index, part in enumerate(parts):
            if isinstance(part, Lit):
                text = part.text
                if index == 0 and not part.quoted:
                    text = self._tilde(text)
                current = (current or "") + text
                continue
            pieces = self._values(part)
            if isinstance(part, Param | Subst) and not part.quoted:
                pieces = [p for piece in pieces for p in _pieces(piece)]
            for number, piece in enumerate(pieces):
                if number and current is not None:
                    fields.append(current)
                    current = None
                current = piece if current is None else current + piece
        if current is not None:
            fields.append(current)
        return [f for f in fields if f or _keeps_empty(parts)]

    def _tilde(self, text: str) -> str:
        if not text.startswith("~"):
            return text
        match = _TILDE.match(text)
        if match is None:
            return text
        user = match.group(1)
        if user == "+":
            place = self._scope.get("PWD") or UNKNOWN_QUOTED
        elif user == "-":
            place = UNKNOWN_QUOTED
        else:
            place = {"": self._home, "root": "/root"}.get(user, "/home/" + user)
        return place + text[match.end() :]

    def _values(self, part: Part) -> list[str]:
        """Return what a part stands for; several values become several fields."""
        if isinstance(part, Lit):
            return [part.text]
        if isinstance(part, Arith):
            self._visit(part.parts)
            return [UNKNOWN_QUOTED]
        if isinstance(part, Subst):
            output = self._run(part.body, part.kind)
            if part.kind != "$(":
                return [output or PROCESS_FILE]
            return [COMPUTED if output is None else output.rstrip("\n")]
        return self._parameter(part)

    def _visit(self, parts: tuple[Part, ...]) -> None:
        for part in parts:
            self._values(part)

    def _parameter(self, part: Param) -> list[str]:
        unknown = UNKNOWN_QUOTED if part.quoted else UNKNOWN
        argument = self.text(part.arg) if part.arg is not None else ""
        if "$" in part.index or "`" in part.index:
            # A subscript is evaluated, whatever stands in it.
            self.text(parse_text(part.index))
            return [COMPUTED]
        items = self._items(part)
        if items is not None and not part.prefix and part.op in {"", ":"}:
            return self._slice(part, items, argument)
        value = self._scope.get(part.name) if items is None else " ".join(items)
        if part.index.isdigit() and items is None:
            array = self._scope.arrays.get(part.name, ())
            value = array[int(part.index)] if int(part.index) < len(array) else value
        if part.prefix == "!" and value is not None:
            value = self._scope.get(value)
        elif part.prefix:
            return [unknown]
        result = apply_operator(value, part.op, argument)
        if result is None:
            return [unknown]
        if part.op in {"=", ":="}:
            self._scope.assign(part.name, result)
        return [result]

    def _items(self, part: Param) -> tuple[str, ...] | None:
        if part.name in {"@", "*"}:
            return self._scope.positional
        if part.index in {"@", "*"}:
            return self._scope.arrays.get(part.name)
        return None

    def _slice(self, part: Param, items: tuple[str, ...], argument: str) -> list[str]:
        if part.op == ":":
            start = argument.split(":", 1)[0].strip()
            skip = int(start) if start.isdigit() else 0
            items = items[max(0, skip - (part.name in {"@", "*"})) :]
        joined = part.quoted and (part.name == "*" or part.index == "*")
        return [" ".join(items)] if joined else list(items)


def _pieces(text: str) -> list[str]:
    if not any(c in text for c in " \t\n"):
        return [text] if text else []
    # White space at either end separates from the neighbouring text.
    return _SPACE.split(text)


def _keeps_empty(parts: tuple[Part, ...]) -> bool:
    return any(isinstance(p, Lit) and p.quoted for p in parts) or any(
        isinstance(p, Param | Subst) and p.quoted for p in parts
    )


def variables_in(words: tuple[Word, ...]) -> set[str]:
    """Return the names of the variables that the words use."""
    names: set[str] = set()
    for word in words:
        for part in word.parts:
            if isinstance(part, Param):
                names.add(part.name)
                if part.arg is not None:
                    names |= variables_in((part.arg,))
    return names
