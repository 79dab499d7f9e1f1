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
    start = _Start(model, home, progress)
    state = start.usable()
    if state is not None:
        return state
    if not engine_installed():
        raise MissingExtra("local", f"The model {model.name}")
    try:
        async with asyncio.timeout(start_timeout):
            return await start.begin(env, idle_seconds)
    except TimeoutError as error:
        raise ModelServerFailure(
            f"The model {model.name} was not ready after {start_timeout:.0f} s.",
            hint=f"Look at {start.files.log}, or choose a smaller model with `hermes model`.",
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


class _Start:
    def __init__(self, model: LocalModel, home: HermesHome, progress: Progress | None) -> None:
        self._model = model
        self._home = home
        self._progress = progress
        self._wanted = fingerprint(model)
        self.files = ServerFiles(home, model.name)

    def usable(self) -> ServerState | None:
        """Return the state of a loaded server that fits, and postpone its idle exit."""
        state = self.files.read()
        if state is None or not state.port or state.fingerprint != self._wanted:
            return None
        try:
            os.utime(self.files.state)
        except OSError:
            return None
        return state if self.files.alive() else None

    async def begin(self, env: Mapping[str, str], idle_seconds: float) -> ServerState:
        """Start a server unless one is starting, and wait until it has loaded."""
        name, root = self._model.name, str(self._home.root)
        running = self.files.read()
        if running is not None and running.fingerprint != self._wanted:
            await stop_server(self._home, name)
        argv = (sys.executable, "-m", "hermes.models.local.server", root, name, str(idle_seconds))
        while True:
            launch = Launch(argv=argv, env=env, cwd="/")
            finished = await run(launch, timeout=_LAUNCH_TIMEOUT, max_output=_LOG_TAIL)
            if finished.exit_code not in {0, ALREADY_RUNNING}:
                raise self._ended(finished.output)
            state = await self._loaded()
            if state is not None:
                return state
            if finished.exit_code == 0:
                raise self._ended(
                    await asyncio.to_thread(self.files.log.read_text, "utf-8", "replace")
                )

    async def _loaded(self) -> ServerState | None:
        """Wait for the server; None when its process has ended without an error."""
        while True:
            alive, state = self.files.alive(), self.files.read()
            if state is not None and state.error:
                raise ModelServerFailure(
                    f"The model {self._model.name} cannot be loaded: {state.error}.",
                    hint="Check that the file is complete and that there is enough memory.",
                )
            if not alive:
                return None
            if state is not None:
                if self._progress is not None:
                    size = self._model.size_bytes
                    done = size if state.port else min(_resident(state.pid), size)
                    self._progress("load", done, size)
                if state.port:
                    return state
            await asyncio.sleep(_POLL)

    def _ended(self, output: str) -> ModelServerFailure:
        said = output.strip().splitlines()[-1:]
        reason = f": {said[0].strip()}" if said else ""
        return ModelServerFailure(
            f"The process that serves {self._model.name} ended{reason}.",
            hint=f"Look at {self.files.log}, or choose another model with `hermes model`.",
        )


def _resident(pid: int) -> int:
    """Return how many bytes of a process are in memory; 0 where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - not a real file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
