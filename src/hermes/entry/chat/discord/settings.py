"""Settings of the Discord door; where each is looked up is the kit's matter."""

from typing import Literal

from msgspec.structs import force_setattr

from hermes.entry.chat.kit.settings import ChatSettings, Seconds, server_root


class DiscordRules(ChatSettings, frozen=True, kw_only=True):
    """What may change while connected. Keys that end in `_chats` may end in `_channels`."""

    reactions: bool = True
    ignored_chats: frozenset[str] = frozenset()
    """Channels in which nothing is heard, mentioned or not."""
    auto_thread: bool = True
    """A mention in a channel opens a thread, and the conversation is there."""
    no_thread_chats: frozenset[str] = frozenset()
    missed_message_backfill: bool = True
    command_sync_policy: Literal["safe", "bulk", "off"] = "safe"
    """`off`: the slash commands of the bot stay as they are."""
    history_backfill: int = 0
    """So many messages before a mention are told along with it, back to our own last one."""
    max_attachment_bytes: int = 32 * 1024 * 1024
    allowed_users: frozenset[str] = frozenset()
    """Also: whose private chats are looked into when a session begins."""


class DiscordSettings(DiscordRules, frozen=True, kw_only=True):
    token: str
    base_url: str = "https://discord.com/api/v10"
    """The root of the REST API with its version; the gateway's address comes from there."""
    proxy: str = ""
    request_timeout: Seconds = 60.0

    def __post_init__(self) -> None:
        root = server_root("discord", self.base_url, "http://127.0.0.1:8081/api/v10")
        force_setattr(self, "base_url", root)

    def __repr__(self) -> str:
        return f"DiscordSettings(base_url={self.base_url!r})"
