"""Helper calls: what web interfaces ask beside the conversation.

Many send further completions to the same model: a title for the chat, tags,
follow-up questions, search queries, an emoji, the rest of a sentence. These
must neither start an agent with tools nor leave a session behind. They are
answered by one plain call of the cheap model.

How they are recognised, surest first:

1. The client says so: `X-Hermes-Task: title`, or `metadata.task` with one of
   the names that Open WebUI uses. Other values of `metadata.task` belong to
   the client and mean nothing.
2. By shape. A known prompt (`helper_prompts.txt`) has to *begin* the sole user message (or be the
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
from pathlib import Path

from msgspec import Struct

from hermes.domain.messages import AssistantMessage, Message, UserMessage
from hermes.domain.patterns import SafePattern, any_found
from hermes.entry.http.api.conversation import ChatMessage
from hermes.entry.http.endpoint import CallHeaders
from hermes.entry.http.errors import Problem

_PROMPTS = Path(__file__).with_name("helper_prompts.txt")
_TASK = re.compile(r"[a-z0-9_-]{1,64}\Z")
_TASKS = frozenset(
    f"{name}_generation"
    for name in ("autocomplete", "emoji", "follow_up", "image_prompt", "query", "tags", "title")
)
_SYSTEM = ("system", "developer")


class HelperCall(Struct, frozen=True, kw_only=True):
    task: str
    messages: tuple[Message, ...]


class _Shape(Struct, frozen=True):
    task: str
    place: str
    """`only`: it begins the one message that is not from the system; `system`: it begins the
    system message, and only the user speaks; `last`: it is the whole last message, after the
    conversation it is about."""
    begins: str
    holds: str = ""
    ends: str = ""

    def fits(self, text: str, begun: str) -> bool:
        """Tell whether it is `text`, which begins with `begun` if blanks do not count."""
        if not begun.startswith(self.begins):
            return False
        if self.place == "last" and len(text) > 400:
            return False
        return self.holds in text and text.rstrip().endswith(self.ends)


def _known_shapes() -> tuple[_Shape, ...]:
    lines = _PROMPTS.read_text("utf-8").splitlines()
    rows = (line.replace("\\n", "\n").split(" | ") for line in lines if line[:1] not in ("", "#"))
    return tuple(_Shape(*row) for row in rows)


_SHAPES = _known_shapes()


def helper_call(
    messages: Sequence[ChatMessage],
    headers: CallHeaders,
    named: object = None,
    patterns: Sequence[SafePattern] = (),
    *,
    bare: bool = True,
) -> HelperCall | None:
    """Return the helper call that a request is, if it is one.

    `named` is the client's `metadata.task`; a request is `bare` without tools and response format.
    """
    task = _named(headers, named)
    if task is None and bare and headers.session_id is None and headers.session_key is None:
        task = _recognised(messages, patterns)
    return None if task is None else HelperCall(task=task, messages=_messages(messages))


def _named(headers: CallHeaders, named: object) -> str | None:
    if headers.task is None:
        return named if isinstance(named, str) and named in _TASKS else None
    task = headers.task.strip().lower()
    if not _TASK.match(task):
        text = "A task is named with up to 64 letters, digits, hyphens and underscores."
        raise Problem(400, text, code="invalid_value", param="X-Hermes-Task")
    return task


def _recognised(messages: Sequence[ChatMessage], patterns: Sequence[SafePattern]) -> str | None:
    if not all(_only_text(message) for message in messages):
        return None
    talk = [message for message in messages if message.role not in _SYSTEM]
    system = "\n\n".join(_plain(one) for one in messages if one.role in _SYSTEM)
    only = _plain(talk[0]) if len(talk) == 1 and talk[0].role == "user" else None
    if any(one.role != "user" for one in talk):
        system = ""
    places = {"only": only, "system": system, "last": _plain(messages[-1])}
    found = {place: text.lstrip() for place, text in places.items() if text}
    begun = {place: " ".join(text[:400].split()) for place, text in found.items()}
    for shape in _SHAPES:
        if shape.place in found and shape.fits(found[shape.place], begun[shape.place]):
            return shape.task
    texts = [text for text in (only, system) if text]
    if patterns and only is not None and any_found(patterns, *texts):
        return "helper"
    return None


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
