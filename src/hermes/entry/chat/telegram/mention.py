"""Whether the bot is being spoken to: the mention rules as one pure function."""

from msgspec import Struct

from hermes.entry.chat.telegram.settings import TelegramSettings

__all__ = ["Spoken", "Verdict", "judge"]


class Spoken(Struct, frozen=True, kw_only=True):
    """What the rules need to know about a message."""

    private: bool
    chat_id: str
    thread_id: str | None = None
    text: str = ""
    mentioned: bool = False
    """Named explicitly: `@bot`, a link to it, or `/command@bot`."""
    replied_to: bool = False
    """It answers one of our messages."""
    command: bool = False
    """A command that is not addressed to another bot."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What the rules say."""

    heard: bool
    reason: str = ""
    observed: bool = False
    """Not for us, but from a place where we may listen."""


def judge(spoken: Spoken, settings: TelegramSettings) -> Verdict:
    """Decide whether a message is for the bot."""
    if _listed(settings.ignored_threads, spoken.chat_id, spoken.thread_id, threads=True):
        return Verdict(heard=False, reason="ignored thread")
    if spoken.private:
        return Verdict(heard=True)
    if settings.allowed_chats and spoken.chat_id not in settings.allowed_chats:
        guest = settings.guest_mode and spoken.mentioned
        return Verdict(heard=guest, reason="" if guest else "chat is not allowed")
    if settings.allowed_topics and not _listed(
        settings.allowed_topics, spoken.chat_id, spoken.thread_id, threads=True
    ):
        return Verdict(heard=False, reason="topic is not allowed")
    if _addressed(spoken, settings):
        return Verdict(heard=True)
    return Verdict(heard=False, reason="not mentioned", observed=True)


def _addressed(spoken: Spoken, settings: TelegramSettings) -> bool:
    if not settings.require_mention:
        return True
    if spoken.mentioned or spoken.replied_to or spoken.command:
        return True
    if _listed(settings.free_response_chats, spoken.chat_id, spoken.thread_id, threads=False):
        return True
    return any(pattern.found_in(spoken.text) for pattern in settings.mention_patterns)


def _listed(names: frozenset[str], chat_id: str, thread_id: str | None, *, threads: bool) -> bool:
    """Look for `chat:thread`, and for the thread or else the chat alone."""
    alone = thread_id if threads else chat_id
    return alone in names or (thread_id is not None and f"{chat_id}:{thread_id}" in names)
