"""Shell words (quotes, escapes, expansions and substitutions) and the shape of a script.

Reads in bash's own order, character class by character class, because every difference
between this reader and the shell would be a way around the policy. `grammar` builds on it.

Of a script only what a judgement needs is kept. `||`, `;` and newlines all become neighbours
in a `Script`, because every branch has to be harmless anyway; of `&&` it is kept that `cd` worked.
"""

import re
from abc import ABC, abstractmethod
from typing import TypeAlias

from msgspec import Struct

MAX_DEPTH = 40

_PLAIN = re.compile(r"[^ \t\n;&|()<>\\'\"`$]+")
_DQ_PLAIN = re.compile(r"[^\\\"`$]+")
_TEXT_PLAIN = re.compile(r"[^\\`$]+")
_BRACE_PLAIN = re.compile(r"(?:[^\\'\"`$}<>]|[<>](?!\())+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!_-]")
_BRACED_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
_EXTGLOB_LEAD = frozenset("?*+@!")


_ANSI_C = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_SIMPLE = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


class Lit(Struct, frozen=True):
    """Literal text; `quoted` text is not split, globbed or brace-expanded."""

    text: str
    quoted: bool = False


class Param(Struct, frozen=True):
    name: str
    quoted: bool = False
    op: str = ""
    """The operator: `:-`, `#`, `%`, `/`, `:`, `^`, `@`, … or nothing."""
    arg: "Word | None" = None
    index: str = ""
    prefix: str = ""
    """`!` for indirection, `#` for length."""
    bare: bool = False
    """Whether it is written without braces, so that letters behind it lengthen its name."""


class Subst(Struct, frozen=True):
    """`$(…)`, backticks, `<(…)` or `>(…)`; `kind` is the opening token."""

    body: "Script"
    kind: str = "$("
    quoted: bool = False


class Arith(Struct, frozen=True):
    parts: "tuple[Part, ...]"


Part: TypeAlias = Lit | Param | Subst | Arith


class Word(Struct, frozen=True):
    parts: tuple[Part, ...]

    def literal(self) -> str | None:
        if len(self.parts) == 1 and isinstance(self.parts[0], Lit) and not self.parts[0].quoted:
            return self.parts[0].text
        return None

    def static(self) -> bool:
        """Return whether it stands for itself: nothing in it is expanded, globbed or braced."""
        return self.literal() in {"[", "[["} or all(
            isinstance(p, Lit) and (p.quoted or not any(c in p.text for c in "*?[{"))
            for p in self.parts
        )


class Redirect(Struct):
    """A redirection; `body` is a here-document or here-string.

    Not frozen: the body of a here-document is read after its command.
    """

    op: str
    target: Word | None = None
    body: Word | None = None
    fd: str = ""
    """The descriptor as written: nothing, a number or `{name}`."""


class Assign(Struct, frozen=True):
    name: str
    value: Word | None = None
    items: tuple[Word, ...] | None = None
    append: bool = False


class Simple(Struct, frozen=True):
    words: tuple[Word, ...] = ()
    assigns: tuple[Assign, ...] = ()
    redirects: tuple[Redirect, ...] = ()


class Compound(Struct, frozen=True):
    """Loops, conditions, groups and tests: words that are expanded and bodies that may run."""

    kind: str
    words: tuple[Word, ...] = ()
    bodies: "tuple[Script, ...]" = ()
    redirects: tuple[Redirect, ...] = ()
    variable: str = ""


class Function(Struct, frozen=True):
    name: str
    body: "Script"


Node: TypeAlias = Simple | Compound | Function


class Pipeline(Struct, frozen=True):
    commands: tuple[Node, ...]
    background: bool = False
    negated: bool = False
    follows: bool = False
    """Whether it only runs if the one before it succeeded (`&&`)."""
    chained: bool = False
    """Whether it may not run at all, because it stands behind `&&` or `||`."""


class Script(Struct, frozen=True):
    items: tuple[Pipeline, ...] = ()


class ShellSyntaxError(Exception):
    """The text is not a shell script that this reader understands."""


