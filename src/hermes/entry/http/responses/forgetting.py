"""Responses that nobody wants stored: gone when they have been answered.

Under an `Idempotency-Key` a response stays for a day, so that a repeat finds
it; until then only the repeat can see it. What a crash left behind is found by
the mark in the run's request.
"""

from contextlib import suppress

from hermes.domain.errors import SessionBusy
from hermes.domain.ports.state import Ledger
from hermes.domain.runs import Run, RunKind, RunQuery, RunState

__all__ = ["forget_response", "forget_unstored", "is_stored"]

KEEP_FOR_REPEATS = 86400.0
_PAGE = 200
_ENDED = tuple(state for state in RunState if not state.open)


def is_stored(run: Run) -> bool:
    """Tell whether a response may be asked for later."""
    return bool(run.request.get("store", True))


async def forget_response(ledger: Ledger, run: Run) -> None:
    """Delete a response, and the session that was opened for it alone."""
    await ledger.delete_run(run.id)
    if not run.request.get("own_session"):
        return
    if not await ledger.runs(RunQuery(session_id=run.session_id, limit=1)):
        # Somebody may be going on in it just now; then it is not ours alone any more.
        with suppress(SessionBusy):
            await ledger.delete_session(run.session_id, idle=True)


async def forget_unstored(ledger: Ledger, now: float) -> int:
    """Delete what should have been deleted before; return how many responses."""
    forgotten = offset = 0
    while True:
        query = RunQuery(kinds=(RunKind.RESPONSE,), states=_ENDED, limit=_PAGE, offset=offset)
        page = await ledger.runs(query)
        due = [run for run in page if not is_stored(run) and _due(run, now)]
        for run in due:
            await forget_response(ledger, run)
        forgotten += len(due)
        offset += len(page) - len(due)
        if len(page) < _PAGE:
            return forgotten


def _due(run: Run, now: float) -> bool:
    return run.idempotency_key is None or run.updated_at < now - KEEP_FOR_REPEATS
