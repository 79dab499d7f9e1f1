"""Input in the shapes of OpenAI, read once for chat, responses, runs and sessions.

    system, developer      -> instructions for this turn
    everything before      -> history, for a session that is opened for the request
    tool results and user  -> what is new: results for calls that wait in a session,
    messages at the end       or the end of the history; then the input
    words of the agent     -> the end of the history: the agent goes on from there
    at the end

Chat messages and items become one list of `Utterance`, which `Conversation` takes
apart. Chat is strict, as OpenAI is: every call has its result right after it,
and every result its call. Items are lenient: a call without a result gets one
that says so. Pictures and other files are only named here; `stored` fetches those that the
turn really needs. Clients reuse call ids: within one history a second call
under the same id gets a new one, together with its result.
"""

import base64
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Meta, Struct, to_builtins
from msgspec.json import encode
from msgspec.structs import replace

from hermes.control.lanes.batches import attached
from hermes.domain.ids import new_call_id
from hermes.domain.inbound import Attachment
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FinishReason,
    InputKind,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from hermes.domain.turn import ClientResult
from hermes.entry.http.api.media import named_files, picture
from hermes.entry.http.endpoint import PictureStore
from hermes.entry.http.errors import Problem

MAX_PICTURES = 50
"""How many one request may carry."""


SYSTEM = ("system", "developer")
ROLES = "system, developer, user, assistant or tool"
TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
PICTURES = ("image_url", "input_image")
FILES = ("file", "input_file")
SUMMARY = "summary"
"""The role of what stands for an earlier conversation."""
MAX_SUMMARY = 1_000_000
NO_RESULT = "No result was given for this call."
CallId = Annotated[str, Meta(min_length=1, max_length=256)]
Short = Annotated[str, Meta(max_length=256)]


class ImageUrl(Struct, frozen=True, kw_only=True):
    """Where a picture is."""

    url: str
    detail: Short | None = None


class FileIn(Struct, frozen=True, kw_only=True):
    """A file, in the request itself or on the network."""

    filename: Short | None = None
    file_data: str | None = None
    """A data URL, or base64."""
    file_url: str | None = None
    file_id: Short | None = None
    """Not supported: send the file itself."""


class ContentPart(FileIn, frozen=True, kw_only=True):
    """One part of a message: text, a picture, a file or a refusal."""

    type: Short
    text: str | None = None
    image_url: str | ImageUrl | None = None
    detail: Short | None = None
    file: FileIn | None = None
    refusal: str | None = None


ContentParts = Annotated[tuple[ContentPart, ...], Meta(max_length=2000)]


class FunctionIn(Struct, frozen=True, kw_only=True):
    """What a call asks for."""

    name: str
    arguments: str = ""


