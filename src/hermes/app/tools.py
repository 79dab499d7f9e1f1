"""The tools of an agent at a door, with policy composed around them.

Guarded(Approved(Budgeted(Recorded(Journaled(registry)))))
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.fetch import PageFetcher
from hermes.agent.mcp.servers import McpServers
from hermes.agent.side_calls import Sight
from hermes.agent.tools.ask_agent import ASK_AGENT
from hermes.agent.tools.define import Tool
from hermes.agent.tools.media.image_generate import IMAGE_SERVICE
from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.wrappers import Approved, Budgeted, Guarded, Journaled, Recorded
from hermes.control.approvals import ApprovalAnswers, Judge, LedgerGate
from hermes.control.child_turns import PLATFORM as CHILD
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnJob
from hermes.domain.ports.approval import ActionPolicy
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger, SearchQuery
from hermes.domain.profile import AgentProfile
from hermes.domain.session import YOLO, SearchHit, Session
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import Need, ToolContext, TurnTools
from hermes.domain.turn import TurnOptions
from hermes.execution.browser.browsers import Browsers
from hermes.state.checkpoints import Checkpoints

log = logging.getLogger(__name__)

NOBODY_THERE = frozenset({"cron", CHILD, "webhook"})
"""Doors without a person who could be asked."""
UNTRUSTED = frozenset({"webhook"})
"""Doors where strangers write: they get no tools of MCP servers unless these are named."""
NO_MCP = "no_mcp"
"""Stands among the toolsets of a door that is to have no MCP server."""
EVERYTHING_SEEN = frozenset({"cli", "cron"})
"""Doors of the operator, whose turns may search the conversations of everybody."""


class AgentTools(Struct, kw_only=True):
    """Hands out tools; registries are shared by the sessions of an agent."""

    ledger: Ledger
    clock: Clock
    policy: ActionPolicy
    answers: ApprovalAnswers
    settings: LiveSettings
    can_ask: bool = False
    """Whether a person at the door can answer."""
    toolsets: Callable[[AgentProfile, str], tuple[str, ...]] = lambda profile, _: profile.toolsets
    """(agent, door) -> the toolsets it has there."""
    judge: Callable[[AgentProfile, Session], Judge] | None = None
    """Makes the second opinion of `approvals.mode: smart`."""
    sight: Callable[[AgentProfile, Session], Sight] | None = None
    """Makes what looks at pictures."""
    browsers: Browsers | None = None
    redact: Callable[[str], str] = str
    checkpoints: Checkpoints | None = None
    seconds: float = 900.0
    fetcher: PageFetcher = PageFetcher()
    variable: Callable[[str], str | None] = lambda _name: None
    """Reads `.env` and the environment, for agents that have no scope of their own."""
    mcp: Callable[[AgentProfile], McpServers] | None = None
    """Agent -> its MCP servers."""
    extra: dict[str, tuple[Tool, ...]] = {}
    """Agent -> tools of its MCP servers, as far as they are known."""
    registries: dict[tuple[Any, ...], ToolRegistry] = {}

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
            if options.own_tools is not None and CHILD not in self.settings().platform_toolsets:
                toolsets = options.own_tools  # those of whoever asked
            granted -= set() if options.children else {Need.SPAWN}
        names = profile.secret_names
        if self.settings().image_gen.base_url:
            names |= {IMAGE_SERVICE}
        if self.settings().ask_agent.enabled and self.settings().ask_agent.agents:
            names |= {ASK_AGENT}
            if source not in UNTRUSTED and (options is None or options.own_tools is None):
                toolsets = (*toolsets, ASK_AGENT)
        extra = self.extra.get(profile.id, ())
        key = (toolsets, profile.disabled_toolsets, granted, names, id(extra))
        found = self.registries.get(key)
        if found is None:
            found = self.registries[key] = ToolRegistry(
                toolsets,
                profile.disabled_toolsets,
                secret_names=names,
                granted=granted,
                extra=extra,
            )
        return found

    def _toolsets(self, profile: AgentProfile, source: str) -> tuple[str, ...]:
        """Return what is configured; without a word about MCP servers all of them are meant."""
        chosen = self.toolsets(profile, source)
        if source in UNTRUSTED or NO_MCP in chosen or any(n.startswith("mcp-") for n in chosen):
            return tuple(name for name in chosen if name != NO_MCP)
        extra = self.extra.get(profile.id, ())
        return (*chosen, *dict.fromkeys(tool.spec.toolset for tool in extra))

    async def for_turn(self, job: TurnJob, session: Session) -> TurnTools:
        await self.refresh(job.profile)
        lent, options = job.capabilities.granted, job.brief.options
        registry = self.registry(job.profile, session.source, lent, options)
        journaled = Journaled(registry, self.ledger, self.clock, self.seconds)
        gate, scope = self._gate(job, session), job.profile.scope
        recorded = Recorded(journaled, partial(self._record, session.cwd or "", job.profile))
        return TurnTools(
            runner=Guarded(
                Approved(Budgeted(recorded), gate), self.settings().tool_loop_guardrails
            ),
            capabilities=replace(
                job.capabilities,
                ask=gate.question if gate.can_ask else None,
                search=self._search,
                fetch=self.fetcher.fetch,
                browse=self.browsers.page if self.browsers else None,
                redact=self.redact,
                look=self.sight(job.profile, session) if self.sight else None,
                settings=self.settings,
                variable=scope.variable if scope is not None else self.variable,
            ),
        )

    async def _record(
        self, cwd: str, profile: AgentProfile, _context: ToolContext, tool: str
    ) -> None:
        """Record the project, where its files are on this machine."""
        folder = Path(cwd or profile.workspace)
        if (
            self.checkpoints is None
            or not self.checkpoints.enabled
            or profile.backend not in {"local", "sandbox"}
            or folder in {Path("/"), await asyncio.to_thread(Path.home)}
            or not await asyncio.to_thread(folder.is_dir)
        ):
            return
        try:
            await self.checkpoints.take(str(folder), f"before {tool}")
        except HermesError as error:
            log.warning("no checkpoint: %s", error.message)

    async def refresh(self, profile: AgentProfile) -> None:
        """Take up what the MCP servers of an agent offer now."""
        extra = await self.mcp(profile).tools() if self.mcp else ()
        if extra is not self.extra.get(profile.id, ()):
            self.extra[profile.id] = extra
            self.registries.clear()

    def _own(self, source: str) -> frozenset[Need]:
        ask = {Need.ASK} if self.can_ask and source not in NOBODY_THERE else set()
        browse = {Need.BROWSE} if self.browsers and self.browsers.available else set()
        return frozenset({Need.SEARCH, Need.FETCH, Need.SPAWN} | ask | browse)

    def _gate(self, job: TurnJob, session: Session) -> LedgerGate:
        return LedgerGate(
            ledger=self.ledger,
            policy=self.policy,
            answers=self.answers,
            settings=self.settings,
            stream=job.stream,
            clock=self.clock,
            can_ask=Need.ASK in self._own(session.source),
            yolo=bool(session.state.get(YOLO))
            or (session.source == CHILD and self.settings().delegation.subagent_auto_approve),
            judge=self.judge(job.profile, session) if self.judge else None,
        )

    async def _search(self, context: ToolContext, text: str, limit: int) -> list[SearchHit]:
        """Search what the person may see for whom the turn works: at the terminal, everything."""
        session = await self.ledger.session(context.session_id)
        own = session is not None and session.source not in EVERYTHING_SEEN
        query = SearchQuery(
            text=text,
            agent_id=context.agent_id,
            source=session.source if session and own else None,
            user_id=session.user_id if session and own else None,
            exclude_session_ids=(context.session_id,),
            limit=limit,
        )
        return await self.ledger.search(query)
