"""Presentation of turns in a chat, as configured for one platform."""

from enum import StrEnum
from typing import Literal, TypeVar

from msgspec import Struct

from hermes.domain.platforms import Capabilities
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import PlatformDisplay, ToolProgress

T = TypeVar("T")


class PresentationSettings(Struct, frozen=True, kw_only=True):
    """What `streaming` and `display` say for one platform, its own settings over the general."""

    enabled: bool
    transport: Literal["auto", "draft", "edit", "off"]
    edit_interval: float
    """Seconds between two edits."""
    buffer_threshold: int
    """New characters that make an edit worthwhile before that; 0: none do."""
    cursor: str
    tool_progress: ToolProgress
    tool_progress_grouping: Literal["accumulate", "separate"]
    tool_preview_length: int
    """Characters of a tool line; 0 for the usual."""
    friendly_tool_labels: bool
    interim_assistant_messages: bool
    """Keep what the model says before it uses tools."""
    show_reasoning: bool
    placeholder: str = "…"
    """What a message says when it is sent, before it is edited to its text."""
    reasoning_limit: int = 1500
    """Characters of reasoning that are shown."""
    stopped_mark: str = "⏹ Stopped here."
    chunk_marks: bool = False
    """Number the pieces of a long answer, where they are sent all at once."""


def presentation(settings: Settings, platform: str) -> PresentationSettings:
    """Return how turns are shown on a platform."""
    streaming, display = settings.streaming, settings.display
    own = display.platforms.get(platform, PlatformDisplay())
    return PresentationSettings(
        enabled=_or(own.streaming, streaming.enabled),
        transport=streaming.transport,
        edit_interval=streaming.edit_interval,
        buffer_threshold=streaming.buffer_threshold,
        cursor=streaming.cursor,
        tool_progress=own.tool_progress or display.tool_progress or "off",
        tool_progress_grouping=own.tool_progress_grouping or display.tool_progress_grouping,
        tool_preview_length=_or(own.tool_preview_length, display.tool_preview_length),
        friendly_tool_labels=_or(own.friendly_tool_labels, display.friendly_tool_labels),
        interim_assistant_messages=_or(
            own.interim_assistant_messages, display.interim_assistant_messages
        ),
        show_reasoning=bool(own.show_reasoning),
    )


def _or(own: T | None, general: T) -> T:
    return general if own is None else own


class Shape(StrEnum):
    """How a reply becomes visible."""

    EDITS = "edits"
    """Grows in its message while it is being written."""
    FINAL = "final"
    """Appears when it is complete."""


def choose_shape(settings: PresentationSettings, capabilities: Capabilities) -> Shape:
    """Return how a reply is shown; `auto` and `draft` mean edits where messages can change."""
    wanted = settings.enabled and settings.transport != "off"
    return Shape.EDITS if wanted and capabilities.live else Shape.FINAL
