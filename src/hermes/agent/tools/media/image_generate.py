"""image_generate: a picture from a description, by an OpenAI-compatible service."""

import base64
import binascii
import re
import secrets
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.agent.tools.media.speech import FOLDER
from hermes.agent.tools.media.vision import picture, picture_intent
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.inbound import ENDINGS, image_type
from hermes.domain.tools import Need, ToolContext, ToolResult, ToolSpec, WebRequest

SIZES = {"landscape": "1536x1024", "square": "1024x1024", "portrait": "1024x1536"}
MAX_BYTES = 40_000_000
SECONDS = 300.0
IMAGE_SERVICE = "image_gen.base_url"
"""Stands among the names of secrets where a service without a key is configured."""


class ImageGenerateArgs(Struct, frozen=True, kw_only=True):
    prompt: str
    aspect_ratio: Literal["landscape", "square", "portrait"] = "landscape"
    image_url: Annotated[str | None, Meta(description="A picture to change")] = None
    reference_image_urls: list[str] = []


async def image_generate(args: ImageGenerateArgs, context: ToolContext) -> ToolResult:
    """Make a picture, or change one; put the MEDIA line of the result into your answer."""
    if not args.prompt.strip():
        raise UsageError("The prompt is empty.")
    settings = context.capabilities.settings().image_gen
    key = settings.api_key or context.capabilities.variable("OPENAI_API_KEY")
    base = (settings.base_url or "https://api.openai.com/v1").rstrip("/")
    fields: dict[str, str] = {"model": settings.model, "prompt": args.prompt}
    fields |= {"size": SIZES[args.aspect_ratio], "n": "1"}
    sources = [*([args.image_url] if args.image_url else []), *args.reference_image_urls]
    if sources:
        pictures = [await picture(source, context) for source in sources[:5]]
        kind, body = _form(fields, pictures)
        path = "/images/edits"
    else:
        kind, body = "application/json", msgspec.json.encode({**fields, "n": 1})
        path = "/images/generations"
    answer = await context.fetch(
        WebRequest(
            url=base + path,
            method="POST",
            headers={"Content-Type": kind} | ({"Authorization": f"Bearer {key}"} if key else {}),
            body=body,
            limit=MAX_BYTES,
            timeout=SECONDS,
            by_operator=bool(settings.base_url),
        )
    )
    if answer.status >= 400:
        reason = " ".join(answer.body[:400].decode("utf-8", "replace").split())
        raise HermesError(f"The image service answered with status {answer.status}: {reason}")
    data = await _made(answer.body, context)
    ending = ENDINGS.get(image_type(data) or "", "png")
    name = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9]', '', context.call_id)}.{ending}"
    await context.environment.write(name, data)
    return ToolResult(content=f"MEDIA:{name}")


async def _made(body: bytes, context: ToolContext) -> bytes:
    try:
        first: dict[str, Any] = msgspec.json.decode(body)["data"][0]
        if first.get("b64_json"):
            return base64.b64decode(first["b64_json"], validate=True)
        answer = await context.fetch(WebRequest(url=first["url"], limit=MAX_BYTES))
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError, binascii.Error) as error:
        raise HermesError("The image service answered with something else than a picture.") from (
            error
        )
    if answer.status >= 400:
        raise HermesError(f"The picture could not be fetched: status {answer.status}.")
    return answer.body


def _form(fields: dict[str, str], pictures: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    """Return a multipart form."""
    mark = f"hermes-{secrets.token_hex(16)}"
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    for number, (kind, data) in enumerate(pictures):
        head = (
            f'--{mark}\r\nContent-Disposition: form-data; name="image[]"; filename="{number}.'
            f'{ENDINGS[kind]}"\r\nContent-Type: {kind}\r\n\r\n'
        )
        parts.append(head.encode() + data + b"\r\n")
    return f"multipart/form-data; boundary={mark}", b"".join(parts) + f"--{mark}--\r\n".encode()


def _available(names: frozenset[str]) -> str:
    return "" if names & {"OPENAI_API_KEY", IMAGE_SERVICE} else "it needs OPENAI_API_KEY"


TOOL = tool(
    image_generate,
    ToolSpec(
        name="image_generate",
        toolset="image_gen",
        emoji="🎨",
        verb="paint",
        label_field="prompt",
        intent=picture_intent,
        needs=frozenset({Need.FETCH}),
    ),
    check=_available,
)
