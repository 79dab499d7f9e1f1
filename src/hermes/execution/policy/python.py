"""Python programs: harmless if every name in them is.

Python is read with its own grammar, and flat: what is named anywhere counts as used. A program may
import what is pure, of `os` and its like use what is listed, and of packages read the version; a
module is never a value, and nothing private, no module inside of another and no method that deletes
or runs something is as much as named. Files that it reads and writes, and what it runs in plain
words, are judged like those of a command.
"""

import ast
import os
import re
import shlex
import sys
import warnings
from collections import Counter
from importlib import import_module
from types import ModuleType

from msgspec import Struct

from hermes.execution.policy.command import TABLES, Finding, listed, words

_PURE = listed("modules")
_PACKAGES = listed("packages")
_PROJECT_MODULES = listed("project-modules")
_PARTS = {module: words(parts) for module, parts in TABLES["python parts"].items()}
_BUILTINS = listed("builtins")
_DUNDERS = words("__init__ __name__ __doc__ __version__ __file__")
_READERS = words("read_text read_bytes read_csv read_json")
_FILES = _READERS | words("open write_text write_bytes touch mkdir makedirs")
_HIDDEN = listed("methods") | _FILES | {"get_loop"}
_PLACED = words("logging.basicConfig tempfile.mkdtemp tempfile.TemporaryDirectory") | words(
    "tempfile.NamedTemporaryFile tempfile.TemporaryFile"
)
"""What writes to a file or makes one, harmless where that is no place in particular."""
_UNPLACED = words("level format datefmt suffix mode delete encoding")
_QUERIES = words("connect execute executemany executescript")
_MODULES_WITHIN = _PACKAGES | words("socket urllib http smtplib ftplib")
_LIKE = {"rmtree": "rm -r ", "remove": "rm ", "unlink": "rm "} | dict.fromkeys(
    words("system popen run call Popen check_call check_output getoutput"), ""
)
"""What a function is in a shell, if its arguments are written out."""
_RUNNERS = re.compile(r"exec(?!ut)|spawn|posix_spawn")
_SORTS = frozenset({"sorted", "list"})
_PATHS = words("os.path.expanduser os.path.abspath os.path.realpath pathlib.Path str")
_BUILT = re.compile(
    r"[\"'](?:/|~|\.\.)|\b(?:chr|fromhex|b64decode|home|environ|getenv|expand\w+)\b"
)
"""What a computed path may be put together from, if it does not begin in the project."""
_PATH = re.compile(r"@?(?:/|~|\.)[^\s:]+$|[^\s:]*\.\./")


class PythonReading(Struct, frozen=True):
    doubts: list[Finding]
    commands: list[str]
    """What it reads, writes, deletes and runs, as in a shell."""
    hides: bool
    """Whether what it runs is not written out."""


