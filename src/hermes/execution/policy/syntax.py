"""The shape of a script: what the grammar makes of a text, and the walk follows.

Only what a judgement needs is kept. `||`, `;` and newlines all become neighbours in a `Script`,
because every branch has to be harmless anyway; of `&&` it is kept that `cd` worked.
"""

from typing import TypeAlias

from msgspec import Struct

COMPUTED = "\x02"
"""What a command prints, or what an expansion makes of something."""


class Lit(Struct, frozen=True):
    """Literal text; `quoted` text is not split, globbed or brace-expanded."""

    text: str
    quoted: bool = False


class Param(Struct, frozen=True):
    name: str
    quoted: bool = False
    op: str = ""
    """`:-`, `%`, `/`, …, `[` for an element, `!` for indirection, `length`, or nothing."""
    arg: "Word | None" = None
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
    parts: tuple[Part, ...] = ()

    def literal(self) -> str | None:
        first = self.parts[0] if len(self.parts) == 1 else None
        return first.text if isinstance(first, Lit) and not first.quoted else None

    def static(self) -> bool:
        """Return whether it stands for itself: nothing in it is expanded, globbed or braced."""
        return self.literal() in {"[", "[["} or all(
            isinstance(p, Lit) and (p.quoted or not any(c in p.text for c in "*?[{"))
            for p in self.parts
        )


class Redirect(Struct):
    """A redirection to or from `word`; for a here-document and a here-string that is the text.

    Not frozen: a here-document is read after its command.
    """

    op: str
    word: Word = Word()
    fd: str = ""
    """The descriptor as written: nothing, a number or `{name}`."""


class Assign(Struct, frozen=True):
    name: str
    value: Word
    computed: bool = False
    """Whether an array is made, or something is appended."""


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
