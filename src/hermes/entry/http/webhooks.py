"""The webhook receiver: its settings, and its routes on the machinery for raw requests.

    POST /webhooks/<route>   POST /p/<agent>/webhooks/<route>   GET /health

A delivery goes to the `WebhookReceiver`; the answer is JSON.
"""

import logging
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hermes.config.environment import is_loopback
from hermes.control.webhooks.intake import HookAnswer, HookRefused, HookRequest
from hermes.control.webhooks.receiver import WebhookReceiver
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.ports.platform import ListenerCall, ListenerHandler, ListenerReply
from hermes.entry.http.errors import Problem
from hermes.entry.http.listener import receiver_app
from hermes.entry.http.request import AsgiApp


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """Where the receiver listens and what it takes."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8644
    secret: str = ""
    """For routes that have none of their own."""
    rate_limit: Annotated[int, Meta(ge=0)] = 30
    """Deliveries a minute and route; 0: no limit."""
    max_body_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    script_timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    routes: dict[str, Any] = {}

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the receiver."""
        return is_loopback(self.host)

    @property
    def base_url(self) -> str:
        """The address by which this machine reaches the receiver."""
        host = "127.0.0.1" if self.host in {"", "0.0.0.0", "::"} else self.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def webhook_settings(section: Mapping[str, Any]) -> WebhookSettings:
    """Read the section; everything that belongs to other parts of the gateway is left alone."""
    known = {name: section[name] for name in WebhookSettings.__struct_fields__ if name in section}
    try:
        return msgspec.convert(
            {name: value for name, value in known.items() if value is not None},
            WebhookSettings,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"platforms.webhook cannot be used: {error}.",
            hint="Correct it in config.yaml; see docs/how-to/webhooks.md.",
        ) from None


log = logging.getLogger(__name__)


def webhook_app(receiver: WebhookReceiver, settings: WebhookSettings) -> AsgiApp:
    async def find(method: str, path: str) -> ListenerHandler:
        if path == "/health":
            if method not in {"GET", "HEAD"}:
                raise HookRefused(405, "Use GET.")
            return health
        route = await receiver.route(_route_name(path, receiver.agent_id))
        if method != "POST":
            raise HookRefused(405, "Use POST.")

        async def take(call: ListenerCall) -> ListenerReply:
            request = HookRequest(headers=call.headers, body=call.body)
            return _reply(await receiver.receive(route, request))

        return take

    async def health(_call: ListenerCall) -> ListenerReply:
        return _reply(HookAnswer(status=200, body={"status": "ok", "platform": "webhook"}))

    return receiver_app(find, _refusal, settings.max_body_bytes)


def _route_name(path: str, agent_id: str) -> str:
    match path.split("/"):
        case ["", "webhooks", name] if name:
            return name
        case ["", "p", agent, "webhooks", name] if name and agent == agent_id:
            return name
    raise HookRefused(404, "There is no such route.")


def _refusal(error: HermesError | None) -> ListenerReply:
    if isinstance(error, Problem):
        error = HookRefused(error.status, error.message)
    elif error is None:
        error = HookRefused(500, "Something unexpected happened.")
    elif not isinstance(error, HookRefused):
        log.error("a webhook delivery was not taken: %s", error.message)
        error = HookRefused(503, "Not now; send it again.", retry_after=30)
    return _reply(error.answer())


def _reply(answer: HookAnswer) -> ListenerReply:
    wait = answer.retry_after
    return ListenerReply(
        status=answer.status,
        body=msgspec.json.encode(answer.body),
        media_type="application/json",
        headers={} if wait is None else {"retry-after": str(wait)},
    )