def read_python(source: str, here: str | None) -> PythonReading | None:
    """Return what in a program is not known to be harmless; nothing if it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = _Program(source, here)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    doubts = [
        Finding(f"the Python program uses {d}", f"python: {d}", opaque=d in _BUILTINS)
        for d in dict.fromkeys(program.doubts)
    ]
    return PythonReading(doubts, list(dict.fromkeys(program.commands)), program.hides)


class _Program:
    def __init__(self, source: str, here: str | None) -> None:
        nodes = list(ast.walk(ast.parse(source)))
        self.doubts: list[str] = []
        self.commands: list[str] = []
        self.hides = False
        self._builds = _BUILT.search(source) is not None
        self._imported: set[str] = set()
        self._modules: dict[str, str] = {}
        """What a name stands for that an import has made."""
        self._held = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
        """What something is looked up in."""
        self._judged: set[int] = set()
        """Functions that read or write a file that is judged."""
        # All imports first: a function may come before the import that it uses.
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node, here)
        self._bound = _bound(nodes)
        self._constants: dict[str, str] = {}
        self._found: dict[str, str] = {}
        """Names that only stand for files of the project, and which."""
        for node in nodes:
            if isinstance(node, ast.Assign):
                self._assign(node)
            elif isinstance(node, ast.For):
                self._loop(node)
        for node in nodes:
            if isinstance(node, ast.Call):
                self._call(node)
        for node in nodes:
            self._named(node)

    def _import(self, node: ast.Import | ast.ImportFrom, here: str | None) -> None:
        whole = isinstance(node, ast.Import)
        for alias in node.names:
            module = alias.name if isinstance(node, ast.Import) else node.module or ""
            if isinstance(node, ast.ImportFrom) and node.level:
                self._import_near(module, alias)
                continue
            name = module if whole else f"{module}.{alias.name}"
            top = module.partition(".")[0]
            bare = whole and not alias.asname
            self._modules[alias.asname or (top if whole else alias.name)] = top if bare else name
            local = is_local(top, here)
            self._imported.add("." if local else module)  # `sys.path` decides where it is
            if local:
                self.commands += _files_of(f"./{name.replace('.', '/')}")
            elif not ({module, name} & (_PURE | _PARTS.keys()) or top in _PACKAGES | _PARTS.keys()):
                self.doubts.append(f"module {module}")
            elif whole and top in sys.stdlib_module_names and module not in _PURE | _PARTS.keys():
                self._part(module)
            foreign = local and alias.name in {"*", *sys.stdlib_module_names, *_PACKAGES}
            noted = not (whole or local) and self._part(name)
            if foreign or (not whole and not noted and _private(alias.name)):
                self.doubts.append(f"{alias.name} of {module}")

    def _import_near(self, module: str, alias: ast.alias) -> None:
        """Note what is imported from beside the file, wherever in the project that is."""
        name = f"{module}.{alias.name}" if module else alias.name
        self._modules[alias.asname or alias.name] = name
        self._imported.add(".")
        self.commands += [f"python3 ./**/{part}.py" for part in name.split(".")[-2:]]
        if alias.name in {"*", *sys.stdlib_module_names, *_PACKAGES} or _private(alias.name):
            self.doubts.append(f"{alias.name} of {module}")

    def _assign(self, node: ast.Assign) -> None:
        text = self._text(node.value)
        for target in node.targets:
            name = target.id if isinstance(target, ast.Name) else ""
            if text is not None and self._bound[name] == 1 and name not in self._modules:
                self._constants[name] = text

    def _loop(self, node: ast.For) -> None:
        listed = node.iter
        match listed:
            case ast.Call(ast.Name("sorted" | "list"), [inner]) if not self._bound.keys() & _SORTS:
                listed = inner
        match node.target, listed:
            case ast.Name(name), ast.Call(ast.Attribute(root, attr), args):
                # Of a path that is written out, or of the module `glob`.
                of_module = isinstance(root, ast.Name) and root.id in self._modules
                where = [self._text(part) for part in (args if of_module else [root, *args])]
                plain = [text for text in where if text is not None]
                kind = re.search(r"\*\.\w+$", "/".join(plain)) and attr in {"glob", "rglob"}
                if kind and len(plain) == len(where) and self._bound[name] == 1:
                    self._found[name] = "/".join(plain)

    def _call(self, node: ast.Call) -> None:
        dotted = self._dotted(node.func)
        last = dotted.rsplit(".", 1)[-1]
        options = {k.arg for k in node.keywords}
        if last in _FILES:
            self._file(node, last, options)
        elif "sqlite3" in self._imported and last in _QUERIES:
            self._query(node, last, options)
        elif dotted == "asyncio.run":
            pass  # a coroutine, which stands here
        elif dotted in _PLACED and options <= _UNPLACED and not node.args:
            self._judged.add(id(node.func))
        elif last == "replace" and len(node.args) == 1:
            self.doubts.append("replace")  # of a path; that of a text takes two
        elif last in _LIKE and node.args:
            first = node.args[0]
            given = first.elts if isinstance(first, ast.List) else [first]
            texts = [text for text in map(self._text, given) if text is not None]
            if len(texts) == len(given):
                plain = texts if not _LIKE[last] and len(texts) == 1 else map(quoted, texts)
                self.commands.append(_LIKE[last] + " ".join(plain))
            else:
                self.hides = self.hides or not _LIKE[last]
        elif _RUNNERS.match(last):
            self.hides = True
        elif "fromfile_prefix_chars" in options:
            self.doubts.append("arguments that name files")

    def _file(self, node: ast.Call, last: str, options: set[str | None]) -> None:
        # The path is the first argument of a function, or that of `Path` in front of a method.
        self._judged.add(id(node.func))
        method = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(method, ast.Name) and method.id in self._modules:
            self._part(self._dotted(node.func))
            method = None
        path = method or next(iter(node.args), None)
        text = self._text(path)
        mode = dict(enumerate(node.args)).get(0 if method else 1, ast.Constant("r"))
        mode = next((k.value for k in node.keywords if k.arg == "mode"), mode)
        spread = None in options or any(isinstance(a, ast.Starred) for a in node.args)
        looks = last == "open" and not spread and not set(self._text(mode) or "w") & set("wax+")
        reads = last in _READERS or looks
        # A loop over files of the project gives names; a path that is written stands there.
        name = path.id if isinstance(path, ast.Name) and not self._builds else ""
        if text is None and not (name if reads else name in self._found):
            self.doubts.append(f"{last} with a path that is computed")
        if text is None and not reads:
            self.commands.append(f"cp file {quoted(self._found.get(name, 'file'))}")
        else:
            self.commands.append(f"{'cat' if reads else 'tee'} {quoted(text or 'file')}")

    def _query(self, node: ast.Call, last: str, options: set[str | None]) -> None:
        # A database is a file of the project, or none, and every statement is written out.
        text = self._text(next(iter(node.args), None))
        if text is None or options - {"timeout"}:
            return
        self._judged.add(id(node.func))
        if last != "connect":
            self.commands.append(f"sqlite3 :memory: {quoted(text)}")
        elif text != ":memory:":
            self.commands.append(f"tee {quoted(text)}")

    def _named(self, node: ast.AST) -> None:
        match node:
            case ast.Name() | ast.Attribute() if self._placed(node):
                self.doubts.append(f"{self._dotted(node)} with a place of its own")
            case ast.Name(id=name):
                self._name(node, name)
            case ast.Attribute(attr=attr) if id(node) not in self._judged:
                self._attribute(node, attr)
            case ast.Constant(value=str(text)) if _PATH.match(text):
                self.commands.append(f"cat {quoted(text.lstrip('@'))}")
            case ast.arg(annotation=ast.expr() as kind):
                # A text there is evaluated by some decorators.
                texts = [getattr(n, "value", None) for n in ast.walk(kind)]
                if any(isinstance(text, str) and "(" in text for text in texts):
                    self.doubts.append("a text in the place of a type")
            case ast.MatchClass(kwd_attrs=attrs):
                self.doubts += filter(_private, attrs)

    def _placed(self, node: ast.expr) -> bool:
        return id(node) not in self._judged and self._dotted(node) in _PLACED

    def _name(self, node: ast.Name, name: str) -> None:
        module = self._modules.get(name, "")
        if name in _BUILTINS or (name[:2] == "__" and name not in _DUNDERS):
            self.doubts.append(name)
            self.hides = True
        elif name == "open" and id(node) not in self._judged:
            self.doubts.append("open under another name")
        elif module and id(node) not in self._held | self._judged:
            if module in self._imported | _PARTS.keys():
                self.doubts.append(f"{name} under another name")
            elif module.split(".")[0] in _PACKAGES:
                self.doubts.append(f"module {module.split('.')[0]}")

    def _attribute(self, node: ast.Attribute, attr: str) -> None:
        # A reference is enough: `map(os.remove, files)`.
        base = node.value
        of_module = isinstance(base, ast.Name) and base.id in self._modules
        own = isinstance(base, ast.Name) and base.id == "self" and attr[:2] != "__"
        odd = attr in _MODULES_WITHIN or _private(attr.lstrip("_" * own))
        odd = odd or ("sqlite3" in self._imported and attr in _QUERIES)
        odd = odd or (attr == "dump" and not of_module)  # it writes to a file that is open
        if not self._part(self._dotted(node)) and odd:
            self.doubts.append(attr)
        if of_module and not isinstance(node.ctx, ast.Load):
            self.doubts.append(f"{attr} changed in a module")

    def _part(self, dotted: str) -> bool:
        """Note a part of a module that is not known to be harmless; tell whether it was one."""
        module, *parts = dotted.split(".")
        if f"{module}.{parts[0] if parts else ''}" in _PURE:
            module, parts = f"{module}.{parts[0]}", parts[1:]
        if not parts or parts[0] in _DUNDERS:
            return bool(parts)
        if module in _PACKAGES:
            self.doubts.append(f"module {module}")
        elif module in _PARTS:
            path = dotted.startswith("sys.path") and self._imported != {"sys"}
            if path or parts[0] not in _PARTS[module]:
                self.doubts.append(f"{module}.{parts[0]}")
                return True
        elif any(
            m.split(".")[0] == module.split(".")[0] for m in self._imported - {"hermes_tools"}
        ):
            value = getattr(import_module(module), parts[0], None) if module in _PURE else None
            if value is None or isinstance(value, ModuleType):
                self.doubts.append(f"{module}.{parts[0]}")
                return True
        return False

    def _dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return self._modules.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return f"{base}.{node.attr}" if base else node.attr
        return ""

    def _text(self, node: ast.AST | None) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            name = self._dotted(node.func)
            if name in _PATHS and not self._bound[name.rsplit(".", 1)[-1]]:
                return self._text(node.args[0])
        return None


def _files_of(path: str) -> list[str]:
    """Return what runs the files that the import of a module of the project may load."""
    parts = path.split("/")
    folders = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
    return [f"python3 {f}{end}" for f in folders for end in (".py", "/__init__.py")]


def is_local(top: str, here: str | None) -> bool:
    """Return whether a module is the project's own, where a program runs in `here`."""
    if top in _PROJECT_MODULES or here is None or top in sys.stdlib_module_names:
        return top in _PROJECT_MODULES
    names = (f"{top}.py", f"{top}/__init__.py")  # a bare folder gives way to what is installed
    return top.isascii() and any(os.path.lexists(f"{here}/{name}") for name in names)


def _bound(nodes: list[ast.AST]) -> Counter[str]:
    """Return how often each name is given a meaning, but by imports."""
    bound = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    args = [n.arg for n in nodes if isinstance(n, ast.arg)]
    named = [getattr(n, "name", None) or "" for n in nodes if not isinstance(n, ast.alias)]
    return Counter([*bound, *args, *named])


def _private(name: str) -> bool:
    return (name[:1] == "_" and name not in _DUNDERS) or name in _HIDDEN


def quoted(word: str) -> str:
    return word if re.fullmatch(r"~[\w./-]*", word) else shlex.quote(word)
