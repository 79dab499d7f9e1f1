"""Whom a text is addressed to, and what remains of it without the address.

Entities count in UTF-16 units, so the text is cut as UTF-16.
"""

from collections.abc import Mapping

from msgspec import Struct

from hermes.entry.chat.telegram.wire import Entity, MessageWire

__all__ = ["Addressing", "address"]


class Addressing(Struct, frozen=True, kw_only=True):
    """How a text speaks to us."""

    text: str
    """Without the mention at its beginning or end and without `@bot` after a command."""
    mentioned: bool = False
    command: bool = False
    for_another_bot: bool = False


def address(
    message: MessageWire, bot_id: int, username: str, commands: Mapping[str, str]
) -> Addressing:
    """Find mentions and commands in a text or a caption."""
    text, entities = message.text, message.entities
    if not text:
        text, entities = message.caption, message.caption_entities
    units = text.encode("utf-16-le", "replace")
    mentions = [e for e in entities if _names_us(e, units, bot_id, username)]
    body = _without(units, mentions).strip() or text.strip()
    head, rest = _command(body)
    if not head:
        return Addressing(text=body, mentioned=bool(mentions))
    name, _, addressee = head.partition("@")
    ours = bool(addressee) and addressee.lower() == username.lower()
    name = f"/{commands.get(name[1:].lower(), name[1:])}"
    return Addressing(
        text=f"{name}{rest}",
        mentioned=bool(mentions) or ours,
        command=True,
        for_another_bot=bool(addressee) and not ours,
    )


def _command(body: str) -> tuple[str, str]:
    """Split `/name@bot rest`; the rest keeps its leading space."""
    if not body.startswith("/"):
        return "", ""
    head = body.split(maxsplit=1)[0]
    name, _, addressee = head[1:].partition("@")
    # A path such as /etc/hosts is not a command.
    if not name or not name.replace("_", "a").replace("-", "a").isalnum() or "@" in addressee:
        return "", ""
    return head, body[len(head) :]


def _names_us(entity: Entity, units: bytes, bot_id: int, username: str) -> bool:
    if entity.type == "text_mention":
        return entity.user is not None and entity.user.id == bot_id
    if entity.type != "mention" or not username:
        return False
    return _cut(units, entity).lower() == f"@{username}".lower()


def _cut(units: bytes, entity: Entity) -> str:
    start, end = _bounds(units, entity)
    return units[start:end].decode("utf-16-le", "replace")


def _bounds(units: bytes, entity: Entity) -> tuple[int, int]:
    start = min(max(entity.offset, 0) * 2, len(units))
    return start, min(max(start, start + entity.length * 2), len(units))


def _without(units: bytes, mentions: list[Entity]) -> str:
    """Take our name away where the text begins or ends with it."""
    for entity in sorted(mentions, key=lambda e: e.offset, reverse=True):
        start, end = _bounds(units, entity)
        before = units[:start].decode("utf-16-le", "replace")
        after = units[end:].decode("utf-16-le", "replace")
        if not before.strip():
            units = after.lstrip(" \t\n,:").encode("utf-16-le", "replace")
        elif not after.strip(" \t\n.!?"):
            units = f"{before.rstrip()}{after}".encode("utf-16-le", "replace")
    return units.decode("utf-16-le", "replace")
