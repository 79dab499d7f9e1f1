"""The webhook receiver, put together from a running app."""

from collections.abc import Collection
from functools import partial

from hermes.app.build import App
from hermes.app.doors import DoorContext, listens
from hermes.app.options import AppOptions
from hermes.app.settings import platform_section
from hermes.config.loader import LoadedConfig
from hermes.control.admission.routing import named, route_facts
from hermes.control.delivery.home_channel import home_channel
from hermes.control.webhooks.receiver import PLATFORM, ReceiverParts, WebhookReceiver
from hermes.control.webhooks.routes import HookRoute, HookRoutes, RouteRules, read_routes
from hermes.domain.errors import HermesError
from hermes.domain.inbound import ChatKind
from hermes.domain.outbound import Target
from hermes.domain.profile import DEFAULT_AGENT
from hermes.entry.http.door import WebhookDoor
from hermes.entry.http.listener import webhook_app
from hermes.entry.http.server import HttpServer
from hermes.entry.http.settings import WebhookSettings, webhook_settings
from hermes.execution.webhook_effects import GhComments, HookScripts
from hermes.state.webhook_routes import HookRouteFile

PORT_KEY = "platforms.webhook.extra.port (WEBHOOK_PORT)"


def enabled(loaded: LoadedConfig, _options: AppOptions) -> bool:
    return listens(loaded, PLATFORM)


def check(loaded: LoadedConfig, options: AppOptions) -> None:
    settings = webhook_settings(platform_section(loaded, PLATFORM))
    read_routes(settings.routes, _rules(options, settings, _scripts(options)))


def open_door(context: DoorContext) -> WebhookDoor:
    settings = webhook_settings(platform_section(context.app.loaded, PLATFORM))
    receiver = _receiver(context, settings)
    server = HttpServer(
        webhook_app(receiver, settings), settings.host, settings.port, port_key=PORT_KEY
    )
    return WebhookDoor(server, receiver, context.app.clock, context.group)


async def _deliver(app: App, target: Target, text: str, entry_id: str) -> None:
    """Send a result to a chat of this gateway, without a chat to the home channel."""
    if not target.chat_id:
        home = await home_channel(app.ledger, app.settings(), target.platform)
        if home is None:
            raise HermesError(
                f"{target.platform} has no home channel.",
                hint="Send /sethome in a chat there, or name one in deliver_extra.chat_id.",
            )
        target = home
    await app.gateway.doors.of(target.platform).deliver(target, text, entry_id)


def _receiver(context: DoorContext, settings: WebhookSettings) -> WebhookReceiver:
    app, options = context.app, context.app.options
    secrets = app.agent(DEFAULT_AGENT).secret_names
    scripts = _scripts(options, secrets)
    rules = _rules(options, settings, scripts)

    async def agent_of(route: HookRoute, text: str) -> str:
        facts = route_facts(
            platform=(PLATFORM,), chat_id=(route.name,), chat_type=(ChatKind.WEBHOOK.value,)
        )
        owner = named(route.agent) if route.agent else ""
        return (await context.router.route(facts, owner=owner, text=text)).agent

    return WebhookReceiver(
        ReceiverParts(
            ledger=app.ledger,
            gateway=app.gateway,
            clock=app.clock,
            group=context.group,
            routes=HookRoutes(
                read_routes(settings.routes, rules), HookRouteFile(options.home), rules
            ),
            scripts=scripts.run,
            deliver=partial(_deliver, app),
            comment=GhComments(options.environ, secrets).comment,
            agent_of=agent_of,
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
