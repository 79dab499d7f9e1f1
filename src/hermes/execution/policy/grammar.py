"""A recursive-descent reader of the shell command language (POSIX and bash).

`parse` turns text into a `Script` or raises `ShellSyntaxError`; it never
guesses. `salvage` is for text that does not parse: it returns every fragment
that does, so that a broken tail cannot hide what stands before it.
"""

import re

from hermes.execution.policy.commands import CommandReader
from hermes.execution.policy.lexer import ShellSyntaxError
from hermes.execution.policy.syntax import (
    Compound,
    Function,
    Lit,
    Node,
    Pipeline,
    Script,
    Word,
)

__all__ = ["ShellSyntaxError", "parse", "parse_text", "read_scripts", "salvage"]

_CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})
_CONTINUED = "\\\n"
_SPLIT = re.compile(r"\n|;|&&|\|\||\||&|[(){}]")


class _Parser(CommandReader):
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
            if not self._terminator():
                break
        return Script(tuple(items))

    def _terminator(self) -> bool:
        self.skip_space()
        if self.peek() == "\n":
            return True
        if self.peek(2) in {";;", ";&"}:
            return False
        if self.peek() in {";", "&"}:
            self.pos += 1
            return True
        return False

    def _and_or(self) -> list[Pipeline]:
        items = [self._pipeline()]
        while True:
            self.skip_space()
            if self.peek(2) not in {"&&", "||"}:
                break
            self.pos += 2
            self.skip_newlines()
            items.append(self._pipeline())
        if self.peek() == "&":
            last = items[-1]
            items[-1] = Pipeline(last.commands, background=True)
        return items

    def _pipeline(self) -> Pipeline:
        while (word := self.reserved()) in {"!", "time"}:
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
                return Pipeline(tuple(commands))
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
                return self._finish(Compound("arith", words=(Word(parts),)))
        if self.peek() == "(":
            self.pos += 1
            return self._finish(Compound("subshell", bodies=(self.read_script(")"),)))
        word = self.reserved()
        reader = {
            "{": self._group,
            "[[": self._test,
            "if": self._if,
            "while": self._while,
            "until": self._while,
            "for": self._for,
            "select": self._for,
            "case": self._case,
        }.get(word)
        if reader is not None:
            self.pos += len(word)
            return self._finish(reader())
        if word == "function":
            return self._function_keyword()
        if word == "coproc":
            return self._coproc()
        if word and word != "in":
            raise ShellSyntaxError(f"unexpected {word}")
        return None

    def _finish(self, node: Compound) -> Compound:
        redirects = self.redirects()
        if not redirects:
            return node
        return Compound(node.kind, node.words, node.bodies, redirects, node.variable)

    def _group(self) -> Compound:
        script = self._statements()
        self.expect("}")
        return Compound("group", bodies=(script,))

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

    def _if(self) -> Compound:
        bodies = [self.until("then"), self._statements()]
        while (word := self.reserved()) in {"elif", "else"}:
            self.pos += len(word)
            if word == "elif":
                bodies.append(self.until("then"))
            bodies.append(self._statements())
        self.expect("fi")
        return Compound("if", bodies=tuple(bodies))

    def _while(self) -> Compound:
        condition = self.until("do")
        return Compound("loop", bodies=(condition, self.until("done")))

    def _for(self) -> Compound:
        self.skip_blanks()
        if self.peek(2) == "((":
            parts = self.try_arithmetic(self.pos)
            if parts is None:
                raise ShellSyntaxError("bad for")
            self.skip_space()
            self.pos += self.peek() == ";"
            return Compound("loop", words=(Word(parts),), bodies=(self._do_group(),))
        name = self.read_word().literal()
        if name is None:
            raise ShellSyntaxError("bad for")
        self.skip_newlines()
        words: list[Word] = []
        if self.reserved() == "in":
            self.pos += 2
            words = self._words_to_line_end()
        else:
            words = [Word((*self.nested('"$@"').read_word().parts,))]
            self.skip_space()
            self.pos += self.peek() == ";"
        return Compound("for", tuple(words), (self._do_group(),), variable=name)

    def _words_to_line_end(self) -> list[Word]:
        words: list[Word] = []
        while True:
            self.skip_blanks()
            word = self.read_word()
            if not word.parts:
                break
            words.append(word)
        if self.peek() not in {";", "\n"}:
            raise ShellSyntaxError("bad for")
        if self.peek() == ";":
            self.pos += 1
        return words

    def until(self, token: str) -> Script:
        script = self._statements()
        self.expect(token)
        return script

    def _do_group(self) -> Script:
        self.skip_newlines()
        if self.reserved() == "{":
            self.pos += 1
            script = self._statements()
            self.expect("}")
            return script
        self.expect("do")
        return self.until("done")

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
        patterns: list[Word] = []
        self.pos += self.peek() == "("
        while True:
            self.skip_blanks()
            word = self.read_word()
            if not word.parts:
                raise ShellSyntaxError("bad case")
            patterns.append(word)
            self.skip_blanks()
            if self.peek() == ")":
                self.pos += 1
                return patterns
            if self.peek() != "|":
                raise ShellSyntaxError("bad case")
            self.pos += 1

    def _function_keyword(self) -> Function:
        self.pos += len("function")
        self.skip_blanks()
        name = self.read_word().literal()
        if name is None:
            raise ShellSyntaxError("bad function")
        self.skip_blanks()
        if self.peek() == "(":
            self.expect("(")
            self.expect(")")
        return self._function_body(name)

    def function_from(self, word: Word) -> Function:
        name = "".join(p.text if isinstance(p, Lit) else "?" for p in word.parts)
        self.expect("(")
        self.expect(")")
        return self._function_body(name)

    def _function_body(self, name: str) -> Function:
        self.skip_newlines()
        body = self._command()
        return Function(name, Script((Pipeline((body,)),)))

    def _coproc(self) -> Compound:
        self.pos += len("coproc")
        self.skip_blanks()
        name = re.match(r"[A-Za-z_]\w*(?=[ \t]+[{(])", self.text[self.pos : self.pos + 64])
        if name is not None:
            self.pos += name.end()
            self.skip_blanks()
        body = Script((Pipeline((self._command(),), background=True),))
        return Compound("group", bodies=(body,), variable=name.group() if name else "COPROC")


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
