"""What was said in groups without speaking to the bot, kept as context for when it is.

Bounded and only in memory: it is a courtesy, not a record.
"""

from collections import OrderedDict, deque

from hermes.domain.inbound import InboundMessage

__all__ = ["Observed"]

_CHATS = 200
_LINES = 30
_LINE_LENGTH = 500


class Observed:
    """The last lines of each place."""

    def __init__(self) -> None:
        self._places: OrderedDict[tuple[str, str | None], deque[str]] = OrderedDict()

    def add(self, message: InboundMessage) -> None:
        """Remember a message that was not for us."""
        if not message.text:
            return
        place = (message.chat.id, message.thread_id)
        lines = self._places.setdefault(place, deque(maxlen=_LINES))
        self._places.move_to_end(place)
        if len(self._places) > _CHATS:
            self._places.popitem(last=False)
        who = message.sender.name or message.sender.id
        lines.append(f"{who}: {message.text[:_LINE_LENGTH]}")

    def take(self, message: InboundMessage) -> str:
        """Return and forget what was said before `message` in its place."""
        lines = self._places.pop((message.chat.id, message.thread_id), None)
        return "\n".join(lines) if lines else ""
