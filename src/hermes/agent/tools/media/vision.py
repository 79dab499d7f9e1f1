"""vision_analyze: a picture, looked at by the model itself or by one that sees."""

import base64
from typing import Annotated, Any

from msgspec import Meta, Struct

from hermes.agent.attachments import MAX_IMAGE_BYTES
from hermes.agent.tools.define import tool
from hermes.domain.errors import HermesError, NotFound, UsageError
from hermes.domain.inbound import ENDINGS, image_type
from hermes.domain.messages import ImagePart
from hermes.domain.tools import Intent, Need, ToolContext, ToolResult, ToolSpec, WebRequest


class VisionAnalyzeArgs(Struct, frozen=True, kw_only=True):
    image_url: Annotated[str, Meta(description="Address or path")]
    question: str


async def vision_analyze(args: VisionAnalyzeArgs, context: ToolContext) -> ToolResult:
    """Look at a picture, on the web or in a file, and answer a question about it."""
    look = context.capabilities.look
    if look is None:
        raise HermesError("No model here can see pictures.")
    kind, data = await picture(args.image_url, context)
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return ToolResult(content=await look(args.question, ImagePart(url=url, media_type=kind)))


async def picture(source: str, context: ToolContext) -> tuple[str, bytes]:
    """Return the kind and the bytes of a picture at an address or in a file."""
    if source.startswith(("http://", "https://")):
        answer = await context.fetch(WebRequest(url=source, limit=MAX_IMAGE_BYTES))
        if answer.status >= 400:
            raise HermesError(f"{source} answered with status {answer.status}.")
        too_large, data = answer.cut, answer.body
    else:
        found = await context.environment.stat(source)
        if found is None:
            raise NotFound(f"There is no file {source}.")
        too_large = found.size > MAX_IMAGE_BYTES
        data = b"" if too_large else await context.environment.read(source)
    if too_large:
        raise UsageError(f"{source} is larger than {MAX_IMAGE_BYTES // 2**20} MB.")
    kind = image_type(data)
    if kind is None or kind not in ENDINGS:
        raise UsageError(f"{source} is not a picture that a model can see.")
    return kind, data


def picture_intent(arguments: dict[str, Any]) -> Intent:
    """Return which files a call shows to others as pictures."""
    further = arguments.get("reference_image_urls")
    given = [arguments.get("image_url"), *(further if isinstance(further, list) else [further])]
    sources = [str(each) for each in given if each]
    return Intent(reads=tuple(s for s in sources if not s.startswith(("http://", "https://"))))


TOOL = tool(
    vision_analyze,
    ToolSpec(
        name="vision_analyze",
        toolset="vision",
        emoji="👁️",
        verb="look at",
        label_field="image_url",
        replay_safe=True,
        intent=picture_intent,
        needs=frozenset({Need.FETCH}),
    ),
)
