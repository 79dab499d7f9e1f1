r"""Server-sent events from raw bytes in any chunking; only their data is kept.

The usual provider stream is `data: {...}\n\n` with nothing else; that path
does one split per chunk and no decoding. Everything the format allows
(CRLF, CR, comments, event names, several data lines, a BOM) takes the general
path. A CR that ends a chunk counts as a line end at once, and a LF that
opens the next chunk is then swallowed: no event waits for a byte it does not need.
"""

_BOM = b"\xef\xbb\xbf"


class FrameTooLarge(Exception):
    """One event is larger than anything a provider sends."""


class SseParser:
    def __init__(self, max_event_bytes: int = 32 * 1024 * 1024) -> None:
        self._buffer = b""
        self._begun = False
        self._after_cr = False
        self._max = max_event_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that are complete with `chunk`."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._normalise(chunk)
        buffer = self._buffer + chunk if self._buffer else chunk
        if not self._begun:
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                self._buffer = buffer
                return []
            self._begun = True
            buffer = buffer.removeprefix(_BOM)
        blocks = buffer.split(b"\n\n")
        self._buffer = blocks.pop()
        if len(self._buffer) > self._max:
            raise FrameTooLarge
        return self._events(blocks)

    def close(self) -> list[bytes]:
        """Return the last event of a stream that ended without its blank line."""
        rest, self._buffer = self._buffer, b""
        return self._events([rest])

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
        for block in blocks:
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
