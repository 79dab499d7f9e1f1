"""The part of `execute_code` that runs where the commands run: its text is sent there.

Run as a program it is the bridge: it starts the script as a child, takes its tool calls on a
Unix socket, passes them on over its own standard output and input, and keeps the bounded output
of the script. Written to a file, with a function for each tool behind it, it is the module
`hermes_tools` that the script imports. Any Python from 3.7 on has to understand it.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

MARK = "hermes:"


class ToolError(RuntimeError):
    """A tool failed, or may not be used like that."""


class Result(str):  # noqa: SLOT000 - it has fields
    """What a tool said; `result["output"]`, `["content"]`, `["exit_code"]` work as well."""

    fields: dict[str, Any] = {}  # noqa: RUF012

    def __getitem__(self, key: Any) -> Any:
        return self.fields[key] if isinstance(key, str) else str.__getitem__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        return self.fields.get(key, default)


_one_at_a_time = threading.Lock()


def call_tool(name: str, arguments: dict[str, Any]) -> Result:
    given = {key: value for key, value in arguments.items() if value is not None}
    with _one_at_a_time, socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ["HERMES_TOOLS_SOCKET"])
        with line.makefile("rw", encoding="utf-8") as stream:
            stream.write(json.dumps({"tool": name, "arguments": given}) + "\n")
            stream.flush()
            answer = json.loads(stream.readline() or '{"error": "Nobody answers any more."}')
    if answer.get("error"):
        raise ToolError(answer["error"])
    result = Result(answer["content"])
    result.fields = {**answer, "output": answer["content"], "error": None}
    return result


class PipeEnds:
    """The beginning and the end of what a pipe gives."""

    def __init__(self, pipe: IO[bytes], limit: int) -> None:
        self._pipe = pipe
        self._head, self._tail, self._cut = b"", b"", 0
        self._room = limit * 2 // 5, limit - limit * 2 // 5
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        for data in iter(lambda: os.read(self._pipe.fileno(), 65536), b""):
            room = self._room[0] - len(self._head)
            self._head += data[:room]
            tail = self._tail + data[room:]
            self._cut += max(0, len(tail) - self._room[1])
            self._tail = tail[-self._room[1] :]

    def text(self) -> str:
        self.thread.join(1)  # who inherited the pipe may hold it for ever
        gap = f"\n[... {self._cut} bytes cut out ...]\n".encode() if self._cut else b""
        return (self._head + gap + self._tail).decode("utf-8", "replace")


class Bridge:
    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._children: list[subprocess.Popen[bytes]] = []
        place = "/tmp" if os.access("/tmp", os.W_OK) else None  # noqa: S108 - a socket's name is short
        self._folder = Path(tempfile.mkdtemp(prefix=f"hermes-code-{os.getpid()}-", dir=place))

    def run(self) -> None:
        try:
            self._run()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        given, server = self._given, socket.socket(socket.AF_UNIX)
        where = str(self._folder / "calls")
        server.bind(where)
        server.listen(8)
        for name, text in (("hermes_tools", given["module"]), ("script", given["code"])):
            data = text.encode("utf-8", "surrogateescape")
            (self._folder / f"{name}.py").write_bytes(data)
        found = [self._folder, *([] if given["strict"] else [Path.cwd()])]
        found += [Path(path) for path in [os.environ.get("PYTHONPATH", "")] if path]
        child = subprocess.Popen(
            [sys.executable, str(self._folder / "script.py")],
            cwd=self._folder if given["strict"] else None,
            env={
                **os.environ,
                "HERMES_TOOLS_SOCKET": where,
                "PYTHONPATH": os.pathsep.join(map(str, found)),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUNBUFFERED": "1",
                "PYTHONIOENCODING": "utf-8:backslashreplace",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        self._children.append(child)
        out, err = PipeEnds(child.stdout, given["stdout"]), PipeEnds(child.stderr, given["stderr"])
        for work in (self._hear, lambda: self._serve(server)):
            threading.Thread(target=work, daemon=True).start()
        code = child.wait()
        self._tell({"exit": 128 - code if code < 0 else code, "out": out.text(), "err": err.text()})

    def _serve(self, server: socket.socket) -> None:
        while True:
            line, _ = server.accept()
            with line, line.makefile("rw", encoding="utf-8") as stream:
                request = stream.readline()
                if request:
                    self._tell(json.loads(request))
                    stream.write(json.dumps(self._answers.get()) + "\n")

    def _hear(self) -> None:
        """Take answers; an order to stop, or the end of the input, ends the script."""
        for text in sys.stdin:
            answer = json.loads(text)
            if answer.get("stop"):
                break
            self._answers.put(answer)
        self._children[0].kill()

    def _tell(self, frame: dict[str, Any]) -> None:
        sys.stdout.write(f"{MARK}{json.dumps(frame)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    Bridge(json.loads(sys.stdin.readline())).run()
    # Threads that wait for input must not keep it.
    sys.stdout.flush()
    os._exit(0)
