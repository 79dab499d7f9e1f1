"""The shape of a shell script: what the grammar produces and the walk reads.

Only what a judgement needs is kept. `||`, `;` and newlines all become neighbours in a
`Script`, because every branch has to be harmless anyway; of `&&` it is kept that `cd` worked.
"""

from typing import TypeAlias

from msgspec import Struct


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
    """The array subscript as written."""
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
    """The variable of `for` and `select`."""


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


class Script(Struct, frozen=True):
    items: tuple[Pipeline, ...] = ()
