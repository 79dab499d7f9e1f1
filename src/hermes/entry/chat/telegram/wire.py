"""Calls of the Bot API, and what a failed one means for the piece it carried.

The token is part of every address, so the real address is given to the HTTP client as a hidden
target. The Bot API has no idempotent sends: once a request may have been received, only calls
that can safely be repeated are. The wording of descriptions is Telegram's and is matched by
substring, as all clients do.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from hermes.domain.ports.platform import FailureAction, PlatformFailure
from hermes.entry.chat.kit.decode import UNREADABLE, read_mended
from hermes.entry.chat.kit.http import Effect, HttpAnswer, HttpClient, HttpRequest, Upload
from hermes.entry.chat.telegram.settings import TelegramSettings


class Parameters(Struct, frozen=True, kw_only=True):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class Envelope(Struct, frozen=True, kw_only=True):
    ok: bool
    result: Raw | UnsetType = UNSET
    error_code: int = 0
    description: str = ""
    parameters: Parameters | None = None


class Party(Struct, frozen=True, kw_only=True):
    id: int
    type: str = ""
    is_bot: bool = False
    is_forum: bool = False
    title: str = ""
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        return self.title or f"{self.first_name} {self.last_name}".strip() or self.username


class Entity(Struct, frozen=True, kw_only=True):
    type: str
    offset: int
    length: int
    user: Party | None = None


class FileWire(Struct, frozen=True, kw_only=True):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int | None = None
    file_path: str = ""
    width: int = 0
    height: int = 0
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


class Contact(Party, frozen=True, kw_only=True):
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


class SentWire(Struct, frozen=True, kw_only=True):
    message_id: int
    chat: Party


class MessageWire(SentWire, frozen=True, kw_only=True):
    date: float = 0.0
    sender: Party | None = field(default=None, name="from")
    sender_chat: Party | None = None
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
    sticker: FileWire | None = None
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
    sender: Party = field(name="from")
    data: str = ""
    message: MessageWire | None = None


class UpdateWire(Struct, frozen=True, kw_only=True):
    update_id: int
    message: MessageWire | None = None
    channel_post: MessageWire | None = None
    callback_query: CallbackQuery | None = None


class WebhookInfo(Struct, frozen=True, kw_only=True):
    url: str = ""
    last_error_message: str = ""


_TOKEN_HINT = (
    "Check TELEGRAM_BOT_TOKEN: it must be the whole token that @BotFather gave, "  # noqa: S105
    "and the token must not have been revoked since."
)
_TOKEN = re.compile(r"\d+:[A-Za-z0-9_-]+")
_ENVELOPE = msgspec.json.Decoder(Envelope)
_BY_DESCRIPTION = {
    r"can't parse entities|can't find end of the entity|entity_bounds_invalid": FailureAction.PLAIN,
    r"message to edit|message can't be edited|message_id_invalid": FailureAction.SEND_NEW,
    r"message to be replied not found|replied message not found": FailureAction.DROP_REPLY,
    r"message thread not found|topic_closed|topic_deleted": FailureAction.DROP_THREAD,
}
T = TypeVar("T")


class BotApi:
    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings
        self.http = HttpClient(
            "Telegram",
            settings.base_url,
            proxy=settings.proxy or settings.proxy_url,
            proxy_hint="Set TELEGRAM_PROXY to an address like http://127.0.0.1:3128.",
        )

    async def call(
        self,
        method: str,
        fields: Mapping[str, Any],
        result: type[T],
        *,
        uploads: Sequence[Upload] = (),
    ) -> T:
        effect = Effect.ONCE if method.startswith("send") else Effect.REPEATABLE
        settings, polling = self._settings, method == "getUpdates"
        patience = settings.poll_timeout + settings.poll_grace
        answer = await self.http.call(
            HttpRequest(
                name=method,
                url=f"{settings.base_url}/bot/{method}",
                target=self._hidden(settings.base_url, method),
                fields=fields,
                uploads=uploads,
                effect=effect,
                timeout=patience if polling else settings.request_timeout,
                queued=not polling,
            )
        )
        return self._result(method, answer, result, effect)

    async def attempt(self, method: str, fields: Mapping[str, Any], fine: str) -> bool:
        """Make one call; False if it was refused with the words that are `fine`."""
        try:
            await self.call(method, fields, msgspec.Raw)
        except PlatformFailure as failure:
            if fine in failure.description:
                return False
            raise
        return True

    async def download(self, file_path: str, target: Path) -> int:
        settings = self._settings
        path = quote(file_path.lstrip("/"), safe="/")
        request = HttpRequest(
            name="a file",
            url=f"{settings.base_file_url}/bot/{path}",
            target=self._hidden(settings.base_file_url, path),
            timeout=settings.download_timeout,
        )
        return await self.http.download(request, target, settings.max_download_bytes)

    def _hidden(self, root: str, rest: str) -> str:
        token = self._settings.token
        if _TOKEN.fullmatch(token) is None:
            message = "The Telegram token is not one."
            raise PlatformFailure(FailureAction.FATAL, message, hint=_TOKEN_HINT)
        return f"{urlsplit(root).path}/bot{token}/{rest}"

    def _result(self, method: str, answer: HttpAnswer, result: type[T], effect: Effect) -> T:
        def read(content: bytes) -> T:
            envelope = _ENVELOPE.decode(content)
            if envelope.ok:
                return msgspec.json.decode(envelope.result or b"null", type=result)
            raise _refused(method, answer.status, envelope)

        try:
            return read_mended(answer.content, read)
        except UNREADABLE:
            raise self.http.unreadable(method, answer, effect, _TOKEN_HINT) from None


def _refused(method: str, status: int, answer: Envelope) -> PlatformFailure:
    status = answer.error_code or status
    description = answer.description or f"error {status}"
    more = answer.parameters or Parameters()
    moved = None if more.migrate_to_chat_id is None else str(more.migrate_to_chat_id)
    action = FailureAction.RETRY if moved is not None else _action(status, description.lower())
    pause = 1.0 if more.retry_after is None else max(0.0, more.retry_after)
    return PlatformFailure(
        action,
        f"Telegram refused {method}: {description}",
        hint=_TOKEN_HINT if action is FailureAction.FATAL else "",
        status=status,
        description=description,
        retry_after=pause if action is FailureAction.WAIT else 0.0,
        moved_to=moved,
    )


def _action(status: int, description: str) -> FailureAction:
    if status == 429:
        return FailureAction.WAIT
    if status in {401, 404}:
        return FailureAction.FATAL
    if status >= 500 or status == 409:
        return FailureAction.RETRY
    known = (action for words, action in _BY_DESCRIPTION.items() if re.search(words, description))
    return next(known, FailureAction.GIVE_UP)
