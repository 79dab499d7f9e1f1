"""The chat that a request goes on with: the one in which exactly this was said.

This is equality, not guessing: a run is found by a digest of all that was said up to its question
(`Conversation.digest`), and what it answered has to be what the client sends back. A client that
stopped an answer has only its beginning. One that stopped before the first word, or whose turn
failed, has nothing of it: its history goes on with the next question, with or without an empty
message in between. An answer that ends with a question is known by the id at its end, however a
client shows the rest, and without the id by its text.
"""

from collections.abc import AsyncIterator
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.runs.sections import id_mark, without_id
from hermes.domain.runs import Run, RunOutcome, RunState, SessionChoice
from hermes.entry.http.api.conversation import Conversation, Utterance, digest_of, joined, spoken
from hermes.entry.http.api.media import as_sent_back
from hermes.entry.http.api.options import user_of
from hermes.entry.http.endpoint import Call
from hermes.streaming.wire.chat import answers_seen

AnyCall = Call[Any, Any]
MAX_UNANSWERED = 8
"""Messages at the end of a request of which some may have been asked before."""


class SameChat(Struct, frozen=True, kw_only=True):
    choice: SessionChoice = SessionChoice()
    talk: Conversation
    """The request, without the questions that the chat has already."""


async def same_chat(call: AnyCall, agent_id: str, talk: Conversation) -> SameChat:
    """Find the chat that a request goes on with."""
    said, new = _parted(talk)
    for at in range(1, min(len(new), MAX_UNANSWERED)):
        async for run, outcome in _runs_after(call, agent_id, [*said, *new[:-at]]):
            if run.turn_id is not None and _said_nothing(run, outcome):
                return SameChat(choice=SessionChoice(after_run=run.id), talk=_only(talk, new[-at:]))
    answered = await _answered(call, agent_id, said)
    if answered is None:
        return SameChat(talk=talk)
    choice = SessionChoice(after_run=answered.id)
    return SameChat(choice=choice, talk=_only(talk, new) if new else talk)


def _parted(talk: Conversation) -> tuple[list[Utterance], list[Utterance]]:
    """Return what was said up to the last words of the agent, and what the user said since."""
    said = [*spoken(talk.earlier), *(one for one in talk.asked if not one.empty)]
    new = list(takewhile(lambda one: one.role == "user", reversed(said)))[::-1]
    return said[: len(said) - len(new)], new


def _said_nothing(run: Run, outcome: RunOutcome) -> bool:
    told = outcome.text or outcome.handed or outcome.asked
    return not (told or run.request.get("prefill"))


def _only(talk: Conversation, new: list[Utterance]) -> Conversation:
    """Return a request for a session that has everything before these messages."""
    return replace(
        talk,
        earlier=(),
        results=(),
        asked=tuple(new),
        text=joined(one.text for one in new),
        pictures=tuple(shown for one in new for shown in one.pictures),
    )


async def _answered(call: AnyCall, agent_id: str, said: list[Utterance]) -> Run | None:
    """Return the run that answered what was said before in the words that are sent back."""
    answers = list(takewhile(lambda one: one.role == "assistant", reversed(said)))[::-1]
    if not answers or any(one.calls for one in answers):
        return None
    text = "\n\n".join(one.text.strip() for one in answers if one.text.strip())
    async for run, outcome in _runs_after(call, agent_id, said[: -len(answers)]):
        begun = (run.request.get("prefill") or "").strip()
        if not text.startswith(begun):
            continue
        rest = text.removeprefix(begun).strip()
        told = answers_seen([event async for event in call.context.runs.events(run)])
        seen = [as_sent_back(each).strip() for each in told]
        if outcome.asked is not None:
            if rest.endswith(id_mark(outcome.asked)):
                return run
            seen += [without_id(each) for each in seen]
        cut = outcome.state is RunState.INCOMPLETE
        if rest in seen or (cut and any(each.startswith(rest) for each in seen)):
            return run
    return None


async def _runs_after(
    call: AnyCall, agent_id: str, before: list[Utterance]
) -> AsyncIterator[tuple[Run, RunOutcome]]:
    """Yield the ended runs of the same key and person in which exactly this had been said."""
    context, digest = call.context, digest_of(before)
    for found in await context.ledger.runs_after(call.caller.key_id, agent_id, digest):
        if found.request.get("user") != user_of(call.body):
            continue
        run = await context.runs.left_behind(found)
        if run.outcome is not None and await context.ledger.session(run.session_id) is not None:
            yield run, run.outcome
