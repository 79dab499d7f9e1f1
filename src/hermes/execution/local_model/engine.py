"""llama.cpp inside this process: the only module that knows `xllamacpp`.

The engine listens on a loopback port of its own with a key that never leaves
this process; the server in front of it is what others talk to.
"""

import secrets
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.domain.errors import HermesError, MissingExtra

__all__ = ["Engine", "EngineSettings", "engine_installed", "start_engine"]

_CACHE_MIB = 128
"""Memory for the prefixes of conversations that are not the current one."""
_QUIET = 1


class EngineSettings(Struct, frozen=True, kw_only=True):
    """How a model is loaded."""

    model: Path
    name: str
    n_ctx: int
    threads: int
    """Fewer than cores: threads wait for each other hundreds of times a token, and one that
    has to share its core holds up all."""
    temperature: float | None = None


class Engine(Struct, frozen=True, kw_only=True):
    """A loaded model."""

    host: str
    port: int
    api_key: str
    handle: Any
    """Keeps the model alive."""


def engine_installed() -> bool:
    """Tell whether the extra is there, without loading it."""
    return find_spec("xllamacpp") is not None


def start_engine(settings: EngineSettings) -> Engine:
    """Load the model and start answering; takes as long as loading does."""
    try:
        xllamacpp = import_module("xllamacpp")
    except ImportError as error:
        raise MissingExtra("local", "The embedded model") from error
    key = secrets.token_urlsafe(24)
    params = xllamacpp.CommonParams()
    params.model.path = str(settings.model)
    params.model_alias = {settings.name}
    params.n_ctx = settings.n_ctx
    params.n_parallel = 1
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings.threads
        cpu.poll = 0
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    params.offline = True
    params.cache_ram_mib = _CACHE_MIB
    params.verbosity = _QUIET
    if settings.temperature is not None:
        params.sampling.temp = settings.temperature
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError, OSError) as error:
        raise HermesError(
            f"The model {settings.model.name} cannot be loaded: {error}.",
            hint="Check that the file is complete and that there is enough memory.",
        ) from error
    address = urlsplit(server.listening_address)
    assert address.hostname is not None
    assert address.port is not None
    return Engine(host=address.hostname, port=address.port, api_key=key, handle=server)
