"""A history seen as exchanges: what a person said, and what came of it."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.domain.channel import Attachment
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FilePart,
    InputKind,
    TextPart,
    ToolMessage,
    UserMessage,
    content_text,
)
from hermes.domain.session import StoredMessage

__all__ = ["Exchange", "asked_again", "exchanges"]


class Exchange(Struct, frozen=True, kw_only=True):
    """One thing a person said and the answer to it."""

    seq: int
    """Where it begins in the history."""
    asked: Content
    answer: str
    """The last text of the assistant; empty if there is none."""
    tools: int

    @property
    def asked_text(self) -> str:
        """What was said, attachments named in brackets."""
        return content_text(self.asked)


def exchanges(history: Sequence[StoredMessage]) -> list[Exchange]:
    """Group a history by what a person said; summaries and notices begin nothing."""
    found: list[Exchange] = []
    for stored in history:
        message = stored.message
        if isinstance(message, UserMessage) and message.kind is InputKind.USER:
            found.append(Exchange(seq=stored.seq, asked=message.content, answer="", tools=0))
        elif found and isinstance(message, AssistantMessage) and message.text.strip():
            found[-1] = _with(found[-1], answer=message.text)
        elif found and isinstance(message, ToolMessage):
            found[-1] = _with(found[-1], tools=found[-1].tools + 1)
    return found


def asked_again(asked: Content) -> tuple[str, tuple[Attachment, ...]]:
    """Take what was said apart into text and attachments, to say it again."""
    if isinstance(asked, str):
        return asked, ()
    text = "\n".join(part.text for part in asked if isinstance(part, TextPart))
    files = tuple(
        Attachment(
            kind="image" if (part.media_type or "").startswith("image/") else "document",
            path=part.path,
            name=part.name,
            media_type=part.media_type,
        )
        for part in asked
        if isinstance(part, FilePart)
    )
    return text, files


def _with(exchange: Exchange, *, answer: str | None = None, tools: int | None = None) -> Exchange:
    return Exchange(
        seq=exchange.seq,
        asked=exchange.asked,
        answer=exchange.answer if answer is None else answer,
        tools=exchange.tools if tools is None else tools,
    )
