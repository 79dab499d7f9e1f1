"""What a failed Bot API call means for the piece it carried.

The Bot API has no idempotent sends: once a request may have been received, only
calls that can safely be repeated are. The wording of descriptions is Telegram's
and is matched by substring, as all clients do.
"""

from enum import StrEnum

from msgspec import Struct

from hermes.domain.ports.platform import FailureAction, PlatformFailure
from hermes.entry.chat.telegram.wire import Envelope

__all__ = [
    "TOKEN_HINT",
    "ApiFailure",
    "Effect",
    "Refusal",
    "answer_failure",
    "transport_failure",
    "unreadable",
]

TOKEN_HINT = (
    "Check TELEGRAM_BOT_TOKEN: it must be the whole token that @BotFather gave, "  # noqa: S105
    "and the token must not have been revoked since."
)
_BY_DESCRIPTION: tuple[tuple[str, FailureAction], ...] = (
    ("can't parse entities", FailureAction.PLAIN),
    ("can't find end of the entity", FailureAction.PLAIN),
    ("entity_bounds_invalid", FailureAction.PLAIN),
    ("message to edit not found", FailureAction.SEND_NEW),
    ("message can't be edited", FailureAction.SEND_NEW),
    ("message_id_invalid", FailureAction.SEND_NEW),
    ("message to be replied not found", FailureAction.DROP_REPLY),
    ("replied message not found", FailureAction.DROP_REPLY),
    ("message thread not found", FailureAction.DROP_THREAD),
    ("topic_closed", FailureAction.DROP_THREAD),
    ("topic_deleted", FailureAction.DROP_THREAD),
)


class Effect(StrEnum):
    """Whether a call may be made twice."""

    REPEATABLE = "repeatable"
    """Reading, editing, deleting: a second time changes nothing."""
    ONCE = "once"
    """Sending: a second time shows a second message."""


class Refusal(Struct, frozen=True, kw_only=True):
    """What Telegram's answer said; all empty if there was none."""

    status: int = 0
    description: str = ""
    retry_after: float = 0.0
    moved_to: str | None = None


class ApiFailure(PlatformFailure):
    """A refusal or a broken call, with Telegram's own words."""

    def __init__(
        self,
        action: FailureAction,
        message: str,
        *,
        hint: str = "",
        refusal: Refusal = Refusal(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(
            action,
            message,
            hint=hint,
            retry_after=refusal.retry_after,
            moved_to=refusal.moved_to,
        )
        self.status = refusal.status
        self.description = refusal.description.lower()


def answer_failure(method: str, status: int, answer: Envelope) -> ApiFailure:
    """Explain an answer that says no."""
    status = answer.error_code or status
    description = answer.description or f"error {status}"
    moved = answer.parameters.migrate_to_chat_id if answer.parameters else None
    retry_after = answer.parameters.retry_after if answer.parameters else None
    action = FailureAction.RETRY if moved is not None else _action(status, description.lower())
    return ApiFailure(
        action,
        f"Telegram refused {method}: {description}",
        hint=TOKEN_HINT if action is FailureAction.FATAL else "",
        refusal=Refusal(
            status=status,
            description=description,
            retry_after=_pause(retry_after) if action is FailureAction.WAIT else 0.0,
            moved_to=None if moved is None else str(moved),
        ),
    )


def unreadable(method: str, status: int, effect: Effect) -> ApiFailure:
    """Explain an answer that is not from the Bot API itself, e.g. a proxy's error page."""
    refusal = Refusal(status=status)
    if status == 413:
        return ApiFailure(
            FailureAction.GIVE_UP, "The file is too large for Telegram.", refusal=refusal
        )
    if status in {401, 404}:
        return ApiFailure(
            FailureAction.FATAL,
            f"Telegram's server does not know this bot (HTTP {status}).",
            hint=TOKEN_HINT,
            refusal=refusal,
        )
    # 500, 502 and 503 pages come from in front of the Bot API; a good status with a
    # broken body and a gateway's timeout come after the request was passed on.
    passed_on = status < 500 or status == 504
    ambiguous = passed_on and effect is Effect.ONCE
    return ApiFailure(
        FailureAction.UNKNOWN if ambiguous else FailureAction.RETRY,
        f"Telegram's answer to {method} could not be read (HTTP {status}).",
        refusal=refusal,
    )


def transport_failure(method: str, reason: str, *, sent: bool, effect: Effect) -> ApiFailure:
    """Explain a connection that could not be made, or broke."""
    if sent and effect is Effect.ONCE:
        return ApiFailure(
            FailureAction.UNKNOWN,
            f"The connection broke during {method}; it may have been carried out ({reason}).",
        )
    return ApiFailure(FailureAction.RETRY, f"Telegram cannot be reached for {method} ({reason}).")


def _pause(retry_after: float | None) -> float:
    return 1.0 if retry_after is None else max(0.0, retry_after)


def _action(status: int, description: str) -> FailureAction:
    if status == 429:
        return FailureAction.WAIT
    if status in {401, 404}:
        return FailureAction.FATAL
    if status >= 500 or status == 409:
        return FailureAction.RETRY
    for words, action in _BY_DESCRIPTION:
        if words in description:
            return action
    return FailureAction.GIVE_UP
