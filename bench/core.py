"""The subject: the whole core in this process, from `Gateway.submit` to the last event."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.bare import Times
from hermes.app.build import App, open_app
from hermes.app.options import AppOptions
from hermes.config.paths import HermesHome
from hermes.domain.events import TextDelta, TurnFinished
from hermes.domain.ids import new_id
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.profile import DEFAULT_AGENT
from hermes.domain.turn import TurnState

__all__ = ["Core", "TurnFailed", "clean_environ", "make_home", "open_core"]


def make_home(folder: Path, base_url: str, backend: str = "local") -> HermesHome:
    """Make a home whose model is the fake one."""
    home = folder / "home"
    (folder / "work").mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    home.joinpath("config.yaml").write_text(
        f"model:\n  provider: custom\n  base_url: {base_url}\n  api_key: bench\n"
        f"  default: fake-1\nterminal:\n  backend: {backend}\n",
        encoding="utf-8",
    )
    return HermesHome(root=home)


def clean_environ(home: HermesHome) -> dict[str, str]:
    """Return an environment with nothing in it that could change the result."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(home.root), "HERMES_HOME": str(home.root)}


@asynccontextmanager
async def open_core(
    folder: Path, base_url: str, *, backend: str = "local", fresh: bool = True
) -> AsyncIterator["Core"]:
    """Open the core on a home in `folder`; a `fresh` one is made first."""
    home = HermesHome(root=folder / "home")
    if fresh:
        home = make_home(folder, base_url, backend)
    options = AppOptions(home=home, environ=clean_environ(home), cwd=folder / "work")
    async with open_app(options) as app:
        yield Core(app)


class TurnFailed(Exception):
    """A turn of a bench did not end with an answer."""


class Core:
    """Asks questions the way a door does."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def ask(self, chat: str, text: str = "hello", agent_id: str = DEFAULT_AGENT) -> Times:
        """Put a message into a chat and follow its turn; raise if it does not end well."""
        gateway = self.app.gateway
        message = InboundMessage(
            platform="bench",
            account="bench",
            native_id=new_id("bench"),
            chat=Chat(kind=ChatKind.PRIVATE, id=chat),
            sender=Sender(id="u"),
            text=text,
            sent_at=0.0,
        )
        start = time.perf_counter()
        first = 0.0
        tokens = 0
        finished: TurnFinished | None = None
        ticket = await gateway.submit(agent_id, message)
        async for event in (await ticket.stream()).follow():
            if isinstance(event, TextDelta):
                first = first or time.perf_counter() - start
                tokens += 1
            elif isinstance(event, TurnFinished):
                finished = event
        end = time.perf_counter() - start
        if finished is None or finished.outcome is not TurnState.DONE:
            raise TurnFailed(finished and finished.error)
        return Times(first_token=first * 1000, end=end * 1000, tokens=tokens)
