"""Small words that several commands use in their replies."""

import time
from collections.abc import Sequence

from hermes.domain.session import Session

__all__ = ["ago", "clock_time", "count", "money", "one_line", "session_line", "table"]


def count(number: int, noun: str) -> str:
    """Return `1 message`, `2 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def one_line(text: str, limit: int) -> str:
    """Return `text` on one line, cut at `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def money(usd: float) -> str:
    """Return an amount with as many digits as it needs."""
    return f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:.2f}"


def ago(seconds: float) -> str:
    """Say how long ago something was."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def session_line(session: Session, now: float, *, current: bool) -> str:
    """Describe a session in a list."""
    mark = "* " if current else "  "
    name = session.title or one_line(session.preview, 40) or "(nothing said yet)"
    when = ago(now - session.updated_at)
    return f"{mark}{session.id}  {name}  · {count(session.message_count, 'message')} · {when}"


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Align (name, value) pairs."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in rows)


def clock_time(at: float) -> str:
    """Return a local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
