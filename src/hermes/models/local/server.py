"""The process that serves one model file to all Hermes processes of a home.

llama.cpp brings its own OpenAI-compatible server, so the process only loads
the model and waits: the engine listens on a loopback port with a random key,
and `run/` says where. A lock held for the whole life of the process keeps a
second one from starting, and tells everyone whether the description in `run/`
is still true. A caller touches that description before each call; after a
while without calls the process ends, so a killed parent leaves nothing behind
for long. SIGTERM ends it at once.

`ensure_running` is cheap when a server runs: it reads one file and checks a
lock. Several processes may start one at once: all find the one that got the lock.
This is the only module that knows `xllamacpp`.
"""

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes import __version__
from hermes.config.atomic import write_atomic
from hermes.config.locks import is_locked, take_lock
from hermes.config.paths import HermesHome
from hermes.domain.errors import HermesError, MissingExtra
from hermes.execution.host.process import Launch, run
from hermes.models.local.files import LocalModel, find_local, info_of

_ALREADY_RUNNING: Final = 3
"""Exit code when another process serves this model."""
_IDLE_SECONDS: Final = 900.0
_START_TIMEOUT: Final = 180.0
_POLL: Final = 0.02
_LONGEST_SLEEP: Final = 5.0
_CACHE_MIB: Final = 128
"""Memory for the prefixes of conversations that are not the current one."""
_BUSY: Final = ("llamacpp:requests_processing ", "llamacpp:requests_deferred ")

Progress = Callable[[str, int, int], None]
"""Receives a step such as `load`, and how many bytes of how many are done."""


class ModelServerFailure(HermesError):
    exit_code = 69
    code = "model_server"


class ServerState(Struct, frozen=True, kw_only=True):
    """The description of a serving process in `run/`."""

    pid: int
    fingerprint: str
    base_url: str = ""
    """Empty while the model is being loaded."""
    api_key: str = ""
    error: str = ""
    """Why the model could not be loaded."""


class ServerFiles:
    def __init__(self, home: HermesHome, name: str) -> None:
        stem = f"local-model-{name}"
        self.lock = home.run_dir / f"{stem}.lock"
        self.state = home.run_dir / f"{stem}.json"
        self.log = home.logs_dir / f"{stem}.log"

    def read(self) -> ServerState | None:
        try:
            return msgspec.json.decode(self.state.read_bytes(), type=ServerState)
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, state: ServerState) -> None:
        write_atomic(self.state, msgspec.json.encode(state))

    def alive(self) -> bool:
        return is_locked(self.lock, if_unreadable=False)


def engine_installed() -> bool:
    return find_spec("xllamacpp") is not None


async def ensure_running(
    model: LocalModel,
    home: HermesHome,
    progress: Progress | None = None,
    *,
    env: Mapping[str, str] = {},
    idle_seconds: float = _IDLE_SECONDS,
) -> ServerState:
    """Return the server of `model`, starting it if there is none."""
    files, wanted = ServerFiles(home, model.name), _fingerprint(model)
    state = files.read()
    if state is not None and state.base_url and state.fingerprint == wanted and _touched(files):
        return state
    if not engine_installed():
        raise MissingExtra("local", f"The model {model.name}")
    argv = (sys.executable, "-m", "hermes.models.local.server", str(home.root), model.name)
    launch = Launch(argv=(*argv, str(idle_seconds)), env=env, cwd="/")
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            if state is not None and state.fingerprint != wanted:
                await stop_server(home, model.name)
            return await _started(model, files, launch, progress)
    except TimeoutError as error:
        raise ModelServerFailure(
            f"The model {model.name} was not ready after {_START_TIMEOUT:.0f} s.",
            hint=f"Look at {files.log}, or choose a smaller model with `hermes model`.",
        ) from error


async def stop_server(home: HermesHome, name: str) -> bool:
    """Stop the server of a model; tell whether there was one."""
    files = ServerFiles(home, name)
    found = False
    async with asyncio.timeout(10.0):
        while files.alive():
            state = files.read()
            if state is not None:
                found = True
                os.kill(state.pid, signal.SIGTERM)
            await asyncio.sleep(_POLL)
    return found


