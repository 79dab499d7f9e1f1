"""The server of a local model: found if it runs, otherwise started.

`ensure_running` is cheap when a server runs: it reads one file and checks a
lock. Otherwise it starts one in the background and waits until the model is
loaded. Several processes may do this at once: the server's own lock lets only
one run, and all of them find it through the file that it writes.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Final

from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError, MissingExtra
from hermes.execution.host.process import Launch, run
from hermes.models.local.files import LocalModel
from hermes.models.local.server import (
    ALREADY_RUNNING,
    IDLE_SECONDS,
    ServerFiles,
    ServerState,
    engine_installed,
    fingerprint,
)

_START_TIMEOUT: Final = 180.0
_LAUNCH_TIMEOUT: Final = 30.0
_POLL: Final = 0.02
_LOG_TAIL: Final = 2000


Progress = Callable[[str, int, int], None]
"""Receives a step such as `load`, and how many bytes of how many are done."""


class ModelServerFailure(HermesError):
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
) -> ServerState:
    """Return the server of `model`, starting it if there is none."""
    files, wanted = ServerFiles(home, model.name), fingerprint(model)
    state = _usable(files, wanted)
    if state is not None:
        return state
    if not engine_installed():
        raise MissingExtra("local", f"The model {model.name}")
    argv = (sys.executable, "-m", "hermes.models.local.server", str(home.root), model.name)
    launch = Launch(argv=(*argv, str(idle_seconds)), env=env, cwd="/")
    try:
        async with asyncio.timeout(start_timeout):
            running = files.read()
            if running is not None and running.fingerprint != wanted:
                await stop_server(home, model.name)
            return await _started(model, files, launch, progress)
    except TimeoutError as error:
        raise ModelServerFailure(
            f"The model {model.name} was not ready after {start_timeout:.0f} s.",
            hint=f"Look at {files.log}, or choose a smaller model with `hermes model`.",
        ) from error


async def stop_server(home: HermesHome, name: str, *, timeout: float = 10.0) -> bool:
    """Stop the server of a model; tell whether there was one."""
    files = ServerFiles(home, name)
    found = False
    async with asyncio.timeout(timeout):
        while files.alive():
            state = files.read()
            if state is not None:
                found = True
                os.kill(state.pid, signal.SIGTERM)
            await asyncio.sleep(_POLL)
    return found


def _usable(files: ServerFiles, wanted: str) -> ServerState | None:
    """Return the state of a loaded server that fits, and postpone its idle exit."""
    state = files.read()
    if state is None or not state.port or state.fingerprint != wanted:
        return None
    try:
        os.utime(files.state)
    except OSError:
        return None
    return state if files.alive() else None


async def _started(
    model: LocalModel, files: ServerFiles, launch: Launch, progress: Progress | None
) -> ServerState:
    """Start a server unless one is starting, and wait until it has loaded the model."""
    while True:
        finished = await run(launch, timeout=_LAUNCH_TIMEOUT, max_output=_LOG_TAIL)
        if finished.exit_code not in {0, ALREADY_RUNNING}:
            raise _ended(model, files, finished.output)
        state = await _loaded(model, files, progress)
        if state is not None:
            return state
        if finished.exit_code == 0:
            log = await asyncio.to_thread(files.log.read_text, "utf-8", "replace")
            raise _ended(model, files, log)


async def _loaded(
    model: LocalModel, files: ServerFiles, progress: Progress | None
) -> ServerState | None:
    """Wait for the server; None when its process has ended without an error."""
    while True:
        alive, state = files.alive(), files.read()
        if state is not None and state.error:
            raise ModelServerFailure(
                f"The model {model.name} cannot be loaded: {state.error}.",
                hint="Check that the file is complete and that there is enough memory.",
            )
        if not alive:
            return None
        if state is not None and progress is not None:
            size = model.size_bytes
            progress("load", size if state.port else min(_resident(state.pid), size), size)
        if state is not None and state.port:
            return state
        await asyncio.sleep(_POLL)


def _ended(model: LocalModel, files: ServerFiles, output: str) -> ModelServerFailure:
    said = output.strip().splitlines()[-1:]
    reason = f": {said[0].strip()}" if said else ""
    return ModelServerFailure(
        f"The process that serves {model.name} ended{reason}.",
        hint=f"Look at {files.log}, or choose another model with `hermes model`.",
    )


def _resident(pid: int) -> int:
    """Return how many bytes of a process are in memory; 0 where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - not a real file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
