"""Answers to pending approvals and questions: words, emoji, buttons."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.domain.approvals import Approval, ApprovalKind, ApprovalRequest, Choice
from hermes.domain.ports.platform import Button

ANSWERED_AS = "answer"
MAX_WORDS = 3

YES = frozenset(
    {"yes", "y", "ok", "okay", "approve", "approved", "confirm", "go ahead", "do it", "ja", "sí"}
    | {"si", "oui", "да", "是", "好", "可以", "👍", "👍🏻", "👍🏼", "👍🏽", "👍🏾", "👍🏿", "✅"}
)
NO = frozenset(
    {"no", "n", "nope", "deny", "denied", "cancel", "stop", "don't", "nein", "non", "нет"}
    | {"否", "不", "不要", "👎", "👎🏻", "👎🏼", "👎🏽", "👎🏾", "👎🏿", "❌"}
)

_LABELS = {
    Choice.ONCE: "✅ Once",
    Choice.SESSION: "🕓 This session",
    Choice.ALWAYS: "♾️ Always",
    Choice.DENY: "❌ Deny",
}


class Answer(Struct, frozen=True, kw_only=True):
    approval_id: str
    choice: Choice | None = None
    """None: the answer to a question, in words."""
    text: str = ""


def read_answer(text: str, pending: Sequence[Approval]) -> Answer | None:
    """Read a message as the answer to the oldest pending request; None: it is no answer."""
    oldest = pending[0].request
    if oldest.kind is ApprovalKind.QUESTION:
        return Answer(approval_id=oldest.id, text=text)
    word = text.strip().rstrip(".!").lower()
    if len(word.split()) > MAX_WORDS:
        return None
    if word in YES:
        return Answer(approval_id=oldest.id, choice=Choice.ONCE)
    if word in NO:
        return Answer(approval_id=oldest.id, choice=Choice.DENY)
    return None


def request_buttons(request: ApprovalRequest) -> tuple[tuple[Button, ...], ...]:
    """Return the buttons that answer a request, in rows."""
    if request.kind is ApprovalKind.QUESTION:
        return tuple(
            (Button(label=choice[:60], data=f"cl:{number}:{request.id}"),)
            for number, choice in enumerate(request.choices)
        )
    buttons = [
        Button(
            label=_LABELS[choice],
            data=f"ea:{choice.value}:{request.id}",
            style="danger" if choice is Choice.DENY else "primary",
        )
        for choice in Choice
        if choice.value in request.choices
    ]
    return tuple(tuple(buttons[at : at + 2]) for at in range(0, len(buttons), 2))


def read_press(data: str) -> Answer | None:
    """Read the data of a pressed button; None if it is not one of ours."""
    kind, _, rest = data.partition(":")
    word, _, approval_id = rest.partition(":")
    if not approval_id:
        return None
    if kind == "ea" and word in set(Choice):
        return Answer(approval_id=approval_id, choice=Choice(word))
    if kind == "cl" and word.isdecimal():
        return Answer(approval_id=approval_id, text=str(int(word) + 1))
    return None
