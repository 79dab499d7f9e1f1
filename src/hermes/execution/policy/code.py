"""Programs in other languages: allowed in a known harmless shape, asked about otherwise.

Python is read with its own grammar: every module and every function of `os` and its like
has to be listed, and no method may be one that deletes or runs something. Of the other
languages only the one-liners that people really type are known.

Files that a harmless Python program reads and writes are judged like those of a command.
"""

import ast
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator

from hermes.execution.policy.command import (
    STDIN_FILES,
    TABLES,
    Finding,
    ShellCommand,
    command_start,
    listed,
    opaque,
    words,
)
from hermes.execution.policy.expansion import is_unknown
from hermes.execution.policy.syntax import COMPUTED

_INTERPRETERS = TABLES["interpreters"]


def language_of(name: str) -> str:
    return _interpreter(name)[0]


def _interpreter(name: str) -> tuple[str, list[str]]:
    """Return the language of an interpreter, and its options that take code."""
    found = _INTERPRETERS.get(name.rstrip("0123456789.") or name, "")
    language, _, options = found.partition(" ")
    return language, options.split()


def programs(command: ShellCommand) -> Iterator[str]:
    language, options = _interpreter(command.name)
    if not language:
        return
    codes = list(command.values_of(*options))
    if language == "awk":
        start = command_start(command.args, "-F -v -f -i -l --field-separator --assign --file")
        files = list(command.values_of("-f", "--file"))
        if STDIN_FILES & set(files):
            codes.append(COMPUTED if command.feed.text is None else command.feed.text)
        yield from codes or ([] if files or start is None else [command.args[start]])
        return
    codes += [
        command.args[i + 1]
        for i, a in enumerate(command.args[:-1])
        if re.match(r"-[A-Za-z0-9]{1,6}$", a) and a[-1] in "ceE" and a not in options
    ]
    if language == "powershell" and not codes:
        # Its operands are code; those of every other one name a file.
        codes = [" ".join(command.args)]
    if not codes and command.feed.text is not None and set(command.operands()) <= STDIN_FILES:
        codes = [command.feed.text]
    yield from codes


def inspect(language: str, text: str) -> tuple[list[Finding], list[str]]:
    """Return what in a program is not known to be harmless, and the commands that it is like."""
    if is_unknown(text):
        return [opaque(f"the {language} program is computed"), RUNS], []
    doubts: list[Finding] = []
    commands: list[str] = []
    if language == "python":
        doubts, commands = _inspect_python(text)
    elif not _is_harmless(language, text):
        doubts = [_not_understood(language), *([RUNS] if _RUNS.search(text) else [])]
    if doubts:
        doubts += [DELETES] if _DELETES.search(text) else []
        doubts += [COMPUTED_RUN] if _COMPUTED_RUN.search(text) else []
    return doubts, commands


def _is_harmless(language: str, text: str) -> bool:
    known = _HARMLESS.get(language)
    bare = _AWK_REGEX.sub(r"\1", text) if language == "awk" else text
    reach = _AWK_OUTPUT if language == "awk" else _LOOKED_UP
    return (
        known is not None
        and not reach.search(bare)
        and not known.sub(" ", _LITERAL.sub("0", bare)).strip()
    )


def _not_understood(language: str) -> Finding:
    return opaque(f"nobody can tell beforehand what the {language} program does")


# --- one-liners ---

_LITERAL = re.compile(r"'(?:[^'\\#]|\\.)*'|\"(?:[^\"\\#$@{]|\\.)*\"")
"""A string in which nothing is interpolated."""
_HARMLESS = {
    language: re.compile(rf"{signs}|\b[A-Za-z_]\d*\b|\$\w+|\d[\w.]*")
    for language, signs in TABLES["one-liners"].items()
}
"""The tokens of harmless programs: what they leave over is not known."""
_AWK_REGEX = re.compile(r"(^|[({!~;&,])\s*/[^/]*/")
_AWK_OUTPUT = re.compile(r"print\w*\b[^;}]*>|\|(?!\|)|/inet/|@")
_LOOKED_UP = re.compile(r"`|\[\s*['\"]|require\s*\((?!\s*['\"]\.)")
"""Something that is run or found by a text: a subshell, `x["name"]`, a module."""
_DELETES = re.compile(
    r"(?i)rmtree|remove|rm_rf|rm_r\b|unlink|recurs|rimraf|\b(?:del|rd)\b|rmSync|rmdir|truncate"
)
_RUNS = re.compile(
    r"(?i)\bsystem\b|subprocess|popen|spawn|\bexec|`|\|\s*[\"']|qx|%x|do shell|getline"
)
DELETES = opaque("the program may delete files", "program deletes")
RUNS = Finding("the program runs others", "program runs")
COMPUTED_RUN = opaque("what the program runs is computed")
_COMPUTED_RUN = re.compile(r"(?i)\b(?:system|popen)\s*\(\s*(?![\"'\s])")


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"~[\w./-]*", word) else shlex.quote(word)


# --- Python ---

