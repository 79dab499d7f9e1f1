"""Reads Python programs with Python's own grammar."""

import ast
import re
import warnings

from hermes.execution.policy.calls import Danger
from hermes.execution.policy.findings import Findings
from hermes.execution.policy.scope import COMPUTED, UNKNOWN, UNKNOWN_QUOTED
from hermes.execution.policy.vocabulary import words

__all__ = ["inspect_python"]

_SHELL = words(
    "os.system os.popen subprocess.getoutput subprocess.getstatusoutput commands.getoutput "
    "pty.spawn asyncio.create_subprocess_shell posix.system popen2.popen2 platform.popen"
)
_SPAWN = re.compile(
    r"subprocess\.(?:run|call|check_call|check_output|Popen)$|os\.(?:exec|spawn|posix_spawn)\w*$|"
    r"asyncio\.create_subprocess_exec$"
)
_TREES = frozenset({"shutil.rmtree", "os.removedirs", "rmtree"})
_DELETES = words(
    "os.remove os.unlink os.rmdir shutil.move os.rename os.replace os.truncate send2trash"
)
_DELETING_METHODS = frozenset({"unlink", "rmdir", "rmtree"})
_RISKY_CALLS: dict[str, str] = {
    "eval": "runs computed code", "exec": "runs computed code", "compile": "runs computed code",
    "__import__": "imports a computed module", "importlib.import_module": "imports by name",
    "os.kill": "kills processes", "os.killpg": "kills processes", "os.chmod": "changes modes",
    "os.chown": "changes owners", "os.fork": "forks", "os.setuid": "changes user",
    "shutil.chown": "changes owners", "os.reboot": "restarts the machine",
    "marshal.loads": "loads code", "pickle.loads": "loads code", "pickle.load": "loads code",
    "runpy.run_path": "runs a file", "runpy.run_module": "runs a module",
    "code.interact": "opens a console", "webbrowser.open": "opens a browser",
    "os.symlink": "makes links", "os.link": "makes links", "globals": "reaches into its namespace",
}  # fmt: skip
_RISKY_MODULES = words(
    "ctypes socket pty telnetlib ftplib smtplib paramiko fabric pexpect winreg cffi "
    "multiprocessing.connection socketserver posix nt pip _posixsubprocess"
)
_WRITING = re.compile(r"[wax+]")


