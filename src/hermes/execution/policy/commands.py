"""Reads simple commands: words, assignments, redirections and here-documents."""

import re
from abc import abstractmethod

from hermes.execution.policy.lexer import Lexer, ShellSyntaxError
from hermes.execution.policy.syntax import Assign, Function, Lit, Node, Redirect, Simple, Word

__all__ = ["CommandReader"]

_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|select|while|until|do|done|case|esac|function|coproc|time|"
    r"\{|\}|!|\[\[|in)(?=[ \t\n;&|()<>]|$)"
)
_REDIRECT = re.compile(
    r"(?:[0-9]+|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())"
)
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+)?=")
_DECLARERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_COMMENT = re.compile(r"#[^\n]*")
_AFTER_ARRAY = frozenset(("", " ", "\t", "\n", ";", "&", "|", ")", "<", ">", "\\"))


class CommandReader(Lexer):
    """A lexer that knows tokens and simple commands."""

    def __init__(self, text: str, depth: int = 0) -> None:
        super().__init__(text, depth)
        self.heredocs: list[tuple[Redirect, str, bool]] = []

    @abstractmethod
    def function_from(self, word: Word) -> Function:
        """Read the rest of a function definition."""

    def redirects(self) -> tuple[Redirect, ...]:
        """Read all redirections that follow."""
        found: list[Redirect] = []
        while self.redirect(found):
            pass
        return tuple(found)

    def simple(self) -> Node:
        """Read a simple command, or the function definition it turns out to be."""
        words: list[Word] = []
        assigns: list[Assign] = []
        redirects: list[Redirect] = []
        while True:
            self.skip_blanks()
            if self.redirect(redirects):
                continue
            declares = bool(words) and words[0].literal() in _DECLARERS
            if (not words or declares) and self._assignment(assigns):
                continue
            if self.peek() == "#":
                break
            word = self.read_word()
            if not word.parts:
                if self.peek() == "(" and len(words) == 1 and not redirects:
                    return self.function_from(words[0])
                break
            words.append(word)
        if not (words or assigns or redirects):
            raise ShellSyntaxError(f"unexpected {self.peek()!r}")
        return Simple(tuple(words), tuple(assigns), tuple(redirects))

    def _assignment(self, assigns: list[Assign]) -> bool:
        match = _ASSIGN.match(self.text, self.pos)
        if match is None:
            return False
        self.pos = match.end()
        name, append = match.group(1), bool(match.group(3))
        if self.peek() == "(":
            self.pos += 1
            assigns.append(Assign(name, None, self._array_items(), append))
        else:
            assigns.append(Assign(name, self.read_word(), None, append))
            subscript = match.group(2) or ""
            if "$" in subscript or "`" in subscript:
                assigns.append(Assign("_", self.nested(subscript).read_text()))
        return True

    def _array_items(self) -> tuple[Word, ...]:
        items: list[Word] = []
        while True:
            self.skip_newlines()
            if self.peek() == ")":
                self.pos += 1
                if self.peek() not in _AFTER_ARRAY:
                    # `a=(x)y` is one word to bash, and no array.
                    raise ShellSyntaxError("text after an array")
                return tuple(items)
            word = self.read_word()
            if not word.parts:
                raise ShellSyntaxError("bad array")
            items.append(word)

    def redirect(self, into: list[Redirect]) -> bool:
        """Read one redirection if there is one."""
        self.skip_blanks()
        match = _REDIRECT.match(self.text, self.pos)
        if match is None:
            return False
        op = match.group(1)
        self.pos = match.end()
        self.skip_blanks()
        start = self.pos
        word = self.read_word()
        if not word.parts:
            raise ShellSyntaxError("redirection without a target")
        if op in {"<<", "<<-"}:
            raw = self.text[start : self.pos]
            quoted = any(c in raw for c in "'\"\\")
            redirect = Redirect(op)
            self.heredocs.append((redirect, _delimiter(word), quoted))
            into.append(redirect)
        elif op == "<<<":
            into.append(Redirect(op, body=word))
        else:
            into.append(Redirect(op, word))
        return True

    def reserved(self) -> str:
        """Return the reserved word at this position, or nothing."""
        match = _RESERVED.match(self.text, self.pos)
        return match.group() if match is not None else ""

    def expect(self, token: str) -> None:
        """Read `token` or fail."""
        self.skip_newlines()
        if not self.text.startswith(token, self.pos):
            raise ShellSyntaxError(f"expected {token}")
        if token.isalpha() and self.reserved() != token:
            raise ShellSyntaxError(f"expected {token}")
        self.pos += len(token)

    def skip_space(self) -> None:
        """Skip blanks and a comment."""
        self.skip_blanks()
        if self.peek() == "#":
            match = _COMMENT.match(self.text, self.pos)
            self.pos = match.end() if match is not None else self.pos

    def skip_newlines(self) -> None:
        """Skip blanks, comments and line ends; here-documents are read on the way."""
        while True:
            self.skip_space()
            if self.peek() != "\n":
                return
            self.pos += 1
            self._read_heredocs()

    def _read_heredocs(self) -> None:
        pending, self.heredocs = self.heredocs, []
        for redirect, delimiter, quoted in pending:
            body = self._heredoc_body(delimiter, strip=redirect.op == "<<-")
            literal = Word((Lit(body, quoted=True),))
            redirect.body = literal if quoted else self.nested(body).read_text()

    def _heredoc_body(self, delimiter: str, *, strip: bool) -> str:
        lines: list[str] = []
        while self.pos < self.end:
            stop = self.text.find("\n", self.pos)
            stop = self.end if stop < 0 else stop
            line = self.text[self.pos : stop]
            line = line.lstrip("\t") if strip else line
            self.pos = min(stop + 1, self.end)
            if line == delimiter:
                break
            lines.append(line + "\n")
        return "".join(lines)


def _delimiter(word: Word) -> str:
    return "".join(part.text for part in word.parts if isinstance(part, Lit))
