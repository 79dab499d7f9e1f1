"""Wording that messages at every door share: text on one line, and short numbers, how long ago."""


def one_line(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: max(limit - 1, 1)].rstrip() + "…"


def short_number(number: int) -> str:
    """Return `950`, `12.3k`, `1.2M`."""
    if number < 1000:
        return str(number)
    millions = number >= 999_500
    return f"{number / (1_000_000 if millions else 1000):.3g}{'M' if millions else 'k'}"


def ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"
