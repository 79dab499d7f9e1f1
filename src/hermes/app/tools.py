"""The tools of an agent at a door, with policy composed around them.

Guarded(Approved(Budgeted(Recorded(Journaled(registry)))))
"""

import asyncio
import logging
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.fetch import PageFetcher
from hermes.agent.side_calls import SecondOpinion, ServerCalls, Sight
from hermes.agent.tools.ask_agent import ASK_AGENT
from hermes.agent.tools.define import Tool
from hermes.agent.tools.media.image_generate import IMAGE_SERVICE
from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.wrappers import Approved, Budgeted, Guarded, Journaled, Recorded
from hermes.app.agents import AgentServers
from hermes.app.options import AppOptions
from hermes.app.settings import toolsets_of
from hermes.control.approvals import ApprovalAnswers, LedgerGate
from hermes.control.child_turns import PLATFORM as CHILD
from hermes.domain.approvals import Verdict
from hermes.domain.errors import HermesError
from hermes.domain.events import Notice, NoticeLevel, TurnJob
from hermes.domain.ports.approval import ActionPolicy
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger, SearchQuery
from hermes.domain.profile import AgentProfile, use_profile
from hermes.domain.session import YOLO, SearchHit, Session
from hermes.domain.settings.agent import Security
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import Need, ToolContext, TurnTools
from hermes.domain.turn import TurnOptions
from hermes.execution.browser.browsers import Browsers
from hermes.models.registry import ModelRegistry
from hermes.state.checkpoints import Checkpoints

log = logging.getLogger(__name__)

NOBODY_THERE = frozenset({"cron", CHILD, "webhook"})
"""Doors without a person who could be asked."""
UNTRUSTED = frozenset({"webhook"})
"""Doors where strangers write: they get no tools of MCP servers unless these are named."""
NO_MCP = "no_mcp"
"""Stands among the toolsets of a door that is to have no MCP server."""
CALL_SECONDS = 900.0
POLICY = "hermes.execution.policy.host"
EVERYTHING_SEEN = frozenset({"cli", "cron"})
"""Doors of the operator, whose turns may search the conversations of everybody."""


class ToolSources(Struct, frozen=True, kw_only=True):
    """What the tools of a process are made of."""

    options: AppOptions
    ledger: Ledger
    models: ModelRegistry
    answers: ApprovalAnswers
    settings: LiveSettings
    redact: Callable[[str], str]
    variable: Callable[[str], str | None]
    """Reads `.env` and the environment, for agents that have no scope of their own."""
    clock: Clock


def browser_security(settings: LiveSettings) -> Security:
    """Return what counts for the browser, which may reach more by a setting of its own."""
    security, browser = settings().security, settings().browser
    return replace(
        security, allow_private_urls=security.allow_private_urls or browser.allow_private_urls
    )


class _LazyPolicy:
    """The policy of the host; the first call that is judged loads its rules: they take a while."""

    def __init__(self, *sources: Any) -> None:
        @cache
        def load() -> ActionPolicy:
            return cast("ActionPolicy", import_module(POLICY).HostPolicy(*sources))

        self.load = load

    async def judge(self, *call: Any, **known: Any) -> Verdict:
        return await self.load().judge(*call, **known)

    def note(self, *call: Any) -> None:
        self.load().note(*call)