def _fingerprint(model: LocalModel) -> str:
    """Return a value that differs when a running server must be replaced."""
    status, window = model.path.stat(), info_of(model).context_window
    return f"{__version__}|{model.path}|{status.st_size}|{status.st_mtime_ns}|{window}"


def _touched(files: ServerFiles) -> bool:
    """Postpone the idle exit of a server; tell whether it still runs."""
    try:
        os.utime(files.state)
    except OSError:
        return False
    return files.alive()


async def _started(
    model: LocalModel, files: ServerFiles, launch: Launch, progress: Progress | None
) -> ServerState:
    """Start a server unless one is starting, and wait until it has loaded the model."""
    while True:
        finished = await run(launch, timeout=_START_TIMEOUT, max_output=2000)
        output = finished.output
        if finished.exit_code in {0, _ALREADY_RUNNING}:
            state = await _loaded(model, files, progress)
            if state is not None:
                return state
            if finished.exit_code == _ALREADY_RUNNING:
                continue
            output = await asyncio.to_thread(files.log.read_text, "utf-8", "replace")
        said = output.strip().splitlines()[-1:]
        reason = f": {said[0].strip()}" if said else ""
        raise ModelServerFailure(
            f"The process that serves {model.name} ended{reason}.",
            hint=f"Look at {files.log}, or choose another model with `hermes model`.",
        )


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
            progress("load", size if state.base_url else min(_resident(state.pid), size), size)
        if state is not None and state.base_url:
            return state
        await asyncio.sleep(_POLL)


def _resident(pid: int) -> int:
    """Return how many bytes of a process are in memory; 0 where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - not a real file
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _serve(home: HermesHome, name: str, idle_seconds: float) -> None:
    """Be the process: load the model, describe itself in `run/`, and end when idle."""
    home.subdirectory(home.run_dir)
    home.subdirectory(home.logs_dir)
    files = ServerFiles(home, name)
    model = find_local(home, name)
    if take_lock(files.lock) is None:
        sys.exit(_ALREADY_RUNNING)
    files.state.unlink(missing_ok=True)
    _detach(files.log)
    state = ServerState(pid=os.getpid(), fingerprint=_fingerprint(model))
    files.write(state)
    key = secrets.token_urlsafe(24)
    try:
        engine = _load(model, key)
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        files.write(replace(state, error=str(error)))
        sys.exit(1)
    files.write(replace(state, base_url=f"{engine.listening_address}/v1", api_key=key))
    _wait_until_idle(engine, files.state, idle_seconds)
    files.state.unlink(missing_ok=True)
    # The engine's threads would hold up a normal exit.
    os._exit(0)


def _detach(log: Path) -> None:
    """Continue in the background; the lock stays held."""
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.chdir("/")


def _load(model: LocalModel, key: str) -> Any:
    xllamacpp = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model.path)
    params.model_alias = {model.name}
    params.n_ctx = info_of(model).context_window
    params.n_parallel = 1
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = _threads()
        cpu.poll = 0
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.endpoint_metrics = True
    params.ui = False
    params.offline = True
    params.cache_ram_mib = _CACHE_MIB
    params.verbosity = 1
    return xllamacpp.Server(params)


def _threads() -> int:
    """Return all cores but one, which is left to everything else.

    Threads wait for each other hundreds of times a token, and one that has to share its core
    holds up all: on two cores that work, two threads read 4 to 8 tokens a second and one reads
    80 to 100; when nothing else runs, two would be not quite twice as fast as one.
    """
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return max(1, cores - 1)


def _wait_until_idle(engine: Any, touched: Path, idle_seconds: float) -> None:
    used = 0.0
    while True:
        lines = engine.handle_metrics().splitlines()
        if any(line.startswith(_BUSY) and not line.endswith(" 0") for line in lines):
            used = time.time()
        left = max(used, touched.stat().st_mtime) + idle_seconds - time.time()
        if left <= 0:
            return
        time.sleep(min(max(left, 0.05), _LONGEST_SLEEP))


if __name__ == "__main__":
    _serve(HermesHome(root=Path(sys.argv[1])), sys.argv[2], float(sys.argv[3]))
