"""Telegram as data: readable without importing the adapter or an HTTP library."""

from typing import TYPE_CHECKING

from hermes.domain.platforms import Capabilities, ChatPlatform, Credential, LengthUnit, Limits, Rate

if TYPE_CHECKING:
    from hermes.domain.ports.platform import Adapter, AdapterRequest


def _make(request: "AdapterRequest") -> "Adapter":
    from hermes.entry.chat.telegram.adapter import TelegramAdapter  # noqa: PLC0415 - with use

    return TelegramAdapter.configured(request)


PLATFORM = ChatPlatform(
    name="telegram",
    label="Telegram",
    capabilities=Capabilities(
        max_length=4096,
        unit=LengthUnit.UTF16,
        dialect="telegram_html",
        edits=True,
        deletes=True,
        threads=True,
        buttons=True,
        typing=True,
        reactions=True,
        media=frozenset({"image", "voice", "audio", "video", "document"}),
        album_size=10,
        # A message a second and 20 a minute in groups are the defaults; it names no figure for
        # several bots of one host.
        limits=Limits(account=Rate(30, 1.0, burst=8, reserve=4)),
    ),
    make=_make,
    credentials=(
        Credential(
            key="token",
            variable="TELEGRAM_BOT_TOKEN",
            label="bot token",
            shape=r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
            mark=":AA",
        ),
    ),
    setup="hermes config set TELEGRAM_BOT_TOKEN <token from @BotFather>.",
)
