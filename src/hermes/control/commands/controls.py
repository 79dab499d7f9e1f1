"""SessionControls: what commands ask of the agent core.

The composition root implements it. Every choice is durable: it is kept with
the session and found again by the next process.
"""

from typing import Protocol

from msgspec import Struct

from hermes.domain.session import Session

__all__ = [
    "REASONING_EFFORTS",
    "Compacted",
    "ContextUse",
    "ModelOption",
    "PromptShare",
    "SessionControls",
    "ToolInfo",
]

REASONING_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class ModelOption(Struct, frozen=True, kw_only=True):
    """A model that can be chosen."""

    provider: str
    model: str
    note: str = ""
    """A few words: context window, price, where it runs."""


class ToolInfo(Struct, frozen=True, kw_only=True):
    """A tool as a person sees it."""

    name: str
    toolset: str
    description: str
    emoji: str = ""


class Compacted(Struct, frozen=True, kw_only=True):
    """What a compaction came to."""

    messages: int
    """How many messages the summary stands for; 0: there was nothing to compact."""
    tokens_before: int
    tokens_after: int


class PromptShare(Struct, frozen=True, kw_only=True):
    """A part of what every call of the session sends."""

    name: str
    tokens: int


class ContextUse(Struct, frozen=True, kw_only=True):
    """How full the model's context is, estimated between calls."""

    tokens: int
    window: int | None
    parts: tuple[PromptShare, ...] = ()


class SessionControls(Protocol):
    """The core's switches, one session at a time."""

    async def models(self, session: Session) -> list[ModelOption]:
        """Return the models a person can choose from here; may be empty."""
        ...

    async def set_model(self, session: Session, model: str, provider: str | None) -> Session:
        """Use another model from the next turn on; refuse an unknown one with a reason."""
        ...

    async def compact(self, session: Session, focus: str) -> Compacted:
        """Summarise the older part of the history now, minding `focus`."""
        ...

    async def set_reasoning(self, session: Session, effort: str | None) -> None:
        """Set how hard the model thinks; None is its default."""
        ...

    async def set_yolo(self, session: Session, *, on: bool) -> None:
        """Run what would be asked about without asking."""
        ...

    async def list_tools(self, session: Session | None) -> list[ToolInfo]:
        """Return the tools the model has here, by name."""
        ...

    async def prompt_size(self, session: Session | None) -> ContextUse:
        """Return how full the context is and with what."""
        ...

    async def config_lines(self) -> list[tuple[str, str]]:
        """Return the settings worth knowing as (name, value), secrets left out."""
        ...