class Lexer(ABC):
    """A position in a text and the ways to read a word from there."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self.text = text
        self.pos = 0
        self.end = len(text)
        self.depth = depth

    @abstractmethod
    def read_script(self, closer: str) -> Script:
        """Read statements up to and including `closer`."""

    @abstractmethod
    def nested(self, text: str) -> "Lexer":
        """Return a reader for a text found inside this one."""

    def peek(self, count: int = 1) -> str:
        return self.text[self.pos : self.pos + count]

    def skip_blanks(self) -> None:
        match = _BLANKS.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ShellSyntaxError("nested too deeply")

    def read_word(self) -> Word:
        """Read one word; it is empty when the next character ends words."""
        parts: list[Part] = []
        start = self.pos
        while self.pos < self.end:
            plain = _PLAIN.match(self.text, self.pos)
            if plain is not None:
                parts.append(Lit(plain.group()))
                self.pos = plain.end()
                continue
            char = self.text[self.pos]
            if char in " \t\n;&|)":
                break
            if char in "<>":
                if self.peek(2)[1:] != "(":
                    break
                parts.append(self._process_substitution())
            elif char == "(":
                if self.pos == start or self.text[self.pos - 1] not in _EXTGLOB_LEAD:
                    break
                parts.extend(self._extended_glob())
            else:
                parts.extend(self._special(quoted=False))
        return Word(tuple(parts))

    def _extended_glob(self) -> tuple[Part, ...]:
        """Read the brackets of `@(a|b)`; what is substituted in them runs."""
        text = self.balanced("(", ")")
        if "<(" in text or ">(" in text:
            raise ShellSyntaxError("process substitution in a pattern")
        return (Lit("*"), *(p for p in self._parts_of(text) if not isinstance(p, Lit)))

    def read_text(self) -> Word:
        """Read everything to the end the way a here-document body is read."""
        return Word(tuple(self._quoted("")))

    def balanced(self, opener: str, closer: str) -> str:
        """Read a bracketed stretch, brackets included; quotes hide brackets."""
        start, level = self.pos, 0
        while self.pos < self.end:
            char = self.text[self.pos]
            if char == "\\":
                self.pos += 1
            elif char == "'":
                self.pos = self._find("'", self.pos + 1)
            elif char == opener:
                level += 1
            elif char == closer:
                level -= 1
                if level == 0:
                    self.pos += 1
                    return self.text[start : self.pos]
            self.pos += 1
        raise ShellSyntaxError(f"no closing {closer}")

    def _find(self, needle: str, start: int) -> int:
        found = self.text.find(needle, start)
        if found < 0:
            raise ShellSyntaxError(f"no closing {needle}")
        return found

    def _unescaped(self, closer: str, start: int) -> int:
        while start < self.end and self.text[start] != closer:
            start += 2 if self.text[start] == "\\" else 1
        if start >= self.end:
            raise ShellSyntaxError(f"no closing {closer}")
        return start

    def _special(self, *, quoted: bool) -> list[Part]:
        char = self.text[self.pos]
        if char == "'":
            close = self._find("'", self.pos + 1)
            text = self.text[self.pos + 1 : close]
            self.pos = close + 1
            return [Lit(text, quoted=True)]
        if char == '"':
            self.pos += 1
            return self._quoted('"')
        if char == "\\":
            following = self.peek(2)[1:]
            self.pos += 2
            return [] if following == "\n" else [Lit(following or "\\", quoted=True)]
        if char == "`":
            return [self._backticks(quoted=quoted)]
        return self._dollar(quoted=quoted)

    def _quoted(self, closer: str) -> list[Part]:
        """Read up to the closing quote, or to the end."""
        parts: list[Part] = []
        plain = _DQ_PLAIN if closer else _TEXT_PLAIN
        while self.pos < self.end:
            char = self.text[self.pos]
            match = plain.match(self.text, self.pos)
            if match is not None:
                parts.append(Lit(match.group(), quoted=True))
                self.pos = match.end()
            elif char == closer:
                self.pos += 1
                return parts or [Lit("", quoted=True)]
            elif char == "\\":
                following = self.peek(2)[1:]
                self.pos += 2
                keeps = following not in ("$", "`", "\\", closer) or not following
                if following != "\n":
                    parts.append(Lit("\\" + following if keeps else following, quoted=True))
            elif char == "`":
                parts.append(self._backticks(quoted=True))
            else:
                parts.extend(self._dollar(quoted=True))
        if closer:
            raise ShellSyntaxError(f"no closing {closer}")
        return parts

    def _backticks(self, *, quoted: bool) -> Subst:
        close = self._unescaped("`", self.pos + 1)
        escapable = r"\\([\\`$\"])" if quoted else r"\\([\\`$])"
        inner = re.sub(escapable, r"\1", self.text[self.pos + 1 : close])
        self.pos = close + 1
        reader = self.nested(inner)
        return Subst(reader.read_script(""), "$(", quoted)

    def _process_substitution(self) -> Part:
        kind = self.peek(2)
        self.pos += 2
        body = self.read_script(")")
        # An empty one is an empty string, not a file: `rm<()` is `rm`.
        return Subst(body, kind, quoted=True) if body.items else Lit("", quoted=True)

    def _dollar(self, *, quoted: bool) -> list[Part]:
        following = self.peek(2)[1:]
        if following == "(":
            return [self._parenthesised(quoted=quoted)]
        if following == "{":
            return [self._braced(quoted=quoted)]
        if following == "[":
            self.pos += 1
            return [Arith(self._parts_of(self.balanced("[", "]")[1:-1]))]
        if following == "'" and not quoted:
            return [self._ansi_c()]
        if following == '"' and not quoted:
            self.pos += 2
            return self._quoted('"')
        name = _NAME.match(self.text, self.pos + 1)
        if name is None:
            self.pos += 1
            return [Lit("$", quoted=quoted)]
        self.pos = name.end()
        return [Param(name.group(), quoted, bare=True)]

    def _ansi_c(self) -> Lit:
        close = self._unescaped("'", self.pos + 2)
        text = self.text[self.pos + 2 : close]
        self.pos = close + 1
        return Lit(_ANSI_C.sub(_unescape, text), quoted=True)

    def _parenthesised(self, *, quoted: bool) -> Part:
        if self.peek(3) == "$((":
            arithmetic = self.try_arithmetic(self.pos + 1)
            if arithmetic is not None:
                return Arith(arithmetic)
        self.pos += 2
        return Subst(self.read_script(")"), "$(", quoted)

    def try_arithmetic(self, start: int) -> tuple[Part, ...] | None:
        """Read `((…))` at `start`; return None, unmoved, if it is two groups."""
        before, self.pos = self.pos, start
        try:
            outer = self.balanced("(", ")")
            self.pos = start + 1
            inner = self.balanced("(", ")")
        except ShellSyntaxError:
            outer = inner = ""
        if not outer or len(inner) != len(outer) - 2:
            self.pos = before
            return None
        self.pos = start + len(outer)
        return self._parts_of(inner[1:-1])

    def _parts_of(self, text: str) -> tuple[Part, ...]:
        if "$" not in text and "`" not in text:
            return (Lit(text, quoted=True),)
        return self.nested(text).read_text().parts

    def _braced(self, *, quoted: bool) -> Param:
        self.deeper()
        self.pos += 2
        prefix = ""
        if self.peek() in {"!", "#"} and self.peek(2)[1:] not in {"}", ""}:
            prefix = self.peek()
            self.pos += 1
        name = _BRACED_NAME.match(self.text, self.pos)
        if name is None:
            raise ShellSyntaxError("bad substitution")
        self.pos = name.end()
        index = self.balanced("[", "]")[1:-1] if self.peek() == "[" else ""
        op = self._operator()
        arg = self._brace_argument(quoted=quoted)
        self.depth -= 1
        return Param(name.group(), quoted, op, arg, index, prefix)

    def _operator(self) -> str:
        two = self.peek(2)
        known = {":-", ":=", ":?", ":+", "##", "%%", "//", "^^", ",,", "/#", "/%"}
        op = two if two in known else self.peek()
        if op == "}":
            return ""
        if op[:1] not in set(":-=?+#%/^,@*"):
            raise ShellSyntaxError("bad substitution")
        self.pos += len(op)
        return op

    def _brace_argument(self, *, quoted: bool) -> Word:
        parts: list[Part] = []
        while self.pos < self.end:
            plain = _BRACE_PLAIN.match(self.text, self.pos)
            if plain is not None:
                parts.append(Lit(plain.group(), quoted))
                self.pos = plain.end()
                continue
            if self.text[self.pos] == "}":
                self.pos += 1
                return Word(tuple(parts))
            parts.extend(self._in_braces(quoted=quoted))
        raise ShellSyntaxError("no closing }")

    def _in_braces(self, *, quoted: bool) -> list[Part]:
        char = self.text[self.pos]
        if char in "<>" and not quoted:
            return [self._process_substitution()]
        if quoted and char in "<>'":
            self.pos += 1
            return [Lit(char, quoted=True)]
        return self._special(quoted=quoted)


def _unescape(match: re.Match[str]) -> str:
    hexadecimal, short, long, octal, control, simple = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, "\\" + simple)
    if control is not None:
        return chr(ord(control) & 0x1F)
    if octal is not None:
        return chr(int(octal, 8) & 0xFF)
    code = int(hexadecimal or short or long, 16)
    return chr(code) if code <= 0x10FFFF else "?"
