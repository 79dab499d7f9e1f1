"""The API server, put together from a running app."""

from collections.abc import Mapping

import msgspec

from hermes import __version__
from hermes.agent.attachments import PictureFiles, read_attachment
from hermes.agent.fetch import PageFetcher
from hermes.agent.side_calls import PlainCalls
from hermes.agent.tools.toolsets import tools_by_toolset
from hermes.app.build import App
from hermes.app.doors import DoorContext, listens, outgoing_files
from hermes.app.options import AppOptions
from hermes.app.prompt_size import measure_prompt, tokens_of
from hermes.app.settings import platform_section
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.control.admission.routing import named
from hermes.control.delivery.files import OutgoingFiles
from hermes.control.runs.runs import PLATFORM, Runs
from hermes.control.supervision.health import GatewayPhase
from hermes.domain.errors import HermesError
from hermes.domain.inbound import RouteTerms
from hermes.domain.patterns import SafePattern
from hermes.domain.ports.clock import zone_named
from hermes.domain.ports.model import ModelInfo
from hermes.domain.profile import DEFAULT_AGENT, DEFAULT_AGENT_NAMES, AgentProfile
from hermes.domain.settings import Settings
from hermes.entry.http.api import all_endpoints
from hermes.entry.http.app import HttpApp
from hermes.entry.http.door import ApiDoor
from hermes.entry.http.endpoint import HttpContext, ServedAgent, Toolset
from hermes.entry.http.guards import KeyRing
from hermes.entry.http.server import HttpServer
from hermes.entry.http.settings import (
    HttpSettings,
    ModelAlias,
    acceptable_keys,
    http_settings,
)
from hermes.models.routes import route_provider
from hermes.state.agent_files import skill_cards
from hermes.state.jobs import JobFiles

MAX_ANSWER_FILE = 10 * 1024 * 1024


def enabled(loaded: LoadedConfig, _options: AppOptions) -> bool:
    return listens(loaded, PLATFORM)


def check(loaded: LoadedConfig, _options: AppOptions) -> None:
    http_settings(platform_section(loaded, PLATFORM))


def open_door(context: DoorContext) -> ApiDoor:
    app = context.app
    settings = http_settings(platform_section(app.loaded, PLATFORM))
    runs = Runs(
        app.gateway,
        context.group,
        redact=app.services.redact,
        max_open=app.loaded.config.gateway.api_server.max_concurrent_runs,
        sessions=app.loaded.config.sessions,
    )

    def owner_keys() -> tuple[str, ...]:
        """Return the configured keys as they are now: a changed file counts at once."""
        return acceptable_keys(platform_section(app.loaded, PLATFORM), settings.host)

    keys = KeyRing(app.ledger, app.clock, owner_keys)
    site = HttpApp(all_endpoints(), _parts(context, settings, runs), settings, keys)
    server = HttpServer(
        site,
        settings.host,
        settings.port,
        grace_seconds=settings.grace_seconds,
        messages=site.room,
    )
    return ApiDoor(server, runs, app.ledger, app.clock, context.group, app.answers)


def _parts(context: DoorContext, settings: HttpSettings, runs: Runs) -> HttpContext:
    app, home, state_file = context.app, context.app.options.home, context.state_file

    files = outgoing_files(app)

    def ready() -> Mapping[str, bool]:
        running = state_file.state.gateway_state == GatewayPhase.RUNNING.value
        return {"gateway": running, "accepting": not app.gateway.draining}

    return HttpContext(
        ledger=app.ledger,
        gateway=app.gateway,
        answers=app.answers,
        runs=runs,
        clock=app.clock,
        agents=AgentCards(app, settings),
        router=context.router,
        side_calls=PlainCalls(app.services, app.profiles),
        media=PictureFiles(home.cache_dir / "media" / PLATFORM, PageFetcher().data),
        jobs=lambda agent: JobFiles(_home(app, agent).cron_dir),
        toolsets=lambda agent: _toolsets(app, agent),
        own_tools=lambda *about: _own_tools(app, *about),
        skills=lambda agent: skill_cards(_home(app, agent).skills_dir),
        model=lambda *about: _model(app, *about),
        prompt_tokens=lambda *about: _prompt_tokens(app, *about),
        answer_file=lambda *about: _answer_file(files, *about),
        metrics=context.metrics,
        gateway_state=lambda: msgspec.to_builtins(state_file.current()),
        ready=ready,
        redact=app.services.redact,
        version=__version__,
        zone=zone_named(app.loaded.config.timezone),
        helper_patterns=tuple(map(SafePattern, settings.helper_patterns)),
    )


