"""Finding the server of a model, or starting it.

`ensure_running` is cheap when a server is there: it reads one file and looks at
a lock. Otherwise it starts one in the background and waits until the model is
loaded. Several processes may do this at once: the server's own lock lets only
one live, and all of them find it through the file that it writes.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from hermes import __version__
from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError, MissingExtra
from hermes.execution.host.process import Launch, run
from hermes.models.local.files import LocalModel, profile_for
from hermes.models.local.server import (
    ALREADY_RUNNING,
    IDLE_SECONDS,
    ServerFiles,
    ServerOptions,
    ServerState,
    engine_installed,
)

_START_TIMEOUT: Final = 180.0
_LAUNCH_TIMEOUT: Final = 30.0
_POLL: Final = 0.02
_LOG_TAIL: Final = 2000


class Progress(Protocol):
    """Hears how far something is: a step such as `load`, and bytes (total 0: unknown)."""

    def __call__(self, step: str, done: int, total: int) -> None: ...


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a model answers, in the OpenAI chat completions protocol."""

    base_url: str
    """Ends in `/v1`."""
    api_key: str
    model: str
    context_length: int
    """Tokens that fit, which is less than the model was trained for."""


class ModelServerFailure(HermesError):
    """The model could not be served."""

    exit_code = 69
    code = "model_server"


async def ensure_running(
    model: LocalModel,
    home: HermesHome,
    progress: Progress | None = None,
    *,
    env: Mapping[str, str] = {},
    idle_seconds: float = IDLE_SECONDS,
    start_timeout: float = _START_TIMEOUT,
) -> Endpoint:
    """Return where `model` answers, starting its server if there is none."""
    files = ServerFiles.of(home, model.name)
    status = model.path.stat()
    n_ctx = profile_for(model).n_ctx
    parts = (__version__, model.path, status.st_size, status.st_mtime_ns, n_ctx)
    options = ServerOptions(
        home=str(home.root),
        name=model.name,
        model=str(model.path),
        n_ctx=n_ctx,
        fingerprint="|".join(map(str, parts)),
        idle_seconds=idle_seconds,
    )

    def show(state: ServerState) -> None:
        if progress is not None:
            total = status.st_size
            progress("load", total if state.port else min(_resident(state.pid), total), total)

    state = _usable(files, options)
    if state is None:
        if not engine_installed():
            raise MissingExtra("local", f"The model {model.name}")
        try:
            async with asyncio.timeout(start_timeout):
                state = await _start(files, options, home, env, show)
        except TimeoutError as error:
            raise ModelServerFailure(
                f"The model {model.name} was not ready after {start_timeout:.0f} s.",
                hint=f"Look at {files.log}, or choose a smaller model with `hermes model`.",
            ) from error
    return Endpoint(
        base_url=f"http://127.0.0.1:{state.port}/v1",
        api_key=state.api_key,
        model=model.name,
        context_length=n_ctx,
    )


async def stop_server(home: HermesHome, name: str, *, timeout: float = 10.0) -> bool:
    """Stop the server of a model; tell whether there was one."""
    files = ServerFiles.of(home, name)
    found = False
    async with asyncio.timeout(timeout):
        while await asyncio.to_thread(files.alive):
            state = files.read()
            if state is not None:
                found = True
                os.kill(state.pid, signal.SIGTERM)
            await asyncio.sleep(_POLL)
    return found


def _usable(files: ServerFiles, options: ServerOptions) -> ServerState | None:
    """Return the state of a server that is loaded and as wanted, and keep it from ending."""
    state = files.read()
    if state is None or not state.port or state.fingerprint != options.fingerprint:
        return None
    try:
        os.utime(files.state)
    except OSError:
        return None
    return state if files.alive() else None


async def _start(
    files: ServerFiles,
    options: ServerOptions,
    home: HermesHome,
    env: Mapping[str, str],
    show: Callable[[ServerState], None],
) -> ServerState:
    """Start a server unless one is starting, and wait until it has loaded."""
    running = files.read()
    if running is not None and running.fingerprint != options.fingerprint:
        await stop_server(home, options.name)
    argv = (sys.executable, "-m", "hermes.models.local.server")
    launch = Launch(argv=(*argv, msgspec.json.encode(options).decode()), env=env, cwd="/")
    while True:
        finished = await run(launch, timeout=_LAUNCH_TIMEOUT, max_output=_LOG_TAIL)
        if finished.exit_code not in {0, ALREADY_RUNNING}:
            raise _ended(files, options, finished.output)
        state = await _loaded(files, options.name, show)
        if state is not None:
            return state
        if finished.exit_code == 0:
            raise _ended(files, options, await asyncio.to_thread(_tail, files))


async def _loaded(
    files: ServerFiles, name: str, show: Callable[[ServerState], None]
) -> ServerState | None:
    """Wait for the server; None when its process has ended without a word."""
    while True:
        alive = await asyncio.to_thread(files.alive)
        state = files.read()
        if state is not None and state.error:
            raise ModelServerFailure(
                f"The model {name} cannot be loaded: {state.error}.",
                hint="Check that the file is complete and that there is enough memory.",
            )
        if not alive:
            return None
        if state is not None:
            show(state)
            if state.port:
                return state
        await asyncio.sleep(_POLL)


def _ended(files: ServerFiles, options: ServerOptions, output: str) -> ModelServerFailure:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    reason = f": {lines[-1].strip()}" if lines else ""
    return ModelServerFailure(
        f"The process that serves {options.name} ended{reason}.",
        hint=f"Look at {files.log}, or choose another model with `hermes model`.",
    )


def _tail(files: ServerFiles) -> str:
    try:
        return files.log.read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace")
    except OSError:
        return ""


def _resident(pid: int) -> int:
    """Return how many bytes of a process are in memory; 0 where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - not a real file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
