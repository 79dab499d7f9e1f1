"""Opens a session on any backend that can run here, real or against a stand-in."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.boxes import settings_for
from fakes.toolbox import PATH
from hermes.domain.ports.clock import Clock
from hermes.execution.backend import EnvironmentRequest, Notify, PooledEnvironment, load_backend
from hermes.execution.clock import SystemClock

__all__ = ["MODAL_SDK", "apptainer", "environment", "request_for", "until"]

MODAL_SDK = str(Path(__file__).with_name("modal_sdk"))


def apptainer(directory: Path) -> Path:
    """Install the stand-in for apptainer and return its path."""
    state = directory / "instances"
    state.mkdir(parents=True)
    program = directory / "apptainer"
    stub = Path(__file__).with_name("apptainer_stub.py")
    program.write_text(
        f"#!/bin/sh\nAPPTAINER_STUB_DIR='{state}' exec '{sys.executable}' -SE '{stub}' \"$@\"\n"
    )
    program.chmod(0o755)
    return program


def request_for(
    backend: str,
    options: dict[str, Any],
    *,
    cwd: str = ".",
    env: dict[str, str] | None = None,
    base_env: dict[str, str] | None = None,
    clock: Clock | None = None,
    session_id: str = "20261115_120000_abcd1234",
    notify: Notify = lambda *_, **_how: None,
) -> EnvironmentRequest:
    """Return what the pool would ask of a backend; `home` in `options` is that of Hermes."""
    home = Path(options.get("home", "/nonexistent/hermes"))
    given = {name: value for name, value in options.items() if name != "home"}
    return EnvironmentRequest(
        agent_id="main",
        session_id=session_id,
        cwd=cwd,
        env={"PATH": PATH, **(env or {})},
        settings=settings_for(
            backend,
            home,
            {"env_passthrough": tuple(env or ()), **given},
            base_env=base_env or {},
        ),
        clock=clock or SystemClock(),
        notify=notify,
    )


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `check` says yes; the test's own time limit bounds it."""
    while True:
        if await check():
            return
        await asyncio.sleep(0.01)


@asynccontextmanager
async def environment(
    backend: str, options: dict[str, Any], **asked: Any
) -> AsyncIterator[PooledEnvironment]:
    """Open a session and close it afterwards."""
    opened = await load_backend(backend).open(request_for(backend, options, **asked))
    try:
        yield opened
    finally:
        await opened.close()