class AgentCards:
    """The agents that the API offers, by name, as the configuration has them now."""

    def __init__(self, app: App, settings: HttpSettings) -> None:
        self._app = app
        self._name = settings.model_name or DEFAULT_AGENT_NAMES[0]
        self._routes = settings.model_routes
        self._known: tuple[object, object, Mapping[str, ServedAgent]] | None = None

    def __call__(self) -> Mapping[str, ServedAgent]:
        settings, served = self._app.settings.general(), self._app.profiles.served
        if self._known is None or self._known[0] is not settings or self._known[1] is not served:
            self._known = settings, served, self._cards(settings, served)
        return self._known[2]

    def _cards(
        self, settings: Settings, served: Mapping[str, AgentProfile | None]
    ) -> dict[str, ServedAgent]:
        default = named(settings.default_agent)
        offered = {each: found for each, found in served.items() if not found or found.exposed}
        # Also if the default agent cannot answer: clients keep the name, and routes lead elsewhere.
        shown = default in offered or default not in served
        alias = ServedAgent(agent_id=default, name=self._name, routed=True, listed=shown)
        own = {
            each: ServedAgent(
                agent_id=each,
                name=self._name if each == default == DEFAULT_AGENT else each,
                listed=found is not None,
            )
            for each, found in offered.items()
        }
        routes = {
            name: ServedAgent(
                agent_id=named(route.agent or default),
                name=name,
                terms=RouteTerms(model=route.model, provider=_provider(name, route)),
            )
            for name, route in self._routes.items()
            if named(route.agent or default) in offered
        }
        return dict.fromkeys((self._name, *DEFAULT_AGENT_NAMES), alias) | routes | own


def _provider(alias: str, route: ModelAlias) -> str:
    own = route.base_url or route.api_key or route.key_env
    return route_provider(alias) if own else route.provider


def _home(app: App, agent_id: str) -> HermesHome:
    return HermesHome(root=app.agent(agent_id).home)


async def _model(
    app: App, agent_id: str, session_id: str | None, terms: RouteTerms | None
) -> ModelInfo:
    session = await app.ledger.session(session_id) if session_id is not None else None
    try:
        profile = app.agent(agent_id)
        profile = profile if terms is None else terms.applied(profile)
        return app.services.models.main(profile, session).info
    except HermesError:
        return ModelInfo(provider="", model="")  # without a model the turn says what is missing


async def _own_tools(
    app: App, agent_id: str, session_id: str | None, terms: RouteTerms | None
) -> Mapping[str, str]:
    session = await app.ledger.session(session_id) if session_id is not None else None
    profile = app.agent(agent_id)
    profile = profile if terms is None else terms.applied(profile)
    await app.tools.refresh(profile)
    lent = app.gateway.doors.capabilities.granted
    source = PLATFORM if session is None else session.source
    specs = app.tools.registry(profile, source, lent).specs()
    return {spec.name: spec.toolset for spec in specs}


async def _answer_file(
    files: OutgoingFiles, agent_id: str, session_id: str, path: str
) -> bytes | None:
    copy = await files.staged(agent_id, session_id, path)
    return await read_attachment(copy, MAX_ANSWER_FILE) if copy else None


async def _prompt_tokens(
    app: App, agent_id: str, session_id: str | None, own_tools: tuple[str, ...] | None
) -> int:
    session = await app.ledger.session(session_id) if session_id is not None else None
    size = await measure_prompt(app, app.agent(agent_id), PLATFORM)
    frozen = session.system_prompt if session is not None else None
    prompt = len(frozen.encode()) if frozen else sum(size.sections.values())
    used = (n for name, n in size.tools.items() if own_tools is None or name in own_tools)
    return tokens_of(prompt + sum(used))


def _toolsets(app: App, agent_id: str) -> tuple[Toolset, ...]:
    specs = app.tools.registry(app.agent(agent_id), PLATFORM).specs()
    sets = tools_by_toolset({spec.name: spec.toolset for spec in specs})
    return tuple(
        Toolset(name=name, enabled=bool(tools), tools=tuple(sorted(tools)))
        for name, tools in sorted(sets.items())
    )