def inspect_python(source: str) -> Findings | None:
    """Return what is dangerous in Python source, or None if it is not Python."""
    for mark in (UNKNOWN, UNKNOWN_QUOTED, COMPUTED):
        source = source.replace(mark, "_unknown_")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            reader = _Reader()
            reader.visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Findings(
        tuple(dict.fromkeys(reader.dangers)), tuple(reader.scripts), tuple(reader.commands)
    )


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.dangers: list[Danger] = []
        self.scripts: list[str] = []
        self.commands: list[tuple[str, ...]] = []
        self._names: dict[str, str] = {}
        self._constants: dict[str, str] = {}

    def _found(self, what: str, why: str) -> None:
        self.dangers.append(Danger("code", f"the Python program {why} ({what})", f"python: {what}"))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._names[alias.asname or alias.name.split(".")[0]] = (
                alias.name if alias.asname else alias.name.split(".")[0]
            )
            self._module(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        self._module(module)
        for alias in node.names:
            self._names[alias.asname or alias.name] = f"{module}.{alias.name}"
            if alias.name == "*" and module in {"os", "shutil", "subprocess"}:
                self._found(module, "imports everything from a module that can do anything")

    def _module(self, name: str) -> None:
        if name in _RISKY_MODULES or name.split(".", maxsplit=1)[0] in _RISKY_MODULES:
            self._found(name, "uses a module that reaches the network or the system")

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                text = self._text(node.value)
                if text is not None:
                    self._constants[target.id] = text
                dotted = self._dotted(node.value)
                if dotted:
                    self._names[target.id] = dotted
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        # A reference is enough: `map(os.remove, files)`.
        dotted = self._dotted(node)
        if dotted in _TREES | _DELETES | _SHELL or _SPAWN.match(dotted):
            self._found(dotted, "deletes, moves or runs something")
        if node.attr in {"__subclasses__", "__globals__", "__builtins__", "__code__"}:
            self._found(node.attr, "reaches into the interpreter")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        dotted = self._names.get(node.id, "")
        if dotted in _TREES | _DELETES | _SHELL or _SPAWN.match(dotted):
            self._found(dotted, "deletes, moves or runs something")
        if node.id == "__builtins__":
            self._found(node.id, "reaches into the interpreter")

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        first = node.args[0] if node.args else None
        if name in _SHELL or _SPAWN.match(name):
            self._spawns(node, name)
        elif name in _TREES or name in _DELETES:
            path = self._text(first)
            if path is not None:
                self.commands.append(("rm", "-r", path) if name in _TREES else ("rm", path))
        elif name in _RISKY_CALLS:
            self._found(name, _RISKY_CALLS[name])
        elif name == "getattr" and len(node.args) > 1 and self._text(node.args[1]) is None:
            self._found("getattr", "looks up a computed name")
        elif name == "getattr" and len(node.args) > 1:
            self._looked_up(node)
        elif name.rsplit(".", 1)[-1] in {"open", "write_text", "write_bytes"}:
            self._opens(node, name)
        self._method(node)
        self.generic_visit(node)

    def _looked_up(self, node: ast.Call) -> None:
        dotted = f"{self._dotted(node.args[0])}.{self._text(node.args[1])}"
        if dotted in _TREES | _DELETES | _SHELL or _SPAWN.match(dotted):
            self._found(dotted, "deletes, moves or runs something")

    def _method(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _DELETING_METHODS:
            self._found(node.func.attr, "deletes files")
            receiver = node.func.value
            if isinstance(receiver, ast.Call) and receiver.args:
                path = self._text(receiver.args[0])
                if path is not None:
                    self.commands.append(("rm", "-r", path))

    def _spawns(self, node: ast.Call, name: str) -> None:
        lists = [a for a in node.args if isinstance(a, ast.List | ast.Tuple) and a.elts]
        for items in lists[:1]:
            self.commands.append(tuple(self._text(e) or UNKNOWN_QUOTED for e in items.elts))
        if lists or not node.args:
            return
        if name.startswith(
            ("os.exec", "os.spawn", "os.posix_spawn", "asyncio.create_subprocess_exec")
        ):
            self.commands.append(tuple(self._text(e) or UNKNOWN_QUOTED for e in node.args))
            self.commands.append(tuple(self._text(e) or UNKNOWN_QUOTED for e in node.args[1:]))
            return
        text = self._text(node.args[0])
        if text is not None:
            self.scripts.append(text)

    def _opens(self, node: ast.Call, name: str) -> None:
        if name in {"open", "io.open"}:
            mode = self._text(node.args[1]) if len(node.args) > 1 else "r"
            for keyword in node.keywords:
                if keyword.arg == "mode":
                    mode = self._text(keyword.value)
            path = self._text(node.args[0]) if node.args else None
            if mode is None or _WRITING.search(mode):
                self.commands.append(("tee", path if path is not None else "file"))
        elif isinstance(node.func, ast.Attribute) and node.func.attr.startswith("write_"):
            receiver = node.func.value
            if isinstance(receiver, ast.Call) and receiver.args:
                self.commands.append(("tee", self._text(receiver.args[0]) or "file"))

    def _dotted(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return f"{base}.{node.attr}" if base else node.attr
        if isinstance(node, ast.Call) and node.args:
            function = self._dotted(node.func)
            if function == "__import__":
                return self._text(node.args[0]) or ""
            if function == "getattr" and len(node.args) > 1:
                return f"{self._dotted(node.args[0])}.{self._text(node.args[1]) or '?'}"
        return ""

    def _text(self, node: ast.expr | None) -> str | None:
        """Return the value of a constant string expression."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._text(node.left), self._text(node.right)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.JoinedStr):
            return "".join(
                v.value if isinstance(v, ast.Constant) and isinstance(v.value, str)
                else UNKNOWN_QUOTED for v in node.values
            )  # fmt: skip
        if isinstance(node, ast.Call) and node.args:
            name = self._dotted(node.func)
            if name.endswith(("expanduser", "Path", "str", "abspath", "realpath")):
                return self._text(node.args[0])
        return None
