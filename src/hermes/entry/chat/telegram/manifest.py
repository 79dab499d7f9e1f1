"""Telegram as data: readable without importing the adapter or an HTTP library."""

from hermes.domain.ports.platform import Capabilities, LengthUnit, Manifest

__all__ = ["MANIFEST"]

MANIFEST = Manifest(
    name="telegram",
    label="Telegram",
    emoji="✈️",
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
        max_file_bytes=50_000_000,
        album_size=10,
        caption_length=1024,
        private_interval=1.0,
        group_interval=3.0,
        typing_seconds=4.0,
    ),
    token_env=("TELEGRAM_BOT_TOKEN",),
    env_prefix="TELEGRAM",
    batch_seconds=0.3,
    long_batch_seconds=1.0,
    album_seconds=0.8,
    adapter="hermes.entry.chat.telegram.adapter:TelegramAdapter",
)