class AgentTools:
    """Hands out tools; registries are shared by the sessions of an agent."""

    def __init__(self, sources: ToolSources) -> None:
        home, settings = sources.options.home, sources.settings
        self._sources = sources
        self._asked = (sources.ledger, sources.models, sources.clock)
        """What a question to a model beside the turn needs."""
        self._policy = _LazyPolicy(settings, sources.options.environ, home.root)
        self._fetcher = PageFetcher(security=lambda: settings().security, redact=sources.redact)
        self.servers = AgentServers(
            settings, home, sources.redact, partial(ServerCalls, *self._asked)
        )
        self.browsers = Browsers(
            lambda: settings().browser,
            PageFetcher(security=partial(browser_security, settings)).address_of,
            sources.clock,
        )
        self.checkpoints = Checkpoints(
            home.root / "checkpoints" / "store", lambda: settings().checkpoints
        )
        self._extra: dict[str, tuple[Tool, ...]] = {}
        """Agent -> tools of its MCP servers, as far as they are known."""
        self._registries: dict[tuple[Any, ...], ToolRegistry] = {}
        self._told: set[tuple[str, str]] = set()

    async def close(self) -> None:
        try:
            await self.browsers.close()
        finally:
            await self.servers.close()

    @property
    def _settings(self) -> LiveSettings:
        return self._sources.settings

    def registry(
        self,
        profile: AgentProfile,
        source: str,
        lent: frozenset[Need] = frozenset(),
        options: TurnOptions | None = None,
    ) -> ToolRegistry:
        """Return the plain tools of an agent at a door that has these capabilities beside ours."""
        toolsets, granted = self._toolsets(profile, source), self._own(source) | lent
        if source == CHILD:
            options = options or TurnOptions()
            if options.own_tools is not None and CHILD not in self._settings().platform_toolsets:
                toolsets = options.own_tools  # those of whoever asked
            granted -= set() if options.children else {Need.SPAWN}
        names = profile.secret_names
        if self._settings().image_gen.base_url:
            names |= {IMAGE_SERVICE}
        if self._settings().ask_agent.enabled and self._settings().ask_agent.agents:
            names |= {ASK_AGENT}
            if source not in UNTRUSTED and (options is None or options.own_tools is None):
                toolsets = (*toolsets, ASK_AGENT)
        extra = self._extra.get(profile.id, ())
        key = (toolsets, profile.disabled_toolsets, granted, names, id(extra))
        found = self._registries.get(key)
        if found is None:
            found = self._registries[key] = ToolRegistry(
                toolsets,
                profile.disabled_toolsets,
                secret_names=names,
                granted=granted,
                extra=extra,
            )
        return found

    def _toolsets(self, profile: AgentProfile, source: str) -> tuple[str, ...]:
        """Return the toolsets of an agent at a door: its own, or those of the door.

        Without a word about MCP servers all of them are meant.
        """
        if profile.own_toolsets and self._sources.options.toolsets is None:
            chosen = profile.toolsets
        else:
            with use_profile(profile):
                chosen = toolsets_of(self._settings(), self._sources.options, source)
        if source in UNTRUSTED or NO_MCP in chosen or any(n.startswith("mcp-") for n in chosen):
            return tuple(name for name in chosen if name != NO_MCP)
        extra = self._extra.get(profile.id, ())
        return (*chosen, *dict.fromkeys(tool.spec.toolset for tool in extra))

    async def for_turn(self, job: TurnJob, session: Session) -> TurnTools:
        await self.refresh(job.profile)
        if session.source in EVERYTHING_SEEN:
            self._tell_absent(job)
        lent, options = job.capabilities.granted, job.brief.options
        registry = self.registry(job.profile, session.source, lent, options)
        journaled = Journaled(registry, self._sources.ledger, self._sources.clock, CALL_SECONDS)
        gate, scope = self._gate(job, session), job.profile.scope
        recorded = Recorded(journaled, partial(self._record, session.cwd or "", job))
        return TurnTools(
            runner=Guarded(
                Approved(Budgeted(recorded), gate), self._settings().tool_loop_guardrails
            ),
            capabilities=replace(
                job.capabilities,
                ask=gate.question if gate.can_ask else None,
                search=self._search,
                fetch=self._fetcher.fetch,
                browse=self.browsers.page,
                redact=self._sources.redact,
                hidden=gate.hidden,
                look=Sight(*self._asked, job.profile, session),
                settings=self._settings,
                variable=scope.variable if scope is not None else self._sources.variable,
            ),
        )

    async def _record(self, cwd: str, job: TurnJob, _context: ToolContext, tool: str) -> None:
        """Record the project, where its files are on this machine."""
        profile = job.profile
        folder = Path(cwd or profile.workspace)
        if (
            not self.checkpoints.enabled
            or profile.backend not in {"local", "sandbox"}
            or folder in {Path("/"), await asyncio.to_thread(Path.home)}
            or not await asyncio.to_thread(folder.is_dir)
        ):
            return
        try:
            await self.checkpoints.take(str(folder), f"before {tool}")
        except HermesError as error:
            text = f"There is no record of the project from before this. {error.message}"
            log.warning("no checkpoint: %s", text)
            job.stream.emit(Notice(code="no_checkpoint", text=text, level=NoticeLevel.WARNING))

    def _tell_absent(self, job: TurnJob) -> None:
        """Say once which MCP servers a person at the terminal has to do without."""
        for name, why in self.servers.of(job.profile).absent().items():
            if (name, why) not in self._told:
                self._told.add((name, why))
                text = f"The MCP server {name} is not there: {why}. Try it: hermes mcp test {name}"
                job.stream.emit(Notice(code="mcp_absent", text=text, level=NoticeLevel.WARNING))

    async def refresh(self, profile: AgentProfile) -> None:
        """Take up what the MCP servers of an agent offer now."""
        extra = await self.servers.of(profile).tools()
        if extra is not self._extra.get(profile.id, ()):
            self._extra[profile.id] = extra
            self._registries.clear()

    def _own(self, source: str) -> frozenset[Need]:
        ask = {Need.ASK} if self._sources.options.can_ask and source not in NOBODY_THERE else set()
        browse = {Need.BROWSE} if self.browsers.available else set()
        return frozenset({Need.SEARCH, Need.FETCH, Need.SPAWN} | ask | browse)

    def _gate(self, job: TurnJob, session: Session) -> LedgerGate:
        return LedgerGate(
            ledger=self._sources.ledger,
            policy=self._policy,
            answers=self._sources.answers,
            settings=self._settings,
            stream=job.stream,
            clock=self._sources.clock,
            can_ask=Need.ASK in self._own(session.source),
            yolo=bool(session.state.get(YOLO))
            or (session.source == CHILD and self._settings().delegation.subagent_auto_approve),
            judge=SecondOpinion(*self._asked, self._sources.redact, job.profile, session),
        )

    async def _search(self, context: ToolContext, text: str, limit: int) -> list[SearchHit]:
        """Search what the person may see for whom the turn works: at the terminal, everything."""
        session = await self._sources.ledger.session(context.session_id)
        own = session is not None and session.source not in EVERYTHING_SEEN
        query = SearchQuery(
            text=text,
            agent_id=context.agent_id,
            source=session.source if session and own else None,
            user_id=session.user_id if session and own else None,
            exclude_session_ids=(context.session_id,),
            limit=limit,
        )
        return await self._sources.ledger.search(query)
