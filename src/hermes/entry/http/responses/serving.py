"""A run as a response: as one object, or as a stream.

Responses that run in the background are streamed from the log of their run:
folding it again gives the same events under the same numbers, so a client can
go on after any of them, also after a restart.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import convert

from hermes.control.runs import RunDesk
from hermes.domain.events import TurnEvent, TurnFinished
from hermes.domain.runs import Run
from hermes.entry.http.endpoint import Answer, Call, JsonAnswer, StreamAnswer
from hermes.entry.http.leaving import Stop, attended
from hermes.entry.http.parts import HttpParts
from hermes.entry.http.responses.forgetting import forget_response, is_stored
from hermes.streaming.responses.resource import ResponseResource
from hermes.streaming.sse import DONE
from hermes.streaming.sse_responses import ResponseEvent, ResponseFold

__all__ = ["answer_at_once", "answer_whole", "response_of", "run_headers", "streamed"]

_LOG_PAGE = 1000


def run_headers(run: Run) -> dict[str, str]:
    """Return the headers that name the run and its session."""
    return {"X-Hermes-Session-Id": run.session_id, "X-Hermes-Run-Id": run.id}


async def answer_whole(call: Call[Any, Any], run: Run) -> Answer:
    """Answer when the response has ended; a client that leaves meanwhile interrupts it."""
    desk = call.parts.runs
    stop = None if run.idempotency_key else _stopper(call.parts, run)
    ended = await attended(call, desk.ended(run), stop)
    value = await response_of(call.parts, ended)
    if not is_stored(run) and run.idempotency_key is None and ended.outcome is not None:
        await forget_response(call.parts.ledger, run)
    return JsonAnswer(value=value, headers=run_headers(run))


async def answer_at_once(call: Call[Any, Any], run: Run) -> Answer:
    """Answer with the response as it stands."""
    current = await call.parts.runs.get(run.id) or run
    value = await response_of(call.parts, current)
    return JsonAnswer(value=value, headers=run_headers(run))


def streamed(parts: HttpParts, run: Run, after: int | None = None) -> StreamAnswer:
    """Answer with the events of a response whose numbers are greater than `after`."""
    stop = None if run.logged or run.idempotency_key else _stopper(parts, run)
    return StreamAnswer(chunks=_chunks(parts, run, after), headers=run_headers(run), left=stop)


async def response_of(parts: HttpParts, run: Run) -> ResponseResource:
    """Return a response as it stands."""
    fold = _fold(parts, run)
    if run.outcome is None:
        await _catch_up(parts, run, fold)
        return fold.resource
    async for event in parts.runs.events(run):
        _feed(fold, event, run)
    return fold.resource


def _fold(parts: HttpParts, run: Run) -> ResponseFold:
    base = convert(run.request["response"], ResponseResource)
    return ResponseFold(base, parts.redact)


def _feed(fold: ResponseFold, event: TurnEvent, ended: Run) -> list[ResponseEvent]:
    if not isinstance(event, TurnFinished):
        return fold.feed(event)
    state = ended.outcome.state if ended.outcome else None
    return fold.finish(event, state, ended.updated_at)


async def _catch_up(parts: HttpParts, run: Run, fold: ResponseFold) -> None:
    """Fold what the log has so far."""
    after = 0
    while run.logged and (page := await parts.ledger.run_log(run.id, after=after, limit=_LOG_PAGE)):
        for logged in page:
            fold.feed(logged.event)
        after = page[-1].seq


async def _chunks(parts: HttpParts, run: Run, after: int | None) -> AsyncIterator[bytes]:
    fold, ended = _fold(parts, run), run
    seen = -1 if after is None else after
    if chunk := _framed(fold.begin(), seen):
        yield chunk
    async for batch in _batches(parts, run):
        if isinstance(batch[-1], TurnFinished):
            ended = await parts.runs.ended(run)
        told = [each for event in batch for each in _feed(fold, event, ended)]
        if chunk := _framed(told, seen):
            yield chunk
    yield DONE
    if not is_stored(run) and run.idempotency_key is None and ended.outcome is not None:
        await forget_response(parts.ledger, run)


async def _batches(parts: HttpParts, run: Run) -> AsyncIterator[Sequence[TurnEvent]]:
    told = False
    if run.logged:
        async for logged in parts.runs.follow(run):
            told = True
            yield [logged.event]
    if not told:  # never logged, or the log is older than logs are kept
        async for batch in parts.runs.batches(run):
            yield batch


def _framed(events: list[ResponseEvent], after: int) -> bytes:
    return b"".join(event.frame() for event in events if event.sequence_number > after)


def _stopper(parts: HttpParts, run: Run) -> Stop:
    async def stop() -> None:
        await parts.runs.stop(run, left=True)
        if not is_stored(run):
            await _forget_ended(parts, parts.runs, run)

    return stop


async def _forget_ended(parts: HttpParts, desk: RunDesk, run: Run) -> None:
    ended = await desk.ended(run)
    if ended.outcome is not None:
        await forget_response(parts.ledger, run)
