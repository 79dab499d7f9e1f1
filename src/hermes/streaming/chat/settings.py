"""Presentation of turns in a chat, as configured for one platform."""

from typing import Literal

from msgspec.structs import asdict

from hermes.domain.platforms import Capabilities
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import PlatformDisplay, Streaming, ToolProgress


class PresentationSettings(Streaming, frozen=True, kw_only=True):
    """What `streaming` and `display` say for one platform, its own settings over the general."""

    tool_progress: ToolProgress
    tool_progress_grouping: Literal["accumulate", "separate"]
    tool_preview_length: int
    """Characters of a tool line; 0 for the usual."""
    friendly_tool_labels: bool
    interim_assistant_messages: bool
    """Keep what the model says before it uses tools."""
    show_reasoning: bool
    operator: bool = True
    """Shown to somebody who may know how Hermes is set up."""

    def grows(self, capabilities: Capabilities) -> bool:
        """Return whether a reply is shown while it is being written, not only when complete.

        `auto` and `draft` mean edits where messages can change.
        """
        return self.enabled and self.transport != "off" and capabilities.live


def presentation(settings: Settings, platform: str) -> PresentationSettings:
    own = asdict(settings.display.platforms.get(platform, PlatformDisplay()))
    own["enabled"] = own["streaming"]
    values = asdict(settings.display) | asdict(settings.streaming) | {"show_reasoning": False}
    values["tool_progress"] = settings.display.tool_progress or "off"
    values |= {name: value for name, value in own.items() if value is not None}
    known = PresentationSettings.__struct_fields__
    return PresentationSettings(**{name: values[name] for name in known if name in values})
