"""Which shape a turn takes on a platform."""

from enum import StrEnum

from hermes.domain.ports.platform import Capabilities
from hermes.streaming.settings import PresentationSettings

__all__ = ["Shape", "choose_shape"]


class Shape(StrEnum):
    """How a reply becomes visible."""

    EDITS = "edits"
    """Grows in its message while it is being written."""
    FINAL = "final"
    """Appears when it is complete."""


def choose_shape(settings: PresentationSettings, capabilities: Capabilities) -> Shape:
    """Return how a reply is shown; `auto` and `draft` mean edits where there are edits."""
    wanted = settings.enabled and settings.transport != "off"
    return Shape.EDITS if wanted and capabilities.edits else Shape.FINAL
