"""Telegram's side of the `Adapter` port.

Only what is truly Telegram's: the shape of its calls, its General topic, its short list of
reactions, its rules for command names. Pacing, splitting, markup, retrying and remembering are
the control plane's.

Telegram forgets an update when a later poll names a higher offset, or when its call was
answered; both happen only after the inbox has it. A poll that hangs is given up, because a dead
connection looks just like a quiet one.
"""

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hermes.domain.inbound import InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.ports.platform import (
    AdapterRequest,
    Button,
    ButtonPress,
    FailureAction,
    InboundSink,
    ListenerCall,
    ListenerReply,
    MenuCommand,
    Outgoing,
    PlatformFailure,
    Sent,
)
from hermes.domain.wording import clean_text
from hermes.entry.chat.kit.base import ChatAdapter
from hermes.entry.chat.kit.decode import decode_updates
from hermes.entry.chat.kit.http import Upload, check_size, copy_file, read_upload
from hermes.entry.chat.kit.intake import HandOver, Heard, menu_names, names_between
from hermes.entry.chat.kit.receiver import Polling, called_at, keep_checking
from hermes.entry.chat.kit.settings import WebhookAddress
from hermes.entry.chat.telegram.inbound import (
    GENERAL_TOPIC,
    Bot,
    message_name,
    message_number,
    parse,
)
from hermes.entry.chat.telegram.manifest import PLATFORM
from hermes.entry.chat.telegram.settings import TelegramSettings
from hermes.entry.chat.telegram.wire import (
    BotApi,
    FileWire,
    Party,
    SentWire,
    UpdateWire,
    WebhookInfo,
)

_LOG = logging.getLogger(__name__)
_REACTIONS = {"✅": "👍", "❌": "👎", "⏳": "👀", "♾️": "💯"}
"""Bots may react with Telegram's own short list only; these are the nearest."""
_COMMANDS = 100
_COMMAND_TEXT = 256
_MAX_PHOTO = 10_000_000
_SUFFIXES = {
    "image": frozenset({".jpg", ".jpeg", ".png", ".webp"}),
    "voice": frozenset({".ogg", ".oga", ".opus", ".mp3", ".m4a"}),
    "audio": frozenset({".mp3", ".m4a"}),
    "video": frozenset({".mp4"}),
}
"""What Telegram shows as such; everything else goes as a file."""
_UPDATES = ("message", "channel_post", "callback_query")
_OFFSET_LIFE = 6 * 86400.0
"""After a week of silence Telegram picks new numbers at random, perhaps lower ones."""
_TOAST_LENGTH = 200
_LENIENT = {"allow_sending_without_reply": True}
_SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - a header's name


