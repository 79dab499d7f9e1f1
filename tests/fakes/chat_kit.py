"""A gateway with scripted turns and recorded controls, for chats and commands."""

from pathlib import Path

from fakes.scripted_turns import Script, ScriptedRunner
from hermes.control.approvals import ApprovalAnswers
from hermes.control.commands.context import CommandHost
from hermes.control.commands.controls import Compacted, ContextUse, CoreControls
from hermes.control.lanes.gateway import Gateway, GatewayParts
from hermes.domain.errors import NotFound
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import ToolSpec

__all__ = ["ChatKit", "RecordedControls"]

MODELS = ("demo", "demo-large")


class RecordedControls(CoreControls):
    """Controls without a core, that note what they were asked."""

    def __init__(self, ledger: Ledger) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._ledger = ledger

    async def set_model(self, session: Session, model: str, provider: str | None) -> Session:
        if model not in MODELS:
            raise NotFound(f"There is no model `{model}`.")
        self.calls.append(("set_model", model, provider))
        return await self._ledger.update_session(
            session.id, model=model, provider=provider or "fake"
        )

    async def compact(self, session: Session, focus: str) -> Compacted:
        self.calls.append(("compact", focus))
        return Compacted(messages=4, tokens_before=900, tokens_after=200)

    async def background(self) -> list[str]:
        return []

    def tools(self, agent_id: str, session: Session | None) -> tuple[ToolSpec, ...]:
        return (
            ToolSpec(
                name="read_file", toolset="file", description="Read a file.\nMore.", parameters={}
            ),
            ToolSpec(
                name="terminal", toolset="terminal", description="Run a command.", parameters={}
            ),
        )

    async def prompt_size(self, agent_id: str, session: Session | None) -> ContextUse:
        return ContextUse(window=1000, parts={"tools": 300, "system": 200})


class ChatKit:
    """Everything around a door, with no model in it."""

    def __init__(
        self, ledger: Ledger, clock: Clock, home: Path, scripts: dict[str, Script]
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.answers = ApprovalAnswers(ledger, clock)
        self.controls = RecordedControls(ledger)
        self.runner = ScriptedRunner(ledger, self.answers, clock, scripts)
        self.profile = AgentProfile(
            id="main",
            home=home,
            workspace=home / "work",
            provider="fake",
            model="demo",
            toolsets=("all",),
        )
        self.gateway = Gateway(
            GatewayParts(
                ledger=ledger,
                runner=self.runner,
                clock=clock,
                profiles={"main": self.profile},
                owner="test",
                owner_alive=lambda _owner: False,
            )
        )

    def host(self, settings: Settings) -> CommandHost:
        return CommandHost(
            gateway=self.gateway,
            answers=self.answers,
            controls=self.controls,
            version="1.2.3",
            saved_dir=self.profile.home / "saved",
            settings=LiveSettings(settings),
        )
