"""How a turn is shown in a chat, as the configuration has it for one platform."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from hermes.domain.ports.platform import Capabilities

__all__ = [
    "PresentationSettings",
    "Shape",
    "choose_shape",
]


class PresentationSettings(Struct, frozen=True, kw_only=True):
    """What `streaming` and `display` say for one platform."""

    enabled: bool = True
    transport: Literal["auto", "draft", "edit", "off"] = "auto"
    edit_interval: float = 0.8
    """Seconds between two edits."""
    buffer_threshold: int = 24
    """New characters that make an edit worthwhile before that; 0: none do."""
    cursor: str = " ▉"
    placeholder: str = "…"
    """What a message says when it is sent, before it is edited to its text."""
    tool_progress: Literal["off", "new", "all", "verbose", "log"] = "off"
    tool_progress_grouping: Literal["accumulate", "separate"] = "accumulate"
    tool_preview_length: int = 0
    """Characters of a tool line; 0 for the usual."""
    friendly_tool_labels: bool = True
    interim_assistant_messages: bool = True
    """Keep what the model says before it uses tools."""
    show_reasoning: bool = False
    reasoning_limit: int = 1500
    """Characters of reasoning that are shown."""
    stopped_mark: str = "⏹ Stopped here."
    chunk_marks: bool = False
    """Number the pieces of a long answer, where they are sent all at once."""


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
