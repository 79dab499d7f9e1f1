"""A reply in one go: typing while it is being made, then its messages and files."""

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.surface import Surface
from hermes.domain.turn_stream import TurnStream
from hermes.streaming.presenter import Presenter
from hermes.streaming.screen import MaySend, Presented, Resumed, refuse_files
from hermes.streaming.settings import PresentationSettings

__all__ = ["present_final"]


async def present_final(
    stream: TurnStream,
    surface: Surface,
    settings: PresentationSettings,
    clock: Clock,
    *,
    may_send: MaySend = refuse_files,
    resumed: Resumed = Resumed(),  # noqa: B008 (frozen)
) -> Presented:
    """Show what a turn said when it is complete; for platforms that cannot edit."""
    presenter = Presenter(stream, surface, settings, clock, may_send=may_send, resumed=resumed)
    return await presenter.run(previews=False)
