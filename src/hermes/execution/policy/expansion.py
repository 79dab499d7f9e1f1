"""Words to values: quotes, braces, the home, and variables with one static value.

Globs are kept as they are written. Everything else is *computed*: nobody works out what a
decoder, an operator or an array would make of it, it is marked with a character that no
command contains, and rules ask about it. A variable to which a script gives two values is
computed as well; one that the script does not touch comes from outside and is only unknown.
"""

import re
from collections.abc import Callable

from hermes.execution.policy.syntax import COMPUTED, Arith, Lit, Param, Part, Script, Subst, Word

UNKNOWN = "\x00"
"""An unquoted variable that is not known: it may be several words or none."""
UNKNOWN_QUOTED = "\x01"
"""A quoted variable that is not known: exactly one word."""
NUMBER = "\x04"
"""A number that is computed."""

MARKS = re.compile(f"[{UNKNOWN}{UNKNOWN_QUOTED}{COMPUTED}{NUMBER}]")
_MAX_WORDS = 1000
_NUMBERS = re.compile(f"[0-9{NUMBER}]+")
_NAME = re.compile(r"[A-Za-z_]\w*")
_EVALUATED = re.compile(f"[\\[$`{COMPUTED}]")
"""In the value of a variable: what arithmetic would run, or could."""
_BRACES = re.compile(
    r"\{(?:([^{},]*(?:,[^{},]*)+)|(-?\d{1,9})\.\.(-?\d{1,9})|([A-Za-z])\.\.([A-Za-z]))\}"
)
_MAX_LENGTH = 65_536
"""Characters that variables may make of one word; no script that can be judged is as long."""
_STEPS = re.compile(r"\{[^{}]*\.\.[^{}]*\}")
_ALTERNATIVES = frozenset({"-", ":-", "=", ":=", "+", ":+"})
_PIECE_OF_NAME = re.compile(r"(?!.*\.\.)[\w*?][\w.*?/-]*")
_TILDE = re.compile(r"([A-Za-z_]\w*=)?~([A-Za-z0-9_.+-]*)(?=/|$)")
_SPACE = re.compile(r"[ \t\n]+")
_HOLDERS = re.compile("([\U000f0000-\U000fffff])")
_HELD = 0xF0000
"""First private-use code point; each stands for a part that braces leave alone."""


def is_unknown(text: str) -> bool:
    return MARKS.search(text) is not None


