"""Static evaluation of words: quotes, braces, tilde, parameters, splitting.

Globs are kept as they are written. What cannot be known is marked with one of three
characters that no command contains.

A variable keeps every value that the script gives it. A *choice* picks one of them for
the command at hand, so that each command is judged once for each value that could reach it.
"""

import re
from collections.abc import Callable
from itertools import product
from math import prod

from msgspec import Struct, field

from hermes.execution.policy.reader.grammar import parse_text
from hermes.execution.policy.reader.syntax import Arith, Lit, Param, Part, Script, Subst, Word

UNKNOWN = "\x00"
"""Stands for an unquoted value that is not known: it may be several words or none."""
UNKNOWN_QUOTED = "\x01"
"""Stands for a quoted value that is not known: exactly one word."""
COMPUTED = "\x02"
"""Stands for the output of a command."""
NUMBER = "\x04"
"""Stands for the output of a command that prints a number."""
UNSET = "\x05"
"""As one of the values of a variable: it may have none."""

_MAX_VALUES = 40
_MAX_CHOICES = 40
_MAX_ITEMS = 500
_MAX_LENGTH = 16_384
_PLAIN = re.compile(r"[A-Za-z0-9_][\w.-]*")
MARKS = re.compile(f"[{UNKNOWN}{UNKNOWN_QUOTED}{COMPUTED}{NUMBER}]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_EVALUATED = re.compile(f"[\\[$`{COMPUTED}]")
"""In the value of a variable: what arithmetic would run, or could."""
ALTERNATIVES = frozenset({"-", ":-", "=", ":=", "+", ":+"})


def is_unknown(text: str) -> bool:
    return MARKS.search(text) is not None


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None or is_unknown(text)


class Scope(Struct):
    """What is known about variables, arrays and positional parameters."""

    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    arrays: dict[str, tuple[str, ...]] = field(default_factory=dict)
    positional: tuple[str, ...] | None = None
    choice: dict[str, str] = field(default_factory=dict)
    overflow: bool = False
    """Whether something was left out that could matter."""
    doubts: list[str] = field(default_factory=list)
    """What in the script evaluates something that is not written there."""

    def assign(self, name: str, value: str) -> None:
        known = self.values.get(name, ())
        if value in known:
            return
        if len(value) > _MAX_LENGTH:
            self.overflow, value = True, COMPUTED
        if len(known) >= _MAX_VALUES:
            self.overflow = self.overflow or not _is_plain(value)
            value = COMPUTED
        self.values[name] = tuple(dict.fromkeys((*known, value)))

    def assign_array(self, name: str, items: tuple[str, ...], *, append: bool) -> None:
        before = self.arrays.get(name, ())
        if not items or before[-len(items) :] == items:
            self.arrays.setdefault(name, ())
            return
        if before and not append:
            items = (COMPUTED,)
        self.overflow = self.overflow or len(before) + len(items) > _MAX_ITEMS
        self.arrays[name] = (*before, *items)[:_MAX_ITEMS] if append else items

    def get(self, name: str) -> str | None:
        """Return the chosen value of a variable, or None if it is not known."""
        if name.isdigit() and name != "0":
            index = int(name) - 1
            if self.positional is None:
                return None
            return self.positional[index] if index < len(self.positional) else ""
        known = self.values.get(name)
        chosen = self.choice.get(name, known[-1] if known else None)
        if chosen is not None:
            return None if chosen == UNSET else chosen
        items = self.arrays.get(name)
        return items[0] if items else None

    def choices(self, names: dict[str, bool]) -> list[dict[str, str]]:
        """Return every combination of values of the named variables, within a limit.

        Of those that are used with a default it is one more possibility to be unset.
        """
        several: dict[str, tuple[str, ...]] = {}
        for name, alternative in sorted(names.items()):
            values = self.values.get(name, ())
            if alternative:
                values = tuple(dict.fromkeys((*(values or (UNKNOWN,)), UNSET)))
            if len(values) > 1:
                several[name] = values
        if prod(len(values) for values in several.values()) > _MAX_CHOICES:
            plain = all(_is_plain(v) for values in several.values() for v in values)
            self.overflow = self.overflow or not plain
            return [dict.fromkeys(several, COMPUTED)]
        return [dict(zip(several, row, strict=True)) for row in product(*several.values())]

    def arithmetic(self, text: str, *, written: bool = False) -> None:
        """Note whether arithmetic over `text` would run what a value holds.

        What is `written` as arithmetic may have subscripts; the grammar has read them.
        """
        values = [] if written else [text]
        for name in _NAME.findall(text):
            values += self.values.get(name, ())
        if any(_EVALUATED.search(value) for value in values):
            self.doubts.append("arithmetic would run what a value holds")


_MARK = 0xF0000
"""First private-use code point; each stands for a part that braces leave alone."""
_RANGE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?\d+)?$")
_LIMIT = 2000
_LEFT_OVER = re.compile(r"\{[^{}]*\}[^{}]*,[^{}]*\}|\{[^}]*(?:\.\.|,)[^{]*\}")
_MAX_BRACES = 64


def expand_braces(parts: tuple[Part, ...]) -> tuple[list[tuple[Part, ...]], bool]:
    """Return the words that brace expansion makes of one word, and whether that is certain."""
    braces = sum(p.text.count("{") for p in parts if isinstance(p, Lit) and not p.quoted)
    if not braces:
        return [parts], True
    # Braces can lengthen the name of a variable: `$x{a,b}` is `$xa $xb`.
    names = any(isinstance(p, Param) and p.bare and not p.quoted for p in parts)
    if braces > _MAX_BRACES or names:
        return [(Lit(COMPUTED),)], False
    kept: list[Part] = []
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, Lit) and not part.quoted:
            pieces.append(part.text)
        else:
            pieces.append(chr(_MARK + len(kept)))
            kept.append(part)
    texts = _expand("".join(pieces))
    if len(texts) >= _LIMIT:
        return [(Lit(COMPUTED),)], False
    # Bash has its own ideas about `{a},b}`.
    certain = not any(_LEFT_OVER.search(t) for t in texts)
    return [_decode(text, kept) for text in texts], certain


def _decode(text: str, kept: list[Part]) -> tuple[Part, ...]:
    parts: list[Part] = []
    run = ""
    for char in text:
        index = ord(char) - _MARK
        if 0 <= index < len(kept):
            if run:
                parts.append(Lit(run))
                run = ""
            parts.append(kept[index])
        else:
            run += char
    if run or not parts:
        parts.append(Lit(run))
    return tuple(parts)


def _expand(text: str) -> list[str]:
    start = text.find("{")
    while start >= 0:
        found = _alternatives(text, start)
        if found is not None:
            options, close = found
            out: list[str] = []
            tails = _expand(text[close + 1 :])
            for option in options:
                out.extend(text[:start] + head + tail for head in _expand(option) for tail in tails)
                if len(out) > _LIMIT:
                    break
            return out[:_LIMIT]
        start = text.find("{", start + 1)
    return [text]


def _alternatives(text: str, start: int) -> tuple[list[str], int] | None:
    """Return what stands between the braces at `start`, and where they close."""
    level, options, begin = 0, [], start + 1
    for index in range(start, len(text)):
        char = text[index]
        if char == "{":
            level += 1
        elif char == "," and level == 1:
            options.append(text[begin:index])
            begin = index + 1
        elif char == "}":
            level -= 1
            if level == 0:
                options.append(text[begin:index])
                if len(options) > 1:
                    return options, index
                ranged = _range(options[0])
                return None if ranged is None else (ranged, index)
    return None


def _range(text: str) -> list[str] | None:
    match = _RANGE.match(text)
    if match is None:
        return None
    low, high = match.groups()
    if low.lstrip("-").isdigit() and high.lstrip("-").isdigit():
        first, last = int(low), int(high)
        step = 1 if last >= first else -1
        return [str(n) for n in range(first, last + step, step)[:_LIMIT]]
    if len(low) == len(high) == 1:
        a, b = ord(low), ord(high)
        step = 1 if b >= a else -1
        return [chr(n) for n in range(a, b + step, step)]
    return None


def apply_operator(value: str | None, op: str, argument: str) -> str | None:
    """Return the value of `${name<op><argument>}`, or None if it is computed."""
    if op in {"-", ":-", "=", ":="}:
        missing = value is None or (op[0] == ":" and value == "")
        return argument if missing else value
    if op in {"+", ":+"}:
        return "" if value is None else argument
    if op in {"?", ":?", ""} or value is None:
        return value
    if is_unknown(value + argument) or any(c in argument for c in "*?["):
        return None
    if op in {"#", "##"}:
        return value.removeprefix(argument)
    if op in {"%", "%%"}:
        return value.removesuffix(argument)
    numbers = _SLICE.fullmatch(argument) if op == ":" else None
    if numbers is None:
        return None
    start, length = int(numbers[1]), numbers[2]
    return value[start : None if length is None else start + int(length)]


PROCESS_FILE = "/dev/fd/63"
"""What a process substitution looks like as an argument."""

_TILDE = re.compile(r"~([A-Za-z0-9_.+-]*)(?=/|$)")
_SLICE = re.compile(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?")
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
                if len(self._scope.values.get("IFS", ())) > 1:
                    # The script splits words where it likes.
                    pieces = [COMPUTED]
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
            place = COMPUTED
        else:
            place = {"": self._home, "root": "/root"}.get(user, "/home/" + user)
        return place + text[match.end() :]

    def _values(self, part: Part) -> list[str]:
        """Return what a part stands for; several values become several fields."""
        if isinstance(part, Lit):
            return [part.text]
        if isinstance(part, Arith):
            for inner in part.parts:
                written = isinstance(inner, Lit)
                self._scope.arithmetic(" ".join(self._values(inner)), written=written)
            return [NUMBER]
        if isinstance(part, Subst):
            output = self._run(part.body, part.kind)
            if part.kind != "$(":
                return [output or PROCESS_FILE]
            return [COMPUTED if output is None else output.rstrip("\n")]
        return self._parameter(part)

    def _parameter(self, part: Param) -> list[str]:
        unknown = UNKNOWN_QUOTED if part.quoted else UNKNOWN
        argument = self.text(part.arg) if part.arg is not None else ""
        if part.op == ":":
            self._scope.arithmetic(argument)
        if part.prefix == "!" or (part.op == "@" and argument not in {"Q", "U", "u", "L", "a"}):
            self._scope.doubts.append(f"it evaluates what {part.name} holds")
        if part.index and part.index not in {"@", "*"} and not part.index.isdigit():
            # A subscript is evaluated, whatever stands in it.
            self._scope.arithmetic(self.text(parse_text(part.index)))
            return [COMPUTED]
        items = self._items(part)
        if items is not None and not part.prefix and part.op in {"", ":"}:
            return self._slice(part, items, argument)
        value = self._scope.get(part.name) if items is None else " ".join(items)
        if part.index.isdigit() and items is None:
            array = self._scope.arrays.get(part.name, ())
            known = int(part.index) < len(array) and part.name not in self._scope.values
            value = array[int(part.index)] if known else COMPUTED
        if part.prefix == "!" and value is not None:
            value = self._scope.get(value)
        elif part.prefix:
            return [unknown]
        result = apply_operator(value, part.op, argument)
        if result is None or result == UNKNOWN:
            return [unknown]
        if part.op in {"=", ":="}:
            self._scope.assign(part.name, result)
        return [result]

    def _items(self, part: Param) -> tuple[str, ...] | None:
        if part.name in {"@", "*"}:
            return self._scope.positional
        if part.index in {"@", "*"}:
            mixed = part.name in self._scope.values
            return (COMPUTED,) if mixed else self._scope.arrays.get(part.name)
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
    return any(not isinstance(p, Arith) and p.quoted for p in parts)


def variables_in(words: tuple[Word, ...]) -> dict[str, bool]:
    """Return the variables in words, and whether there is an alternative to their value."""
    names: dict[str, bool] = {}
    for word in words:
        for part in word.parts:
            if isinstance(part, Param):
                names[part.name] = names.get(part.name, False) or part.op in ALTERNATIVES
                inner = variables_in((part.arg,)) if part.arg is not None else {}
                names |= {name: names.get(name, False) or other for name, other in inner.items()}
    return names
