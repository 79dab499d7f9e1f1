"""A Daytona API on loopback: sandboxes by name, and the toolbox of each.

Behaves as the service does where it matters: starting takes a few looks;
commands run in process sessions fed through a shell; each line of output is
labelled and a missing newline at the end is added; NUL bytes get lost; the log
is followed on a WebSocket that ends with the command, not before everybody has
let go of the output; input is a named pipe that never ends; stopping a sandbox
kills its processes and keeps its files. Programs are real processes here.
"""

import asyncio
import os
import shlex
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from fakes.tagged import kill_tagged

__all__ = ["KEY", "FakeDaytona", "daytona_options", "running_daytona"]

KEY = "dtn_test_key"
_START_LOOKS = 2
_WRAPPER = """
label() {{ while IFS= read -r line || [ -n "$line" ]; do
  printf '\\001\\001\\001%s\\n' "$line"; done; }}
mkfifo {dir}/out {dir}/in
label <{dir}/out >>{dir}/log & labeller=$!
sleep 3600 >{dir}/in & holder=$!
{{ . {dir}/cmd; }} <{dir}/in >{dir}/out 2>&1
code=$?
kill $holder
wait $labeller
echo $code >{dir}/code
"""


class _Sandbox:
    def __init__(self, number: int, root: Path, wanted: dict[str, Any]) -> None:
        self.id = f"sb-{number}"
        self.root = root
        self.wanted = wanted
        self.state = "creating"
        self.looks = 0
        self.error = ""
        self.sessions: dict[str, asyncio.subprocess.Process | None] = {}


