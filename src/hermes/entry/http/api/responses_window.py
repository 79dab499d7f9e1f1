"""The window of a conversation: compacted into one item, or counted.

`/v1/responses/compact` has the agent's model for compaction summarise what was said. The summary
comes back as an item that the client puts in front of its next input, without a
`previous_response_id`. It is opaque to clients and nothing secret: it holds what they said.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.ids import new_id
from hermes.domain.keys import Action
from hermes.domain.messages import Message
from hermes.domain.ports.model import ModelFailure
from hermes.domain.usage import IMAGE_TOKENS, SUMMARY_HEADER, estimate_message, estimate_tokens
from hermes.entry.http.access import require_agent
from hermes.entry.http.api.conversation import (
    Conversation,
    InputItems,
    Short,
    compacted,
    history_of,
    joined,
    missing,
    read_items,
)
from hermes.entry.http.api.options import turn_options, with_own_tools
from hermes.entry.http.api.responses import find_session, previous_response, with_items
from hermes.entry.http.api.responses_request import CreateResponse
from hermes.entry.http.endpoint import Call, Operations
from hermes.entry.http.errors import Problem
from hermes.streaming.wire.response_resource import CompactionItem, ResponseUsage, usage_of

operation = Operations("responses", Action.RUN)


class CompactRequest(Struct, frozen=True, kw_only=True):
    """What to compact."""

    model: Short
    """The agent whose model summarises."""
    input: str | InputItems | None = None
    previous_response_id: Short | None = None
    """What was said up to and with this response comes before `input`."""
    instructions: str | None = None
    """What to pay special attention to."""
    prompt_cache_key: Short | None = None


class CompactedWindow(Struct, frozen=True, kw_only=True):
    """A conversation, compacted: the beginning of the next `input`."""

    id: str
    object: str = "response.compaction"
    created_at: int
    output: tuple[CompactionItem, ...]
    usage: ResponseUsage


class InputTokens(Struct, frozen=True, kw_only=True):
    """About how many tokens a request would put into the model."""

    object: str = "response.input_tokens"
    input_tokens: int


@operation("POST /v1/responses/compact", 404, 409, 502)
async def compact_response(call: Call[CompactRequest, None]) -> CompactedWindow:
    """Compact a conversation."""
    body, context = call.body, call.context
    agent = await require_agent(call, body.model)
    said: list[Message] = []
    if body.previous_response_id is not None:
        run = await previous_response(call, agent.agent_id, body.previous_response_id)
        through = run.through_seq
        history = await context.ledger.history(run.session_id)
        said += [each.message for each in history if through is None or each.seq <= through]
    items = await with_items(call, body.input or ())
    said += await _words(call, read_items(("input", items), answered=False))
    if not said:
        raise missing("input")
    try:
        reply = await context.side_calls.summarise(agent.agent_id, said, body.instructions or "")
    except ModelFailure as error:
        text = f"{error.message} {error.hint}".strip()
        raise Problem(502, text, code="agent_incomplete") from error
    if not reply.message.text.strip():
        raise Problem(502, "The summary came back empty.", code="agent_incomplete")
    summary = context.redact(f"{SUMMARY_HEADER}\n{reply.message.text.strip()}")
    item = CompactionItem(id=new_id("cmp"), encrypted_content=compacted(summary))
    return CompactedWindow(
        id=new_id("resp"),
        created_at=int(context.clock.now()),
        output=(item,),
        usage=usage_of(reply.usage),
    )


@operation("POST /v1/responses/input_tokens", 404, 409)
async def count_input_tokens(call: Call[CreateResponse, None]) -> InputTokens:
    """Count the tokens of a request, about: with the agent's own prompt and tools."""
    body, context = call.body, call.context
    agent = await require_agent(call, body.model)
    options = turn_options(body, body.instructions or "")
    items = await with_items(call, body.input or ())
    talk = read_items(("input", items), answered=False)
    session_id = (await find_session(call, agent.agent_id, talk)).session_id
    options = await with_own_tools(call, agent.agent_id, session_id, options)
    history = await context.ledger.history(session_id) if session_id else []
    messages = [*(each.message for each in history), *await _words(call, talk)]
    fixed = await context.prompt_tokens(agent.agent_id, session_id, options.own_tools)
    schemas = (str(tool.parameters) + tool.description + tool.name for tool in options.client_tools)
    asked = joined([options.instructions, talk.instructions])
    total = fixed + sum(map(estimate_message, messages)) + sum(map(estimate_tokens, schemas))
    shown = sum(len(each.pictures) for each in talk.whole) * IMAGE_TOKENS
    return InputTokens(input_tokens=total + shown + (estimate_tokens(asked) if asked else 0))


async def _words(call: Call[Any, None], talk: Conversation) -> tuple[Message, ...]:
    """Return what was said, without pictures."""
    words = [replace(each, pictures=()) for each in talk.whole]
    return await history_of([each for each in words if not each.empty], call.context.media)