class CallIn(Struct, frozen=True, kw_only=True):
    """A call that an assistant message made."""

    id: CallId
    type: str = "function"
    function: FunctionIn


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One message: `system`, `developer`, `user`, `assistant` or `tool`."""

    role: Annotated[
        str, Meta(extra_json_schema={"enum": ["system", "developer", "user", "assistant", "tool"]})
    ]
    content: str | ContentParts | None = None
    name: str | None = None
    tool_calls: tuple[CallIn, ...] | None = None
    tool_call_id: str | None = None


class InputItem(FileIn, frozen=True, kw_only=True):
    """A message, a call or its output, a compaction, a reference, or part of a user message."""

    type: Short | None = None
    """`message` if there is a `role`."""
    id: Short | None = None
    role: Short | None = None
    content: str | ContentParts | None = None
    tool_calls: tuple[CallIn, ...] | None = None
    tool_call_id: CallId | None = None
    call_id: Short | None = None
    name: Short | None = None
    arguments: str | None = None
    output: str | ContentParts | None = None
    error: Any = None
    status: Short | None = None
    text: str | None = None
    image_url: str | ImageUrl | None = None
    phase: Literal["commentary", "final_answer"] | None = None
    encrypted_content: str | None = None
    """What a compaction stands for, as it was given out."""


InputItems = Annotated[tuple[InputItem, ...], Meta(max_length=4000)]
"""Calls and their results are two each."""


class Picture(Struct, frozen=True):
    """A picture, or with a name any file."""

    url: str
    param: str
    name: str = ""
    detail: str | None = None


class Utterance(Struct, frozen=True, kw_only=True):
    """One message, checked: text, pictures, and calls or the call it answers."""

    role: str
    where: str
    """Its place in the request, for errors."""
    text: str = ""
    pictures: tuple[Picture, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    missing: bool = False
    """Stands for the result of a call that has none."""
    ours: bool = False
    """The result of a call that the agent carried out itself."""

    @property
    def empty(self) -> bool:
        return not (self.text.strip() or self.pictures or self.calls or self.call_id)


class Conversation(Struct, frozen=True, kw_only=True):
    """What a request says, taken apart."""

    system: tuple[Utterance, ...] = ()
    """System and developer messages, whose texts are the instructions."""
    instructions: str = ""
    earlier: tuple[Utterance, ...] = ()
    """Everything before the input, including `results`."""
    results: tuple[Utterance, ...] = ()
    """Tool results directly before the input."""
    asked: tuple[Utterance, ...] = ()
    """The messages of the user that are the input."""
    text: str = ""
    pictures: tuple[Picture, ...] = ()

    @property
    def whole(self) -> tuple[Utterance, ...]:
        """All that was said."""
        asked = Utterance(role="user", where="", text=self.text, pictures=self.pictures)
        return self.earlier if asked.empty else (*self.earlier, asked)

    @property
    def digest(self) -> str:
        """Identifies all that was said, for the next request of the same chat."""
        return digest_of(self.whole)

    @property
    def quotes_agent(self) -> bool:
        """True if it contains words of the agent, which a stored session has already."""
        return any(said.role == "assistant" and said.text for said in self.earlier)

    @property
    def prefill(self) -> str:
        """The words of the agent that the request ends with, from which it goes on."""
        last = self.earlier[-1] if self.earlier and not self.text and not self.pictures else None
        return last.text if last is not None and last.role == "assistant" else ""

    def continuing(self) -> "Conversation":
        """Return it for a session that goes on: all that the user says is new there."""
        said = [one for one in self.earlier if one.role in ("user", SUMMARY)]
        return replace(
            self,
            earlier=(),
            text=joined([*(one.text for one in said), self.text]),
            pictures=(*(shown for one in said for shown in one.pictures), *self.pictures),
        )


class StoredInput(Struct, frozen=True, kw_only=True):
    """A conversation whose pictures are files."""

    text: str
    attachments: tuple[Attachment, ...]
    results: tuple[ClientResult, ...]
    history: tuple[Message, ...]


async def stored(talk: Conversation, media: PictureStore) -> StoredInput:
    """Store the pictures of a conversation and return it in our words."""
    return StoredInput(
        text=talk.text,
        attachments=tuple([await _kept(one, media) for one in talk.pictures]),
        results=tuple(
            [
                ClientResult(call_id=one.call_id, content=await _content(one, media))
                for one in talk.results
            ]
        ),
        history=await history_of(talk.earlier, media),
    )


async def history_of(said: Sequence[Utterance], media: PictureStore) -> tuple[Message, ...]:
    history: list[Message] = []
    seen: set[str] = set()
    names: dict[str, ToolCall] = {}
    for one in said:
        match one.role:
            case "user":
                history.append(UserMessage(content=await _content(one, media)))
            case "summary":
                history.append(UserMessage(kind=InputKind.SUMMARY, content=one.text))
            case "assistant":
                names = {call.id: _unique(call, seen) for call in one.calls}
                calls = tuple(names.values())
                finish = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
                history.append(AssistantMessage(text=one.text, tool_calls=calls, finish=finish))
            case _:
                call = names[one.call_id]
                history.append(
                    ToolMessage(
                        call_id=call.id,
                        name=call.name,
                        content=await _content(one, media),
                        outcome=ToolOutcome.UNKNOWN if one.missing else ToolOutcome.OK,
                    )
                )
    return tuple(history)


async def _content(said: Utterance, media: PictureStore) -> Content:
    if not said.pictures:
        return said.text
    parts: list[Part] = [TextPart(said.text)] if said.text else []
    for shown in said.pictures:
        parts += attached(await _kept(shown, media))
    return tuple(parts)


async def _kept(shown: Picture, media: PictureStore) -> Attachment:
    kept = await picture(shown.url, media, shown.param, shown.name)
    return replace(kept, detail=shown.detail) if shown.detail else kept


def _unique(call: ToolCall, seen: set[str]) -> ToolCall:
    kept = replace(call, id=new_call_id()) if call.id in seen else call
    seen.add(kept.id)
    return kept


def spoken(said: Sequence[Utterance]) -> list[Utterance]:
    """Return what was said, without the calls that the agent carried out itself."""
    own = {one.call_id for one in said if one.ours}
    left = [
        replace(one, calls=tuple(call for call in one.calls if call.id not in own))
        if own and one.calls
        else one
        for one in said
        if not one.ours
    ]
    return [one for one in left if not own or not one.empty]


def digest_of(said: Sequence[Utterance]) -> str:
    """Return what is the same for two conversations in which exactly the same was said."""
    digest = hashlib.sha256()
    for role, group in groupby(spoken(said), key=lambda one: one.role):
        ones = list(group)
        # What a person says in several messages is one question.
        ones = [_together(ones)] if role == "user" else ones
        for one in ones:
            calls = [(call.name, call.arguments) for call in one.calls]
            shown = [each.url for each in one.pictures]
            digest.update(encode((role, one.text.strip(), shown, calls)))
    return digest.hexdigest()[:32]


def _together(said: Sequence[Utterance]) -> Utterance:
    text = joined(one.text for one in said)
    return replace(said[0], text=text, pictures=tuple(p for one in said for p in one.pictures))


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """Take the messages of a chat apart; 400 if they make no valid conversation."""
    read = [_message(one, f"messages[{at}]", items=False) for at, one in enumerate(messages)]
    talk = [said for said in read if said.role not in SYSTEM]
    found = _taken_apart(read, strict=True)
    if not talk and not found.instructions:
        raise bad_value("All messages are empty.", "messages")
    new = talk[_last(talk, "user") :]
    if talk and not found.text and not found.pictures and (new or talk[-1].empty):
        raise bad_value("The last message is empty.", f"{talk[-1].where}.content")
    if _count(talk) > MAX_PICTURES:
        raise bad_value(f"There are more than {MAX_PICTURES} pictures.", "messages")
    return found


def _call(call: CallIn, where: str) -> ToolCall:
    if call.type != "function":
        raise bad_value("Only calls of functions are supported.", f"{where}.tool_calls")
    return ToolCall(
        id=call.id, name=call.function.name, arguments=call.function.arguments.strip() or "{}"
    )


def read_items(
    *named: tuple[str, str | Sequence[InputItem]], answered: bool = True
) -> Conversation:
    """Take items apart; each list comes with the name it has in the request.

    If they are to be `answered`, there has to be something to answer.
    """
    read = [said for param, given in named for said in _read(param, given)]
    if _count(read) > MAX_PICTURES:
        text = f"A request may carry at most {MAX_PICTURES} pictures."
        raise Problem(400, text, code="too_many_images", param=named[-1][0])
    talk = _taken_apart(read, strict=False)
    said = talk.text or talk.pictures or talk.results or talk.prefill or talk.instructions
    if answered and not said:
        message = "There is nothing to answer: `input` has no message."
        raise Problem(400, message, code="missing_required_parameter", param="input")
    return talk


def _read(param: str, given: str | Sequence[InputItem]) -> list[Utterance]:
    read: list[Utterance] = []
    items = (InputItem(role="user", content=given),) if isinstance(given, str) else given
    for number, item in enumerate(items):
        _take(item, f"{param}[{number}]", read)
    return read


def compacted(summary: str) -> str:
    """Return a summary in the form in which clients keep it and send it back."""
    return base64.urlsafe_b64encode(zlib.compress(summary.encode())).decode()


def _summary(item: InputItem, where: str) -> Utterance:
    unpack = zlib.decompressobj()
    try:
        packed = base64.b64decode(_given(item.encrypted_content, where), b"-_", validate=True)
        text = unpack.decompress(packed, MAX_SUMMARY).decode()
    except (ValueError, zlib.error):
        message = "This is no compaction that was made here."
        raise bad_value(message, f"{where}.encrypted_content") from None
    return Utterance(role=SUMMARY, where=where, text=text)


def _take(item: InputItem, where: str, read: list[Utterance]) -> None:
    kind = item.type or ("message" if item.role else "")
    match kind:
        case "message":
            read.append(_message(item, where, items=True))
        case "function_call" | "mcp_call":
            _take_call(item, where, read)
        case "function_call_output":
            call_id = _given(item.call_id, f"{where}.call_id")
            if item.output is None:
                raise missing(f"{where}.output")
            text, shown = _Parts(where=where, items=True, pictures=True).read(item.output, "output")
            read.append(
                Utterance(role="tool", where=where, text=text, pictures=shown, call_id=call_id)
            )
        case "reasoning" | "mcp_list_tools":
            pass  # the model's own thoughts come back only from the session
        case "compaction" | "compaction_summary":
            read.append(_summary(item, where))
        case "item_reference":
            text = "Items are referred to by their id in `input` only."
            raise unsupported(text, f"{where}.type")
        case _ if kind in TEXTS or kind in PICTURES or kind in FILES:
            given = {name: getattr(item, name) for name in FileIn.__struct_fields__}
            part = ContentPart(type=kind, text=item.text, image_url=item.image_url, **given)
            text, shown = _Parts(where=where, items=True, pictures=True).part(part, where)
            read.append(Utterance(role="user", where=where, text=text, pictures=shown))
        case _:
            raise unsupported(f"Items of type `{kind}` are not supported.", f"{where}.type")


def _take_call(item: InputItem, where: str, read: list[Utterance]) -> None:
    done = item.type == "mcp_call"
    call_id = item.id or new_call_id() if done else _given(item.call_id, f"{where}.call_id")
    call = ToolCall(
        id=call_id,
        name=_given(item.name, f"{where}.name"),
        arguments=item.arguments or "{}",
    )
    if read and read[-1].role == "assistant":
        read[-1] = replace(read[-1], calls=(*read[-1].calls, call))
    else:
        read.append(Utterance(role="assistant", where=where, calls=(call,)))
    if done:
        said = item.output or (str(to_builtins(item.error)) if item.error else NO_RESULT)
        text, _ = _Parts(where=where, items=True, pictures=False).read(said, "output")
        read.append(Utterance(role="tool", where=where, text=text, call_id=call_id, ours=True))


def _message(message: ChatMessage | InputItem, where: str, *, items: bool) -> Utterance:
    role, content, call_id = message.role or "", message.content, message.tool_call_id or ""
    result = role == "tool" and (bool(call_id) or not items)
    if result and not call_id:
        raise bad_value("A tool result needs the id of its call.", f"{where}.tool_call_id")
    if not result and role not in (*SYSTEM, "user", "assistant"):
        raise bad_value(f"The role `{role}` is not one of {ROLES}.", f"{where}.role")
    made = message.tool_calls or () if role == "assistant" else ()
    if content is None and items and not made:
        raise missing(f"{where}.content")
    reader = _Parts(where=where, items=items, pictures=role == "user" or (items and result))
    text, shown = reader.read(content or "", "content")
    return Utterance(
        role=role,
        where=where,
        text=named_files(text) if role == "assistant" else text,
        pictures=shown,
        calls=tuple(_call(call, where) for call in made),
        call_id=call_id if result else "",
    )


def _given(value: str | None, param: str) -> str:
    if not value:
        raise missing(param)
    return value


class _Parts(Struct, frozen=True, kw_only=True):
    where: str
    items: bool
    """Items name what is unsupported or missing; chat says `invalid_value` and forgives."""
    pictures: bool
    """Whether the message may show pictures."""

    def read(
        self, content: str | Sequence[ContentPart], field: str
    ) -> tuple[str, tuple[Picture, ...]]:
        if isinstance(content, str):
            return content, ()
        read = [self.part(part, f"{self.where}.{field}[{at}]") for at, part in enumerate(content)]
        texts = [text for text, shown in read if not shown]
        return "\n".join(texts), tuple(each for _, shown in read for each in shown)

    def part(self, part: ContentPart, param: str) -> tuple[str, tuple[Picture, ...]]:
        if part.type in PICTURES and self.pictures:
            given = part.image_url
            url = given.url if isinstance(given, ImageUrl) else given
            detail = given.detail if isinstance(given, ImageUrl) else part.detail
            if not url:
                message = "A picture needs an `image_url`; uploaded files are not supported."
                raise self._refusal(message, f"{param}.image_url")
            return "", (Picture(url, f"{param}.image_url", detail=detail),)
        if part.type in FILES and self.pictures:
            return "", (self._file(part.file or part, param),)
        text = part.refusal if part.type == "refusal" else part.text
        if part.type not in (*TEXTS, "refusal"):
            message = f"`{part.type}` is not supported here; text is, and files from the user."
            raise self._refusal(message, f"{param}.type")
        if text is None and self.items:
            raise missing(f"{param}.text")
        return text or "", ()

    def _file(self, given: FileIn, param: str) -> Picture:
        url, name = given.file_data or given.file_url, given.filename or ""
        if not url:
            message = "A file needs `file_data` or `file_url`; uploaded files are not supported."
            raise self._refusal(message, f"{param}.file_data")
        if given.file_data and url[:5].lower() != "data:":
            url = f"data:application/octet-stream;base64,{url}"
        if not name and given.file_url:
            name = unquote(urlsplit(given.file_url).path.rpartition("/")[2])
        return Picture(url, f"{param}.file_data", name or "file")

    def _refusal(self, message: str, param: str) -> Problem:
        return unsupported(message, param) if self.items else bad_value(message, param)


def _taken_apart(read: Sequence[Utterance], *, strict: bool) -> Conversation:
    talk = [said for said in read if said.role not in SYSTEM]
    earlier = talk[: _last(talk, "user")]
    new = talk[len(earlier) :]
    system = tuple(said for said in read if said.role in SYSTEM and not said.empty)
    return Conversation(
        system=system,
        instructions=joined(said.text for said in system),
        earlier=_matched(earlier) if strict else _completed(earlier),
        results=tuple(one for one in earlier[_last(earlier, "tool") :] if not one.ours),
        asked=tuple(new),
        text=joined(said.text for said in new),
        pictures=tuple(shown for said in new for shown in said.pictures),
    )


def _last(said: Sequence[Utterance], role: str) -> int:
    """Return where the run of messages of one role begins that ends it."""
    at = len(said)
    while at and said[at - 1].role == role:
        at -= 1
    return at


def _matched(said: Sequence[Utterance]) -> tuple[Utterance, ...]:
    """Check that calls and results belong together; put results in the order of the calls."""
    checked: list[Utterance] = []
    waiting: dict[str, Utterance | None] = {}
    for one in said:
        if one.role == "tool":
            if one.call_id not in waiting or waiting[one.call_id] is not None:
                text = f"The tool result for `{one.call_id}` follows no call of that id."
                raise bad_value(text, f"{one.where}.tool_call_id")
            waiting[one.call_id] = one
            continue
        checked += _results(waiting)
        waiting = {call.id: None for call in one.calls}
        if len(waiting) < len(one.calls):
            raise bad_value("Two calls of one message have the same id.", f"{one.where}.tool_calls")
        if not one.empty:
            checked.append(one)
    return (*checked, *_results(waiting))


def _results(waiting: dict[str, Utterance | None]) -> Iterator[Utterance]:
    for call_id, result in waiting.items():
        if result is None:
            raise bad_value(f"The call `{call_id}` has no tool result after it.", "messages")
        yield result


def _completed(said: Sequence[Utterance]) -> tuple[Utterance, ...]:
    """Put every result behind its call, and say so where there is none."""
    results = {one.call_id: one for one in said if one.role == "tool"}
    history: list[Utterance] = []
    for one in said:
        if one.role == "tool" or one.empty:
            continue
        history.append(one)
        for call in one.calls:
            none = Utterance(
                role="tool", where=one.where, text=NO_RESULT, call_id=call.id, missing=True
            )
            history.append(results.get(call.id, none))
    return tuple(history)


def joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _count(said: Iterable[Utterance]) -> int:
    return sum(len(one.pictures) for one in said)


def bad_value(message: str, param: str) -> Problem:
    return Problem(400, message, code="invalid_value", param=param)


def missing(param: str) -> Problem:
    return Problem(400, f"`{param}` is missing.", code="missing_required_parameter", param=param)


def unsupported(message: str, param: str) -> Problem:
    return Problem(400, message, code="unsupported_value", param=param)
