"""The parts of Bot API objects that are read, as typed structs.

Unknown fields are ignored: every release of the Bot API adds some. Each update
is decoded on its own, so that one that makes no sense costs only itself.
"""

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = [
    "CallbackQuery",
    "ChatWire",
    "Entity",
    "Envelope",
    "FileInfo",
    "FileWire",
    "MessageWire",
    "Parameters",
    "SentWire",
    "Sticker",
    "TopicWire",
    "UpdateId",
    "UpdateWire",
    "User",
    "WebhookInfo",
]


class Parameters(Struct, frozen=True, kw_only=True):
    """What an error answer adds to its description."""

    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class Envelope(Struct, frozen=True, kw_only=True):
    """Every answer of the Bot API."""

    ok: bool
    result: Raw | UnsetType = UNSET
    error_code: int = 0
    description: str = ""
    parameters: Parameters | None = None


class User(Struct, frozen=True, kw_only=True):
    """A person or a bot."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        """The full name as people see it."""
        return f"{self.first_name} {self.last_name}".strip() or self.username


class ChatWire(Struct, frozen=True, kw_only=True):
    """A chat."""

    id: int
    type: str
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""
    is_forum: bool = False

    @property
    def name(self) -> str:
        """The title, or the name of the person in a private chat."""
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class Entity(Struct, frozen=True, kw_only=True):
    """A marked part of a text; offsets count UTF-16 units."""

    type: str
    offset: int
    length: int
    user: User | None = None


class FileWire(Struct, frozen=True, kw_only=True):
    """A photo size, document, voice, audio, video, video note or animation."""

    file_id: str
    file_unique_id: str = ""
    file_name: str = ""
    mime_type: str = ""
    file_size: int | None = None
    width: int = 0
    height: int = 0
    duration: int = 0


class Sticker(Struct, frozen=True, kw_only=True):
    """A sticker."""

    file_id: str
    file_unique_id: str = ""
    emoji: str = ""
    set_name: str = ""
    is_animated: bool = False
    is_video: bool = False
    file_size: int | None = None


class Location(Struct, frozen=True, kw_only=True):
    """A point on the map."""

    latitude: float
    longitude: float


class Venue(Struct, frozen=True, kw_only=True):
    """A named place."""

    location: Location
    title: str = ""
    address: str = ""


class Contact(Struct, frozen=True, kw_only=True):
    """A shared contact."""

    phone_number: str = ""
    first_name: str = ""
    last_name: str = ""


class PollOption(Struct, frozen=True, kw_only=True):
    """One answer of a poll."""

    text: str = ""


class Poll(Struct, frozen=True, kw_only=True):
    """A poll."""

    question: str = ""
    options: tuple[PollOption, ...] = ()


class Dice(Struct, frozen=True, kw_only=True):
    """A thrown die."""

    emoji: str = ""
    value: int = 0


class Quote(Struct, frozen=True, kw_only=True):
    """The part of the earlier message that a reply picks out."""

    text: str = ""


class MessageWire(Struct, frozen=True, kw_only=True):
    """A message."""

    message_id: int
    chat: ChatWire
    date: float = 0.0
    sender: User | None = field(default=None, name="from")
    sender_chat: ChatWire | None = None
    author_signature: str = ""
    message_thread_id: int | None = None
    is_topic_message: bool = False
    is_automatic_forward: bool = False
    media_group_id: str | None = None
    text: str = ""
    caption: str = ""
    entities: tuple[Entity, ...] = ()
    caption_entities: tuple[Entity, ...] = ()
    reply_to_message: "MessageWire | None" = None
    quote: Quote | None = None
    photo: tuple[FileWire, ...] = ()
    document: FileWire | None = None
    voice: FileWire | None = None
    audio: FileWire | None = None
    video: FileWire | None = None
    video_note: FileWire | None = None
    animation: FileWire | None = None
    sticker: Sticker | None = None
    location: Location | None = None
    venue: Venue | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    dice: Dice | None = None
    story: Any = None
    game: Any = None
    paid_media: Any = None
    checklist: Any = None
    invoice: Any = None
    giveaway: Any = None


class CallbackQuery(Struct, frozen=True, kw_only=True):
    """A press of an inline button."""

    id: str
    sender: User = field(name="from")
    data: str = ""
    message: MessageWire | None = None


class UpdateId(Struct, frozen=True, kw_only=True):
    """The number of an update, readable even if nothing else of it is."""

    update_id: int


class UpdateWire(Struct, frozen=True, kw_only=True):
    """One update; exactly one of the optional fields is set."""

    update_id: int
    message: MessageWire | None = None
    edited_message: Any = None
    channel_post: MessageWire | None = None
    edited_channel_post: Any = None
    callback_query: CallbackQuery | None = None
    my_chat_member: Any = None


class SentWire(Struct, frozen=True, kw_only=True):
    """What is read of a message that was just sent."""

    message_id: int
    chat: ChatWire


class FileInfo(Struct, frozen=True, kw_only=True):
    """Where a file can be fetched."""

    file_path: str = ""
    file_size: int | None = None


class TopicWire(Struct, frozen=True, kw_only=True):
    """A forum topic that was just made."""

    message_thread_id: int


class WebhookInfo(Struct, frozen=True, kw_only=True):
    """What Telegram knows about our webhook."""

    url: str = ""
    pending_update_count: int = 0
    last_error_message: str = ""
