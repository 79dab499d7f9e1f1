"""`/v1/conversations`: conversations of the Responses API, which are sessions under a `conv_` id.

Requests go on in one with `conversation`. Its items are the messages that the model is shown; what
compaction replaced is one item. Deleting an item takes its message out of the history, a call
together with its result. System messages are no part of the history: they are kept beside it, each
with the place where it was said.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, convert, to_builtins
from msgspec.structs import replace

from hermes.control.runs.runs import PLATFORM, clean_messages, owner_tag
from hermes.domain.errors import SessionBusy
from hermes.domain.ids import new_id
from hermes.domain.inbound import ENDINGS
from hermes.domain.keys import Action
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    FilePart,
    ImagePart,
    InputKind,
    TextPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
    content_text,
)
from hermes.domain.session import Session, StoredMessage
from hermes.entry.http.access import (
    SYSTEM_ITEMS,
    owns_session,
    reachable_agents,
    require_agent,
    session_key_of,
)
from hermes.entry.http.api.conversation import (
    Conversation,
    InputItem,
    Short,
    compacted,
    history_of,
    read_items,
)
from hermes.entry.http.api.responses import InputItemList, InputItemsQuery, item_page, with_items
from hermes.entry.http.api.responses_request import Metadata
from hermes.entry.http.endpoint import Call, Operations
from hermes.entry.http.errors import Problem
from hermes.streaming.wire.response_resource import (
    CompactionItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputFile,
    InputImage,
    InputText,
    Item,
    McpCallError,
    McpCallItem,
    MessageItem,
    OutputText,
    ReasoningItem,
    SummaryText,
    ToolErrorText,
)

operation = Operations("conversations", Action.RUN)
METADATA = "metadata"
"""The fact of a session that holds the metadata of its conversation."""
GivenItems = Annotated[tuple[InputItem, ...], Meta(max_length=20)]


class NewConversation(Struct, frozen=True, kw_only=True):
    """A conversation to create."""

    items: GivenItems | None = None
    """What was said before."""
    metadata: Metadata | None = None
    model: Short | None = None
    """The agent that it is with; the default one if there is no name."""


class ConversationChange(Struct, frozen=True, kw_only=True):
    """What to change."""

    metadata: Metadata | None


class NewItems(Struct, frozen=True, kw_only=True):
    """Items to add."""

    items: GivenItems


class ConversationView(Struct, frozen=True, kw_only=True):
    """A conversation."""

    id: str
    object: str = "conversation"
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(Struct, frozen=True, kw_only=True):
    """A conversation that is no more."""

    id: str
    object: str = "conversation.deleted"
    deleted: bool = True


class SystemItem(Struct, frozen=True, kw_only=True):
    """A system message, which holds for the whole conversation."""

    id: str
    role: str
    text: str
    after: int
    """The message that was the last one when it was said; 0: none."""


Source = StoredMessage | SystemItem


@operation("POST /v1/conversations", 404)
async def create_conversation(call: Call[NewConversation, None]) -> ConversationView:
    """Create a conversation."""
    body, context = call.body, call.context
    agent, said = await require_agent(call, body.model), await with_items(call, body.items or ())
    read_items(("items", said), answered=False)
    fresh = context.gateway.new_session(agent.agent_id, PLATFORM, owner_tag(call.caller.key_id))
    session = await context.ledger.create_session(replace(fresh, id=new_id("conv")))
    await _say(call, session, said)
    await _describe(call, session, body.metadata)
    return await _view(call, session)


@operation("GET /v1/conversations/{conversation_id}", 404)
async def get_conversation(call: Call[None, None]) -> ConversationView:
    """Read a conversation."""
    return await _view(call, await _reached(call))


@operation("POST /v1/conversations/{conversation_id}", 404)
async def update_conversation(call: Call[ConversationChange, None]) -> ConversationView:
    """Change the metadata of a conversation."""
    session = await _reached(call)
    await _describe(call, session, call.body.metadata or {})
    return await _view(call, session)


@operation("DELETE /v1/conversations/{conversation_id}", 404, 409)
async def delete_conversation(call: Call[None, None]) -> DeletedConversation:
    """Delete a conversation and what was said in it."""
    session = await _reached(call)
    try:
        await call.context.ledger.delete_session(session.id, idle=True)
    except SessionBusy as error:
        message = "A response of the conversation is in progress. Cancel it, or wait for its end."
        raise Problem(409, message, code="session_busy") from error
    return DeletedConversation(id=call.path["conversation_id"])


@operation("GET /v1/conversations/{conversation_id}/items", 404)
async def list_conversation_items(call: Call[None, InputItemsQuery]) -> InputItemList:
    """List what was said in a conversation."""
    session = await _reached(call)
    return item_page([item for _, item in await _items(call, session)], call.query)


@operation("POST /v1/conversations/{conversation_id}/items", 404, 409)
async def create_conversation_items(call: Call[NewItems, None]) -> InputItemList:
    """Add items to a conversation."""
    session = await _reached(call)
    added = await _say(call, session, await with_items(call, call.body.items))
    items = [item for _, item in added]
    return item_page(items, InputItemsQuery(limit=100, order="asc"))


@operation("GET /v1/conversations/{conversation_id}/items/{item_id}", 404)
async def get_conversation_item(call: Call[None, None]) -> Item:
    """Read an item of a conversation."""
    session = await _reached(call)
    return (await _found(call, session))[1]


@operation("DELETE /v1/conversations/{conversation_id}/items/{item_id}", 404, 409)
async def delete_conversation_item(call: Call[None, None]) -> ConversationView:
    """Delete an item of a conversation."""
    session, ledger = await _reached(call), call.context.ledger
    source, _ = await _found(call, session)
    if isinstance(source, SystemItem):
        left = [each for each in await _system(call, session) if each.id != source.id]
        await ledger.remember(session.id, SYSTEM_ITEMS, to_builtins(left))
    else:
        ids = _group(await ledger.history(session.id), source)
        await ledger.hide_messages(session.id, ids)
    return await _view(call, session)


async def _reached(call: Call[Any, Any]) -> Session:
    """Return the conversation in the path, by its id or by the name a client gave it."""
    name, ledger = call.path["conversation_id"], call.context.ledger
    session = await ledger.session(name)
    if session is not None and owns_session(call.caller, session):
        return session
    # What is somebody else's is looked for further, like what does not exist.
    for agent in reachable_agents(call):
        key = session_key_of(agent.agent_id, call.caller.key_id, name)
        if (session := await ledger.session_for_key(key)) is not None:
            return session
    raise Problem(404, f"There is no conversation `{name}`.", code="conversation_not_found")


async def _describe(
    call: Call[Any, Any], session: Session, metadata: dict[str, str] | None
) -> None:
    if metadata is not None:
        clean = {call.context.redact(k): call.context.redact(v) for k, v in metadata.items()}
        await call.context.ledger.remember(session.id, METADATA, clean)


async def _view(call: Call[Any, Any], session: Session) -> ConversationView:
    kept = await call.context.ledger.recall(session.id, METADATA)
    return ConversationView(
        id=call.path.get("conversation_id", session.id),
        created_at=int(session.started_at),
        metadata=kept or {},
    )


async def _say(
    call: Call[Any, Any], session: Session, items: str | Sequence[InputItem]
) -> list[tuple[Source, Item]]:
    """Put items at the end of a conversation; system messages come before the others."""
    context, talk = call.context, read_items(("items", items), answered=False)
    said = clean_messages(await history_of(talk.whole, context.media), context.redact)
    before = await context.ledger.history(session.id)
    stored = []
    if said:
        stored = await context.ledger.append_messages(session.id, said, context.clock.now())
    last = max((each.id for each in before), default=0)
    given = await _say_system(call, session, talk, last)
    told = _told(stored, _own_tools(call, session))
    return [*((each, _system_item(each)) for each in given), *told]


async def _say_system(
    call: Call[Any, Any], session: Session, talk: Conversation, last: int
) -> list[SystemItem]:
    redact = call.context.redact
    given = [
        SystemItem(id=new_id("msg"), role=said.role, text=redact(said.text), after=last)
        for said in talk.system
    ]
    if given:
        kept = [*await _system(call, session), *given]
        await call.context.ledger.remember(session.id, SYSTEM_ITEMS, to_builtins(kept))
    return given


async def _system(call: Call[Any, Any], session: Session) -> list[SystemItem]:
    kept = await call.context.ledger.recall(session.id, SYSTEM_ITEMS)
    return convert(kept or [], list[SystemItem])


def _system_item(said: SystemItem) -> Item:
    role: Any = said.role
    content = (InputText(text=said.text),)
    return MessageItem(id=said.id, status="completed", role=role, content=content)


async def _items(call: Call[Any, Any], session: Session) -> list[tuple[Source, Item]]:
    history, system = await call.context.ledger.history(session.id), await _system(call, session)
    items: list[tuple[Source, Item]] = []
    for message, item in _told(history, _own_tools(call, session)):
        said = [each for each in system if each.after < message.id]
        items += [(each, _system_item(each)) for each in said]
        items.append((message, item))
        system = system[len(said) :]
    return [*items, *((each, _system_item(each)) for each in system)]


async def _found(call: Call[Any, Any], session: Session) -> tuple[Source, Item]:
    for source, item in await _items(call, session):
        if item.id == call.path["item_id"]:
            return source, item
    raise Problem(404, f"There is no item `{call.path['item_id']}`.", code="item_not_found")


def _own_tools(call: Call[Any, Any], session: Session) -> frozenset[str]:
    sets = call.context.toolsets(session.agent_id)
    return frozenset(name for each in sets for name in each.tools)


def _group(history: Sequence[StoredMessage], message: StoredMessage) -> list[int]:
    """Return the ids of a reply with its calls and all of their results."""
    spoken = message.message
    calls = [call.id for call in spoken.tool_calls] if isinstance(spoken, AssistantMessage) else []
    results = (each for each in history if isinstance(each.message, ToolMessage))
    of_them = (each.id for each in results if each.message.call_id in calls)  # type: ignore[union-attr]
    return [message.id, *of_them]


# -- from messages to items ------------------------------------------------------------


def _told(
    history: Sequence[StoredMessage], own: frozenset[str]
) -> list[tuple[StoredMessage, Item]]:
    """Return the items of messages, each with the message that it is part of."""
    messages = [each.message for each in history]
    results = {each.call_id: each for each in messages if isinstance(each, ToolMessage)}
    told: list[tuple[StoredMessage, Item]] = []
    for stored in history:
        match stored.message:
            case UserMessage(kind=InputKind.SUMMARY, content=content):
                packed = compacted(content_text(content))
                items: list[Item] = [
                    CompactionItem(id=f"cmp_{stored.id}", encrypted_content=packed)
                ]
            case UserMessage(content=content):
                items = [_message(stored.id, "user", _parts(content))]
            case AssistantMessage():
                items = _spoken(stored.id, stored.message, results, own)
            case _:
                items = []
        told += [(stored, item) for item in items]
    return told


def _message(number: int, role: Any, content: tuple[Any, ...]) -> MessageItem:
    return MessageItem(id=f"msg_{number}", status="completed", role=role, content=content)


def _parts(content: Content) -> tuple[InputText | InputImage | InputFile, ...]:
    if isinstance(content, str):
        return (InputText(text=content),)
    return tuple(map(_part, content))


def _part(part: TextPart | ImagePart | FilePart) -> InputText | InputImage | InputFile:
    if isinstance(part, TextPart):
        return InputText(text=part.text)
    if isinstance(part, ImagePart) or part.media_type in ENDINGS:
        return InputImage()
    return InputFile(filename=part.name)


def _spoken(
    number: int, said: AssistantMessage, results: dict[str, ToolMessage], own: frozenset[str]
) -> list[Item]:
    items: list[Item] = []
    if said.reasoning is not None and said.reasoning.text:
        thought = (SummaryText(text=said.reasoning.text),)
        items.append(ReasoningItem(id=f"rs_{number}", summary=thought))
    if said.text or not said.tool_calls:
        items.append(_message(number, "assistant", (OutputText(text=said.text),)))
    for at, call in enumerate(said.tool_calls):
        result, token = results.get(call.id), f"{number}_{at}"
        if call.name in own:
            items.append(_own_call(f"mcp_{token}", call.name, call.arguments, result))
            continue
        same = {"call_id": call.id, "status": "completed"}
        made: Any = {**same, "name": call.name, "arguments": call.arguments}
        items.append(FunctionCallItem(id=f"fc_{token}", **made))
        if result is not None:
            output: Any = {**same, "output": content_text(result.content)}
            items.append(FunctionCallOutputItem(id=f"fco_{token}", **output))
    return items


def _own_call(item_id: str, name: str, arguments: str, result: ToolMessage | None) -> McpCallItem:
    call = McpCallItem(id=item_id, name=name, arguments=arguments, status="incomplete")
    if result is None:
        return call
    text = content_text(result.content)
    if result.outcome is ToolOutcome.OK:
        return replace(call, status="completed", output=text)
    return replace(call, status="failed", error=McpCallError(content=(ToolErrorText(text=text),)))
