"""Python programs: harmless if every name in them is.

Python is read with its own grammar. It may import what is pure, of `os` and its like use what is
listed, and of packages read the version; a module is never a value, and nothing private, no
module inside of another and no method that deletes or runs something is as much as named.

Files that a harmless program reads and writes are judged like those of a command.
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

_MODULES = listed("modules")
_PACKAGES = listed("packages")
_TALKING = words("socket urllib http smtplib ftplib")
_PROJECT_MODULES = listed("project-modules")
_PARTS = {module: f" {parts} " for module, parts in TABLES["python parts"].items()}
_BUILTINS = listed("builtins")
_DUNDERS = words("__init__ __name__ __doc__ __version__ __file__")
_METHODS = listed("methods")
_FILES = words(
    "open write_text write_bytes read_text read_bytes read_csv read_json touch mkdir makedirs"
)
_OPENERS = words("open write_text write_bytes")
_LIKE = {"rmtree": "rm -r ", "remove": "rm ", "unlink": "rm "} | dict.fromkeys(
    words("system popen run call Popen check_call check_output getoutput"), ""
)
"""What a function is in a shell, if its arguments are written out."""
_PATHS = words("os.path.expanduser os.path.abspath os.path.realpath pathlib.Path str")
_BUILT = re.compile(
    r"[\"'](?:/|~|\.\.)|\b(?:chr|fromhex|b64decode|home|environ|getenv|expand\w+)\b"
)
"""What a computed path may be put together from, if it does not begin in the project."""


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
            tree = ast.parse(source)
            reader = _PythonReader(tree, here, builds=_BUILT.search(source) is not None)
            reader.visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    doubts = [
        Finding(f"the Python program uses {d}", f"python: {d}", opaque=d in _BUILTINS)
        for d in dict.fromkeys(reader.doubts)
    ]
    return PythonReading(doubts, list(dict.fromkeys(reader.commands)), reader.hides)


class _PythonReader(ast.NodeVisitor):
    def __init__(self, tree: ast.Module, here: str | None, *, builds: bool) -> None:
        self.doubts: list[str] = []
        self.commands: list[str] = []
        """What it reads, writes, deletes and runs, as in a shell: judged like any command."""
        self.hides = False
        """Whether what it runs is not written out."""
        self._builds = builds
        self._here = here
        self._names: dict[str, str] = {}
        self._imported: set[str] = set()
        self._constants: dict[str, str] = {}
        nodes = list(ast.walk(tree))
        bound = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        named = [getattr(n, "name", None) for n in nodes if not isinstance(n, ast.alias)]
        args = [n.arg for n in nodes if isinstance(n, ast.arg)]
        self._bound = Counter([*bound, *args, *named])
        for node in nodes:
            # All of them first: a function may come before the import that it uses.
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            whole = isinstance(node, ast.Import)
            module = alias.name if isinstance(node, ast.Import) else node.module or ""
            name = module if whole else f"{module}.{alias.name}"
            top = module.partition(".")[0]
            self._names[alias.asname or (top if whole else alias.name)] = (
                top if whole and not alias.asname else name
            )
            if self._is_local(top):
                if not whole and (
                    alias.name in {"*", *sys.stdlib_module_names, *_PACKAGES}
                    or self._hidden(alias.name)
                ):
                    self.doubts.append(f"{alias.name} of {module}")
                self._imported.add(".")  # `sys.path` decides where it is
                self.commands.append(f"python3 ./{top}.py")
                continue
            self._imported.add(module)
            if not whole and not self._part(name) and self._hidden(alias.name):
                self.doubts.append(alias.name)
            pure = {module, name} & (_MODULES | _PARTS.keys())
            if not pure and top not in (_PACKAGES | _PARTS.keys()):
                self.doubts.append(f"module {module}")

    def _is_local(self, top: str) -> bool:
        if top in _PROJECT_MODULES or self._here is None or top in sys.stdlib_module_names:
            return top in _PROJECT_MODULES
        names = (f"{top}.py", f"{top}/__init__.py")  # a bare folder gives way to what is installed
        return top.isascii() and any(os.path.lexists(f"{self._here}/{name}") for name in names)

    def visit_Assign(self, node: ast.Assign) -> None:
        text = self._text(node.value)
        for target in node.targets:
            name = target.id if isinstance(target, ast.Name) else ""
            if text is not None and self._bound[name] == 1 and name not in self._names:
                self._constants[name] = text
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and re.match(
            r"@?(?:/|~|\.)[^\s:]+$|[^\s:]*\.\./", node.value
        ):
            self.commands.append(f"cat {quoted(node.value.lstrip('@'))}")

    def visit_arg(self, node: ast.arg) -> None:
        # A text there is evaluated by some decorators.
        written = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
        if any(isinstance(value, str) and "(" in value for value in written):
            self.doubts.append("a text in the place of a type")
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self.doubts += filter(self._hidden, node.kwd_attrs)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        name = self._names.get(node.id, "")
        if node.id in _BUILTINS or (node.id[:2] == "__" and node.id not in _DUNDERS):
            self.doubts.append(node.id)
            self.hides = True
        elif node.id == "open" or name in self._imported | _PARTS.keys():
            self.doubts.append(f"{node.id} under another name")
        elif name.split(".")[0] in _PACKAGES:
            self.doubts.append(f"module {name.split('.')[0]}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        # A reference is enough: `map(os.remove, files)`.
        base = node.value
        own = isinstance(base, ast.Name) and base.id == "self" and node.attr[:2] != "__"
        foreign = node.attr in _PACKAGES or node.attr in _TALKING
        if not self._part(self._dotted(node)) and (
            foreign or self._hidden(node.attr.lstrip("_" * own))
        ):
            self.doubts.append(node.attr)
        if not (isinstance(base, ast.Name) and base.id in self._names):
            if node.attr == "dump":
                self.doubts.append("dump")  # of a module it writes to a file that is open
            self.visit(base)
        elif not isinstance(node.ctx, ast.Load):
            self.doubts.append(f"{base.id} with changes")

    def _hidden(self, name: str) -> bool:
        return (name[:1] == "_" and name not in _DUNDERS) or name in _METHODS or name in _FILES

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        last = name.rsplit(".", 1)[-1]
        if last in _FILES:
            self._file(node, last)
            return
        if last == "replace" and len(node.args) == 1:
            self.doubts.append("replace")  # of a path; that of a text takes two
        if last in _LIKE and node.args:
            first = node.args[0]
            given = first.elts if isinstance(first, ast.List) else [first]
            texts = [text for text in map(self._text, given) if text is not None]
            if len(texts) < len(given):
                self.hides = self.hides or not _LIKE[last]
            else:
                plain = texts if not _LIKE[last] and len(texts) == 1 else map(quoted, texts)
                self.commands.append(_LIKE[last] + " ".join(plain))
        elif re.match(r"exec(?!ut)|spawn|posix_spawn", last):
            self.hides = True
        elif "fromfile_prefix_chars" in _keywords(node):
            self.doubts.append("arguments that name files")
        self.generic_visit(node)

    def _file(self, node: ast.Call, last: str) -> None:
        # The path is the first argument of a function, or that of `Path` in front of a method.
        method = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(method, ast.Name) and method.id in self._names:
            self._part(self._dotted(node.func))
            method = None
        path = method if method is not None else next(iter(node.args), None)
        if last[:4] == "read" or (last == "open" and self._reads(node, first=method is None)):
            text = self._text(path)
            if text is None and not self._from_list(path):
                self.doubts.append(f"{last} with a path that is computed")
            self.commands.append(f"cat {quoted(text or 'file')}")
        else:
            self._write(last, path)
        for child in (method, *node.args, *(k.value for k in node.keywords)):
            if child is not None and not (child is path and self._text(child) is not None):
                self.visit(child)

    def _from_list(self, path: ast.expr | None) -> bool:
        """Return whether a path is a name that a loop over files of the project gives."""
        return isinstance(path, ast.Name) and not self._builds

    def _write(self, name: str, path: ast.expr | None) -> None:
        text = self._text(path)
        if not self._local(path) and (text is None or name not in _OPENERS):
            self.doubts.append(f"{name} with a path that is computed or outside")
        self.commands.append(f"tee {quoted(text or 'file')}")

    def _local(self, path: ast.expr | None) -> bool:
        """Return whether a path is written out and begins in the project, or is temporary."""
        text = self._text(path) or ""
        inside = text[:1] not in {"", "/", "~"} or text[:5] == "/tmp/"  # noqa: S108
        return inside and ".." not in text

    def _part(self, dotted: str) -> bool:
        """Note a part of a module that is not known to be harmless; tell whether it was one."""
        module, *parts = dotted.split(".")
        if f"{module}.{parts[0] if parts else ''}" in _MODULES:
            module, parts = f"{module}.{parts[0]}", parts[1:]
        if not parts or parts[0] in _DUNDERS:
            return bool(parts)
        if module in _PACKAGES:
            self.doubts.append(f"module {module}")
        elif module in _PARTS:
            path = dotted.startswith("sys.path") and self._imported != {"sys"}
            if path or f" {parts[0]} " not in _PARTS[module]:
                self.doubts.append(f"{module}.{parts[0]}")
                return True
        elif any(
            m.split(".")[0] == module.split(".")[0] for m in self._imported - {"hermes_tools"}
        ):
            value = getattr(import_module(module), parts[0], None) if module in _MODULES else None
            if value is None or isinstance(value, ModuleType):
                self.doubts.append(f"{module}.{parts[0]}")
                return True
        return False

    def _reads(self, node: ast.Call, *, first: bool) -> bool:
        mode = dict(enumerate(node.args)).get(1 if first else 0)
        mode = next((k.value for k in node.keywords if k.arg == "mode"), mode)
        text = "r" if mode is None else self._text(mode)
        spread = None in _keywords(node) or any(isinstance(a, ast.Starred) for a in node.args)
        return text is not None and not set(text) & set("wax+") and not spread

    def _dotted(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
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


def _keywords(node: ast.Call) -> set[str | None]:
    return {k.arg for k in node.keywords}


def quoted(word: str) -> str:
    return word if re.fullmatch(r"~[\w./-]*", word) else shlex.quote(word)
