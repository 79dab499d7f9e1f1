"""A real gateway process with its API server, between a fake model and a client."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from fakes.command import Hermes
from fakes.gateway import GatewayProcess

__all__ = ["KEY", "ApiGateway", "api_config", "running_api"]

KEY = "a-key-that-is-long-enough-1234"


def api_config(**more: Any) -> dict[str, Any]:
    """Return a configuration with the API server on a free port."""
    api: dict[str, Any] = {"enabled": True, "extra": {"key": KEY, "port": 0}}
    platforms = {"api_server": api, **more.pop("platforms", {})}
    titles = {"title_generation": {"enabled": False}}
    return {"platforms": platforms, "auxiliary": titles, **more}


class ApiGateway(GatewayProcess):
    """`hermes gateway run` with an API server, which tests start, stop and kill."""

    def __init__(self, hermes: Hermes) -> None:
        super().__init__(hermes)
        self.port = 0

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self, *options: str) -> None:
        """Start and wait until the API answers."""
        self._state_file().unlink(missing_ok=True)
        await super().start(*options)
        async with asyncio.timeout(30):
            while not self._listens():  # noqa: ASYNC110 - a file says so
                await asyncio.sleep(0.02)

    def listening(self, platform: str) -> str:
        """Return where a door of the gateway listens."""
        state = json.loads(self._state_file().read_text("utf-8"))
        return f"http://{state['platforms'][platform]['account']}"

    def _state_file(self) -> Path:
        return self.hermes.home / "gateway_state.json"

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, self.log()
        if not self._state_file().exists():
            return False
        content = json.loads(self._state_file().read_text("utf-8"))
        if content["gateway_state"] != "running":
            return False
        self.port = int(content["platforms"]["api_server"]["account"].rpartition(":")[2])
        return True

    def client(self, key: str = KEY) -> httpx2.AsyncClient:
        """Return a client with a key."""
        return httpx2.AsyncClient(
            base_url=self.url, headers={"authorization": f"Bearer {key}"}, timeout=30.0
        )


@asynccontextmanager
async def running_api(
    folder: Path, model_url: str, *, variables: dict[str, str] | None = None, **config: Any
) -> AsyncIterator[ApiGateway]:
    """Run a gateway with an API server for the body of the `with`."""
    hermes = Hermes(folder, model_url, api_config(**config))
    hermes.environ.update(variables or {})
    gateway = ApiGateway(hermes)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.kill()
