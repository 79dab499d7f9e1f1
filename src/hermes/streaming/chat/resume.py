"""The end of a turn from its messages in the ledger, without its events.

After a restart this gives exactly the slots and texts that the presenters
would have ended with, so what was not delivered can be.
"""

from collections.abc import Iterator, Sequence

from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.platform import Capabilities
from hermes.domain.ports.surface import Shown, Surface
from hermes.streaming.chat.layout import Layout
from hermes.streaming.chat.media import MediaRef
from hermes.streaming.chat.reply import Ending, Segment, TurnReply
from hermes.streaming.chat.settings import PresentationSettings
from hermes.streaming.chat.slots import MaySend, Presented, Resumed, Screen, refuse_files

__all__ = ["final_media", "final_slots", "present_again"]


def final_slots(
    messages: Sequence[AssistantMessage],
    capabilities: Capabilities,
    settings: PresentationSettings,
    ending: Ending = Ending(),  # noqa: B008 (frozen)
) -> list[tuple[str, Shown]]:
    """Return the final look of every text slot of a turn that said `messages`."""
    layout = Layout(capabilities, settings)
    return [
        (segment.slot(piece), shown)
        for segment in _segments(messages, settings, ending)
        for piece, shown in enumerate(layout.final(segment.content(settings).text))
    ]


def final_media(
    messages: Sequence[AssistantMessage],
    settings: PresentationSettings,
    ending: Ending = Ending(),  # noqa: B008 (frozen)
) -> list[tuple[str, MediaRef]]:
    """Return the slot of every file that a turn that said `messages` sends."""
    return [
        (segment.media_slot(number), media)
        for segment in _segments(messages, settings, ending)
        for number, media in enumerate(segment.content(settings).media)
    ]


async def present_again(
    resumed: Resumed,
    surface: Surface,
    settings: PresentationSettings,
    ending: Ending = Ending(),  # noqa: B008 (frozen)
    *,
    may_send: MaySend = refuse_files,
) -> Presented:
    """Show what is missing of the end of a turn."""
    screen = Screen(surface, settings, may_send, resumed)
    for segment in _segments(resumed.messages, settings, ending):
        await screen.settle_segment(segment, settings)
    await screen.clear_left()
    return Presented(complete=True, slots=screen.slots)


def _segments(
    messages: Sequence[AssistantMessage], settings: PresentationSettings, ending: Ending
) -> Iterator[Segment]:
    reply = TurnReply(settings, messages)
    reply.end(ending)
    for item in reply.items:
        if isinstance(item, Segment) and item.is_shown(settings):
            yield item
