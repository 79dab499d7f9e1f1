"""A model client wired to a loopback server, with a clock that never waits."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fakes.model import FakeModelServer
from hermes.domain.messages import UserMessage
from hermes.domain.ports.model import ModelRequest
from hermes.domain.settings.models import ModelTimeouts
from hermes.models.client import ModelClient, RetryPolicy
from hermes.models.credentials import ProviderKey
from hermes.models.providers import ApiMode
from hermes.models.routes import ModelRoute
from hermes.models.transport import Transport

__all__ = ["Heard", "InstantClock", "ask", "client_of", "route_to"]

QUICK = ModelTimeouts(connect=5.0, first_byte=5.0, idle=5.0, total=10.0)


class InstantClock:
    """Sleeping takes no time and is remembered."""

    def __init__(self) -> None:
        self.time = 1_700_000_000.0
        self.slept: list[float] = []
        self.advance_on_read = 0.0
        """Time passes by this much whenever somebody looks at it."""

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        self.time += self.advance_on_read
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Heard:
    """Writes down everything a listener hears."""

    def __init__(self, *, final: bool = False) -> None:
        self.log: list[tuple[str, str]] = []
        self._final = final
        """Arguments of calls are told to somebody at once."""

    def arguments(self, number: int) -> str:
        return "".join(text for what, text in self.log if what.startswith(f"call:{number}:"))

    @property
    def text(self) -> str:
        """What a person would see now: restarts take earlier text back."""
        return self._since_restart("text")

    @property
    def reasoning(self) -> str:
        return self._since_restart("reasoning")

    @property
    def notices(self) -> list[str]:
        return [what.partition(":")[2] for what, _ in self.log if what.startswith("notice:")]

    @property
    def restarts(self) -> int:
        return sum(what == "restart" for what, _ in self.log)

    def _since_restart(self, kind: str) -> str:
        pieces: list[str] = []
        for what, text in self.log:
            if what == "restart":
                pieces = []
            elif what == kind:
                pieces.append(text)
        return "".join(pieces)

    def on_text(self, text: str) -> None:
        self.log.append(("text", text))

    def on_reasoning(self, text: str) -> None:
        self.log.append(("reasoning", text))

    def on_call(self, number: int, name: str, arguments: str) -> bool:
        self.log.append((f"call:{number}:{name}", arguments))
        return self._final

    def on_notice(self, code: str, text: str) -> None:
        self.log.append((f"notice:{code}", text))

    def on_restart(self) -> None:
        self.log.append(("restart", ""))


def route_to(
    server: FakeModelServer, mode: ApiMode = ApiMode.CHAT_COMPLETIONS, **changes: Any
) -> ModelRoute:
    anthropic = mode is ApiMode.ANTHROPIC_MESSAGES
    route = ModelRoute(
        provider="fake",
        model="fake-1",
        base_url=server.origin if anthropic else server.base_url,
        api_mode=mode,
        auth="x-api-key" if anthropic else "bearer",
        keys=(ProviderKey(secret="key-one", label="FAKE_API_KEY"),),
        key_names=("FAKE_API_KEY",),
        timeouts=QUICK,
        notice=60.0,
    )
    return msgspec.structs.replace(route, **changes)


class LoneClient(ModelClient):
    """A client with connections of its own."""

    def __init__(
        self, routes: Sequence[ModelRoute], clock: InstantClock, policy: RetryPolicy | None
    ) -> None:
        self._own = Transport()
        super().__init__(routes, clock=clock, transport=self._own, policy=policy)

    async def close(self) -> None:
        await self._own.close()


def client_of(
    *routes: ModelRoute, clock: InstantClock | None = None, policy: RetryPolicy | None = None
) -> LoneClient:
    return LoneClient(routes, clock or InstantClock(), policy)


def ask(text: str = "hi", **fields: Any) -> ModelRequest:
    messages = fields.pop("messages", (UserMessage(content=text),))
    return ModelRequest(system=fields.pop("system", "You help."), messages=messages, **fields)
