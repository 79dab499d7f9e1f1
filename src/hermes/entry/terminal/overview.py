"""The lines around a conversation: banner, recap, spinner and status bar."""

from collections.abc import Sequence

from wcwidth import ljust

from hermes.control.commands.wording import Exchange, count, exchanges
from hermes.domain.session import Session, StoredMessage
from hermes.domain.wording import elapsed_words, harmless, one_line
from hermes.entry.terminal.paint import cut
from hermes.entry.terminal.questions import NO_ANSWER
from hermes.entry.terminal.skins import Spinner
from hermes.streaming.units import width

RECAP_EXCHANGES = 10
ASKED_CHARS = 300
ANSWER_CHARS = 200
ANSWER_LINES = 3
FRAME_SECONDS = 0.2
VERB_SECONDS = 6.0
PLAIN = ("|", "/", "-", "\\")


def banner_lines(title: str, details: Sequence[str], cells: int) -> list[tuple[str, str]]:
    """Return (colour, text): title and details in one line, or one below the other."""
    whole = f"{title}  {' · '.join(details)}"
    if width(whole) <= cells:
        return [("banner_title", whole)]
    below = [("banner_dim", cut(f"  {detail}", cells)) for detail in details]
    return [("banner_title", cut(title, cells)), *below]


def recap_lines(
    session: Session, history: Sequence[StoredMessage], *, going_on: bool = False
) -> list[tuple[str, str]]:
    """Return (who, text) pairs, `head`, `you`, `notice` or `agent`.

    There is no answer to what is being answered.
    """
    found = exchanges(history)
    left_out = len(found) - RECAP_EXCHANGES
    head = harmless(session.title or session.id)
    if left_out > 0:
        head += f" · {count(left_out, 'earlier exchange')} not shown"
    lines = [("head", head)]
    for exchange in found[-RECAP_EXCHANGES:]:
        asked = one_line(harmless(exchange.asked_text), ASKED_CHARS)
        who = "you" if exchange.typed else "notice"
        lines += [(who, asked), ("agent", _answer(exchange))]
    return lines[:-1] if going_on and found else lines


def _answer(exchange: Exchange) -> str:
    lines = [line for line in harmless(exchange.answer).splitlines() if line.strip()]
    text = "\n".join(lines[:ANSWER_LINES])
    if len(lines) > ANSWER_LINES or len(text) > ANSWER_CHARS:
        text = text[: ANSWER_CHARS - 1].rstrip() + "…"
    tools = f" ({count(exchange.tools, 'tool call')})" if exchange.tools else ""
    return f"{text}{tools}{'' if exchange.finished else ' (not finished)'}".strip() or NO_ANSWER


def spinner_line(spinner: Spinner, elapsed: float, *, thinking: bool, unicode: bool) -> str:
    faces = spinner.thinking_faces if thinking and spinner.thinking_faces else ()
    faces = faces or spinner.waiting_faces
    if not unicode:
        faces = PLAIN
    frame = int(elapsed / FRAME_SECONDS)
    face = faces[(frame if not unicode else frame // 4) % len(faces)]
    verbs = spinner.thinking_verbs
    verb = verbs[int(elapsed / VERB_SECONDS) % len(verbs)]
    dots = "." * (1 + frame % 3)
    return f"{face} {verb}{dots.ljust(3)} {elapsed_words(elapsed)}"


def status_line(parts: Sequence[tuple[int, str]], cells: int) -> str:
    """Return the bar, exactly `cells` wide; of (how soon it may go, text) the last to go stay."""
    kept = [part for part in parts if part[1]]
    while len(kept) > 1 and width(_joined(kept)) > cells - 2:
        kept.remove(max(kept, key=lambda part: part[0]))
    return ljust(cut(f" {_joined(kept)}", cells), cells)


def _joined(parts: Sequence[tuple[int, str]]) -> str:
    return " · ".join(text for _, text in parts)
