import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fakes.daytona import FakeDaytona, daytona_options, running_daytona
from fakes.machines import MODAL_SDK, apptainer, environment
from fakes.sshd import Sshd, running_sshd, sshd_missing
from fakes.toolbox import PATH, local_environment
from hermes.execution.backend import PooledEnvironment


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A real sshd; tests that use it belong to xdist_group("ssh")."""
    reason = sshd_missing()
    if reason:
        pytest.skip(reason)
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(50):
        yield


@pytest.fixture
def modal_sdk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The stand-in for the SDK, installed as `modal`."""
    monkeypatch.syspath_prepend(MODAL_SDK)
    import modal  # type: ignore[import-not-found]  # noqa: PLC0415

    (tmp_path / "cloud").mkdir()
    modal.CLOUD.reset(tmp_path / "cloud")
    yield modal
    del sys.modules["modal"]


@pytest.fixture
async def daytona(tmp_path: Path) -> AsyncIterator[FakeDaytona]:
    (tmp_path / "cloud").mkdir()
    async with running_daytona(tmp_path / "cloud") as fake:
        yield fake


@pytest.fixture
def singularity_options(tmp_path: Path) -> dict[str, Any]:
    for program in ("bwrap", "nsenter"):
        if shutil.which(program, path=PATH) is None:
            pytest.skip(f"{program} is not installed")
    if os.getuid():
        pytest.skip("the stand-in for apptainer enters namespaces, which takes root")
    return {
        "program": str(apptainer(tmp_path / "apptainer")),
        "singularity_image": "docker://debian",
        "container_memory": 0,
        "container_cpu": 0.0,
        "sandbox_dir": str(tmp_path / "sandboxes"),
    }


@pytest.fixture
async def machine(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[PooledEnvironment]:
    """A session on the backend named by the parameter, in an empty directory."""
    backend = request.param
    async with AsyncExitStack() as stack:
        if backend == "local":
            (tmp_path / "work").mkdir()
            yield await stack.enter_async_context(local_environment(tmp_path / "work"))
            return
        if backend == "daytona":
            (tmp_path / "cloud").mkdir()
            fake = await stack.enter_async_context(running_daytona(tmp_path / "cloud"))
            options = daytona_options(fake)
        else:
            options = options_for(backend, request, tmp_path)
        if backend == "ssh":  # everybody has the same home there
            (tmp_path / "work").mkdir()
        cwd = str(tmp_path / "work")
        yield await stack.enter_async_context(environment(backend, options, cwd=cwd))


def options_for(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if backend == "ssh":
        return {**request.getfixturevalue("sshd").options}
    if backend == "singularity":
        return {**request.getfixturevalue("singularity_options")}
    request.getfixturevalue("modal_sdk")
    return {"modal_image": "debian", "home": str(tmp_path / "home")}
