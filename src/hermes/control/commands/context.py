"""CommandContext: the ledger, the gateway, the core's switches and where a command was typed.

Handlers never see a terminal or a chat platform. A `CommandCaller` says what they can
do where they were typed; what only some doors can do is a `Screen`, which is
None elsewhere.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from hermes.control.approvals import ApprovalAnswers
from hermes.control.commands.controls import CoreControls
from hermes.control.lanes.gateway import BusyMode, Gateway
from hermes.domain.approvals import Approval, ApprovalRequest
from hermes.domain.errors import UsageError
from hermes.domain.inbound import Attachment, ChatKind
from hermes.domain.outbound import Target
from hermes.domain.ports.checkpoints import CheckpointStore
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.settings.doors import PlatformDisplay
from hermes.domain.settings.live import LiveSettings

T = TypeVar("T")
DISPLAY_DEFAULTS = PlatformDisplay()

REASONING_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class Preference(StrEnum):
    """Names under which the ledger remembers what a person chose for a session."""

    BUSY = "busy_mode"
    REASONING = "reasoning_effort"
    SHOW_REASONING = "show_reasoning"
    TOOL_DETAIL = "tool_progress"
    YOLO = "yolo"


class ToolDetail(StrEnum):
    OFF = "off"
    NEW = "new"
    """One line when another tool begins than the last time."""
    ALL = "all"
    VERBOSE = "verbose"
    """Also what the tool gave back."""


async def recalled(
    ledger: Ledger, session_id: str | None, choice: Preference, kind: type[T]
) -> T | None:
    """Return what was chosen for a session; None if nothing was."""
    value = None if session_id is None else await ledger.recall(session_id, choice.value)
    return value if isinstance(value, kind) else None


async def carry_over(ledger: Ledger, old: str, new: str) -> None:
    """Let a conversation that follows another in the same chat look like it."""
    for choice in (Preference.BUSY, Preference.SHOW_REASONING, Preference.TOOL_DETAIL):
        value = await ledger.recall(old, choice.value)
        if value is not None:
            await ledger.remember(new, choice.value, value)


class Screen(Protocol):
    """What a door with a screen of its own can do."""

    def clear(self) -> None: ...

    def leave(self) -> None: ...

    def prefill(self, text: str) -> None:
        """Put text into the input, to be changed and sent."""

    async def compose(self, text: str) -> None: ...

    def set_status_bar(self, *, shown: bool | None) -> bool:
        """Show or hide the status bar (None toggles); return whether it shows."""

    def skins(self) -> Sequence[str]: ...

    def set_skin(self, name: str) -> None:
        """Change the look; `NotFound` for an unknown name."""

    def copy(self, text: str) -> None: ...

    async def attach_image(self, path: str | None) -> str:
        """Attach a picture from a file or the clipboard; return what to say."""

    async def use_agent(self, profile: AgentProfile) -> None:
        """Talk to another agent from now on, in a new conversation."""

    async def pick(self, title: str, options: Sequence[str]) -> int | None:
        """Let the person choose one; None if they chose nothing."""


class CommandCaller(Protocol):
    """Where a command was typed."""

    @property
    def source(self) -> str:
        """The door's name as sessions carry it: `cli`, `telegram`, ..."""

    @property
    def user_id(self) -> str: ...

    @property
    def screen(self) -> Screen | None:
        """What it can do beyond talking; None in chats."""

    async def reply(self, text: str) -> None:
        """Say something that is not part of the conversation."""

    async def switch(self, session: Session | None) -> None:
        """Make `session` the current one; None: the next message opens a new one."""

    async def ensure_session(self) -> Session:
        """Return the current session, opening one if there is none yet."""

    async def submit(
        self, text: str, *, mode: BusyMode, attachments: tuple[Attachment, ...] = ()
    ) -> None:
        """Send text to the agent as if it had been typed."""

    async def refresh(self) -> None:
        """A choice of the session changed: show it."""


async def _no_servers() -> Sequence[tuple[str, int, str]]:
    return ()


async def _no_offers() -> Sequence[tuple[str, str, str]]:
    return ()


