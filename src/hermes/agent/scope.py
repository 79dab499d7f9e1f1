"""What belongs to one turn while it runs, and what the core works with."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes.agent.images import ReadAttachment
from hermes.domain.events import TurnStream
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import Environments
from hermes.domain.ports.files import Identity
from hermes.domain.ports.ledger import Ledger
from hermes.domain.ports.model import Model
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import ToolCapabilities, ToolRunner
from hermes.domain.turn import Turn, TurnBrief, TurnControl
from hermes.domain.usage import TurnUsage

__all__ = ["AgentServices", "Models", "TextFilter", "ToolProvider", "TurnScope", "Unfiltered"]


async def no_attachment(_path: str) -> bytes | None:
    """Find no attachment."""
    return None


class Models(Protocol):
    """Hands out models; clients are shared and kept open."""

    def main(self, profile: AgentProfile, session: Session) -> Model:
        """Return the model that answers turns of `session`."""
        ...

    def auxiliary(self, task: str, profile: AgentProfile, session: Session) -> Model:
        """Return the model for a side task such as `title_generation`."""
        ...


class ToolProvider(Protocol):
    """Hands out the tools of an agent at a door, policy already wrapped around them."""

    def for_turn(self, profile: AgentProfile, session: Session, stream: TurnStream) -> ToolRunner:
        """Return the tools for one turn."""
        ...

    def capabilities(
        self, profile: AgentProfile, session: Session, stream: TurnStream
    ) -> ToolCapabilities:
        """Return what the tools of one turn may do beyond their environment."""
        ...


class TextFilter(Protocol):
    """Takes something out of a text that comes in pieces."""

    def feed(self, piece: str) -> str:
        """Take a piece; return what may be shown now."""
        ...

    def flush(self) -> str:
        """Return what is left at the end."""
        ...

    def clear(self) -> None:
        """Forget what waits: the text starts over."""
        ...


class Unfiltered:
    """Takes nothing out."""

    def feed(self, piece: str) -> str:
        """Return the piece."""
        return piece

    def flush(self) -> str:
        """Return nothing: nothing waits."""
        return ""

    def clear(self) -> None:
        """Do nothing."""


class AgentServices(Struct, frozen=True, kw_only=True):
    """Everything the core uses; built once by the composition root."""

    ledger: Ledger
    environments: Environments
    models: Models
    tools: ToolProvider
    identity: Identity
    clock: Clock
    settings: LiveSettings
    redact: Callable[[str], str]
    """Removes secrets by value; applied to everything that is stored or shown."""
    redacting: Callable[[], TextFilter] = Unfiltered
    """Makes what removes secrets from text while it is streamed."""
    read_attachment: ReadAttachment = no_attachment
    load_context_files: bool = True
    """False leaves out project files, memory and skills (`--ignore-rules`)."""
    private_workspace: bool = False
    """Sessions start in an empty place of their own: there is no project to look at."""


class TurnScope(Struct, frozen=True, kw_only=True):
    """One turn while it runs."""

    profile: AgentProfile
    session: Session
    turn: Turn
    stream: TurnStream
    control: TurnControl
    brief: TurnBrief = TurnBrief()
    capabilities: ToolCapabilities = ToolCapabilities()
    used: TurnUsage = TurnUsage()
    """What an earlier attempt at the turn has used."""
