"""Finding the server of a model, or starting it.

`ensure_running` is cheap when a server is there: one small request. Otherwise
it starts one in the background and waits until the model is loaded. Several
processes may do this at once: the server's own lock lets only one live, and
all of them find it through the file that it writes.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError, MissingExtra
from hermes.execution.host.process import Launch, run
from hermes.execution.local_model.engine import engine_installed
from hermes.execution.local_model.files import LocalModel
from hermes.execution.local_model.profile import Profile, profile_for
from hermes.execution.local_model.server import ALREADY_RUNNING, IDLE_SECONDS
from hermes.execution.local_model.state import (
    ServerFiles,
    ServerState,
    fingerprint,
    read_state,
    server_files,
    take_lock,
)
from hermes.execution.local_model.wire import BadMessage, exchange

__all__ = ["Endpoint", "ModelServerFailure", "Progress", "ensure_running", "stop_server"]

_START_TIMEOUT: Final = 180.0
_HEALTH_TIMEOUT: Final = 5.0
_FIRST_POLL: Final = 0.02
_SLOWEST_POLL: Final = 0.25
_LAUNCH_TIMEOUT: Final = 30.0
_LOG_TAIL: Final = 2000


class Progress(Protocol):
    """Hears how far something is: a step such as `load`, and bytes (total 0: unknown)."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show it."""
        ...


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


class _Health(Struct, frozen=True, kw_only=True):
    status: str
    fingerprint: str = ""
    error: dict[str, str] = {}


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
    profile = profile_for(model)
    start = _Start(model, home, profile, progress)
    found = await start.running()
    if found is not None:
        return found
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
    files = server_files(home, name)
    state = read_state(files)
    if state is None or await _health(state) is None:
        return False
    try:
        await exchange(
            f"{state.base_url}/shutdown", method="POST", api_key=state.api_key, timeout=timeout
        )
    except (OSError, BadMessage):
        return False
    async with asyncio.timeout(timeout):
        while not await asyncio.to_thread(_lock_is_free, files):  # noqa: ASYNC110 - a file lock
            await asyncio.sleep(_FIRST_POLL)
    return True


class _Start:
    """One attempt to find or start a server."""

    def __init__(
        self, model: LocalModel, home: HermesHome, profile: Profile, progress: Progress | None
    ) -> None:
        self._model = model
        self._home = home
        self._profile = profile
        self._progress = progress
        self._fingerprint = fingerprint(model, profile)
        self.files = server_files(home, model.name)

    async def running(self) -> Endpoint | None:
        """Return the endpoint of a server that is loaded and as wanted."""
        state = read_state(self.files)
        health = await _health(state) if state is not None else None
        if state is None or health is None or health.status != "ok":
            return None
        return self._endpoint(state) if health.fingerprint == self._fingerprint else None

    async def begin(self, env: Mapping[str, str], idle_seconds: float) -> Endpoint:
        """Start a server unless one is starting, and wait until it has loaded."""
        state = read_state(self.files)
        health = await _health(state) if state is not None else None
        if health is not None and health.fingerprint != self._fingerprint:
            await stop_server(self._home, self._model.name)
        began = time.monotonic()
        await self._launch(env, idle_seconds)
        return await self._loaded(began)

    async def _launch(self, env: Mapping[str, str], idle_seconds: float) -> None:
        profile = self._profile
        argv = [
            *(sys.executable, "-m", "hermes.execution.local_model.server", "--detach"),
            *("--home", str(self._home.root), "--name", self._model.name),
            *("--model", str(self._model.path), "--fingerprint", self._fingerprint),
            *("--n-ctx", str(profile.n_ctx), "--idle-seconds", str(idle_seconds)),
        ]
        if profile.temperature is not None:
            argv += ["--temperature", str(profile.temperature)]
        if profile.constrained:
            argv.append("--constrained")
        launch = Launch(argv=tuple(argv), env=env, cwd="/")
        finished = await run(launch, timeout=_LAUNCH_TIMEOUT, max_output=_LOG_TAIL)
        if finished.exit_code not in {0, ALREADY_RUNNING}:
            raise self._failure(finished.output)

    async def _loaded(self, began: float) -> Endpoint:
        pause = _FIRST_POLL
        while True:
            state = read_state(self.files)
            health = await _health(state) if state is not None else None
            if state is not None and health is not None:
                if health.status == "failed":
                    await stop_server(self._home, self._model.name)
                    error = health.error
                    raise ModelServerFailure(error.get("message", ""), hint=error.get("hint", ""))
                self._show(state.pid, loaded=health.status == "ok")
                if health.status == "ok":
                    return self._endpoint(state)
            elif await asyncio.to_thread(_lock_is_free, self.files):
                raise self._failure(_tail(self.files))
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _SLOWEST_POLL) if time.monotonic() - began > 1 else pause

    def _show(self, pid: int, *, loaded: bool) -> None:
        if self._progress is not None:
            total = self._model.size_bytes
            done = total if loaded else min(_resident_bytes(pid), total)
            self._progress("load", done, total)

    def _endpoint(self, state: ServerState) -> Endpoint:
        return Endpoint(
            base_url=f"{state.base_url}/v1",
            api_key=state.api_key,
            model=self._model.name,
            context_length=self._profile.n_ctx,
        )

    def _failure(self, output: str) -> ModelServerFailure:
        lines = [line for line in output.strip().splitlines() if line.strip()]
        reason = f": {lines[-1].strip()}" if lines else ""
        return ModelServerFailure(
            f"The process that serves {self._model.name} ended{reason}.",
            hint=f"Look at {self.files.log}, or choose another model with `hermes model`.",
        )


async def _health(state: ServerState) -> _Health | None:
    """Ask a server how it is; None when there is none any more."""
    try:
        status, body = await exchange(
            f"{state.base_url}/health", api_key=state.api_key, timeout=_HEALTH_TIMEOUT
        )
        return msgspec.json.decode(body, type=_Health) if status == 200 else None
    except (OSError, BadMessage, msgspec.MsgspecError):
        return None


def _lock_is_free(files: ServerFiles) -> bool:
    try:
        descriptor = take_lock(files)
    except OSError:
        return True
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def _tail(files: ServerFiles) -> str:
    try:
        return files.log.read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace")
    except OSError:
        return ""


def _resident_bytes(pid: int) -> int:
    """Return how much of the model is in memory; 0 where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - not a real file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
