"""A text file as the editing tools see it.

Editing happens on text with plain line feeds; the byte order mark, the line
endings and bytes that are not UTF-8 come back as they were.
"""

from msgspec import Struct

from hermes.domain.errors import NotFound, UsageError
from hermes.domain.ports.execution import Environment

__all__ = ["TextFile", "load", "load_if_there"]

MAX_EDITABLE = 10 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class TextFile(Struct, frozen=True, kw_only=True):
    """Text, and how it is written."""

    text: str
    crlf: bool = False
    bom: bool = False

    @classmethod
    def from_bytes(cls, data: bytes) -> "TextFile":
        """Take a file apart."""
        bom = data.startswith(_BOM)
        text = data.removeprefix(_BOM).decode("utf-8", "surrogateescape")
        endings = text.count("\n")
        crlf = endings > 0 and text.count("\r\n") == endings
        return cls(text=text.replace("\r\n", "\n") if crlf else text, crlf=crlf, bom=bom)

    def encode(self, text: str) -> bytes:
        """Return `text` written the way this file is."""
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return (_BOM if self.bom else b"") + text.encode("utf-8", "surrogateescape")


async def load(environment: Environment, path: str) -> TextFile:
    """Read a file that is to be edited."""
    data = await environment.read(path, limit=MAX_EDITABLE + 1)
    if len(data) > MAX_EDITABLE:
        raise UsageError(f"{path} is too large to edit here.", hint="Use the terminal.")
    if b"\0" in data[:8192]:
        raise UsageError(f"{path} is a binary file and cannot be edited as text.")
    return TextFile.from_bytes(data)


async def load_if_there(environment: Environment, path: str) -> TextFile | None:
    """Read a file that is to be edited; None if there is none."""
    try:
        return await load(environment, path)
    except NotFound:
        return None
