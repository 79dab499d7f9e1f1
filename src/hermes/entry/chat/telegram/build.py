"""Making the Telegram adapter from the configuration."""

from hermes.domain.ports.platform import AdapterRequest
from hermes.entry.chat.telegram.adapter import TelegramAdapter
from hermes.entry.chat.telegram.settings import telegram_settings

__all__ = ["build", "credential"]


def build(request: AdapterRequest) -> TelegramAdapter:
    """Return an adapter that is not connected yet; `ConfigError` says what is missing."""
    settings = telegram_settings(request.section, request.block, request.variables)
    return TelegramAdapter(settings, media_dir=request.media_dir, clock=request.clock)


def credential(request: AdapterRequest) -> str:
    """Return the secret that only one gateway may use at a time."""
    return telegram_settings(request.section, request.block, request.variables).token
