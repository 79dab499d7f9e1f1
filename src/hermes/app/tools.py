"""The tools of an agent at a door, with policy composed around them.

Guarded(Approved(Budgeted(Journaled(registry))))
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.wrappers import Approved, Budgeted, Guarded, Journaled
from hermes.control.approvals import ApprovalDesk, ApprovalSettings, Judge, LedgerGate, Mode
from hermes.domain.events import TurnStream
from hermes.domain.ports.approval import ActionPolicy
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.tools import ToolRunner

__all__ = ["YOLO", "ToolShelf"]

YOLO = "yolo"
"""Where a session remembers that nothing is to be asked in it."""


NOBODY_THERE = frozenset({"cron", "webhook"})
"""Doors without a person who could be asked."""


class ToolShelf(Struct, kw_only=True):
    """Hands out tools; registries are shared by the sessions of an agent."""

    ledger: Ledger
    clock: Clock
    policy: ActionPolicy
    desk: ApprovalDesk
    approvals: ApprovalSettings
    toolsets: Callable[[AgentProfile, str], tuple[str, ...]] = lambda profile, _: profile.toolsets
    """(agent, door) -> the toolsets it has there."""
    judge: Callable[[AgentProfile, Session], Judge] | None = None
    """Makes the second opinion of `approvals.mode: smart`."""
    seconds: float = 900.0
    registries: dict[tuple[tuple[str, ...], tuple[str, ...]], ToolRegistry] = {}

    def registry(self, profile: AgentProfile, source: str = "cli") -> ToolRegistry:
        """Return the plain tools of an agent at a door."""
        toolsets = self.toolsets(profile, source)
        key = (toolsets, profile.disabled_toolsets)
        found = self.registries.get(key)
        if found is None:
            found = self.registries[key] = ToolRegistry(
                toolsets, profile.disabled_toolsets, secret_names=profile.secret_names
            )
        return found

    def for_turn(self, profile: AgentProfile, session: Session, stream: TurnStream) -> ToolRunner:
        """Return the tools for one turn."""
        settings = replace(
            self.approvals,
            can_ask=self.approvals.can_ask and session.source not in NOBODY_THERE,
            yolo=self.approvals.yolo or bool(session.state.get(YOLO)),
        )
        gate = LedgerGate(
            ledger=self.ledger,
            policy=self.policy,
            desk=self.desk,
            settings=settings,
            stream=stream,
            clock=self.clock,
            judge=self._judge(profile, session),
        )
        journaled = Journaled(
            self.registry(profile, session.source), self.ledger, self.clock, self.seconds
        )
        return Guarded(Approved(Budgeted(journaled), gate))

    def _judge(self, profile: AgentProfile, session: Session) -> Judge | None:
        if self.judge is None or self.approvals.mode != Mode.SMART:
            return None
        return self.judge(profile, session)
