"""A reply that grows: messages are sent once and edited until they are final."""

from collections.abc import Sequence

from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.surface import Surface
from hermes.domain.turn_stream import TurnStream
from hermes.streaming.presenter import MaySend, Presented, Presenter, refuse_files
from hermes.streaming.settings import PresentationSettings

__all__ = ["present_edits"]


async def present_edits(
    stream: TurnStream,
    surface: Surface,
    settings: PresentationSettings,
    clock: Clock,
    *,
    may_send: MaySend = refuse_files,
    earlier: Sequence[AssistantMessage] = (),
) -> Presented:
    """Show a turn while it happens, and its final text at the end.

    `earlier` are the assistant messages that the turn had already committed
    before this process took it up.
    """
    presenter = Presenter(stream, surface, settings, clock, may_send=may_send, earlier=earlier)
    return await presenter.run(previews=True)