class CommandHost(Struct, frozen=True, kw_only=True):
    """What stays the same for every command of a door."""

    gateway: Gateway
    answers: ApprovalAnswers
    controls: CoreControls
    version: str
    saved_dir: Path
    """Where `/save` writes."""
    settings: LiveSettings
    offers: Callable[[], Awaitable[Sequence[tuple[str, str, str]]]] = _no_offers
    """Looks for models that could be chosen now: provider, model and why it is offered."""
    checkpoints: CheckpointStore | None = None
    reload_mcp: Callable[[], Awaitable[Sequence[tuple[str, int, str]]]] = _no_servers
    """Meets the MCP servers again: name, number of tools, trouble."""
    restart: Callable[[], None] | None = None
    """Ends the gateway so that it starts again; None where there is none."""

    async def busy_mode(self, source: str, session_id: str | None) -> BusyMode:
        """Return what text does that arrives at a door while a turn runs."""
        word = await recalled(self.gateway.ledger, session_id, Preference.BUSY, str)
        display = self.settings().display
        usual = self._own(source).busy_input_mode or display.busy_input_mode
        return BusyMode(word if word in set(BusyMode) else usual)

    def acknowledges(self, source: str) -> bool:
        """Tell whether a chat hears what became of a message that came during a turn."""
        own = self._own(source).busy_ack_enabled
        return self.settings().display.busy_ack_enabled if own is None else own

    def tool_detail(self, source: str, *, terminal: bool) -> ToolDetail:
        """Return which tool calls a door shows unless its session chose otherwise."""
        word = self._own(source).tool_progress or self.settings().display.tool_progress
        usual = ToolDetail.ALL if terminal else ToolDetail.OFF
        return ToolDetail(word) if word in set(ToolDetail) else usual

    def shows_reasoning(self, source: str, *, terminal: bool) -> bool:
        own = self._own(source).show_reasoning
        return (terminal and self.settings().display.show_reasoning) if own is None else own

    def _own(self, source: str) -> PlatformDisplay:
        return self.settings().display.platforms.get(source, DISPLAY_DEFAULTS)


class Refusal(Protocol):
    async def __call__(self, request: ApprovalRequest, *, deny: bool) -> str: ...


async def _nothing_nearby() -> list[Approval]:
    return []


async def _nobody_refused(request: ApprovalRequest, *, deny: bool) -> str:  # noqa: ARG001
    return ""


class CommandContext(Struct, frozen=True, kw_only=True):
    host: CommandHost
    caller: CommandCaller
    agent_id: str
    """Whom it is for."""
    session: Session | None
    """The current conversation; None before the first message."""
    admin: bool = True
    operator: bool = True
    """Decides for others and sees what is theirs, and what is the operator's."""
    guest: bool = False
    """Is let in by the place only: stops and drops nothing of others."""
    user_name: str = ""
    key: str = ""
    """The session key of the place it was sent to, in chats."""
    refusal: Refusal = _nobody_refused
    """Says why the caller may not answer a request."""
    nearby: Callable[[], Awaitable[list[Approval]]] = _nothing_nearby
    """Returns what waits in other conversations of the same chat."""
    chat: Target | None = None
    """Where it was sent, in chats."""
    chat_name: str = ""

    @property
    def shared(self) -> bool:
        """Whether it was sent where others may talk, too."""
        return self.chat is not None and self.chat.chat_kind is not ChatKind.PRIVATE

    @property
    def confidential(self) -> bool:
        """Whether the reply may tell what only the operator should see: nobody else reads it."""
        return self.operator and not self.shared

    @property
    def ledger(self) -> Ledger:
        return self.host.gateway.ledger

    @property
    def profile(self) -> AgentProfile:
        return self.host.gateway.profile(self.agent_id)

    @property
    def busy(self) -> bool:
        return (
            self.session is not None and self.host.gateway.current_turn(self.session.id) is not None
        )

    @property
    def terminal(self) -> bool:
        return self.caller.screen is not None

    @property
    def screen(self) -> Screen:
        """The door's screen; a command for terminals only may rely on it."""
        if self.caller.screen is None:
            raise UsageError("This command needs a terminal.")
        return self.caller.screen

    async def reply(self, text: str) -> None:
        await self.caller.reply(text)

    def need_session(self) -> Session:
        if self.session is None:
            raise UsageError("Nothing has been said yet.", hint="Send a message first.")
        return self.session

    async def preference(self, choice: Preference, kind: type[T]) -> T | None:
        session_id = self.session.id if self.session else None
        return await recalled(self.ledger, session_id, choice, kind)

    async def prefer(self, choice: Preference, value: Any) -> None:
        """Remember a choice for the current session, opening one if there is none yet."""
        session = await self.caller.ensure_session()
        await self.ledger.remember(session.id, choice.value, value)
        await self.caller.refresh()
