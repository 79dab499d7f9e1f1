"""Telegram's side of the `Adapter` port.

Only what is truly Telegram's: the shape of its calls, its General topic, its
short list of reactions, its rules for command names. Pacing, splitting, markup,
retrying and remembering are the control plane's.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import (
    FailureAction,
    InboundSink,
    Outgoing,
    PlatformFailure,
    Sent,
)
from hermes.entry.chat.telegram.api import BotApi
from hermes.entry.chat.telegram.failures import ApiFailure
from hermes.entry.chat.telegram.intake import Intake
from hermes.entry.chat.telegram.media import MediaStore
from hermes.entry.chat.telegram.outgoing import Composer
from hermes.entry.chat.telegram.parse import Bot, message_name, message_number
from hermes.entry.chat.telegram.polling import Poller
from hermes.entry.chat.telegram.settings import TelegramSettings
from hermes.entry.chat.telegram.webhook import WebhookListener
from hermes.entry.chat.telegram.wire import SentWire

__all__ = ["TelegramAdapter"]

_LOG = logging.getLogger(__name__)
_REACTIONS = {"✅": "👍", "❌": "👎", "⏳": "👀", "♾️": "💯"}
"""Bots may react with Telegram's own short list only; these are the nearest."""
_TOPIC_NAME = 128
_COMMANDS = 100
_COMMAND_TEXT = 256
_NOT_A_COMMAND = re.compile(r"[^a-z0-9_]+")


class TelegramAdapter:
    """One bot."""

    def __init__(self, settings: TelegramSettings, *, media_dir: Path, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._api = BotApi(settings)
        self._bot: Bot | None = None
        self._composer = Composer(settings)
        media = MediaStore(self._api, settings, media_dir, clock)
        self._intake = Intake(self._api, settings, media, self._me)
        self._listener: WebhookListener | None = None
        if settings.webhook is not None:
            self._listener = WebhookListener(self._api, settings.webhook, clock)

    @property
    def account(self) -> str:
        """The bot's id, which is also the public half of its token."""
        return str(self._bot.id) if self._bot is not None else self._settings.bot_id

    @property
    def listener(self) -> WebhookListener | None:
        """The webhook's listener, in webhook mode."""
        return self._listener

    async def connect(self) -> None:
        """Check the token and choose between polling and being called."""
        me = await self._api.get_me()
        commands = self._bot.commands if self._bot is not None else {}
        self._bot = Bot(id=me.id, username=me.username, commands=commands)
        if self._listener is None:
            await self._api.delete_webhook()
        else:
            await self._listener.register()

    async def receive(self, sink: InboundSink) -> None:
        """Receive until cancelled."""
        try:
            async with asyncio.TaskGroup() as answers:

                async def take(raws: list[bytes]) -> int | None:
                    return await self._intake.take(raws, sink, answers)

                if self._listener is None:
                    await Poller(self._api, self._clock).run(sink, take)
                else:
                    await self._listener.run(sink, take)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def send(self, outgoing: Outgoing) -> Sent:
        """Show something new."""
        if outgoing.attachment is None:
            sent = await self._api.send_message(self._composer.text(outgoing))
        else:
            sent = await self._send_file(outgoing)
        return _sent(sent)

    async def send_album(self, pieces: list[Outgoing]) -> list[Sent]:
        """Show two to ten pictures or videos as one album; the first one's text is the caption."""
        fields, uploads = await self._composer.album(pieces)
        return [_sent(sent) for sent in await self._api.send_media_group(fields, uploads)]

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        """Replace the text and the buttons of an earlier message."""
        method, fields = self._composer.edit(_numbered(native_id), outgoing)
        await self._api.edit(method, fields)

    async def delete(self, target: Target, native_id: str) -> None:
        """Take a message away."""
        await self._api.delete_message(target.chat_id, _numbered(native_id))

    async def typing(self, target: Target) -> None:
        """Show that an answer is being made."""
        await self._api.send_chat_action(self._composer.typing(target))

    async def react(self, target: Target, native_id: str, emoji: str) -> None:
        """React to a message with the nearest emoji that Telegram allows."""
        if self._settings.reactions:
            emoji = _REACTIONS.get(emoji, emoji)
            await self._api.set_reaction(target.chat_id, _numbered(native_id), emoji)

    async def create_thread(self, target: Target, name: str) -> str | None:
        """Open a forum topic; None where there are none or we may not."""
        try:
            topic = await self._api.create_forum_topic(target.chat_id, name[:_TOPIC_NAME])
        except ApiFailure as failure:
            if failure.action is FailureAction.GIVE_UP:
                return None
            raise
        return str(topic.message_thread_id)

    async def publish_commands(self, commands: Mapping[str, str]) -> None:
        """Set the command menu; as much of it as Telegram takes."""
        names = {_NOT_A_COMMAND.sub("_", name.lower())[:32]: name for name in commands}
        menu = [
            {"command": short, "description": commands[name][:_COMMAND_TEXT] or name}
            for short, name in names.items()
            if short.strip("_")
        ][:_COMMANDS]
        if self._bot is not None:
            aliases = {short: name for short, name in names.items() if short != name}
            self._bot = msgspec.structs.replace(self._bot, commands=aliases)
        while True:
            try:
                await self._api.set_my_commands(menu)
            except ApiFailure as failure:
                if "bot_commands_too_much" not in failure.description or len(menu) < 2:
                    raise
                # All of the menu together may have about four kilobytes.
                menu = menu[: len(menu) * 3 // 4]
            else:
                return

    async def close(self) -> None:
        """Close connections."""
        await self._api.close()

    def _me(self) -> Bot:
        if self._bot is None:
            raise PlatformFailure(FailureAction.RETRY, "Telegram is not connected yet.")
        return self._bot

    async def _send_file(self, outgoing: Outgoing) -> SentWire:
        method, fields, upload = await self._composer.file(outgoing)
        try:
            return await self._api.send_file(method, fields, upload)
        except ApiFailure as failure:
            # Telegram refuses pictures of odd sizes and sounds it cannot play as such.
            refused = failure.action is FailureAction.GIVE_UP and failure.status == 400
            if method == "sendDocument" or not refused or "chat" in failure.description:
                raise
            _LOG.info("%s was refused (%s); sending it as a file", method, failure.description)
        plain = msgspec.structs.replace(outgoing, attachment_kind="document")
        method, fields, upload = await self._composer.file(plain)
        return await self._api.send_file(method, fields, upload)


def _sent(sent: SentWire) -> Sent:
    return Sent(native_id=message_name(sent.chat.id, sent.message_id))


def _numbered(native_id: str) -> int:
    number = message_number(native_id)
    if number is None:
        raise PlatformFailure(
            FailureAction.SEND_NEW, f"{native_id!r} does not name a Telegram message."
        )
    return number
