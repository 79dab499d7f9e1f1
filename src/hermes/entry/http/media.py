"""Pictures in requests: data URLs and addresses on the public network.

Either way the picture ends up on the shelf as a file, so that the history
keeps a path and not megabytes of base64. What a data URL says about its type
is not believed: the first bytes decide.
"""

import base64
import binascii
from urllib.parse import unquote_to_bytes

from hermes.domain.errors import UsageError
from hermes.domain.inbound import Attachment
from hermes.entry.http.context import MediaShelf
from hermes.entry.http.errors import Problem

__all__ = ["MAX_PICTURES", "picture"]

MAX_PICTURES = 50
"""How many one request may carry."""
_HEADS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


async def picture(url: str, media: MediaShelf, param: str = "image_url") -> Attachment:
    """Store the picture behind a URL of a request; `param` names it in errors."""
    scheme = url[:8].lower()
    try:
        if scheme.startswith("data:"):
            data = _data(url, param)
            return await media.keep(data, _media_type(data, param))
        if scheme.startswith(("http://", "https://")):
            return await media.fetch(url)
    except UsageError as error:
        message = f"{error.message} {error.hint}".strip()
        raise Problem(400, message, code="invalid_image_url", param=param) from error
    message = "A picture needs a data URL or an http or https address."
    raise Problem(400, message, code="invalid_image_url", param=param)


def _data(url: str, param: str) -> bytes:
    head, comma, body = url[5:].partition(",")
    options = [option.strip().lower() for option in head.split(";")]
    if not comma:
        raise Problem(400, "The data URL has no data.", code="invalid_image_url", param=param)
    if "base64" not in options[1:]:
        return unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        message = "The data URL is not valid base64."
        raise Problem(400, message, code="invalid_image_url", param=param) from error


def _media_type(data: bytes, param: str) -> str:
    for head, media_type in _HEADS:
        if data.startswith(head):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    message = "Only PNG, JPEG, GIF and WebP pictures are understood."
    raise Problem(400, message, code="invalid_image", param=param)
