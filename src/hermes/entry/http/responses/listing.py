"""The input of a response as it is listed later: short of the pictures themselves."""

from collections.abc import Sequence
from typing import Literal

from msgspec import convert

from hermes.domain.runs import Run
from hermes.entry.http.responses.wire import (
    ContentPart,
    CreateResponse,
    ImageUrl,
    InputItem,
    InputItemList,
    InputItemsQuery,
)
from hermes.streaming.responses.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    InputImage,
    InputText,
    Item,
    MessageItem,
    OutputText,
)

__all__ = ["input_page", "listed_input"]

_ROLES: dict[str, Literal["user", "system", "developer"]] = {
    "user": "user",
    "system": "system",
    "developer": "developer",
}


def listed_input(body: CreateResponse, response_id: str) -> tuple[Item, ...]:
    """Return the items of a request under the ids they are listed with."""
    token = response_id.removeprefix("resp_")
    items: Sequence[InputItem]
    if isinstance(body.input, str):
        items = (InputItem(role="user", content=body.input),)
    else:
        items = body.input or ()
    listed = (_listed(item, f"{token}_in{number}") for number, item in enumerate(items))
    return tuple(item for item in listed if item is not None)


def input_page(run: Run, query: InputItemsQuery) -> InputItemList:
    """Return a page of what was put into a response."""
    items = convert(run.request.get("input", []), list[Item])
    if query.order == "desc":
        items.reverse()
    ids = [item.id for item in items]
    start = ids.index(query.after) + 1 if query.after in ids else 0
    page = tuple(items[start : start + query.limit])
    return InputItemList(
        data=page,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
        has_more=start + len(page) < len(items),
    )


def _listed(item: InputItem, token: str) -> Item | None:
    if item.type == "function_call":
        return FunctionCallItem(
            id=f"fc_{token}",
            call_id=item.call_id or "",
            name=item.name or "",
            arguments=item.arguments or "{}",
            status="completed",
        )
    if item.type == "function_call_output":
        return FunctionCallOutputItem(
            id=f"fco_{token}",
            call_id=item.call_id or "",
            output=_given_parts(item.output or ""),
            status="completed",
        )
    if item.type == "reasoning":
        return None
    return _message(item, f"msg_{token}")


def _message(item: InputItem, item_id: str) -> MessageItem:
    content = item.content or ""
    if item.role == "assistant":
        return MessageItem(
            id=item_id, status="completed", role="assistant", content=_said_parts(content)
        )
    parts = _given_parts(content)
    shown = (InputText(text=parts),) if isinstance(parts, str) else parts
    role = _ROLES.get(item.role or "", "user")
    return MessageItem(id=item_id, status="completed", role=role, content=shown)


def _said_parts(content: str | Sequence[ContentPart]) -> tuple[OutputText, ...]:
    if isinstance(content, str):
        return (OutputText(text=content),)
    return tuple(OutputText(text=part.text or part.refusal or "") for part in content)


def _given_parts(
    content: str | Sequence[ContentPart],
) -> str | tuple[InputText | InputImage, ...]:
    if isinstance(content, str):
        return content
    return tuple(_given_part(part) for part in content)


def _given_part(part: ContentPart) -> InputText | InputImage:
    if part.type not in ("input_image", "image_url"):
        return InputText(text=part.text or part.refusal or "")
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    inline = url is None or url[:5].lower() == "data:"
    return InputImage(image_url=None if inline else url, detail=part.detail or "auto")
