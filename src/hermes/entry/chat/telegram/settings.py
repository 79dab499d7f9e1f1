"""What can be set for the Telegram door, and where each setting is looked up.

Environment names (`TELEGRAM_...`) win over `platforms.telegram` with its
`extra`, which wins over the root block `telegram:`. Everything arrives as plain
mappings; nothing here reads files or the environment.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from hermes.domain.errors import ConfigError
from hermes.entry.chat.telegram.lookup import Lookup
from hermes.entry.chat.telegram.patterns import MentionPattern

__all__ = ["TelegramSettings", "TopicSkill", "WebhookSettings", "telegram_settings"]

_PUBLIC_ROOT = "https://api.telegram.org"
_CLOUD_DOWNLOAD = 20_000_000
_LOCAL_DOWNLOAD = 134_217_728
ReplyToMode = Literal["off", "first", "all"]


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """Being called by Telegram instead of asking."""

    url: str
    port: int = 8443
    host: str = "127.0.0.1"
    secret: str = ""
    """What Telegram must send along; empty: a new one with every start."""

    def __repr__(self) -> str:
        return f"WebhookSettings(url={self.url!r}, host={self.host!r}, port={self.port})"


class TopicSkill(Struct, frozen=True, kw_only=True):
    """A topic that a skill belongs to."""

    chat_id: str
    thread_id: str | None
    name: str
    skill: str


class TelegramSettings(Struct, frozen=True, kw_only=True):
    """One bot."""

    token: str
    base_url: str = _PUBLIC_ROOT
    """The root of the server, without `/bot`."""
    base_file_url: str = f"{_PUBLIC_ROOT}/file"
    local_mode: bool = False
    """The server runs on this machine with `--local` and names files by path."""
    proxy: str = ""
    require_mention: bool = True
    """In groups, answer only when spoken to."""
    mention_patterns: tuple[MentionPattern, ...] = ()
    free_response_chats: frozenset[str] = frozenset()
    allowed_chats: frozenset[str] = frozenset()
    """Groups to answer in; empty: all. Private chats are not affected."""
    allowed_topics: frozenset[str] = frozenset()
    ignored_threads: frozenset[str] = frozenset()
    guest_mode: bool = False
    """Answer explicit mentions in groups that are not allowed otherwise."""
    observe_unmentioned_group_messages: bool = False
    reactions: bool = False
    reply_to_mode: ReplyToMode = "first"
    disable_link_previews: bool = False
    webhook: WebhookSettings | None = None
    topics: tuple[TopicSkill, ...] = ()
    channel_prompts: Mapping[str, str] = field(default_factory=dict)
    """Chat id, or `chat:topic`, to an extra prompt."""
    max_download_bytes: int = _CLOUD_DOWNLOAD
    poll_timeout: float = 30.0
    """How long Telegram holds a poll that has nothing to say."""
    poll_grace: float = 15.0
    """How much longer we wait for its answer before giving the connection up."""
    request_timeout: float = 30.0
    download_timeout: float = 60.0
    """How long the files of a batch may hold it up; a longer silence looks like a lost line."""

    def __repr__(self) -> str:
        return f"TelegramSettings(base_url={self.base_url!r}, bot={self.bot_id!r})"

    @property
    def bot_id(self) -> str:
        """The public half of the token."""
        return self.token.partition(":")[0]

    def channel_prompt(self, chat_id: str, thread_id: str | None) -> str:
        """Return the extra prompt of a chat or topic; the topic's own comes first."""
        prompts = self.channel_prompts
        return prompts.get(f"{chat_id}:{thread_id}") or prompts.get(chat_id) or ""

    def topic_skill(self, chat_id: str, thread_id: str | None) -> str:
        """Return the skill that belongs to a topic."""
        for topic in self.topics:
            if topic.chat_id == chat_id and topic.thread_id == thread_id and thread_id:
                return topic.skill
        return ""


def telegram_settings(
    platform: Mapping[str, object],
    root_block: Mapping[str, object],
    variables: Mapping[str, str],
) -> TelegramSettings:
    """Build the settings from config and environment; `ConfigError` names what is wrong."""
    look = Lookup(platform, root_block, variables)
    token = look.text("token", env="BOT_TOKEN")
    if not token:
        raise ConfigError(
            "Telegram has no bot token.",
            hint="Get one from @BotFather and put TELEGRAM_BOT_TOKEN=... into .env.",
        )
    root = _root(look.text("base_url") or _PUBLIC_ROOT)
    local = look.flag("local_mode", default=False)
    return TelegramSettings(
        token=token,
        base_url=root,
        base_file_url=_root(look.text("base_file_url") or f"{root}/file"),
        local_mode=local,
        proxy=look.text("proxy") or look.text("proxy_url"),
        require_mention=look.flag("require_mention", default=True),
        mention_patterns=tuple(MentionPattern(text) for text in look.lines("mention_patterns")),
        free_response_chats=look.names("free_response_chats"),
        allowed_chats=look.names("allowed_chats"),
        allowed_topics=look.names("allowed_topics"),
        ignored_threads=look.names("ignored_threads"),
        guest_mode=look.flag("guest_mode", default=False),
        observe_unmentioned_group_messages=look.flag(
            "observe_unmentioned_group_messages", default=False
        ),
        reactions=look.flag("reactions", default=False),
        reply_to_mode=_reply_to_mode(look),
        disable_link_previews=look.flag("disable_link_previews", default=False),
        webhook=_webhook(look),
        topics=_topics(look),
        channel_prompts=look.mapping("channel_prompts"),
        max_download_bytes=_LOCAL_DOWNLOAD if local else _CLOUD_DOWNLOAD,
        poll_timeout=look.seconds("poll_timeout", default=30.0),
    )


def _root(url: str) -> str:
    """Accept a server's root with or without the `/bot` that libraries want after it."""
    root = url.strip().rstrip("/").removesuffix("/bot")
    if not root.startswith(("http://", "https://")):
        raise ConfigError(
            f"The Telegram server address {root!r} is not an http or https URL.",
            hint="Set platforms.telegram.extra.base_url to e.g. http://127.0.0.1:8081.",
        )
    return root


def _reply_to_mode(look: Lookup) -> ReplyToMode:
    match look.text("reply_to_mode") or "first":
        # YAML reads a bare `off` as false.
        case "off" | "false":
            return "off"
        case "first":
            return "first"
        case "all":
            return "all"
        case other:
            raise ConfigError(
                f"Telegram's reply_to_mode cannot be {other!r}.", hint="Use off, first or all."
            )


def _webhook(look: Lookup) -> WebhookSettings | None:
    url = look.text("webhook.url", env="WEBHOOK_URL")
    if not url:
        return None
    return WebhookSettings(
        url=url,
        port=int(look.seconds("webhook.port", default=8443, env="WEBHOOK_PORT")),
        host=look.text("webhook.host", env="WEBHOOK_HOST") or "127.0.0.1",
        secret=look.text("webhook.secret", env="WEBHOOK_SECRET"),
    )


def _topics(look: Lookup) -> tuple[TopicSkill, ...]:
    found: list[TopicSkill] = []
    for chat in (*look.tables("group_topics"), *look.tables("dm_topics")):
        topics = chat.get("topics")
        for topic in topics if isinstance(topics, list) else ():
            if not isinstance(topic, Mapping):
                continue
            thread = topic.get("thread_id")
            found.append(
                TopicSkill(
                    chat_id=str(chat.get("chat_id", "")),
                    thread_id=None if thread is None else str(thread),
                    name=str(topic.get("name", "")),
                    skill=str(topic.get("skill", "")),
                )
            )
    return tuple(found)
