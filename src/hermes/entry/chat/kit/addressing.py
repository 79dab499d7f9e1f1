"""Text that speaks to the bot: taking its name off, and telling commands from prose."""

from collections.abc import Sequence

Span = tuple[int, int]
"""Where a mention begins and ends in a text."""


def without_names(text: str, mentions: Sequence[Span]) -> str:
    """Take our name away where the text begins or ends with it."""
    rest = text
    for start, end in sorted(mentions, reverse=True):
        before, after = rest[:start], rest[end:]
        if not before.strip():
            rest = after.lstrip(" \t\n,:")
        elif not after.strip(" \t\n.!?"):
            rest = f"{before.rstrip()}{after}"
    return rest.strip() or text.strip()


def split_command(text: str) -> tuple[str, str, str]:
    """Split `/name@bot rest` into name, bot and rest with its leading space; empty: no command."""
    if not text.startswith("/"):
        return "", "", ""
    head = text.split(maxsplit=1)[0]
    name, _, addressee = head[1:].partition("@")
    # A path such as /etc/hosts is not a command.
    if not name or not name.replace("_", "a").replace("-", "a").isalnum() or "@" in addressee:
        return "", "", ""
    return name, addressee, text[len(head) :]
