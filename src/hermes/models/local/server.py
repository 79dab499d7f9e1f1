"""The process that serves one model file to all Hermes processes of a home.

llama.cpp brings its own OpenAI-compatible server, so this process only loads
the model and waits: the engine listens on a loopback port with a random key,
and `run/` says where. A lock held for the whole life of the process keeps a
second one from starting, and tells everyone whether the description in `run/`
is still true. A caller touches that description before each call; after a
while without calls the process ends, so a killed parent leaves nothing behind
for long. SIGTERM ends it at once.

This is the only module that knows `xllamacpp`.
"""

import os
import secrets
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes import __version__
from hermes.config.atomic import write_atomic
from hermes.config.locks import is_locked, take_lock
from hermes.config.paths import HermesHome
from hermes.models.local.files import LocalModel, find_local, profile_for

ALREADY_RUNNING: Final = 3
"""Exit code when another process serves this model."""
IDLE_SECONDS: Final = 900.0
_LONGEST_SLEEP: Final = 5.0
_CACHE_MIB: Final = 128
"""Memory for the prefixes of conversations that are not the current one."""
_BUSY: Final = ("llamacpp:requests_processing ", "llamacpp:requests_deferred ")


class ServerState(Struct, frozen=True, kw_only=True):
    """The description of a serving process in `run/`."""

    pid: int
    fingerprint: str
    port: int = 0
    """Zero while the model is being loaded."""
    api_key: str = ""
    error: str = ""
    """Why the model could not be loaded."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


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


def fingerprint(model: LocalModel) -> str:
    """Return a value that differs when a running server must be replaced."""
    status = model.path.stat()
    n_ctx = profile_for(model).n_ctx
    return f"{__version__}|{model.path}|{status.st_size}|{status.st_mtime_ns}|{n_ctx}"


def serve(home: HermesHome, name: str, idle_seconds: float) -> None:
    home.subdirectory(home.run_dir)
    home.subdirectory(home.logs_dir)
    files = ServerFiles(home, name)
    model = find_local(home, name)
    if take_lock(files.lock) is None:
        sys.exit(ALREADY_RUNNING)
    files.state.unlink(missing_ok=True)
    _detach(files.log)
    state = ServerState(pid=os.getpid(), fingerprint=fingerprint(model))
    files.write(state)
    key = secrets.token_urlsafe(24)
    try:
        engine = _load(model, key)
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        files.write(replace(state, error=str(error)))
        sys.exit(1)
    files.write(replace(state, port=urlsplit(engine.listening_address).port, api_key=key))
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
    params.n_ctx = profile_for(model).n_ctx
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
    serve(HermesHome(root=Path(sys.argv[1])), sys.argv[2], float(sys.argv[3]))