_MODULES = listed("modules")
_PARTS = {module: f" {parts} " for module, parts in TABLES["python parts"].items()}
_BUILTINS = listed("builtins")
_DUNDERS = words("__init__ __name__ __doc__ __version__ __file__")
_METHODS = listed("methods")
_FILES = words("open write_text write_bytes read_text read_bytes")
_LIKE = {"rmtree": "rm -r ", "remove": "rm ", "unlink": "rm "} | dict.fromkeys(
    words("system popen run call Popen check_call check_output getoutput"), ""
)
"""What a function is in a shell, if its arguments are written out."""
_PATHS = ("expanduser", "Path", "str", "abspath", "realpath")


def _inspect_python(source: str) -> tuple[list[Finding], list[str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            reader = _PythonReader(tree)
            reader.visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [_not_understood("python")], []
    doubts = [
        Finding(f"the Python program uses {d}", f"python: {d}", opaque=d in _BUILTINS)
        for d in reader.doubts
    ]
    return doubts + ([RUNS] if reader.hides else []), reader.commands


class _PythonReader(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.doubts: list[str] = []
        self.commands: list[str] = []
        """What it reads, writes, deletes and runs, as in a shell: judged like any command."""
        self.hides = False
        """Whether what it runs is not written out."""
        self._names: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        nodes = list(ast.walk(tree))
        bound = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        self._bound = Counter([*bound, *(n.arg for n in nodes if isinstance(n, ast.arg))])

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.split(".")[0]
            self._names[alias.asname or top] = alias.name if alias.asname else top
            self._module(top)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._module((node.module or "").split(".")[0])
        for alias in node.names:
            self._names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            self._part(f"{node.module}.{alias.name}")

    def visit_Assign(self, node: ast.Assign) -> None:
        text = self._text(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name) and text is not None and self._bound[target.id] == 1:
                self._constants[target.id] = text
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _BUILTINS:
            self.doubts.append(node.id)
            self.hides = True
        elif self._names.get(node.id) in _PARTS:
            self.doubts.append(f"{node.id} under another name")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        # A reference is enough: `map(os.remove, files)`.
        inside = node.attr[:2] == "__" and node.attr not in _DUNDERS
        if not self._part(self._dotted(node)) and (inside or node.attr in _METHODS):
            self.doubts.append(node.attr)
        if not (isinstance(node.value, ast.Name) and node.value.id in self._names):
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        last = name.rsplit(".", 1)[-1]
        if last in _FILES:
            # The path is the first argument of `open`, or that of `Path` in front of a method.
            method = node.func.value if isinstance(node.func, ast.Attribute) else None
            method = None if name == "io.open" else method
            path = method if method is not None else next(iter(node.args), None)
            reads = last[:4] == "read" or (
                last == "open" and self._reads(node, path_first=method is None)
            )
            text = self._text(path)
            if text is None and not reads and not self._local(path):
                self.doubts.append(f"{last} with a path that is computed")
            self.commands.append(f"{'cat' if reads else 'tee'} {_quoted(text or 'file')}")
        elif last in _LIKE and node.args:
            first = node.args[0]
            given = first.elts if isinstance(first, ast.List) else [first]
            texts = [text for text in map(self._text, given) if text is not None]
            if len(texts) < len(given):
                self.hides = self.hides or not _LIKE[last]
            else:
                plain = texts if not _LIKE[last] and len(texts) == 1 else map(_quoted, texts)
                self.commands.append(_LIKE[last] + " ".join(plain))
        elif last.startswith(("exec", "spawn", "posix_spawn")):
            self.hides = True
        elif name.startswith("shutil.copy"):
            self.commands.append("cp " + " ".join(_quoted(self._text(a) or "x") for a in node.args))
        self.generic_visit(node)

    def _local(self, path: ast.expr | None) -> bool:
        """Return whether a path is put together from one that begins in the project."""
        while isinstance(path, ast.BinOp):
            path = path.left
        if isinstance(path, ast.JoinedStr) and path.values:
            path = path.values[0]
        text = self._text(path)
        return text is not None and text[:1] not in {"", "/", "~"} and ".." not in text

    def _module(self, name: str) -> None:
        if name not in _MODULES and name not in _PARTS:
            self.doubts.append(f"module {name}")

    def _part(self, dotted: str) -> bool:
        """Note a part of a module that is not known to be harmless; tell whether it was one."""
        module, _, rest = dotted.partition(".")
        part = rest.split(".")[0]
        if part and module in _PARTS and f" {part} " not in _PARTS[module]:
            self.doubts.append(f"{module}.{part}")
            return True
        return False

    def _reads(self, node: ast.Call, *, path_first: bool) -> bool:
        mode = dict(enumerate(node.args)).get(1 if path_first else 0)
        mode = next((k.value for k in node.keywords if k.arg == "mode"), mode)
        text = "r" if mode is None else self._text(mode)
        return text is not None and not set(text) & set("wax+")

    def _dotted(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return f"{base}.{node.attr}" if base else node.attr
        return ""

    def _text(self, node: ast.expr | None) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        if isinstance(node, ast.Call) and node.args and self._dotted(node.func).endswith(_PATHS):
            return self._text(node.args[0])
        return None
