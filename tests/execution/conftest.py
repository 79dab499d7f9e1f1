from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes import docker_engine
from fakes.boxes import Boxes
from hermes.execution.backends.sandbox import backend as sandbox


@pytest.fixture
def bubblewrap() -> None:
    reason = sandbox.unavailable()
    if reason:
        pytest.skip(reason)


@pytest.fixture
async def boxes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Boxes]:
    """Sessions on the backend named by the parameter: small limits, no network."""
    backend = request.param
    (tmp_path / "hermes").mkdir(mode=0o700)
    (tmp_path / "hermes/.env").write_text("OPENAI_API_KEY=sk-host-secret\n")
    secrets = {"OPENAI_API_KEY": "sk-host-secret", "SOME_TOKEN": "sk-host-secret"}
    if backend == "docker":
        env = {**secrets, "DOCKER_HOST": request.getfixturevalue("engine")}
        made = Boxes(
            "docker",
            tmp_path / "hermes",
            base_env=env,
            docker_image=docker_engine.IMAGE,
            docker_network=False,
            max_processes=64,
            container_memory=256,
        )
    else:
        request.getfixturevalue("bubblewrap")
        made = Boxes(
            "sandbox", tmp_path / "hermes", base_env=secrets, max_processes=64, container_memory=256
        )
    yield made
    await made.pool.close()
