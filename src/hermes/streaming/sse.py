"""Server-sent events on the wire: one event is a few lines and an empty one.

Data is JSON and therefore one line; names and ids come from us.
"""

__all__ = ["DONE", "KEEP_ALIVE", "frame"]

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: parsers skip it, and the connection counts as busy."""
DONE = b"data: [DONE]\n\n"


def frame(data: bytes, event: str | None = None, id: str | None = None) -> bytes:  # noqa: A002 (the field's name)
    """Return one event; `data` must not contain a line break."""
    if event is None and id is None:
        return b"data: %b\n\n" % data
    head = "" if id is None else f"id: {id}\n"
    if event is not None:
        head += f"event: {event}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)
