"""Files of a conversation over HTTP: what a client sends, and what it is shown.

Pictures and files of a request are data URLs or addresses (`picture`). An answer names files
(`MEDIA:/path`, Markdown images); the path means nothing to a client, so each file comes at the end
of its message as a data URL: a picture as a Markdown image, any other file as a link. Only files
that may leave the session are shown (`control/delivery/files.py`), up to a size. The ledger keeps
what the agent wrote. A client sends the data URLs back with its history: they are read as the name
of the file (`named_files`), and so is what was answered when the two are compared (`as_sent_back`).
"""

import base64
import mimetypes
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote_to_bytes

from msgspec.structs import replace

from hermes.domain.errors import UsageError
from hermes.domain.events import MessageCompleted, TextDelta, TextReset, TurnEvent, TurnFinished
from hermes.domain.inbound import Attachment, image_type
from hermes.domain.runs import Run
from hermes.entry.http.endpoint import HttpContext, PictureStore
from hermes.entry.http.errors import Problem
from hermes.observability.logs import tag_task
from hermes.streaming.chat.media import MediaRef, MediaStream, extract

_SHOWN = re.compile(r"!?\[([^\]\n]*)\]\(data:[^)\s]*\)")


def named_files(text: str) -> str:
    """Put the name of each file in the place of its data URL."""
    return _SHOWN.sub(r"[\1]", text) if "](data:" in text else text


def as_sent_back(text: str) -> str:
    """Return what a client that was shown this text says that the agent said."""
    found = extract(text.replace("\0", "\N{REPLACEMENT CHARACTER}"), complete=True)
    return _with(found.text, [f"[{_name(each)}]" for each in found.media])


async def shown_batches(
    context: HttpContext, run: Run, batches: AsyncIterator[Sequence[TurnEvent]]
) -> AsyncIterator[Sequence[TurnEvent]]:
    """Yield the events of a run with the files of its messages.

    Whatever is made of them is made for the run's session: a watchdog that ends the process there
    knows whose turn not to resume.
    """
    tag_task(run.session_id)
    shown = _ShownFiles(context, run)
    async for batch in batches:
        told = [event for each in batch if (event := await shown.event(each)) is not None]
        if told:
            yield told


async def shown_events(context: HttpContext, run: Run) -> AsyncIterator[TurnEvent]:
    async for batch in shown_batches(context, run, context.runs.batches(run)):
        for event in batch:
            yield event


class _ShownFiles:
    def __init__(self, context: HttpContext, run: Run) -> None:
        self._context = context
        self._run = run
        self._stream = MediaStream()
        self._told: list[str] = []
        """What has been told of the current message; a tag that is not complete is held back."""

    async def event(self, event: TurnEvent) -> TurnEvent | None:
        if isinstance(event, TextDelta):
            text = self._stream.feed(event.text)
            self._told.append(text)
            return TextDelta(text) if text else None
        match event:
            case TextReset():
                self._begin()
            case MessageCompleted(message=message):
                text = await self._whole(message.text, "".join(self._told))
                self._begin()
                return replace(event, message=replace(message, text=text))
            case TurnFinished():
                return replace(event, text=await self._whole(event.text))
            case _:
                pass
        return event

    def _begin(self) -> None:
        self._stream, self._told = MediaStream(), []

    async def _whole(self, text: str, told: str = "") -> str:
        found = extract(text, complete=True)
        if not found.media:
            return text
        kept = found.text if found.text.startswith(told) else told
        return _with(kept, [await self._link(each) for each in found.media])

    async def _link(self, file: MediaRef) -> str:
        run, name = self._run, _name(file)
        data = await self._context.answer_file(run.agent_id, run.session_id, file.path)
        if data is None:
            return f"[{name}]"
        kind = image_type(data) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        return f"{'!' if image_type(data) else ''}[{name}]({url})"


def _with(text: str, files: Sequence[str]) -> str:
    return "\n\n".join(filter(None, (text, *files))) if files else text


def _name(file: MediaRef) -> str:
    return re.sub(r"[\[\]()\n]", "_", PurePosixPath(file.path).name)


async def picture(
    url: str, media: PictureStore, param: str = "image_url", name: str = ""
) -> Attachment:
    """Store the picture (with a name: any file) behind a URL; `param` names it in errors."""
    scheme = url[:8].lower()
    try:
        if scheme.startswith("data:"):
            data = _data(url, param)
            kind = image_type(data)
            if kind is None and not name:
                message = "Only PNG, JPEG, GIF and WebP pictures are understood."
                raise _bad_picture(message, param, "invalid_image")
            given = url[5:].partition(",")[0].partition(";")[0]
            return await media.keep(data, kind or given, name)
        if scheme.startswith(("http://", "https://")):
            return await media.fetch(url, name)
    except UsageError as error:
        raise _bad_picture(f"{error.message} {error.hint}".strip(), param) from error
    what = "file" if name else "picture"
    raise _bad_picture(f"A {what} needs a data URL or an http or https address.", param)


def _data(url: str, param: str) -> bytes:
    head, comma, body = url[5:].partition(",")
    if not comma:
        raise _bad_picture("The data URL has no data.", param)
    if "base64" not in [option.strip().lower() for option in head.split(";")[1:]]:
        return unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise _bad_picture("The data URL is not valid base64.", param) from error


def _bad_picture(message: str, param: str, code: str = "invalid_image_url") -> Problem:
    return Problem(400, message, code=code, param=param)
