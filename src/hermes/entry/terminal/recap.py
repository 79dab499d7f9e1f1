"""The recap at the start of a resumed conversation: the last exchanges, shortened."""

from collections.abc import Sequence

from hermes.control.commands.exchanges import Exchange, exchanges
from hermes.domain.session import Session, StoredMessage
from hermes.streaming.terminal import harmless

__all__ = ["RECAP_EXCHANGES", "recap_lines"]

RECAP_EXCHANGES = 10
ASKED_CHARS = 300
ANSWER_CHARS = 200
ANSWER_LINES = 3


def recap_lines(session: Session, history: Sequence[StoredMessage]) -> list[tuple[str, str]]:
    """Return (who, text) pairs, `head`, `you` or `agent`."""
    found = exchanges(history)
    left_out = len(found) - RECAP_EXCHANGES
    head = f"{session.title or session.id}"
    if left_out > 0:
        head += f" · {left_out} earlier exchanges not shown"
    lines = [("head", head)]
    for exchange in found[-RECAP_EXCHANGES:]:
        lines.append(("you", _asked(exchange)))
        lines.append(("agent", _answer(exchange)))
    return lines


def _asked(exchange: Exchange) -> str:
    text = " ".join(harmless(exchange.asked_text).split())
    return text if len(text) <= ASKED_CHARS else text[: ASKED_CHARS - 1].rstrip() + "…"


def _answer(exchange: Exchange) -> str:
    lines = [line for line in harmless(exchange.answer).splitlines() if line.strip()]
    text = "\n".join(lines[:ANSWER_LINES])
    cut = len(lines) > ANSWER_LINES or len(text) > ANSWER_CHARS
    if cut:
        text = text[: ANSWER_CHARS - 1].rstrip() + "…"
    tools = f" ({exchange.tools} tool calls)" if exchange.tools else ""
    return (text or "(no answer)") + tools
