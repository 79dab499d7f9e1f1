"""Wording of replies that several commands share, and the exchanges of a history."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.inbound import Attachment
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FilePart,
    FinishReason,
    InputKind,
    TextPart,
    ToolMessage,
    UserMessage,
    shown_text,
    typed_text,
)
from hermes.domain.session import Session, StoredMessage
from hermes.domain.wording import ago, one_line


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def money(usd: float) -> str:
    return f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:.2f}"


def spelled(text: str, mark: str, names: Iterable[str]) -> str:
    """Return a text with its commands as they are given on a platform: `!stop`, not `/stop`."""
    if mark == "/":
        return text
    known = "|".join(map(re.escape, names))
    return re.sub(rf"(?<![\w/.~])/({known})(?![\w/-]|\.\w)", rf"{mark}\1", text)


def session_line(session: Session, now: float, *, current: bool) -> str:
    mark = "* " if current else "  "
    name = session.title or one_line(session.preview, 40) or "(nothing said yet)"
    when = ago(now - session.updated_at)
    return f"{mark}{session.id}  {name}  · {count(session.message_count, 'message')} · {when}"


def table(rows: Sequence[tuple[str, str]], *, terminal: bool = True) -> str:
    """Return names and values in columns; in chats a code block keeps them in a fixed font."""
    width = max((len(name) for name, _ in rows), default=0)
    text = "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in rows)
    return text if terminal else f"```\n{text}\n```"


def heading(text: str, *, terminal: bool) -> str:
    return text if terminal else f"**{text}**"


def listing(rows: Sequence[tuple[str, str]], *, terminal: bool) -> str:
    """Return names with a sentence each: columns at the terminal, lines in chats."""
    if terminal:
        return table([(f"  {name}", about) for name, about in rows])
    return "\n".join(f"{name} – {about}" for name, about in rows)


class Exchange(Struct, frozen=True, kw_only=True):
    """One thing a person said, or a notice, and the answer to it."""

    seq: int
    """Where it begins in the history."""
    asked: Content
    answer: str
    """The last text of the assistant; empty if there is none."""
    tools: int
    kind: InputKind = InputKind.USER
    finished: bool = False
    """It ends with a whole answer."""

    @property
    def asked_text(self) -> str:
        """What was said, attachments named in brackets."""
        return shown_text(typed_text(self.asked), self.kind)

    @property
    def typed(self) -> bool:
        return self.kind is InputKind.USER


def exchanges(history: Sequence[StoredMessage]) -> list[Exchange]:
    """Group a history by what began turns: what a person said, or a notice."""
    found: list[Exchange] = []
    continues, turn = False, None
    for stored in history:
        message, before, turn = stored.message, turn, stored.turn_id
        if isinstance(message, UserMessage) and (
            message.kind is InputKind.USER or (message.kind is InputKind.NOTICE and turn != before)
        ):
            asked, kind = message.content, message.kind
            found.append(Exchange(seq=stored.seq, asked=asked, kind=kind, answer="", tools=0))
        elif found and isinstance(message, AssistantMessage):
            whole = not message.tool_calls and message.finish is not FinishReason.INTERRUPTED
            found[-1] = replace(found[-1], finished=whole)
            if message.text.strip():
                said = f"{found[-1].answer}{message.text}" if continues else message.text
                found[-1], continues = replace(found[-1], answer=said), message.continues
        elif found and isinstance(message, ToolMessage):
            found[-1] = replace(found[-1], tools=found[-1].tools + 1, finished=False)
    return found


def asked_again(asked: Content) -> tuple[str, tuple[Attachment, ...]]:
    """Take what was said apart into text and attachments, to say it again."""
    if isinstance(asked, str):
        return asked, ()
    typed = (part for part in asked if isinstance(part, TextPart) and not part.added)
    text = "\n".join(part.text for part in typed)
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
