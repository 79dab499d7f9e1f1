"""Reading input items: what was said before, what is said now, what came of tools.

    items -> instructions | history | results of calls | input

The input is what the user says after the last word of the agent. The outputs
of calls just before it are kept apart: if the calls wait in a session, they
are its results; if not, they are history like the rest.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.inbound import Attachment
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FilePart,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from hermes.domain.runs import Run, RunKind, SessionChoice
from hermes.domain.turn import ClientResult
from hermes.entry.http.access import instructions_for, owns_session, session_choice, session_key_of
from hermes.entry.http.api.responses_options import conversation_name
from hermes.entry.http.api.responses_wire import ContentPart, CreateResponse, ImageUrl, InputItem
from hermes.entry.http.context import MediaShelf
from hermes.entry.http.endpoint import Call
from hermes.entry.http.errors import Problem
from hermes.entry.http.media import MAX_PICTURES, picture

__all__ = [
    "InputReader",
    "Place",
    "ReadInput",
    "find_place",
    "reached_response",
    "response_missing",
]


_TEXT_PARTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_IMAGE_PARTS = frozenset({"input_image", "image_url"})
_NO_RESULT = "No result was given for this call."


class ReadInput(Struct, frozen=True, kw_only=True):
    """What a request says."""

    instructions: tuple[str, ...] = ()
    history: tuple[Message, ...] = ()
    """Everything before the input, with the results."""
    results: tuple[ClientResult, ...] = ()
    """Outputs of calls that nothing was said after."""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()

    @property
    def quotes_agent(self) -> bool:
        """True if it contains words of the agent, which a stored session has already."""
        return any(isinstance(said, AssistantMessage) and said.text for said in self.history)

    def continuing(self) -> "ReadInput":
        """Return it for a session that goes on: all that the user says is new there."""
        said = [message for message in self.history if isinstance(message, UserMessage)]
        text, attachments = _joined(said)
        return replace(
            self,
            history=(),
            text="\n\n".join(part for part in (text, self.text) if part),
            attachments=attachments + self.attachments,
        )

    def answering(self) -> "ReadInput":
        """Return it for the session in which the calls wait: what was before is there."""
        return replace(self, history=())

    def unanswered(self) -> "ReadInput":
        """Return it for a session of its own: results are history like the rest."""
        return replace(self, results=())


class InputReader:
    """Reads the items of one request."""

    def __init__(self, media: MediaShelf) -> None:
        self._media = media
        self._pictures = 0
        self._instructions: list[str] = []
        self._said: list[Message] = []
        self._names: dict[str, str] = {}
        """Call id -> the tool that was called."""

    async def read(self, items: Sequence[InputItem], param: str) -> None:
        """Take items; `param` names them in errors."""
        for number, item in enumerate(items):
            await self._item(item, f"{param}[{number}]")

    def done(self) -> ReadInput:
        """Return what was read."""
        said = self._said
        end = len(said)
        while end and isinstance(said[end - 1], UserMessage):
            end -= 1
        start = end
        while start and isinstance(said[start - 1], ToolMessage):
            start -= 1
        text, attachments = _joined(said[end:])
        return ReadInput(
            instructions=tuple(self._instructions),
            history=_answered(said[:end]),
            results=tuple(
                ClientResult(call_id=result.call_id, content=result.content)
                for result in said[start:end]
                if isinstance(result, ToolMessage)
            ),
            text=text,
            attachments=attachments,
        )

    async def _item(self, item: InputItem, param: str) -> None:
        kind = item.type or ("message" if item.role else "")
        match kind:
            case "message":
                await self._message(item, param)
            case "function_call":
                self._call(item, param)
            case "function_call_output":
                await self._output(item, param)
            case "reasoning":
                pass  # the model's own thoughts come back only from the session
            case "item_reference":
                text = "Items cannot be referred to by id; use previous_response_id."
                raise _unsupported(text, f"{param}.type")
            case _:
                raise _unsupported(f"Items of type `{kind}` are not supported.", f"{param}.type")

    async def _message(self, item: InputItem, param: str) -> None:
        match item.role:
            case "system" | "developer":
                self._instructions.append(_plain(item.content, f"{param}.content"))
            case "assistant":
                text = _plain(item.content, f"{param}.content")
                self._said.append(AssistantMessage(text=text))
            case "user":
                content = await self._content(item.content, f"{param}.content")
                self._said.append(UserMessage(content=content))
            case _:
                message = "`role` is one of user, assistant, system and developer."
                raise Problem(400, message, code="invalid_value", param=f"{param}.role")

    def _call(self, item: InputItem, param: str) -> None:
        call = ToolCall(
            id=_given(item.call_id, f"{param}.call_id"),
            name=_given(item.name, f"{param}.name"),
            arguments=item.arguments or "{}",
        )
        self._names[call.id] = call.name
        last = self._said[-1] if self._said else None
        if isinstance(last, AssistantMessage):
            calls = (*last.tool_calls, call)
            self._said[-1] = AssistantMessage(text=last.text, tool_calls=calls)
        else:
            self._said.append(AssistantMessage(tool_calls=(call,)))

    async def _output(self, item: InputItem, param: str) -> None:
        call_id = _given(item.call_id, f"{param}.call_id")
        if item.output is None:
            raise _missing(f"{param}.output")
        content = await self._content(item.output, f"{param}.output")
        name = self._names.get(call_id, "")
        self._said.append(ToolMessage(call_id=call_id, name=name, content=content))

    async def _content(self, content: str | Sequence[ContentPart] | None, param: str) -> Content:
        if content is None:
            raise _missing(param)
        if isinstance(content, str):
            return content
        parts: list[Part] = []
        for number, part in enumerate(content):
            parts.append(await self._part(part, f"{param}[{number}]"))
        if all(isinstance(part, TextPart) for part in parts):
            return "\n".join(part.text for part in parts if isinstance(part, TextPart))
        return tuple(parts)

    async def _part(self, part: ContentPart, param: str) -> Part:
        if part.type not in _IMAGE_PARTS:
            return TextPart(_part_text(part, param))
        url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
        if not url:
            text = "A picture needs an `image_url`; uploaded files are not supported."
            raise _unsupported(text, f"{param}.image_url")
        self._pictures += 1
        if self._pictures > MAX_PICTURES:
            text = f"A request may carry at most {MAX_PICTURES} pictures."
            raise Problem(400, text, code="too_many_images", param=param)
        kept = await picture(url, self._media, f"{param}.image_url")
        return FilePart(path=kept.path, name=kept.name, media_type=kept.media_type)


def _plain(content: str | Sequence[ContentPart] | None, param: str) -> str:
    if content is None:
        raise _missing(param)
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part, f"{param}[{n}]") for n, part in enumerate(content))


def _part_text(part: ContentPart, param: str) -> str:
    if part.type in _TEXT_PARTS and part.text is not None:
        return part.text
    if part.type == "refusal" and part.refusal is not None:
        return part.refusal
    if part.type in _TEXT_PARTS or part.type == "refusal":
        raise _missing(f"{param}.text")
    text = f"Content of type `{part.type}` is not supported here."
    raise _unsupported(text, f"{param}.type")


def _joined(said: Sequence[Message]) -> tuple[str, tuple[Attachment, ...]]:
    """Make one input of everything the user said last."""
    texts: list[str] = []
    attachments: list[Attachment] = []
    for message in said:
        content = message.content if isinstance(message, UserMessage) else ""
        parts = (TextPart(content),) if isinstance(content, str) else content
        texts += [part.text for part in parts if isinstance(part, TextPart) and part.text]
        attachments += [
            Attachment(kind="image", path=part.path, name=part.name, media_type=part.media_type)
            for part in parts
            if isinstance(part, FilePart)
        ]
    return "\n\n".join(texts), tuple(attachments)


def _answered(said: Sequence[Message]) -> tuple[Message, ...]:
    """Put every result behind its call, and say so where there is none."""
    results = {one.call_id: one for one in said if isinstance(one, ToolMessage)}
    history: list[Message] = []
    for message in said:
        if isinstance(message, ToolMessage):
            continue
        history.append(message)
        if isinstance(message, AssistantMessage):
            history += [results.get(call.id) or _open(call) for call in message.tool_calls]
    return tuple(history)


def _open(call: ToolCall) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=_NO_RESULT, outcome=ToolOutcome.UNKNOWN
    )


def _given(value: str | None, param: str) -> str:
    if not value:
        raise _missing(param)
    return value


def _missing(param: str) -> Problem:
    return Problem(400, f"`{param}` is missing.", code="missing_required_parameter", param=param)


def _unsupported(message: str, param: str) -> Problem:
    return Problem(400, message, code="unsupported_value", param=param)


CreateCall = Call[CreateResponse, None]


class Place(Struct, frozen=True, kw_only=True):
    """Where a response goes on, and what is new there."""

    choice: SessionChoice
    said: ReadInput
    instructions: str = ""
    """What was kept with the session, followed by what came with the request."""
    own: bool = False
    """The session is there for this response and those that it goes on from."""
    named: bool = False
    """The client knows the conversation: it deserves a title."""


def response_missing(response_id: str, param: str | None = None) -> Problem:
    """Return what a client is told about a response that it cannot reach."""
    message = f"There is no response `{response_id}`."
    return Problem(404, message, code="response_not_found", param=param)


async def reached_response(call: Call[Any, Any], response_id: str, param: str | None = None) -> Run:
    """Return the run behind a stored response of the caller; 404 otherwise."""
    run = await call.parts.runs.get(response_id)
    known = run is not None and run.kind is RunKind.RESPONSE and run.request.get("store", True)
    if run is None or not known or not call.caller.owns(run.key_id, run.agent_id):
        raise response_missing(response_id, param)
    return run


async def find_place(call: CreateCall, agent_id: str, said: ReadInput, instructions: str) -> Place:
    """Return the session that the request continues."""
    body, ledger = call.body, call.parts.ledger
    _only_one(call)
    if body.previous_response_id is not None:
        previous = await _previous(call, agent_id, body.previous_response_id)
        handed = previous.outcome.handed if previous.outcome else ()
        _check_results(said, {waiting.id for waiting in handed})
        choice, session_id = SessionChoice(after_run=previous.id), previous.session_id
        place = await _going_on(call, choice, session_id, said, instructions)
        return replace(place, own=bool(previous.request.get("own_session")))
    name = conversation_name(body)
    if name is not None:
        choice = SessionChoice(key=session_key_of(agent_id, call.caller.key_id, name))
    else:
        choice = await session_choice(call.caller, call.headers, agent_id, ledger)
    if choice == SessionChoice():
        return await _own_or_waiting(call, agent_id, said, instructions)
    session = await ledger.session_for_key(choice.key) if choice.key else None
    known = choice.session_id or (session.id if session else None)
    if known is None:
        return Place(choice=choice, said=said.unanswered(), instructions=instructions, named=True)
    calls = [one.call_id for one in said.results if await ledger.handed_call(one.call_id) == known]
    _check_results(said, set(calls))
    return await _going_on(call, choice, known, said, instructions)


def _only_one(call: CreateCall) -> None:
    body, headers = call.body, call.headers
    given = {
        "previous_response_id": body.previous_response_id,
        "conversation": body.conversation,
        "X-Hermes-Session-Id": headers.session_id,
        "X-Hermes-Session-Key": headers.session_key,
    }
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        message = f"{names[0]} and {names[1]} cannot be used together."
        raise Problem(400, message, code="conflicting_parameters", param=names[1])


async def _previous(call: CreateCall, agent_id: str, response_id: str) -> Run:
    param = "previous_response_id"
    run = await reached_response(call, response_id, param)
    if run.agent_id != agent_id:
        message = f"Response `{response_id}` is from another agent than the one asked for."
        raise Problem(400, message, code="agent_mismatch", param="model")
    if run.outcome is None:
        message = f"Response `{response_id}` is still in progress."
        raise Problem(409, message, code="response_in_progress", param=param)
    return run


def _check_results(said: ReadInput, waiting: set[str]) -> None:
    for result in said.results:
        if result.call_id not in waiting:
            message = f"No call `{result.call_id}` waits for its output there."
            raise Problem(400, message, code="tool_call_not_found", param="input")


async def _going_on(
    call: CreateCall, choice: SessionChoice, session_id: str, said: ReadInput, instructions: str
) -> Place:
    if said.quotes_agent:
        message = "A conversation that is stored cannot be given further words of the agent."
        hint = "Send only what is new, or everything without naming a conversation."
        raise Problem(400, f"{message} {hint}", code="unsupported_value", param="input")
    return Place(
        choice=choice,
        said=said.continuing(),
        instructions=await instructions_for(call.parts.ledger, session_id, instructions),
        named=True,
    )


async def _own_or_waiting(
    call: CreateCall, agent_id: str, said: ReadInput, instructions: str
) -> Place:
    """Go on where all the calls wait whose results came; else in a session of its own."""
    ledger = call.parts.ledger
    waiting = {await ledger.handed_call(result.call_id) for result in said.results}
    session = await ledger.session(waiting.pop() or "") if len(waiting) == 1 else None
    mine = session is not None and owns_session(call.caller, session)
    if session is None or not mine or session.agent_id != agent_id:
        return Place(
            choice=SessionChoice(), said=said.unanswered(), instructions=instructions, own=True
        )
    return Place(
        choice=SessionChoice(session_id=session.id),
        said=said.answering(),
        instructions=await instructions_for(ledger, session.id, instructions),
    )
