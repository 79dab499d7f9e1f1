"""The parts of Bot API objects that are read, as typed structs.

Unknown fields are ignored: every release of the Bot API adds some. Each update
is decoded on its own, so that one that makes no sense costs only itself.
"""

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field


class Parameters(Struct, frozen=True, kw_only=True):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class Envelope(Struct, frozen=True, kw_only=True):
    ok: bool
    result: Raw | UnsetType = UNSET
    error_code: int = 0
    description: str = ""
    parameters: Parameters | None = None


class User(Struct, frozen=True, kw_only=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip() or self.username


class ChatWire(Struct, frozen=True, kw_only=True):
    id: int
    type: str
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""
    is_forum: bool = False

    @property
    def name(self) -> str:
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class Entity(Struct, frozen=True, kw_only=True):
    type: str
    offset: int
    length: int
    user: User | None = None


class FileWire(Struct, frozen=True, kw_only=True):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int | None = None
    width: int = 0
    height: int = 0


class Sticker(FileWire, frozen=True, kw_only=True):
    emoji: str = ""
    set_name: str = ""
    is_animated: bool = False
    is_video: bool = False


class Location(Struct, frozen=True, kw_only=True):
    latitude: float
    longitude: float


class Venue(Struct, frozen=True, kw_only=True):
    location: Location
    title: str = ""
    address: str = ""


class Contact(User, frozen=True, kw_only=True):
    id: int = 0
    phone_number: str = ""


class Quote(Struct, frozen=True, kw_only=True):
    text: str = ""


class Poll(Struct, frozen=True, kw_only=True):
    question: str = ""
    options: tuple[Quote, ...] = ()


class Dice(Struct, frozen=True, kw_only=True):
    emoji: str = ""
    value: int = 0


class MessageWire(Struct, frozen=True, kw_only=True):
    message_id: int
    chat: ChatWire
    date: float = 0.0
    sender: User | None = field(default=None, name="from")
    sender_chat: ChatWire | None = None
    author_signature: str = ""
    message_thread_id: int | None = None
    is_topic_message: bool = False
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
    id: str
    sender: User = field(name="from")
    data: str = ""
    message: MessageWire | None = None


class UpdateWire(Struct, frozen=True, kw_only=True):
    update_id: int
    message: MessageWire | None = None
    edited_message: Any = None
    channel_post: MessageWire | None = None
    edited_channel_post: Any = None
    callback_query: CallbackQuery | None = None


class SentWire(Struct, frozen=True, kw_only=True):
    message_id: int
    chat: ChatWire


class FileInfo(Struct, frozen=True, kw_only=True):
    file_path: str = ""
    file_size: int | None = None


class WebhookInfo(Struct, frozen=True, kw_only=True):
    url: str = ""
    last_error_message: str = ""