class TelegramAdapter(ChatAdapter[TelegramSettings]):
    def __init__(self, rules: Callable[[], TelegramSettings], request: AdapterRequest) -> None:
        super().__init__(rules, request)
        settings = self._settings = rules()
        self._listener = request.listener
        self._api = BotApi(settings)
        self._bot: Bot | None = None
        self._polling = Polling("Telegram", request.clock)
        self._secret = ""
        off = settings.disable_link_previews
        self._previews = {"link_preview_options": {"is_disabled": True}} if off else {}

    @property
    def account(self) -> str:
        """The bot's id, which is also the public half of its token."""
        return str(self._bot.id) if self._bot is not None else self._settings.bot_id

    async def connect(self) -> None:
        await self._api.http.prepare()
        me = await self._api.call("getMe", {}, Party)
        commands = self._bot.commands if self._bot is not None else {}
        self._bot = Bot(id=me.id, username=me.username, commands=commands)
        await self._register()

    async def close(self) -> None:
        await self._api.http.close()

    def _me(self) -> Bot:
        if self._bot is None:
            raise PlatformFailure(FailureAction.RETRY, "Telegram is not connected yet.")
        return self._bot

    # -- receiving -----------------------------------------------------------------------

    async def _register(self) -> None:
        """Choose between polling and being called; what waits on the server stays."""
        webhook = self._settings.webhook
        if webhook is None:
            await self._api.call("deleteWebhook", {"drop_pending_updates": False}, bool)
            return
        self._secret = webhook.secret or self._secret or secrets.token_urlsafe(32)
        wanted = {
            "url": webhook.url,
            "secret_token": self._secret,
            # One at a time, so that updates stay in order.
            "max_connections": 1,
            "allowed_updates": _UPDATES,
            "drop_pending_updates": False,
        }
        await self._api.call("setWebhook", wanted, bool)

    async def receive(self, sink: InboundSink) -> None:
        async with self._intake.into(sink) as hand_over:
            take = partial(self._take, hand_over)
            if self._settings.webhook is None:
                await self._polling.run(sink, self._updates, take, offset_life=_OFFSET_LIFE)
            else:
                await self._be_called(sink, take, self._settings.webhook)

    async def _updates(self, offset: int | None) -> list[msgspec.Raw]:
        """Wait for updates; naming an offset confirms everything before it."""
        # What waited for us is asked for at once, so that it is known as such.
        seconds = 0 if self._polling.behind else max(1, round(self._settings.poll_timeout))
        wanted = {"timeout": seconds, "limit": 100, "allowed_updates": _UPDATES}
        confirmed = {} if offset is None else {"offset": offset}
        try:
            return await self._api.call("getUpdates", wanted | confirmed, list[msgspec.Raw])
        except PlatformFailure as failure:
            if "webhook is active" in failure.description:
                await self._register()
            raise

    async def _be_called(
        self,
        sink: InboundSink,
        take: Callable[[Sequence[bytes]], Awaitable[object]],
        webhook: WebhookAddress,
    ) -> None:
        async def handle(call: ListenerCall) -> ListenerReply:
            given = call.headers.get(_SECRET_HEADER, "").encode("latin-1", "replace")
            if call.method != "POST" or not hmac.compare_digest(given, self._secret.encode()):
                return ListenerReply(status=401)
            await take([call.body])
            sink.alive()
            return ListenerReply()

        path = urlsplit(webhook.url).path or "/"
        async with called_at(self._listener, PLATFORM, webhook, path, handle):
            sink.alive()
            check = partial(self._still_called, webhook.url)
            await keep_checking(self._clock, sink.alive, check)

    async def _still_called(self, url: str) -> None:
        info = await self._api.call("getWebhookInfo", {}, WebhookInfo)
        if info.url != url:
            raise PlatformFailure(
                FailureAction.GIVE_UP,
                "Telegram sends this bot's updates to another place.",
                hint="Stop the other gateway that uses this token.",
            )
        if info.last_error_message:
            _LOG.warning("Telegram had trouble calling us: %s", info.last_error_message)

    async def _take(self, hand_over: HandOver, raws: Sequence[bytes]) -> int | None:
        """Hand a batch over; return the number after its last update."""
        updates, next_number = decode_updates(raws, UpdateWire, "update_id")
        items, bot = list[Heard | ButtonPress](), self._me()
        missed = self._settings.webhook is None and self._polling.behind
        for update in updates:
            message = update.message or update.channel_post
            if message and not (message.sender and message.sender.id == bot.id):
                self._intake.seen(message_name(message.chat.id, message.message_id))
            item = parse(update, bot)
            if isinstance(item, str):
                _LOG.debug("Ignored update %s: %s", update.update_id, item)
            elif isinstance(item, Heard):
                items.append(msgspec.structs.replace(item, missed=missed))
            else:
                items.append(item)
        await hand_over(items)
        return next_number

    async def _answer(self, asked: ButtonPress | InboundMessage, text: str) -> None:
        """Let go of a pressed button; too late is fine."""
        fields = {"callback_query_id": asked.native_id, "text": text[:_TOAST_LENGTH]}
        try:
            await self._api.call("answerCallbackQuery", fields, bool)
        except PlatformFailure as failure:
            if failure.action is not FailureAction.GIVE_UP:
                raise

    # -- messages ----------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> Sent:
        if outgoing.attachment is not None:
            return await self._send_file(outgoing)
        fields = self._common(outgoing) | _formatted(outgoing) | self._previews
        return _sent(await self._api.call("sendMessage", fields, SentWire))

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        """Make a message look like `outgoing`; without buttons there is no keyboard afterwards."""
        fields = _existing(outgoing.target, native_id) | _keyboard(outgoing.buttons)
        method = "editMessageCaption"
        if outgoing.attachment is None:
            method, fields = "editMessageText", fields | _formatted(outgoing) | self._previews
        await self._api.attempt(method, fields, "message is not modified")

    def between(self, earlier: Sequence[str], later: str | None) -> Iterator[str]:
        return names_between(earlier, later)

    def foreign(self, native_id: str) -> bool:
        return self._intake.has_seen(native_id)

    async def delete(self, target: Target, native_id: str) -> None:
        gone = "message to delete not found"
        await self._api.attempt("deleteMessage", _existing(target, native_id), gone)

    async def typing(self, target: Target) -> None:
        """Show for five seconds that something is being done; not while answers wait."""
        if self._api.http.crowded or not self._rules().typing_indicator:
            return
        fields: dict[str, Any] = {"chat_id": target.chat_id, "action": "typing"}
        # Unlike sends it wants the General topic named.
        fields |= _in_topic(target.thread_id) if target.thread_id is not None else {}
        await self._api.call("sendChatAction", fields, bool)

    async def react(self, target: Target, native_id: str, emoji: str) -> None:
        if not self._rules().reactions:
            return
        reaction = [{"type": "emoji", "emoji": _REACTIONS.get(emoji, emoji)}] if emoji else []
        fields = _existing(target, native_id) | {"reaction": reaction}
        await self._api.call("setMessageReaction", fields, bool)

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None:
        """Set the command menu; as much of it as Telegram takes."""
        named = menu_names(commands)
        menu = [
            {"command": short, "description": each.help[:_COMMAND_TEXT] or each.name}
            for short, each in named.items()
        ][:_COMMANDS]
        if self._bot is not None:
            aliases = {short: each.name for short, each in named.items() if short != each.name}
            self._bot = msgspec.structs.replace(self._bot, commands=aliases)
        # All of the menu together may have about four kilobytes.
        too_much = "bot_commands_too_much"
        while menu and not await self._api.attempt("setMyCommands", {"commands": menu}, too_much):
            menu = menu[: len(menu) * 3 // 4]

    def _common(self, outgoing: Outgoing) -> dict[str, Any]:
        target = outgoing.target
        fields: dict[str, Any] = {"chat_id": target.chat_id}
        # Naming the General topic in a send is an error; leaving it out reaches it.
        if target.thread_id is not None and target.thread_id != GENERAL_TOPIC:
            fields |= _in_topic(target.thread_id)
        replied = message_number(self._rules().replied_to(outgoing) or "")
        if replied is not None:
            fields["reply_parameters"] = {"message_id": replied} | _LENIENT
        if self._rules().silent(outgoing):
            fields["disable_notification"] = True
        return fields | (_keyboard(outgoing.buttons) if outgoing.buttons else {})

    # -- files ---------------------------------------------------------------------------

    async def fetch(self, remote: str, target: Path) -> int:
        info = await self._api.call("getFile", {"file_id": remote}, FileWire)
        limit = self._settings.max_download_bytes
        check_size(info.file_size or 0, limit)
        if self._settings.local_mode and info.file_path.startswith("/"):
            return await copy_file(Path(info.file_path), target, limit)
        return await self._api.download(info.file_path, target)

    async def _send_file(self, outgoing: Outgoing) -> Sent:
        kind, upload = await self._upload(outgoing)
        method = f"send{kind.capitalize()}"
        fields = self._common(outgoing)
        try:
            return _sent(await self._api.call(method, fields, SentWire, uploads=(upload,)))
        except PlatformFailure as failure:
            # Telegram refuses pictures of odd sizes and sounds it cannot play as such.
            refused = failure.action is FailureAction.GIVE_UP and failure.status == 400
            if method == "sendDocument" or not refused or "chat" in failure.description:
                raise
            _LOG.info("%s was refused (%s); sending it as a file", method, failure.description)
        return await self._send_file(msgspec.structs.replace(outgoing, attachment_kind="document"))

    async def send_album(self, pieces: list[Outgoing]) -> list[Sent]:
        """Show two to ten pictures or videos as one album."""
        uploads, media = list[Upload](), list[dict[str, Any]]()
        for number, piece in enumerate(pieces):
            kind, upload = await self._upload(piece, f"file{number}")
            uploads.append(upload)
            media.append({"type": kind, "media": f"attach://{upload.field}"})
        fields = self._common(pieces[0]) | {"media": media}
        sent = await self._api.call("sendMediaGroup", fields, list[SentWire], uploads=uploads)
        return [_sent(each) for each in sent]

    async def _upload(self, outgoing: Outgoing, field: str = "") -> tuple[str, Upload]:
        """Return as what Telegram will show a file, in its words, and the file."""
        upload = await read_upload(outgoing.attachment, self._settings.max_file_bytes, field)
        kind, suffix = outgoing.attachment_kind, Path(upload.name).suffix.lower()
        too_large = kind == "image" and len(upload.content) > _MAX_PHOTO
        if too_large or suffix not in _SUFFIXES.get(kind, ()):
            kind = "document"
        kind = "photo" if kind == "image" else kind
        return kind, msgspec.structs.replace(upload, field=field or kind)


def _formatted(outgoing: Outgoing) -> dict[str, Any]:
    """Return the text with its markup, or the plain text where it has none.

    Text that equals its plain form either has no markup or is what remained after
    Telegram refused the markup; then a `<` in it is just that.
    """
    if outgoing.text and outgoing.text != outgoing.plain:
        return {"text": clean_text(outgoing.text), "parse_mode": "HTML"}
    return {"text": clean_text(outgoing.plain)}


def _keyboard(rows: Sequence[Sequence[Button]]) -> dict[str, Any]:
    def key(button: Button) -> dict[str, str]:
        does = {"url": button.url} if button.url else {"callback_data": button.data}
        return {"text": clean_text(button.label)} | does

    return {"reply_markup": {"inline_keyboard": [[key(each) for each in row] for row in rows]}}


def _sent(sent: SentWire) -> Sent:
    return Sent(native_id=message_name(sent.chat.id, sent.message_id))


def _existing(target: Target, native_id: str) -> dict[str, Any]:
    number = message_number(native_id)
    if number is None:
        message = f"{native_id!r} does not name a Telegram message."
        raise PlatformFailure(FailureAction.SEND_NEW, message)
    return {"chat_id": target.chat_id, "message_id": number}


def _in_topic(thread_id: str) -> dict[str, Any]:
    if not thread_id.isascii() or not thread_id.isdigit():
        message = f"{thread_id!r} does not name a Telegram topic."
        raise PlatformFailure(FailureAction.DROP_THREAD, message)
    return {"message_thread_id": int(thread_id)}
