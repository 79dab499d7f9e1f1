"""The calls of the Bot API that are used, and no more.

Answers are typed, every wait has a bound, and every failure is a
`PlatformFailure` that says what to do next.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hermes.domain.ports.platform import FailureAction
from hermes.entry.chat.telegram.failures import ApiFailure, Effect
from hermes.entry.chat.telegram.settings import TelegramSettings
from hermes.entry.chat.telegram.transport import Transport, Upload
from hermes.entry.chat.telegram.wire import FileInfo, SentWire, TopicWire, User, WebhookInfo

__all__ = ["ALLOWED_UPDATES", "BotApi"]

ALLOWED_UPDATES = ("message", "channel_post", "callback_query")
_UPLOAD_BYTES_PER_SECOND = 100_000
T = TypeVar("T")


class BotApi:
    """One bot's connection to its server."""

    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings
        self._transport = Transport(settings)

    async def get_me(self) -> User:
        """Return who the token belongs to; the first call of a connection."""
        await self._transport.prepare()
        return await self._call("getMe", {}, User)

    async def delete_webhook(self) -> None:
        """Make polling possible; what waits on the server stays."""
        await self._call("deleteWebhook", {"drop_pending_updates": False}, bool)

    async def set_webhook(self, url: str, secret: str) -> None:
        """Have updates sent to `url`, one at a time, so that they stay in order."""
        wanted = {
            "url": url,
            "secret_token": secret,
            "max_connections": 1,
            "allowed_updates": ALLOWED_UPDATES,
            "drop_pending_updates": False,
        }
        await self._call("setWebhook", wanted, bool)

    async def webhook_info(self) -> WebhookInfo:
        """Return where updates are sent."""
        return await self._call("getWebhookInfo", {}, WebhookInfo)

    async def get_updates(self, offset: int | None, limit: int = 100) -> list[msgspec.Raw]:
        """Wait for updates; naming an offset confirms everything before it."""
        settings = self._settings
        wanted: dict[str, Any] = {
            "timeout": max(1, round(settings.poll_timeout)),
            "limit": limit,
            "allowed_updates": ALLOWED_UPDATES,
        }
        if offset is not None:
            wanted["offset"] = offset
        patience = settings.poll_timeout + settings.poll_grace
        return await self._call("getUpdates", wanted, list[msgspec.Raw], timeout=patience)

    async def send_message(self, fields: Mapping[str, Any]) -> SentWire:
        """Send a text."""
        return await self._call("sendMessage", fields, SentWire, effect=Effect.ONCE)

    async def send_file(self, method: str, fields: Mapping[str, Any], upload: Upload) -> SentWire:
        """Send one file with `sendPhoto`, `sendDocument` and so on."""
        return await self._call(
            method,
            fields,
            SentWire,
            effect=Effect.ONCE,
            uploads=(upload,),
            timeout=self._upload_time((upload,)),
        )

    async def send_media_group(
        self, fields: Mapping[str, Any], uploads: Sequence[Upload]
    ) -> list[SentWire]:
        """Send two to ten files as one album."""
        return await self._call(
            "sendMediaGroup",
            fields,
            list[SentWire],
            effect=Effect.ONCE,
            uploads=uploads,
            timeout=self._upload_time(uploads),
        )

    async def edit(self, method: str, fields: Mapping[str, Any]) -> None:
        """Change a message with `editMessageText` and so on; no change is fine."""
        try:
            await self._call(method, fields, msgspec.Raw)
        except ApiFailure as failure:
            if "message is not modified" not in failure.description:
                raise

    async def delete_message(self, chat_id: str, message_id: int) -> None:
        """Take a message away; one that is gone already is fine."""
        fields = {"chat_id": chat_id, "message_id": message_id}
        try:
            await self._call("deleteMessage", fields, bool)
        except ApiFailure as failure:
            if "message to delete not found" not in failure.description:
                raise

    async def send_chat_action(self, fields: Mapping[str, Any]) -> None:
        """Show for five seconds that something is being done; not while answers wait."""
        if not self._transport.crowded:
            await self._call("sendChatAction", fields, bool)

    async def answer_callback_query(self, query_id: str, text: str) -> None:
        """Let go of a pressed button; too late is fine."""
        fields = {"callback_query_id": query_id} | ({"text": text} if text else {})
        try:
            await self._call("answerCallbackQuery", fields, bool)
        except ApiFailure as failure:
            if failure.action is not FailureAction.GIVE_UP:
                raise

    async def set_reaction(self, chat_id: str, message_id: int, emoji: str) -> None:
        """React to a message; an empty emoji takes the reaction away."""
        reaction = [{"type": "emoji", "emoji": emoji}] if emoji else []
        fields = {"chat_id": chat_id, "message_id": message_id, "reaction": reaction}
        await self._call("setMessageReaction", fields, bool)

    async def set_my_commands(self, commands: Sequence[Mapping[str, str]]) -> None:
        """Set the command menu."""
        await self._call("setMyCommands", {"commands": list(commands)}, bool)

    async def create_forum_topic(self, chat_id: str, name: str) -> TopicWire:
        """Open a topic."""
        fields = {"chat_id": chat_id, "name": name}
        return await self._call("createForumTopic", fields, TopicWire, effect=Effect.ONCE)

    async def get_file(self, file_id: str) -> FileInfo:
        """Find out where a file can be fetched."""
        return await self._call("getFile", {"file_id": file_id}, FileInfo)

    async def download(self, file_path: str, target: Path, limit: int) -> int:
        """Fetch a file to disk and return its size; `PlatformFailure` past `limit` bytes."""
        return await self._transport.download(file_path, target, limit)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def _upload_time(self, uploads: Sequence[Upload]) -> float:
        size = sum(len(upload.content) for upload in uploads)
        return self._settings.request_timeout + size / _UPLOAD_BYTES_PER_SECOND

    async def _call(
        self,
        method: str,
        fields: Mapping[str, Any],
        result: type[T],
        *,
        effect: Effect = Effect.REPEATABLE,
        uploads: Sequence[Upload] = (),
        timeout: float | None = None,
    ) -> T:
        return await self._transport.call(
            method,
            fields,
            result,
            effect=effect,
            uploads=uploads,
            timeout=timeout or self._settings.request_timeout,
        )
