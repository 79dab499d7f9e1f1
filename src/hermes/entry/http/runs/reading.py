"""`/v1/runs`: how runs stand, and their events as they come.

The event stream can be read by any number of clients, from its beginning or
after the last id they saw, while the run goes on or after it has ended, and
across restarts. A reader that has seen the last event gets 204, which also
tells a browser's `EventSource` to stop reconnecting.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from hermes.domain.keys import Action
from hermes.domain.runs import Run, RunQuery, RunState
from hermes.entry.http.endpoint import (
    EVENT_STREAM,
    Answer,
    Call,
    Endpoint,
    JsonAnswer,
    StreamAnswer,
    TextAnswer,
)
from hermes.entry.http.problems import Problem
from hermes.entry.http.reach import agents_filter, reached_run, sees_everything
from hermes.entry.http.runs.pending import pending_of
from hermes.entry.http.runs.shapes import STATUS, RunList, RunView, run_view
from hermes.streaming.sse_runs import run_frame

__all__ = ["ENDPOINTS"]

MAX_ID_DIGITS = 18


class RunsQuery(Struct, frozen=True, kw_only=True):
    """Which runs."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    offset: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    session_id: Annotated[str, Meta(max_length=256)] | None = None
    status: (
        Annotated[str, Meta(extra_json_schema={"enum": sorted(set(STATUS.values()))})] | None
    ) = None


class EventsQuery(Struct, frozen=True, kw_only=True):
    """From where on."""

    after: Annotated[int, Meta(ge=0, le=10**MAX_ID_DIGITS)] = 0
    """The id of the last event that was seen; `Last-Event-ID` counts more."""


async def list_runs(call: Call[None, RunsQuery]) -> Answer:
    """Return a page of the runs within reach."""
    query, caller = call.query, call.caller
    found: list[Run] = []
    for agent_id in agents_filter(caller):
        wanted = RunQuery(
            key_id=None if sees_everything(caller) else caller.key_id,
            agent_id=agent_id,
            session_id=query.session_id,
            states=_states(query.status),
            limit=query.offset + query.limit + 1,
        )
        found += await call.parts.ledger.runs(wanted)
    found.sort(key=lambda run: -run.created_at)
    shown = found[query.offset : query.offset + query.limit]
    return JsonAnswer(
        value=RunList(
            data=tuple(run_view(call, run) for run in shown),
            limit=query.limit,
            offset=query.offset,
            has_more=len(found) > query.offset + query.limit,
        )
    )


def _states(status: str | None) -> tuple[RunState, ...]:
    if status is None:
        return ()
    states = tuple(state for state, name in STATUS.items() if name == status)
    if not states:
        names = ", ".join(dict.fromkeys(STATUS.values()))
        message = f"`status` is one of: {names}."
        raise Problem(400, message, code="unknown_status", param="status")
    return states


async def get_run(call: Call[None, None]) -> Answer:
    """Return how a run stands."""
    run = await reached_run(call, call.path["run_id"])
    pending = await pending_of(call.parts.ledger, run) if run.state.open else []
    return JsonAnswer(value=run_view(call, run, pending))


async def run_events(call: Call[None, EventsQuery]) -> Answer:
    """Stream the events of a run."""
    run = await reached_run(call, call.path["run_id"])
    if not run.logged:
        message = "This run keeps no event log: it was answered on its own connection."
        raise Problem(404, message, code="no_event_log")
    after = _seen(call)
    log = await call.parts.ledger.run_log(run.id, after=max(after - 1, 0), limit=2)
    if after and (not log or log[0].seq != after):
        await _check_there(call, run)
        raise Problem(
            400, f"The run has no event {after}.", code="unknown_event_id", param="Last-Event-ID"
        )
    if not log:
        await _check_there(call, run)
    if after and len(log) == 1 and not run.state.open:
        return TextAnswer(text="", status=204)
    headers = {"X-Hermes-Session-Id": run.session_id}
    return StreamAnswer(chunks=_frames(call, run, after), headers=headers)


async def _check_there(call: Call[Any, Any], run: Run) -> None:
    """Raise 410 if the log of a run was deleted: every run that has ended had one."""
    if not run.state.open and not await call.parts.ledger.run_log(run.id, limit=1):
        raise Problem(410, "The events of this run were deleted.", code="log_expired")


def _seen(call: Call[None, EventsQuery]) -> int:
    text = call.headers.last_event_id
    if text is None:
        return call.query.after
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_ID_DIGITS):
        raise Problem(
            400, "Last-Event-ID is a number.", code="invalid_event_id", param="Last-Event-ID"
        )
    return int(text)


async def _frames(call: Call[Any, Any], run: Run, after: int) -> AsyncIterator[bytes]:
    async for logged in call.parts.runs.follow(run, after):
        yield run_frame(run.id, logged, call.parts.redact)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        name="listRuns",
        method="GET",
        path="/v1/runs",
        summary="List runs, newest first",
        tag="runs",
        handler=list_runs,
        action=Action.RUN,
        query=RunsQuery,
        answers={200: RunList},
    ),
    Endpoint(
        name="getRun",
        method="GET",
        path="/v1/runs/{run_id}",
        summary="Read how a run stands",
        tag="runs",
        handler=get_run,
        action=Action.RUN,
        answers={200: RunView},
        problems=(404,),
    ),
    Endpoint(
        name="streamRunEvents",
        method="GET",
        path="/v1/runs/{run_id}/events",
        summary="Follow the events of a run",
        tag="runs",
        handler=run_events,
        action=Action.RUN,
        query=EventsQuery,
        answers={200: EVENT_STREAM, 204: None},
        problems=(404, 410),
    ),
)