class FakeDaytona:
    """The service."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = ""
        self.sandboxes: dict[str, _Sandbox] = {}
        self.calls: list[str] = []
        self.fail_builds = False
        self.cut_logs = asyncio.Event()
        """Set to cut every log that is being followed."""

    def app(self) -> Starlette:
        toolbox = [
            Route("/process/session", self.new_session, methods=["POST"]),
            Route("/process/session/{session}", self.end_session, methods=["DELETE"]),
            Route("/process/session/{session}/exec", self.execute_async, methods=["POST"]),
            WebSocketRoute("/process/session/{session}/command/{command}/logs", self.logs),
            Route("/process/execute", self.execute, methods=["POST"]),
            Route("/files/bulk-upload", self.upload, methods=["POST"]),
        ]
        return Starlette(
            routes=[
                Route("/api/sandbox", self.create, methods=["POST"]),
                Route("/api/sandbox/{name}", self.look, methods=["GET"]),
                Route("/api/sandbox/{name}", self.delete, methods=["DELETE"]),
                Route("/api/sandbox/{name}/start", self.start, methods=["POST"]),
                Route("/api/sandbox/{name}/stop", self.stop, methods=["POST"]),
                Route("/api/sandbox/{name}/toolbox-proxy-url", self.proxy, methods=["GET"]),
                Mount("/toolbox/{sandbox}", routes=toolbox),
            ]
        )

    def _allowed(self, request: Request) -> Response | None:
        self.calls.append(f"{request.method} {request.url.path}")
        if request.headers.get("authorization") == f"Bearer {KEY}":
            return None
        return JSONResponse({"statusCode": 401, "message": "Unauthorized"}, 401)

    def _find(self, name: str) -> _Sandbox | None:
        found = self.sandboxes.get(name)
        return found or next((s for s in self.sandboxes.values() if s.id == name), None)

    def _told(self, name: str, sandbox: _Sandbox) -> JSONResponse:
        # The address of the toolbox is not always part of the answer.
        wanted = sandbox.wanted
        return JSONResponse(
            {
                "id": sandbox.id,
                "organizationId": "org-1",
                "name": name,
                "state": sandbox.state,
                "errorReason": sandbox.error or None,
                "toolboxProxyUrl": "" if sandbox.state == "creating" else f"{self.url}/toolbox",
                "user": "daytona",
                "env": wanted.get("env", {}),
                "labels": wanted.get("labels", {}),
                "public": False,
                "networkBlockAll": False,
                "kvm": False,
                "target": wanted.get("target", "us"),
                "cpu": wanted.get("cpu", 1),
                "gpu": 0,
                "memory": wanted.get("memory", 1),
                "disk": wanted.get("disk", 3),
            }
        )

    async def create(self, request: Request) -> Response:
        if refused := self._allowed(request):
            return refused
        wanted = await request.json()
        if wanted["name"] in self.sandboxes:
            return JSONResponse({"message": "Sandbox with that name already exists"}, 409)
        if wanted["disk"] > 10:
            return JSONResponse({"message": "Disk request exceeds maximum of 10GB"}, 400)
        number = len(self.sandboxes) + 1
        root = self.directory / f"sb-{number}"
        root.mkdir()
        sandbox = self.sandboxes[wanted["name"]] = _Sandbox(number, root, wanted)
        if self.fail_builds:
            sandbox.state, sandbox.error = "build_failed", "manifest unknown"
        return self._told(wanted["name"], sandbox)

    async def look(self, request: Request) -> Response:
        if refused := self._allowed(request):
            return refused
        sandbox = self._find(request.path_params["name"])
        if sandbox is None:
            return JSONResponse({"message": "Sandbox not found"}, 404)
        if sandbox.state in {"creating", "starting"}:
            sandbox.looks += 1
            if sandbox.looks >= _START_LOOKS:
                sandbox.state, sandbox.looks = "started", 0
        return self._told(request.path_params["name"], sandbox)

    async def proxy(self, request: Request) -> Response:
        return self._allowed(request) or JSONResponse({"url": f"{self.url}/toolbox"})

    async def start(self, request: Request) -> Response:
        sandbox = self._find(request.path_params["name"])
        assert sandbox is not None
        assert sandbox.state in {"stopped", "archived"}
        sandbox.state = "starting"
        return self._allowed(request) or self._told("", sandbox)

    async def stop(self, request: Request) -> Response:
        sandbox = self._find(request.path_params["name"])
        assert sandbox is not None
        await self.kill(sandbox)
        sandbox.state = "stopped"
        return self._allowed(request) or self._told("", sandbox)

    async def delete(self, request: Request) -> Response:
        name = request.path_params["name"]
        sandbox = self._find(name)
        assert sandbox is not None
        await self.kill(sandbox)
        shutil.rmtree(sandbox.root)
        del self.sandboxes[next(k for k, v in self.sandboxes.items() if v is sandbox)]
        return self._allowed(request) or Response(status_code=200)

    async def kill(self, sandbox: _Sandbox) -> None:
        """End all processes of a sandbox."""
        await asyncio.to_thread(kill_tagged, "DAYTONA_FAKE_SANDBOX", str(sandbox.root))
        for process in sandbox.sessions.values():
            if process is not None:
                await process.wait()
        sandbox.sessions.clear()

    def _running(self, request: Request | WebSocket) -> _Sandbox:
        sandbox = self._find(request.path_params["sandbox"])
        assert sandbox is not None
        assert sandbox.state == "started", sandbox.state
        return sandbox

    def _env(self, sandbox: _Sandbox) -> dict[str, str]:
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(sandbox.root),
            "DAYTONA_FAKE_SANDBOX": str(sandbox.root),
        }

    async def new_session(self, request: Request) -> Response:
        if refused := self._allowed(request):
            return refused
        sandbox = self._running(request)
        session = (await request.json())["sessionId"]
        if session in sandbox.sessions:
            return JSONResponse({"message": "session already exists"}, 409)
        sandbox.sessions[session] = None
        return Response(status_code=201)

    def _dir(self, sandbox: _Sandbox, session: str) -> Path:
        return self.directory / "sessions" / sandbox.id / session

    async def execute_async(self, request: Request) -> Response:
        sandbox = self._running(request)
        session = request.path_params["session"]
        body = await request.json()
        assert body["runAsync"], "the stand-in knows only asynchronous commands in sessions"
        place = self._dir(sandbox, session)
        place.mkdir(parents=True)
        (place / "cmd").write_text(body["command"])
        (place / "log").touch()
        process = await asyncio.create_subprocess_exec(
            "bash",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=sandbox.root,
            env=self._env(sandbox),
            start_new_session=True,
        )
        sandbox.sessions[session] = process
        assert process.stdin is not None
        process.stdin.write(_WRAPPER.format(dir=shlex.quote(str(place))).encode())
        await process.stdin.drain()
        process.stdin.close()
        return JSONResponse({"cmdId": "command-1"}, 202)

    async def logs(self, socket: WebSocket) -> None:
        sandbox = self._running(socket)
        if socket.headers.get("authorization") != f"Bearer {KEY}":
            await socket.close(4401)
            return
        place = self._dir(sandbox, socket.path_params["session"])
        await socket.accept()
        try:
            with (place / "log").open("rb") as log:
                while True:
                    ended = (place / "code").exists() or not place.exists()
                    if data := log.read(65_536):
                        await socket.send_bytes(data)
                    elif ended or self.cut_logs.is_set():
                        break
                    else:
                        await asyncio.sleep(0.01)
            await socket.close(1000)
        except (WebSocketDisconnect, FileNotFoundError, RuntimeError):
            return

    async def end_session(self, request: Request) -> Response:
        sandbox = self._running(request)
        process = sandbox.sessions.pop(request.path_params["session"], None)
        if process is not None and process.returncode is None:
            os.killpg(process.pid, 9)
            await process.wait()
        shutil.rmtree(self._dir(sandbox, request.path_params["session"]), ignore_errors=True)
        return Response(status_code=204)

    async def execute(self, request: Request) -> Response:
        sandbox = self._running(request)
        body = await request.json()
        if len(body["command"]) > 128 * 1024:
            return JSONResponse({"message": "argument list too long"}, 400)
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", body["command"]),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=sandbox.root,
            env=self._env(sandbox),
        )
        try:
            async with asyncio.timeout(body.get("timeout") or 60):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return JSONResponse({"message": "command execution timeout"}, 408)
        return JSONResponse({"exitCode": process.returncode, "result": output.decode()})

    async def upload(self, request: Request) -> Response:
        self._running(request)
        # Read by hand: the form parser is another dependency.
        boundary = request.headers["content-type"].partition("boundary=")[2].encode()
        parts = (await request.body()).split(b"--" + boundary)
        target = Path()
        for part in parts:
            head, _, body = part.partition(b"\r\n\r\n")
            body = body.removesuffix(b"\r\n")
            if b"].path" in head:
                target = Path(os.fsdecode(body))
            elif b"].file" in head:
                await asyncio.to_thread(target.write_bytes, body)
        return Response(status_code=200)


def daytona_options(fake: FakeDaytona) -> dict[str, Any]:
    """Return options for the backend."""
    return {
        "daytona_image": "debian",
        "DAYTONA_API_KEY": KEY,
        "DAYTONA_API_URL": f"{fake.url}/api",
    }


@asynccontextmanager
async def running_daytona(directory: Path) -> AsyncIterator[FakeDaytona]:
    """Serve the API on a free port."""
    fake = FakeDaytona(directory)
    config = uvicorn.Config(
        fake.app(),
        port=0,
        log_level="error",
        ws="wsproto",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    fake.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    serving = asyncio.ensure_future(server.serve(sockets=[socket]))
    try:
        yield fake
    finally:
        for sandbox in fake.sandboxes.values():
            await fake.kill(sandbox)
        server.should_exit = True
        await serving
        socket.close()
