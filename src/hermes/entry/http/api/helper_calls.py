"""Helper calls: what web interfaces ask beside the conversation.

Many send further completions to the same model: a title for the chat, tags,
follow-up questions, search queries, an emoji, the rest of a sentence. These
must neither start an agent with tools nor leave a session behind. They are
answered by one plain call of the cheap model.

How they are recognised, surest first:

1. The client says so: `X-Hermes-Task: title`, or `metadata.task` with one of
   the names that Open WebUI uses. Other values of `metadata.task` belong to
   the client and mean nothing.
2. By shape. A known prompt has to *begin* the sole user message (or be the
   system message of a request in which only the user speaks) and to have its
   further marks: the key of the JSON it asks for, the tag it ends with. A
   prompt quoted further down, or in a conversation, is talk about it.
3. By a pattern of the owner (`helper_patterns`), for prompts that were changed
   in the settings of an interface; on requests of the same form as in 2.

A request with tools, a response format, pictures or a session header is never
taken for one by shape: it wants the agent, or something a plain call cannot
give. If a person sends exactly such a prompt as their one and only message,
a plain call of the model answers it just as well.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum

from msgspec import Struct

from hermes.domain.messages import AssistantMessage, Message, UserMessage
from hermes.entry.http.api.chat_wire import ChatRequest
from hermes.entry.http.api.conversation import ChatMessage
from hermes.entry.http.endpoint import CallHeaders
from hermes.entry.http.errors import Problem

__all__ = ["HelperCall", "helper_call"]

_TASK = re.compile(r"[a-z0-9_-]{1,64}\Z")
_TASKS = frozenset(
    {
        "autocomplete_generation",
        "emoji_generation",
        "follow_up_generation",
        "image_prompt_generation",
        "query_generation",
        "tags_generation",
        "title_generation",
    }
)
_SYSTEM = ("system", "developer")


class HelperCall(Struct, frozen=True, kw_only=True):
    """A helper call, ready for a plain model call."""

    task: str
    messages: tuple[Message, ...]


class _In(StrEnum):
    """Where a known prompt stands."""

    ONLY = "only"
    """It begins the one message that is not from the system."""
    SYSTEM = "system"
    """It begins the system message, and only the user speaks."""
    LAST = "last"
    """It is the whole last message, after the conversation it is about."""


class _Shape(Struct, frozen=True):
    """What a known prompt looks like."""

    task: str
    place: _In
    begins: str
    holds: str = ""
    ends: str = ""

    def fits(self, text: str) -> bool:
        """Tell whether a message is this prompt."""
        if not " ".join(text[:400].split()).startswith(self.begins):
            return False
        if self.place is _In.LAST and len(text) > 400:
            return False
        return self.holds in text and text.rstrip().endswith(self.ends)


_HISTORY = "</chat_history>"
_SHAPES = (
    # Open WebUI; the words after "Task" differ between versions and are often edited.
    _Shape("title", _In.ONLY, "### Task:", '"title":', _HISTORY),
    _Shape("tags", _In.ONLY, "### Task:", '"tags":', _HISTORY),
    _Shape("follow_ups", _In.ONLY, "### Task:", '"follow_ups":', _HISTORY),
    _Shape("queries", _In.ONLY, "### Task:", '"queries":', _HISTORY),
    _Shape(
        "image_prompt",
        _In.ONLY,
        "### Task: Generate a detailed prompt for",
        '"prompt":',
        _HISTORY,
    ),
    _Shape(
        "autocomplete",
        _In.ONLY,
        "### Task: You are an autocompletion system.",
        "<type>",
        "#### Output:",
    ),
    _Shape(
        "emoji",
        _In.ONLY,
        "Your task is to reflect the speaker's likely facial expression through a fitting emoji.",
        "Message: ```",
        "```",
    ),
    # LibreChat.
    _Shape(
        "title",
        _In.ONLY,
        "Provide a concise, 5-word-or-less title for the conversation, using its same language",
        "\nConversation:",
    ),
    _Shape(
        "title", _In.SYSTEM, "Write a concise title for this conversation in the given language"
    ),
    # Chatbox.
    _Shape(
        "title",
        _In.ONLY,
        "Based on the chat history, give this conversation a name.",
        "Here's the conversation",
    ),
    # LobeChat, Cherry Studio, DeepChat, big-AGI, opencode, n8n.
    _Shape(
        "title", _In.SYSTEM, "You are a professional conversation summarizer. Generate a concise"
    ),
    _Shape("title", _In.SYSTEM, "You are an assistant skilled in conversation", "title within 10"),
    _Shape("title", _In.SYSTEM, "You are an assistant skilled at conversations", "title within 10"),
    _Shape("title", _In.SYSTEM, "You need to summarize the user's conversation into a title"),
    _Shape(
        "title", _In.ONLY, "You need to summarize the user's conversation into a title of no more"
    ),
    _Shape("title", _In.SYSTEM, "You are an AI conversation titles assistant who specializes in"),
    _Shape("title", _In.SYSTEM, "You are a title generator. You output ONLY a thread title."),
    _Shape(
        "title",
        _In.SYSTEM,
        "Generate a concise, descriptive title for this conversation based on the user's message.",
        "Only output the title",
    ),
    # NextChat.
    _Shape(
        "title",
        _In.LAST,
        "Please generate a four to five word title summarizing our conversation",
        "Remove enclosing quotation marks",
    ),
    _Shape(
        "summary",
        _In.LAST,
        "Summarize the discussion briefly in 200 words or less to use as a prompt",
    ),
)


def helper_call(
    request: ChatRequest, headers: CallHeaders, patterns: Sequence[str] = ()
) -> HelperCall | None:
    """Return the helper call that a request is, if it is one."""
    task = _named(request, headers) or _recognised(request, headers, patterns)
    return None if task is None else HelperCall(task=task, messages=_messages(request.messages))


def _named(request: ChatRequest, headers: CallHeaders) -> str | None:
    if headers.task is not None:
        task = headers.task.strip().lower()
        if not _TASK.match(task):
            text = "A task is named with up to 64 letters, digits, hyphens and underscores."
            raise Problem(400, text, code="invalid_value", param="X-Hermes-Task")
        return task
    named = (request.metadata or {}).get("task")
    return named if isinstance(named, str) and named in _TASKS else None


def _recognised(request: ChatRequest, headers: CallHeaders, patterns: Sequence[str]) -> str | None:
    if headers.session_id is not None or headers.session_key is not None:
        return None
    if request.tools or request.response_format is not None:
        return None
    messages = request.messages
    if not all(_only_text(message) for message in messages):
        return None
    talk = [message for message in messages if message.role not in _SYSTEM]
    system = "\n\n".join(_plain(one) for one in messages if one.role in _SYSTEM)
    only = _plain(talk[0]) if len(talk) == 1 and talk[0].role == "user" else None
    if any(one.role != "user" for one in talk):
        system = ""
    found = {_In.ONLY: only, _In.SYSTEM: system, _In.LAST: _plain(messages[-1])}
    for shape in _SHAPES:
        text = found[shape.place]
        if text and shape.fits(text.lstrip()):
            return shape.task
    if only is not None and any(_matches(pattern, only, system) for pattern in patterns):
        return "helper"
    return None


def _matches(pattern: str, *texts: str) -> bool:
    # A pattern that cannot be compiled is reported where the settings are read.
    with suppress(re.error):
        return any(re.search(pattern, text) for text in texts if text)
    return False


def _only_text(message: ChatMessage) -> bool:
    if message.tool_calls:
        return False
    parts = () if message.content is None or isinstance(message.content, str) else message.content
    return all(part.type in ("text", "input_text") for part in parts)


def _plain(message: ChatMessage) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    return "\n".join(part.text for part in message.content if part.text)


def _messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Return what the model is told: system text as part of what the user says next."""
    told: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        text = _plain(message)
        if message.role == "assistant":
            told += _asked(waiting)
            waiting = []
            if text.strip():
                told.append(AssistantMessage(text=text))
        elif text.strip():
            waiting.append(text)
    told += _asked(waiting)
    if not told or not isinstance(told[-1], UserMessage):
        raise Problem(400, "There is nothing to answer.", code="invalid_value", param="messages")
    return tuple(told)


def _asked(texts: list[str]) -> list[Message]:
    return [UserMessage(content="\n\n".join(texts))] if texts else []
