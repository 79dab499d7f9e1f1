"""A recursive-descent reader of the shell command language (POSIX and bash).

`parse` turns text into a `Script` or raises `ShellSyntaxError`; it never
guesses. `salvage` is for text that does not parse: it returns every fragment
that does, so that a broken tail cannot hide what stands before it.
"""

import re

from msgspec import structs

from hermes.execution.policy.syntax import (
    Arith,
    Assign,
    Compound,
    Function,
    Lexer,
    Lit,
    Node,
    Pipeline,
    Redirect,
    Script,
    ShellSyntaxError,
    Simple,
    Word,
)

_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|select|while|until|do|done|case|esac|function|time|"
    r"\{|\}|!|\[\[|in)(?=[ \t\n;&|()<>]|$)"
)
_REDIRECT = re.compile(
    r"([0-9]+|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())"
)
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+)?=")
_DECLARERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_COMMENT = re.compile(r"#[^\n]*")
_BLOCKS = {"{": "}", "if": "fi", "while": "done", "until": "done"}
_CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
_CONTINUED = "\\\n"
_SPLIT = re.compile(r"\n|;|&&|\|\||\||&|[(){}]")
_AFTER_ARRAY = frozenset(("", " ", "\t", "\n", ";", "&", "|", ")", "<", ">", "\\"))


class _Parser(Lexer):
    def __init__(self, text: str, depth: int = 0) -> None:
        super().__init__(text, depth)
        self.heredocs: list[tuple[Redirect, str, bool]] = []

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
        self.skip_blanks()
        match = _REDIRECT.match(self.text, self.pos)
        if match is None:
            return False
        fd, op = match.group(1) or "", match.group(2)
        self.pos = match.end()
        self.skip_blanks()
        start = self.pos
        word = self.read_word()
        if not word.parts:
            raise ShellSyntaxError("redirection without a target")
        redirect = Redirect(op, fd=fd)
        into.append(redirect)
        if op in {"<<", "<<-"}:
            quoted = any(c in self.text[start : self.pos] for c in "'\"\\")
            if not all(isinstance(part, Lit) for part in word.parts):
                raise ShellSyntaxError("a here-document with a computed end")
            delimiter = "".join(part.text for part in word.parts if isinstance(part, Lit))
            self.heredocs.append((redirect, delimiter, quoted))
        elif op == "<<<":
            redirect.body = word
        else:
            redirect.target = word
        return True

    def reserved(self) -> str:
        match = _RESERVED.match(self.text, self.pos)
        return match.group() if match is not None else ""

    def expect(self, token: str) -> None:
        self.skip_newlines()
        if not self.text.startswith(token, self.pos):
            raise ShellSyntaxError(f"expected {token}")
        if token.isalpha() and self.reserved() != token:
            raise ShellSyntaxError(f"expected {token}")
        self.pos += len(token)

    def skip_space(self) -> None:
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

    def nested(self, text: str) -> "_Parser":
        inner = _Parser(text, self.depth)
        inner.deeper()
        return inner

    def read_script(self, closer: str) -> Script:
        outer, self.heredocs = self.heredocs, []
        script = self._statements()
        if self.heredocs and closer:
            raise ShellSyntaxError("here-document without a body")
        self.heredocs = outer
        if closer:
            self.expect(closer)
        elif self.pos < self.end:
            raise ShellSyntaxError(f"unexpected {self.peek()!r}")
        return script

    # --- statements ---

    def _statements(self) -> Script:
        items: list[Pipeline] = []
        while True:
            self.skip_newlines()
            if self.pos >= self.end or self.peek() == ")" or self.peek(2) in {";;", ";&"}:
                break
            if self.reserved() in _CLOSERS:
                break
            items.extend(self._and_or())
            self.skip_space()
            if self.peek(2) in {";;", ";&"} or self.peek() not in {"\n", ";", "&"}:
                break
            self.pos += self.peek() != "\n"
        return Script(tuple(items))

    def _and_or(self) -> list[Pipeline]:
        items = [self._pipeline()]
        while True:
            self.skip_space()
            operator = self.peek(2)
            if operator not in {"&&", "||"}:
                break
            self.pos += 2
            self.skip_newlines()
            follows = operator == "&&" and not items[-1].negated
            items.append(structs.replace(self._pipeline(), follows=follows, chained=True))
        if self.peek() == "&":
            items[-1] = structs.replace(items[-1], background=True)
        return items

    def _pipeline(self) -> Pipeline:
        negated = False
        while (word := self.reserved()) in {"!", "time"}:
            negated = negated or word == "!"
            self.pos += len(word)
            self.skip_blanks()
            if word == "time" and re.match(r"-p[ \t]", self.text[self.pos : self.pos + 3]):
                self.pos += 2
                self.skip_blanks()
            if self.pos >= self.end or self.peek() in {"\n", ";"}:
                return Pipeline(())
        commands = [self._command()]
        while True:
            self.skip_space()
            if self.peek() != "|" or self.peek(2) == "||":
                return Pipeline(tuple(commands), negated=negated)
            self.pos += 2 if self.peek(2) == "|&" else 1
            self.skip_newlines()
            commands.append(self._command())

    # --- commands ---

    def _command(self) -> Node:
        self.skip_blanks()
        self.deeper()
        node = self._compound() or self.simple()
        self.depth -= 1
        return node

    def _compound(self) -> Node | None:
        if self.peek(2) == "((":
            parts = self.try_arithmetic(self.pos)
            if parts is not None:
                return self._finish(Compound("arith", words=(Word((Arith(parts),)),)))
        if self.peek() == "(":
            self.pos += 1
            return self._finish(Compound("subshell", bodies=(self.read_script(")"),)))
        word = self.reserved()
        reader = {"[[": self._test, "for": self._for, "select": self._for, "case": self._case}
        if word in _BLOCKS:
            self.pos += len(word)
            kind = "group" if word == "{" else "block"
            return self._finish(Compound(kind, bodies=self._block(_BLOCKS[word])))
        if word in reader:
            self.pos += len(word)
            return self._finish(reader[word]())
        if word == "function":
            self.pos += len(word)
            self.skip_blanks()
            return self.function_from(self.read_word())
        if word and word != "in":
            raise ShellSyntaxError(f"unexpected {word}")
        return None

    def _finish(self, node: Compound) -> Compound:
        redirects: list[Redirect] = []
        while self.redirect(redirects):
            pass
        return structs.replace(node, redirects=tuple(redirects)) if redirects else node

    def _block(self, closer: str) -> tuple[Script, ...]:
        """Read everything up to the end of a loop, a condition or a group: all of it may run."""
        bodies = [self._statements()]
        while (word := self.reserved()) in {"then", "elif", "else", "do"}:
            self.pos += len(word)
            bodies.append(self._statements())
        self.expect(closer)
        return tuple(bodies)

    def _test(self) -> Compound:
        words: list[Word] = []
        while True:
            self.skip_newlines()
            if self.pos >= self.end:
                raise ShellSyntaxError("no closing ]]")
            if re.match(r"\]\](?=[ \t\n;&|()<>]|$)", self.text[self.pos : self.pos + 3]):
                self.pos += 2
                return Compound("test", words=tuple(words))
            word = self.read_word()
            if word.parts:
                words.append(word)
            else:
                self.pos += 1

    def _for(self) -> Compound:
        self.skip_blanks()
        if self.peek(2) == "((":
            parts = self.try_arithmetic(self.pos)
            if parts is None:
                raise ShellSyntaxError("bad for")
            return Compound("block", words=(Word((Arith(parts),)),), bodies=self._loop_body())
        name = self.read_word().literal()
        if name is None:
            raise ShellSyntaxError("bad for")
        self.skip_newlines()
        words = [self.nested('"$@"').read_word()]
        if self.reserved() == "in":
            self.pos += 2
            words = self._words()
            if self.peek() not in {";", "\n"}:
                raise ShellSyntaxError("bad for")
        return Compound("for", tuple(words), self._loop_body()[-1:], variable=name)

    def _loop_body(self) -> tuple[Script, ...]:
        self.skip_space()
        self.pos += self.peek() == ";"
        self.skip_newlines()
        word = self.reserved()
        if word not in {"do", "{"}:
            raise ShellSyntaxError("bad for")
        self.pos += len(word)
        return self._block("done" if word == "do" else "}")

    def _words(self) -> list[Word]:
        words: list[Word] = []
        self.skip_blanks()
        while (word := self.read_word()).parts:
            words.append(word)
            self.skip_blanks()
        return words

    def _case(self) -> Compound:
        self.skip_blanks()
        words = [self.read_word()]
        self.skip_newlines()
        self.expect("in")
        bodies: list[Script] = []
        while True:
            self.skip_newlines()
            if self.reserved() == "esac":
                self.pos += 4
                return Compound("case", tuple(words), tuple(bodies))
            words.extend(self._case_patterns())
            bodies.append(self._statements())
            self.skip_newlines()
            if self.peek(2) in {";;", ";&"}:
                self.pos += 3 if self.peek(3) == ";;&" else 2
            elif self.reserved() != "esac":
                raise ShellSyntaxError("bad case")

    def _case_patterns(self) -> list[Word]:
        self.pos += self.peek() == "("
        patterns = self._words()
        while self.peek() == "|":
            self.pos += 1
            patterns += self._words()
        if not patterns or self.peek() != ")":
            raise ShellSyntaxError("bad case")
        self.pos += 1
        return patterns

    def function_from(self, word: Word) -> Function:
        name = "".join(p.text if isinstance(p, Lit) else "?" for p in word.parts)
        self.skip_blanks()
        if self.peek() == "(":
            self.expect("(")
            self.expect(")")
        self.skip_newlines()
        return Function(name, Script((Pipeline((self._command(),)),)))


