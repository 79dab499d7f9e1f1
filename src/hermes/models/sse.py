r"""Server-sent events from raw bytes in any chunking; only their data is kept.

The usual provider stream is `data: {...}\n\n` with nothing else; that path
does one split per chunk and no decoding. Everything the format allows
(CRLF, CR, comments, event names, several data lines, a BOM) takes the general
path. A CR that ends a chunk counts as a line end at once, and a LF that
opens the next chunk is then swallowed: no event waits for a byte it does not need.
"""

import re

from hermes.models.bounds import EVENT_BYTES, Bound

_BOM = b"\xef\xbb\xbf"
_BLANK_LINES = re.compile(rb"\n{3,}")


class SseParser:
    def __init__(self, event_bytes: Bound = EVENT_BYTES) -> None:
        self._pieces: list[bytes] = []
        """Of the event that is not complete yet; a blank line is only where it could end."""
        self._size = 0
        self._begun = False
        self._after_cr = False
        self._event_bytes = event_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that are complete with `chunk`."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._normalise(chunk)
        if not self._begun:
            chunk = b"".join([*self._pieces, chunk])
            self._pieces = []
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._pieces = [chunk]
                return []
            self._begun = True
            chunk = chunk.removeprefix(_BOM)
        buffer = chunk
        if self._pieces:
            if b"\n\n" not in self._pieces[-1][-1:] + chunk:
                self._keep(chunk)
                return []
            buffer = b"".join([*self._pieces, chunk])
            self._pieces, self._size = [], 0
        if b"\n\n\n" in buffer:
            buffer = _BLANK_LINES.sub(b"\n\n", buffer)
        blocks = buffer.split(b"\n\n")
        if rest := blocks.pop():
            self._keep(rest)
        return self._events(blocks)

    def close(self) -> list[bytes]:
        """Return the last event of a stream that ended without its blank line."""
        rest, self._pieces = b"".join(self._pieces), []
        return self._events([rest])

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._size += len(piece)
            self._event_bytes.hold(self._size)

    def _normalise(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    @staticmethod
    def _events(blocks: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for block in filter(None, blocks):
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(block[6:])
                continue
            event = _parse_block(block)
            if event is not None:
                events.append(event)
        return events


def _parse_block(block: bytes) -> bytes | None:
    fields = (line.partition(b":") for line in block.split(b"\n"))
    data = [value.removeprefix(b" ") for name, _, value in fields if name == b"data"]
    return b"\n".join(data) if data else None
