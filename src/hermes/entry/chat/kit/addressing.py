"""Text that speaks to the bot: taking its name off, and telling commands from prose."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

Span = tuple[int, int]
"""Where a mention begins and ends in a text."""


class Addressing(Struct, frozen=True, kw_only=True):
    """How a text speaks to us."""

    text: str
    """Without the mention at its beginning or end and without `@bot` after a command."""
    mentioned: bool = False
    command: bool = False
    for_another_bot: bool = False


def read_addressing(
    text: str, mentions: Sequence[Span], *, username: str, commands: Mapping[str, str]
) -> Addressing:
    """Read a text that names us at `mentions`; `commands` maps names in the menu to ours."""
    body = _without_names(text, mentions)
    name, addressee, rest = _split_command(body)
    if not name:
        return Addressing(text=body, mentioned=bool(mentions))
    ours = bool(addressee) and addressee.lower() == username.lower()
    return Addressing(
        text=f"/{commands.get(name.lower(), name)}{rest}",
        mentioned=bool(mentions) or ours,
        command=True,
        for_another_bot=bool(addressee) and not ours,
    )


def _without_names(text: str, mentions: Sequence[Span]) -> str:
    """Take our name away where the text begins or ends with it."""
    rest = text
    for start, end in sorted(mentions, reverse=True):
        before, after = rest[:start], rest[end:]
        if not before.strip():
            rest = after.lstrip(" \t\n,:")
        elif not after.strip(" \t\n.!?"):
            rest = f"{before.rstrip()}{after}"
    return rest.strip() or text.strip()


def _split_command(text: str) -> tuple[str, str, str]:
    """Split `/name@bot rest` into name, bot and rest with its leading space; empty: no command."""
    if not text.startswith("/"):
        return "", "", ""
    head = text.split(maxsplit=1)[0]
    name, _, addressee = head[1:].partition("@")
    # A path such as /etc/hosts is not a command.
    if not name or not name.replace("_", "a").replace("-", "a").isalnum() or "@" in addressee:
        return "", "", ""
    return name, addressee, text[len(head) :]