def parse(text: str, depth: int = 0) -> Script:
    """Read a whole script; raise `ShellSyntaxError` if it is not one."""
    return _Parser(text, depth).read_script("")


def read_scripts(text: str, depth: int = 0) -> tuple[list[Script], bool]:
    """Return the scripts that `text` may stand for, and whether it parsed as a whole.

    A continued line inside a token joins the token, which the reader does not
    follow everywhere; a text with continued lines is read a second time joined.
    """
    scripts = _readable([text], depth)
    whole = bool(scripts)
    if _CONTINUED in text:
        scripts += _readable([text.replace(_CONTINUED, "")], depth)
    return (scripts, True) if whole else (scripts + salvage(text), False)


def parse_text(text: str) -> Word:
    """Read `text` as the inside of double quotes, to find what would run in it."""
    return _Parser(text).read_text()


def salvage(text: str, limit: int = 200) -> list[Script]:
    """Return the fragments of an unreadable text that are readable on their own."""
    pieces = [*text.split("\n"), *_SPLIT.split(text)]
    return _readable(list(dict.fromkeys(p.strip() for p in pieces if p.strip()))[:limit])


def _readable(texts: list[str], depth: int = 0) -> list[Script]:
    found: list[Script] = []
    for text in texts:
        try:
            found.append(parse(text, depth))
        except ShellSyntaxError:
            continue
    return found
