"""Making the Telegram adapter from the configuration."""

from hermes.domain.ports.platform import AdapterRequest
from hermes.entry.chat.telegram.adapter import TelegramAdapter
from hermes.entry.chat.telegram.settings import TelegramSettings, telegram_settings

__all__ = ["build", "channel_prompt", "credential", "reactions"]


def build(request: AdapterRequest) -> TelegramAdapter:
    """Return an adapter that is not connected yet; `ConfigError` says what is missing."""
    settings = _settings(request)
    return TelegramAdapter(settings, media_dir=request.media_dir, clock=request.clock)


def credential(request: AdapterRequest) -> str:
    """Return the secret that only one gateway may use at a time."""
    return _settings(request).token


def channel_prompt(request: AdapterRequest, chat_id: str, thread_id: str | None) -> str:
    """Return the extra prompt of a chat or topic."""
    return _settings(request).channel_prompt(chat_id, thread_id)


def reactions(request: AdapterRequest) -> bool:
    """Tell whether progress is to be shown as reactions."""
    return _settings(request).reactions


def _settings(request: AdapterRequest) -> TelegramSettings:
    return telegram_settings(request.section, request.block, request.variables)