class Variables:
    """What is known about variables, and what words make of it.

    `run` follows a substitution and tells what it prints, if that is known; of a process
    substitution it returns the name of the file it looks like. Positional parameters are computed.
    """

    def __init__(self, home: str, run: Callable[[Script, str], str | None]) -> None:
        self.values: dict[str, str] = {}
        self.cwd: str | None = None
        self.branch: tuple[int, ...] = ()
        """The branches that the script is in: what is assigned in one holds only there."""
        self._assigned_in: dict[str, tuple[int, ...]] = {}
        self.read: set[str] = set()
        """Names that were looked up."""
        self.doubts: list[str] = []
        """What in the script evaluates something that is not written there."""
        self._home = home
        self._run = run

    def assign(self, name: str, value: str) -> None:
        """Give a variable its value; with a second one it is computed."""
        value = COMPUTED if name == "PWD" else value
        before = self._assigned_in.get(name, self.branch)
        self._assigned_in[name] = min(before, self.branch, key=len)
        known = self.values.setdefault(name, value)
        if known != value:
            self.values[name] = NUMBER if _NUMBERS.fullmatch(known + value) else COMPUTED

    def get(self, name: str) -> str | None:
        if name == "PWD" and name not in self.values:
            return self.cwd or COMPUTED
        self.read.add(name)
        branch = self._assigned_in.get(name, ())
        if self.branch[: len(branch)] != branch or name in {"@", "*"} or name.isdigit():
            return COMPUTED
        return self.values.get(name)

    def arithmetic(self, text: str, *, written: bool = False) -> None:
        """Note whether arithmetic over `text` would run what a value holds.

        What is `written` as arithmetic may have subscripts; the grammar has read them.
        """
        values = [self.values.get(name, "") for name in _NAME.findall(text)]
        if any(map(_EVALUATED.search, values if written else (text, *values))):
            self.doubts.append("arithmetic would run what a value holds")

    def fields(self, word: Word) -> list[str]:
        first = word.parts[0] if len(word.parts) == 1 else None
        if isinstance(first, Lit) and not {"{", COMPUTED} & {*first.text}:
            return [first.text if first.quoted else self._tilde(first.text)]
        return [field for parts in self._braces(word.parts) for field in self._split(parts)]

    def text(self, word: Word | None) -> str:
        """Return the value of `word` where the shell does not split it."""
        text = "".join(self._values(word.parts)) if word is not None else ""
        if len(text) > _MAX_LENGTH:
            self.doubts.append("its words grow too long to be read")
        return text if len(text) <= _MAX_LENGTH else COMPUTED

    def _braces(self, parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
        """Return the words that lists and ranges in braces make of one word."""
        if not any(isinstance(p, Lit) and not p.quoted and "{" in p.text for p in parts):
            return [parts]
        pairs = zip(range(_HELD, _HELD + len(parts)), parts, strict=True)
        text = "".join(p.text if isinstance(p, Lit) and not p.quoted else chr(i) for i, p in pairs)
        # Braces can lengthen the name of a variable: `$x{a,b}` is `$xa $xb`.
        lengthens = any(isinstance(p, Param) and p.bare and not p.quoted for p in parts)
        imitates = any(isinstance(p, Lit) and _HOLDERS.search(p.text) for p in parts)
        words = None if lengthens or imitates else _expand_braces(text)
        if words is None:
            self.doubts.append("its braces are too complicated to be read")
            return [(Lit(COMPUTED),)]
        return [
            tuple(parts[ord(p) - _HELD] if p[0] >= chr(_HELD) else Lit(p) for p in pieces if p)
            for pieces in map(_HOLDERS.split, words)
        ]

    def _split(self, parts: tuple[Part, ...]) -> list[str]:
        fields, values = [""], self._values(parts)
        if sum(map(len, values)) > _MAX_LENGTH:
            self.doubts.append("its words grow too long to be read")
            return [COMPUTED]
        for part, value in zip(parts, values, strict=True):
            splits = isinstance(part, Param | Subst) and not part.quoted
            # A script that sets IFS splits words where it likes.
            computed = splits and self.values.get("IFS") == COMPUTED
            first, *more = _SPACE.split(value) if splits and not computed else [value]
            fields[-1] += COMPUTED if computed else first
            fields += more
        keeps_empty = any(not isinstance(p, Arith) and p.quoted for p in parts)
        return [f for f in fields if f or keeps_empty]

    def _tilde(self, text: str) -> str:
        match = _TILDE.match(text)
        if match is None:
            return text
        user = match[2]
        known = {"": self._home, "root": "/root", "+": self.get("PWD"), "-": COMPUTED}
        home = known.get(user, f"/home/{user}" if user[:1].isalpha() else COMPUTED)
        return (match[1] or "") + (home or COMPUTED) + text[match.end() :]

    def _values(self, parts: tuple[Part, ...]) -> list[str]:
        values = [self._value(part) for part in parts]
        if parts and isinstance(parts[0], Lit) and not parts[0].quoted:
            values[0] = self._tilde(values[0])
        return values

    def _value(self, part: Part) -> str:
        if isinstance(part, Lit):
            if COMPUTED in part.text:
                self.doubts.append("a word is written in a way that hides it")
            return part.text
        if isinstance(part, Subst):
            output = self._run(part.body, part.kind)
            return COMPUTED if output is None else output.rstrip("\n")
        if isinstance(part, Arith):
            for inner in part.parts:
                self.arithmetic(self._value(inner), written=isinstance(inner, Lit))
            return NUMBER
        return self._parameter(part)

    def _parameter(self, part: Param) -> str:
        argument = self.text(part.arg)
        if part.op == "[" and argument not in {"@", "*"}:
            self.arithmetic(argument)
        if part.op in {"=", ":="}:
            self.assign(part.name, COMPUTED)
        if part.op == "!":
            self.doubts.append(f"it evaluates what {part.name} holds")
        if part.op in {"[", "!", "length"}:
            return NUMBER if part.op == "length" else COMPUTED
        value = self.get(part.name)
        if value is not None:
            return _operated(value, part.op, argument)
        if part.op in _ALTERNATIVES:
            return COMPUTED
        return UNKNOWN_QUOTED if part.quoted else UNKNOWN


def _operated(value: str, op: str, argument: str) -> str:
    """Return what an operator makes of a known value, where that is plain to see."""
    if op in {"", "?", ":?"} or (op in {"-", ":-"} and value and value != COMPUTED):
        return value
    if op in {"%", "%%"} and _PIECE_OF_NAME.fullmatch(value):
        # The beginning of a name is some name in the same place.
        plain = not any(c in argument for c in "*?[") and not is_unknown(argument)
        if plain or argument == ".*":
            return value.removesuffix(argument) if plain else value[0] + "*"
    return COMPUTED


def _expand_braces(text: str) -> list[str] | None:
    """Return the words that bash makes of `{a,b}` and `{1..3}`; None if that is not simple."""
    done: list[str] = []
    todo = [text]
    while todo:
        text = todo.pop()
        match = _BRACES.search(text)
        if match is None:
            _, _, rest = text.partition("{")
            if "}" in rest.partition(",")[2] or _STEPS.search(text):
                return None
            done.append(text)
            continue
        if len(done) + len(todo) > _MAX_WORDS or "{" in text[: match.start()]:
            return None
        todo += [text[: match.start()] + o + text[match.end() :] for o in _options(match)]
    return done


def _options(match: re.Match[str]) -> list[str]:
    """Return what braces stand for, last first."""
    if match[1] is not None:
        return match[1].split(",")[::-1]
    numbers = match[2] is not None
    low, high = (int(match[2]), int(match[3])) if numbers else (ord(match[4]), ord(match[5]))
    step = 1 if high >= low else -1
    found = range(low, high + step, step)[: _MAX_WORDS + 1]
    return [str(n) if numbers else chr(n) for n in reversed(found)]
