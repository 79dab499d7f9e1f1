"""A reply that grows: messages are sent once and edited until they are final."""

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.surface import Surface
from hermes.domain.turn_stream import TurnStream
from hermes.streaming.presenter import Presenter
from hermes.streaming.screen import MaySend, Presented, Resumed, refuse_files
from hermes.streaming.settings import PresentationSettings

__all__ = ["present_edits"]


async def present_edits(
    stream: TurnStream,
    surface: Surface,
    settings: PresentationSettings,
    clock: Clock,
    *,
    may_send: MaySend = refuse_files,
    resumed: Resumed = Resumed(),  # noqa: B008 (frozen)
) -> Presented:
    """Show a turn while it happens, and its final text at the end.

    `resumed` is what an earlier process had committed and shown of it.
    """
    presenter = Presenter(stream, surface, settings, clock, may_send=may_send, resumed=resumed)
    return await presenter.run(previews=True)
