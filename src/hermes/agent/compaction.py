"""Compaction: a summary replaces older messages, in one step.

The originals stay in the ledger until the summary is stored, and remain
searchable after that. A tool call is never separated from its result. When the
summary fails, nothing is dropped: the turn continues if it can, and otherwise
ends with an explanation.
"""

from collections.abc import Callable, Sequence

from hermes.agent.scope import AgentServices, durable, side_call
from hermes.domain.errors import HermesError
from hermes.domain.messages import (
    AssistantMessage,
    InputKind,
    Message,
    ToolMessage,
    UserMessage,
    content_text,
)
from hermes.domain.ports.model import Model, ModelRequest
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session, StoredMessage
from hermes.domain.usage import SUMMARY_HEADER, estimate_message

SMALL_WINDOW = 512_000
SMALL_WINDOW_THRESHOLD = 0.75
DEFAULT_WINDOW = 128_000
DIGEST_CHARS = 2_000
SUMMARY_TOKENS = 4_000

INSTRUCTIONS = """\
Summarise the conversation below so that the assistant can continue it without having \
seen it. Write compact notes under these headings and leave out empty ones: Goal; \
Constraints and preferences; Done; Current state; In progress; Decisions and why; Open \
questions; Files and commands that matter; Next steps; Facts that must not be lost. Keep \
names, paths, numbers, identifiers and quoted wishes exact. Do not add anything that was \
not said. Merge an earlier summary in the text into yours."""


class CompactionImpossible(HermesError):
    code = "compaction_impossible"


class Compactor:
    """Decides when a history is too long and replaces its older part."""

    def __init__(
        self,
        services: AgentServices,
        profile: AgentProfile,
        session: Session,
        model: Model,
        *,
        turn_id: str | None = None,
        notify: Callable[[str, str], None] = lambda _code, _text: None,
    ) -> None:
        self._services = services
        self._profile = profile
        self._session = session
        self._turn_id = turn_id
        self._notify = notify
        self._window = model.info.context_window

    @property
    def enabled(self) -> bool:
        """False if no prompt is ever too long: switched off, or the window is not known."""
        return self._services.settings().compression.enabled and self._window is not None

    def due(self, tokens: int) -> bool:
        """Return whether a prompt of `tokens` should be compacted before it is sent."""
        settings = self._services.settings().compression
        if not settings.enabled or self._window is None:
            return False
        threshold = settings.threshold
        if self._window < SMALL_WINDOW:
            threshold = max(threshold, SMALL_WINDOW_THRESHOLD)
        return tokens >= threshold * self._window

    async def compact(
        self, history: Sequence[StoredMessage], *, focus: str = ""
    ) -> list[StoredMessage]:
        """Replace the older part of `history` by a summary; return the new history."""
        settings = self._services.settings().compression
        budget = int((self._window or DEFAULT_WINDOW) * settings.target_ratio)
        cut = split_point(history, budget, settings.protect_last_n)
        if cut == 0 or (cut == 1 and _is(history[0], InputKind.SUMMARY)):
            raise CompactionImpossible(
                "The conversation does not fit the model's context and cannot be made shorter.",
                hint="Start a new session, or choose a model with a larger context window.",
            )
        self._notify("compaction", f"Summarising {cut} older messages to make room.")
        text = await self._summarise(history[:cut], history[cut:], focus)
        summary = UserMessage(kind=InputKind.SUMMARY, content=text)
        stored = await durable(
            self._services.ledger.compact(self._session.id, history[cut - 1].seq, summary)
        )
        return [stored, *history[cut:]]

    async def _summarise(
        self, head: Sequence[StoredMessage], tail: Sequence[StoredMessage], focus: str
    ) -> str:
        services = self._services
        model = services.models.auxiliary("compression", self._profile, self._session)
        request = summary_request(model, [stored.message for stored in head], focus)
        owner = (self._profile.id, self._session.id, self._turn_id)
        reply = await side_call(services.ledger, services.clock, model, request, owner)
        summary = reply.message.text.strip()
        if not summary:
            raise HermesError(
                "The summary of the older messages came back empty; nothing was dropped.",
                hint="Try again, or start a new session.",
            )
        asked = "" if any(_is(stored, InputKind.USER) for stored in tail) else _last_ask(head)
        return services.redact(f"{SUMMARY_HEADER}\n{summary}{asked}")


def summary_request(model: Model, messages: Sequence[Message], focus: str = "") -> ModelRequest:
    """Return the call that summarises messages."""
    room = int((model.info.context_window or DEFAULT_WINDOW) * 0.6) * 4
    focus_line = f"\nPay special attention to: {focus}" if focus else ""
    return ModelRequest(
        system=INSTRUCTIONS + focus_line,
        messages=(UserMessage(content=_without_middle("\n\n".join(map(_line, messages)), room)),),
        max_tokens=SUMMARY_TOKENS,
        task="compression",
    )


def split_point(history: Sequence[StoredMessage], budget: int, protect: int) -> int:
    """Return how many messages to summarise, never parting a call from its result.

    The tail keeps up to `protect` messages and at most `budget` tokens, but
    at least the newest group.
    """
    used = 0
    start = len(history)
    while start > 0 and len(history) - start < protect:
        used += estimate_message(history[start - 1].message)
        if used > budget and start < len(history):
            break
        start -= 1
    while start < len(history) and isinstance(history[start].message, ToolMessage):
        start += 1
    if start == len(history):
        # Where the newest reply with its results, or the newest input, begins.
        start = max(0, start - 1)
        while start > 0 and isinstance(history[start].message, ToolMessage):
            start -= 1
    return start


def _is(stored: StoredMessage, kind: InputKind) -> bool:
    return isinstance(stored.message, UserMessage) and stored.message.kind is kind


def _last_ask(head: Sequence[StoredMessage]) -> str:
    for stored in reversed(head):
        message = stored.message
        if isinstance(message, UserMessage) and message.kind is InputKind.USER:
            asked = content_text(message.content)
            return f"\n\nThe user's last request, word for word:\n{asked}"
    return ""


def _line(message: Message) -> str:
    match message:
        case UserMessage(content=content):
            return f"USER: {content_text(content)}"
        case AssistantMessage(text=text, tool_calls=calls):
            made = "".join(f"\n  -> {call.name}({call.arguments[:DIGEST_CHARS]})" for call in calls)
            return f"ASSISTANT: {text}{made}"
        case ToolMessage(name=name, content=content):
            return f"RESULT of {name}: {_without_middle(content_text(content), DIGEST_CHARS)}"


def _without_middle(text: str, limit: int) -> str:
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} [... left out ...] {text[-half:]}"
