"""Text to syntax: the shell command language (POSIX and bash), as far as a judgement needs it.

`parse` turns text into a `Script` or raises `ShellSyntaxError`; it never guesses. It reads in
bash's own order, because every difference between this reader and the shell would be a way
around the policy. What nobody needs to judge is not read at all: an expansion that evaluates
what a variable holds, a pattern or a subscript with something computed in it. Such a text asks.
"""

import re

from msgspec import structs

from hermes.execution.policy.syntax import (
    COMPUTED,
    Arith,
    Assign,
    Compound,
    Function,
    Lit,
    Node,
    Param,
    Part,
    Pipeline,
    Redirect,
    Script,
    ShellSyntaxError,
    Simple,
    Subst,
    Word,
)

MAX_DEPTH = 40

_PLAIN = re.compile(r"[^ \t\n;&|()<>\\'\"`$]+")
_QUOTED_PLAIN = {'"': re.compile(r"[^\\\"`$]+"), "": re.compile(r"[^\\`$]+")}
_BRACE_PLAIN = re.compile(r"(?:[^\\'\"`$}<>]|[<>](?!\())+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!_-]")
_BRACED = re.compile(
    r"([#!](?=[A-Za-z_0-9@*]))?([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([@*]|\$?\w+)\])?"
    r"(:?[-=?+]|##?|%%?|//?[#%]?|\^\^?|,,?|:(?=[\d: -]+\})|(?=\}))"
)
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")
_ANSI_C = re.compile(r"\\(.)", re.DOTALL)
_ANSI_SIMPLE = dict(zip("nt\\'\"", "\n\t\\'\"", strict=True))
_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|select|while|until|do|done|case|esac|function|time|"
    r"\{|\}|!|\[\[|\]\]|in)(?=[ \t\n;&|()<>]|$)"
)
_REDIRECT = re.compile(
    r"([0-9]+|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())"
)
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\[[^\]$`]*\])?(\+)?=", re.ASCII)
_DECLARERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_BLOCKS = {"{": "}", "if": "fi", "while": "done", "until": "done"}
_CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
_CASE_ENDS = frozenset({";;", ";&"})
_CONTINUED = "\\\n"
_QUOTED_GROUP = "a group has quotes that may end it"
_SPLIT = re.compile(r"\n|;|&&|\|\||\||&|[(){}]")
_AFTER_ARRAY = frozenset(("", *" \t\n;&|)<>\\"))


class _Parser:
    """A position in a text and the ways to read on from there: words first, then commands."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self.text = text
        self.pos = 0
        self.end = len(text)
        self.depth = depth
        self.heredocs: list[tuple[Redirect, str, bool]] = []
        if depth > MAX_DEPTH:
            raise ShellSyntaxError("it is nested too deeply")

    def peek(self, count: int = 1) -> str:
        return self.text[self.pos : self.pos + count]

    def take(self, text: str) -> bool:
        taken = self.text.startswith(text, self.pos)
        self.pos += len(text) * taken
        return taken

    def skip_blanks(self) -> None:
        # The pattern matches anywhere. A `#` begins a comment only where a word could begin.
        self.pos = _BLANKS.match(self.text, self.pos).end()  # type: ignore[union-attr]

    def skip_newlines(self) -> None:
        """Skip blanks, comments and line ends; here-documents are read on the way."""
        self.skip_blanks()
        while self.take("\n"):
            self._read_heredocs()
            self.skip_blanks()

    def expect(self, token: str) -> None:
        self.skip_newlines()
        if not self.take(token) or (token.isalpha() and _PLAIN.match(self.text, self.pos)):
            raise ShellSyntaxError(f"{token} is missing")

    # --- words ---

    def word(self) -> Word:
        """Read one word; it is empty when the next character ends words."""
        parts: list[Part] = []
        start = self.pos
        while self.pos < self.end:
            plain = _PLAIN.match(self.text, self.pos)
            char = self.text[self.pos]
            if plain is not None:
                parts.append(Lit(plain.group()))
                self.pos = plain.end()
            elif char in " \t\n;&|)" or (char in "<>" and self.peek(2)[1:] != "("):
                break
            elif char in "<>":
                parts.append(self._process_substitution())
            elif char != "(":
                parts.extend(self._special(quoted=False))
            elif self.pos > start and self.text[self.pos - 1] in "?*+@!":
                if re.search(r"[$`<>]", self._balanced()):
                    raise ShellSyntaxError("a pattern is computed")
                parts.append(Lit("*"))
            else:
                break
        return Word(tuple(parts))

    def words(self) -> list[Word]:
        words: list[Word] = []
        self.skip_blanks()
        while (word := self.word()).parts:
            words.append(word)
            self.skip_blanks()
        return words

    def _balanced(self) -> str:
        """Read a stretch in parentheses, these included; quotes hide parentheses."""
        start, level = self.pos, 0
        while self.pos < self.end:
            char = self.text[self.pos]
            if char == "\\":
                self.pos += 1
            elif char == "'":
                self.pos = self._find("'", self.pos + 1)
            elif char in '"`':
                # Bash reads on in other ways there: nobody has to know which.
                raise ShellSyntaxError(_QUOTED_GROUP)
            level += (char == "(") - (char == ")")
            self.pos += 1
            if not level:
                return self.text[start : self.pos]
        raise ShellSyntaxError(") is missing")

    def _find(self, closer: str, start: int, *, escapes: bool = False) -> int:
        found = self.text.find(closer, start)
        if escapes:
            found = start
            while found < self.end and self.text[found] != closer:
                found += 2 if self.text[found] == "\\" else 1
        if not 0 <= found < self.end:
            raise ShellSyntaxError(f"{closer} is missing")
        return found

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
        return [self._backticks(quoted=quoted)] if char == "`" else self._dollar(quoted=quoted)

    def _quoted(self, closer: str) -> list[Part]:
        """Read up to the closing quote, or to the end."""
        parts: list[Part] = []
        while self.pos < self.end:
            char = self.text[self.pos]
            match = _QUOTED_PLAIN[closer].match(self.text, self.pos)
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
            else:
                parts += self._special(quoted=True)
        if closer:
            raise ShellSyntaxError(f"{closer} is missing")
        return parts

    def _backticks(self, *, quoted: bool) -> Subst:
        close = self._find("`", self.pos + 1, escapes=True)
        escapable = r"\\([\\`$\"])" if quoted else r"\\([\\`$])"
        inner = re.sub(escapable, r"\1", self.text[self.pos + 1 : close])
        self.pos = close + 1
        return Subst(_Parser(inner, self.depth + 1).script(""), "$(", quoted)

    def _process_substitution(self) -> Part:
        kind = self.peek(2)
        self.pos += 2
        body = self.script(")")
        # An empty one is an empty string, not a file: `rm<()` is `rm`.
        return Subst(body, kind, quoted=True) if body.items else Lit("", quoted=True)

    def _dollar(self, *, quoted: bool) -> list[Part]:
        following = self.peek(2)[1:]
        if following == "(":
            parts = self._arithmetic(self.pos + 1) if self.peek(3) == "$((" else None
            if parts is not None:
                return [Arith(parts)]
            self.pos += 2
            return [Subst(self.script(")"), "$(", quoted)]
        if following == "{":
            return [self._braced(quoted=quoted)]
        if following == "[":
            raise ShellSyntaxError("arithmetic is written in an old way")
        if following == "'" and not quoted:
            close = self._find("'", self.pos + 2, escapes=True)
            text = self.text[self.pos + 2 : close]
            self.pos = close + 1
            simple = all(c in _ANSI_SIMPLE for c in _ANSI_C.findall(text))
            decoded = _ANSI_C.sub(lambda m: _ANSI_SIMPLE.get(m[1], ""), text)
            return [Lit(decoded if simple else COMPUTED, quoted=True)]
        if following == '"' and not quoted:
            self.pos += 2
            return self._quoted('"')
        name = _NAME.match(self.text, self.pos + 1)
        if name is None:
            self.pos += 1
            return [Lit("$", quoted=quoted)]
        self.pos = name.end()
        return [Param(name.group(), quoted, bare=True)]

    def _arithmetic(self, start: int) -> tuple[Part, ...] | None:
        """Read `((…))` at `start`; return None, unmoved, if it is two groups."""
        before, self.pos = self.pos, start
        try:
            outer = self._balanced()
            self.pos = start + 1
            inner = self._balanced()
        except ShellSyntaxError as error:
            if str(error) == _QUOTED_GROUP:
                raise
            outer = inner = ""
        if not outer or len(inner) != len(outer) - 2:
            self.pos = before
            return None
        self.pos = start + len(outer)
        return parse_text(inner[1:-1], self.depth + 1).parts

    def _braced(self, *, quoted: bool) -> Param:
        found = _BRACED.match(self.text, self.pos + 2)
        if found is None:
            raise ShellSyntaxError("an expansion evaluates what it finds in a variable")
        self.pos = found.end()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ShellSyntaxError("it is nested too deeply")
        sign, name, index, op = found.groups()
        arg = self._brace_argument(quoted=quoted)
        self.depth -= 1
        if index and (sign != "!" or index in {"@", "*"}):
            return Param(name, quoted, "[", Word((Lit(index),)))
        return Param(name, quoted, {"#": "length", "!": "!", None: op}[sign], arg)

    def _brace_argument(self, *, quoted: bool) -> Word:
        parts: list[Part] = []
        while not self.take("}"):
            plain = _BRACE_PLAIN.match(self.text, self.pos)
            char = self.peek()
            if not char:
                raise ShellSyntaxError("} is missing")
            if plain is not None:
                parts.append(Lit(plain.group(), quoted))
                self.pos = plain.end()
            elif quoted and char in "<>'":
                self.pos += 1
                parts.append(Lit(char, quoted=True))
            elif char in "<>":
                parts.append(self._process_substitution())
            else:
                parts += self._special(quoted=quoted)
        return Word(tuple(parts))

    # --- simple commands ---

    def _simple(self) -> Node:
        """Read a simple command, or the function definition it turns out to be."""
        words: list[Word] = []
        assigns: list[Assign] = []
        redirects: list[Redirect] = []
        while True:
            self.skip_blanks()
            if self._redirect(redirects):
                continue
            declares = bool(words) and words[0].literal() in _DECLARERS
            if (not words or declares) and self._assignment(assigns):
                continue
            word = self.word()
            if not word.parts:
                break
            words.append(word)
        if self.peek() == "(" and len(words) == 1 and not redirects:
            return self._function(words[0])
        if not (words or assigns or redirects):
            raise ShellSyntaxError(f"{self.peek()!r} is unexpected")
        return Simple(tuple(words), tuple(assigns), tuple(redirects))

    def _assignment(self, assigns: list[Assign]) -> bool:
        match = _ASSIGN.match(self.text, self.pos)
        if match is None:
            return False
        self.pos = match.end()
        name, subscript, appends = match.groups()
        if not self.take("("):
            assigns.append(Assign(name, self.word(), bool(subscript or appends)))
            return True
        items: list[Part] = []
        self.skip_newlines()
        while not self.take(")"):
            word = self.word()
            if not word.parts:
                raise ShellSyntaxError("an array has no end")
            items += (*word.parts, Lit(" "))
            self.skip_newlines()
        if self.peek() not in _AFTER_ARRAY:
            # `a=(x)y` is one word to bash, and no array.
            raise ShellSyntaxError("text follows an array")
        assigns.append(Assign(name, Word(tuple(items)), computed=True))
        return True

    def _redirect(self, into: list[Redirect]) -> bool:
        self.skip_blanks()
        match = _REDIRECT.match(self.text, self.pos)
        if match is None:
            return False
        self.pos = match.end()
        self.skip_blanks()
        start = self.pos
        word = self.word()
        if not word.parts:
            raise ShellSyntaxError("a redirection leads nowhere")
        redirect = Redirect(match[2], word, match[1] or "")
        into.append(redirect)
        if redirect.op in {"<<", "<<-"}:
            quoted = any(c in self.text[start : self.pos] for c in "'\"\\")
            if not all(isinstance(part, Lit) for part in word.parts):
                raise ShellSyntaxError("the end of a here-document is computed")
            delimiter = "".join(part.text for part in word.parts if isinstance(part, Lit))
            self.heredocs.append((redirect, delimiter, quoted))
            redirect.word = Word()
        return True

    def _read_heredocs(self) -> None:
        pending, self.heredocs = self.heredocs, []
        for redirect, delimiter, quoted in pending:
            body = self._heredoc_body(delimiter, strip=redirect.op == "<<-", joins=not quoted)
            literal = Word((Lit(body, quoted=True),))
            redirect.word = literal if quoted else parse_text(body, self.depth + 1)

    def _heredoc_body(self, delimiter: str, *, strip: bool, joins: bool) -> str:
        """Read lines up to the delimiter."""
        lines: list[str] = []
        while self.pos < self.end:
            end = self.text.find("\n", self.pos)
            end = self.end if end < 0 else end
            line = self.text[self.pos : end]
            self.pos = min(end + 1, self.end)
            if joins and line.endswith("\\"):
                raise ShellSyntaxError("a here-document has lines that are joined")
            line = line.lstrip("\t") if strip else line
            if line == delimiter:
                break
            lines.append(f"{line}\n")
        return "".join(lines)

    # --- lists and pipelines ---

    def script(self, closer: str) -> Script:
        """Read statements up to and including `closer`, or to the end."""
        outer, self.heredocs = self.heredocs, []
        script = self._statements()
        if self.heredocs and closer:
            raise ShellSyntaxError("a here-document has no text")
        self.heredocs = outer
        if closer:
            self.expect(closer)
        elif self.pos < self.end:
            raise ShellSyntaxError(f"{self.peek()!r} is unexpected")
        return script

    def _reserved(self) -> str:
        match = _RESERVED.match(self.text, self.pos)
        return match.group() if match is not None else ""

    def _statements(self) -> Script:
        items: list[Pipeline] = []
        while True:
            self.skip_newlines()
            if self.pos >= self.end or self.peek() == ")" or self.peek(2) in _CASE_ENDS:
                break
            if self._reserved() in _CLOSERS:
                break
            items.extend(self._and_or())
            self.skip_blanks()
            if self.peek(2) in _CASE_ENDS or self.peek() not in {"\n", ";", "&"}:
                break
            self.pos += self.peek() != "\n"
        return Script(tuple(items))

    def _and_or(self) -> list[Pipeline]:
        items = [self._pipeline()]
        self.skip_blanks()
        while (operator := self.peek(2)) in {"&&", "||"}:
            self.pos += 2
            self.skip_newlines()
            follows = operator == "&&" and not items[-1].negated
            items.append(structs.replace(self._pipeline(), follows=follows, chained=True))
            self.skip_blanks()
        if self.peek() == "&":
            items[-1] = structs.replace(items[-1], background=True)
        return items

    def _pipeline(self) -> Pipeline:
        negated = False
        while (word := self._reserved()) in {"!", "time"}:
            negated = negated or word == "!"
            self.pos += len(word)
            self.skip_blanks()
            if word == "time" and self.take("-p "):
                self.skip_blanks()
            if self.pos >= self.end or self.peek() in {"\n", ";"}:
                return Pipeline(())
        commands = [self._command()]
        self.skip_blanks()
        while self.peek() == "|" and self.peek(2) != "||":
            self.pos += 2 if self.peek(2) == "|&" else 1
            self.skip_newlines()
            commands.append(self._command())
            self.skip_blanks()
        return Pipeline(tuple(commands), negated=negated)

    # --- commands ---

    def _command(self) -> Node:
        self.skip_blanks()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ShellSyntaxError("it is nested too deeply")
        node = self._compound() or self._simple()
        redirects: list[Redirect] = []
        while isinstance(node, Compound) and self._redirect(redirects):
            pass
        self.depth -= 1
        return structs.replace(node, redirects=tuple(redirects)) if redirects else node

    def _compound(self) -> Node | None:
        if self.peek(2) == "((":
            parts = self._arithmetic(self.pos)
            if parts is not None:
                return Compound("arith", words=(Word((Arith(parts),)),))
        if self.take("("):
            return Compound("subshell", bodies=(self.script(")"),))
        word = self._reserved()
        if not word or word in {"in", "]]"}:
            return None
        self.pos += len(word)
        if word in _BLOCKS:
            return Compound("group" if word == "{" else "block", bodies=self._block(_BLOCKS[word]))
        if word == "function":
            self.skip_blanks()
            return self._function(self.word())
        known = {"[[": self._test, "for": self._for, "select": self._for, "case": self._case}
        if word not in known:
            raise ShellSyntaxError(f"{word} is unexpected")
        return known[word]()

    def _block(self, closer: str) -> tuple[Script, ...]:
        """Read everything up to the end of a loop, a condition or a group: all of it may run."""
        bodies = [self._statements()]
        while (word := self._reserved()) in {"then", "elif", "else", "do"}:
            self.pos += len(word)
            bodies.append(self._statements())
        self.expect(closer)
        return tuple(bodies)

    def _test(self) -> Compound:
        words: list[Word] = []
        while True:
            self.skip_newlines()
            if self.pos >= self.end:
                raise ShellSyntaxError("]] is missing")
            if self._reserved() == "]]":
                self.pos += 2
                return Compound("test", words=tuple(words))
            word = self.word()
            self.pos += not word.parts
            words += [word] if word.parts else []

    def _for(self) -> Compound:
        self.skip_blanks()
        parts = self._arithmetic(self.pos) if self.peek(2) == "((" else None
        if parts is not None:
            return Compound("block", words=(Word((Arith(parts),)),), bodies=self._loop_body())
        name = self.word().literal()
        if name is None:
            raise ShellSyntaxError("the variable of a loop is computed")
        self.skip_newlines()
        words = [Word((Param("@", quoted=True),))]
        if self._reserved() == "in":
            self.pos += 2
            words = self.words()
            if self.peek() not in {";", "\n"}:
                raise ShellSyntaxError("the words of a loop have no end")
        return Compound("for", tuple(words), self._loop_body()[-1:], variable=name)

    def _loop_body(self) -> tuple[Script, ...]:
        self.skip_blanks()
        self.take(";")
        self.skip_newlines()
        word = self._reserved()
        if word not in {"do", "{"}:
            raise ShellSyntaxError("do is missing")
        self.pos += len(word)
        return self._block("done" if word == "do" else "}")

    def _case(self) -> Compound:
        self.skip_blanks()
        words = [self.word()]
        self.expect("in")
        bodies: list[Script] = []
        while True:
            self.skip_newlines()
            if self._reserved() == "esac":
                self.pos += 4
                return Compound("case", tuple(words), tuple(bodies))
            self.take("(")
            patterns = self.words()
            while self.take("|"):
                patterns += self.words()
            if not patterns or not self.take(")"):
                raise ShellSyntaxError("a case has no pattern")
            words += patterns
            bodies.append(self._statements())
            self.skip_newlines()
            if self.peek(2) in _CASE_ENDS:
                self.pos += 3 if self.peek(3) == ";;&" else 2
            elif self._reserved() != "esac":
                raise ShellSyntaxError("a case has no end")

    def _function(self, word: Word) -> Function:
        name = "".join(p.text if isinstance(p, Lit) else "?" for p in word.parts)
        self.skip_blanks()
        if self.take("("):
            self.expect(")")
        self.skip_newlines()
        return Function(name, Script((Pipeline((self._command(),)),)))


def parse(text: str, depth: int = 0) -> Script:
    """Read a whole script; raise `ShellSyntaxError` if it is not one."""
    return _Parser(text, depth).script("")


def parse_text(text: str, depth: int = 0) -> Word:
    """Read `text` as the inside of double quotes, to find what would run in it."""
    return Word(tuple(_Parser(text, depth)._quoted("")))  # noqa: SLF001


def read_scripts(text: str, depth: int = 0) -> tuple[list[Script], str]:
    """Return the scripts that `text` may stand for, and why it could not be read as a whole.

    A continued line inside a token joins the token, which the reader does not follow everywhere;
    a text with continued lines is read a second time joined. Of a text that cannot be read
    every fragment is read that can, so that a broken tail hides nothing that stands before it.
    """
    scripts, trouble = _readable([text], depth)
    if _CONTINUED in text:
        scripts += _readable([text.replace(_CONTINUED, "")], depth)[0]
    if trouble:
        pieces = [p.strip() for p in (*text.split("\n"), *_SPLIT.split(text))]
        scripts += _readable([*dict.fromkeys(p for p in pieces if p)][:200])[0]
    return scripts, trouble


def _readable(texts: list[str], depth: int = 0) -> tuple[list[Script], str]:
    found: list[Script] = []
    trouble = ""
    for text in texts:
        try:
            found.append(parse(text, depth))
        except ShellSyntaxError as error:
            trouble = str(error)
    return found, trouble
