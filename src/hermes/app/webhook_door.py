"""The webhook receiver, put together from a running app."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from hermes.app.access import platform_section
from hermes.app.doors import DoorContext
from hermes.app.options import AppOptions
from hermes.app.serve_context import configured_homes
from hermes.config.loader import LoadedConfig
from hermes.control.delivery.home_channel import home_channel
from hermes.control.supervision.liveness import AdapterHealth, AdapterState
from hermes.control.webhooks.receiver import PLATFORM, DeskParts, WebhookDesk
from hermes.control.webhooks.routes import RouteBook, RouteRules, read_routes
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnStream
from hermes.domain.inbound import InboxEntry
from hermes.domain.outbound import Target
from hermes.entry.http.server import HttpServer
from hermes.entry.http.webhooks import WebhookSettings, webhook_app, webhook_settings
from hermes.execution.webhook_effects import GhComments, HookScripts
from hermes.state.webhook_routes import HookRouteFile

__all__ = ["WebhookDoor", "check", "open_door"]

log = logging.getLogger(__name__)

PORT_KEY = "platforms.webhook.extra.port (WEBHOOK_PORT)"


def check(loaded: LoadedConfig, options: AppOptions) -> None:
    """Raise `ConfigError` if the receiver cannot work as configured."""
    settings = webhook_settings(platform_section(loaded, PLATFORM))
    read_routes(settings.routes, _rules(options, settings, _scripts(options)))


def open_door(context: DoorContext) -> "WebhookDoor":
    """Return the receiver of a gateway; it does not listen yet."""
    return WebhookDoor(context)


class WebhookDoor:
    """Takes deliveries until it is closed."""

    platform = PLATFORM

    def __init__(self, context: DoorContext) -> None:
        self._context = context
        self._clock = context.app.clock
        self._settings = webhook_settings(platform_section(context.app.loaded, PLATFORM))
        self._desk = _desk(context, self._settings)
        self._server = HttpServer(
            webhook_app(self._desk, self._settings),
            self._settings.host,
            self._settings.port,
            port_key=PORT_KEY,
        )
        self._serving: asyncio.Task[None] | None = None
        self._since = self._clock.now()

    def on_turn(self, stream: TurnStream, entry: InboxEntry | None) -> None:
        """Follow the turns of deliveries."""
        self._desk.on_turn(stream, entry)

    async def before_recovery(self) -> None:
        """Nothing to do: open deliveries are looked over afterwards."""

    async def after_recovery(self) -> None:
        """Have what an earlier process left brought to its end."""
        await self._desk.recover()

    def services(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs beside the receiver."""
        return (self._desk.run(),)

    async def listen(self) -> None:
        """Start taking deliveries; raise if the port cannot be had."""
        await self._server.bind()
        self._serving = self._context.group.create_task(self._server.run(), name="webhooks")
        await self._server.started.wait()
        self._since = self._clock.now()
        place = f"http://{self._settings.host}:{self._server.port}"
        log.info("webhooks are taken at %s/webhooks/<route>", place)

    def drain(self) -> None:
        """Stop listening: senders try again later."""
        if self._serving is not None:
            self._serving.cancel()

    async def close(self, seconds: float) -> None:
        """Wait until what was being taken in has been answered."""
        if self._serving is not None:
            await asyncio.wait([self._serving], timeout=seconds)

    def health(self) -> AdapterHealth:
        """Say whether it listens."""
        serving = self._serving is not None and not self._serving.done()
        idle = AdapterState.CONNECTING if self._serving is None else AdapterState.STOPPED
        return AdapterHealth(
            name=PLATFORM,
            state=AdapterState.CONNECTED if serving else idle,
            since=self._since,
            account=f"{self._settings.host}:{self._server.port}",
            last_alive=self._clock.now() if serving else None,
        )


class _Delivery:
    """Sends results to the chats of this gateway."""

    def __init__(self, context: DoorContext) -> None:
        self._context = context
        self._homes = configured_homes(context.app.loaded)

    async def deliver(
        self,
        platform: str,
        chat_id: str | None,
        thread_id: str | None,
        text: str,
        *,
        entry_id: str,
    ) -> None:
        """Send a text and return when it is there."""
        if platform not in self._context.platforms:
            raise HermesError(
                f"`{platform}` is not a chat platform that this gateway is connected to.",
                hint=f"Connected: {', '.join(self._context.platforms) or 'none'}.",
            )
        target = await self._target(platform, chat_id, thread_id)
        await self._context.deliver(target, text, entry_id)

    async def _target(self, platform: str, chat_id: str | None, thread_id: str | None) -> Target:
        if chat_id is not None:
            return Target(platform=platform, account="", chat_id=chat_id, thread_id=thread_id)
        home = await home_channel(self._context.app.ledger, platform, self._homes)
        if home is None:
            raise HermesError(
                f"{platform} has no home channel.",
                hint="Send /sethome in a chat there, or name one in deliver_extra.chat_id.",
            )
        return home.target


def _desk(context: DoorContext, settings: WebhookSettings) -> WebhookDesk:
    app, options = context.app, context.options
    secrets = app.profile.secret_names
    scripts = _scripts(options, secrets)
    rules = _rules(options, settings, scripts)
    return WebhookDesk(
        DeskParts(
            ledger=app.ledger,
            gateway=app.gateway,
            clock=app.clock,
            routes=RouteBook(
                read_routes(settings.routes, rules), HookRouteFile(options.home), rules
            ),
            scripts=scripts,
            deliver=_Delivery(context),
            comments=GhComments(options.environ, secrets),
            agent_id=app.profile.id,
            rate_limit=settings.rate_limit,
            script_timeout=settings.script_timeout_seconds,
        )
    )


def _scripts(options: AppOptions, secrets: Collection[str] = ()) -> HookScripts:
    return HookScripts(options.home.scripts_dir, options.environ, secrets)


def _rules(options: AppOptions, settings: WebhookSettings, scripts: HookScripts) -> RouteRules:
    return RouteRules(
        secret=settings.secret,
        loopback=settings.loopback,
        home=options.home.root,
        check_script=scripts.check,
    )
