"""Conversations that are carried elsewhere: a JSON line for each session with all that was said.

What a session needs to go on goes along: its messages in their seats, also those that were undone
or compacted, what it has cost, and the places that go on in it. What was under way does not, nor
what waits to be sent: nothing is sent twice. Reading trusts nothing: each line is checked.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from sqlite3 import Connection

import msgspec
from msgspec import Struct, convert
from msgspec.structs import replace

from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError
from hermes.domain.messages import AssistantMessage
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.session import NewSession
from hermes.domain.usage import Usage
from hermes.state.sqlite.base import change
from hermes.state.sqlite.earlier import Seated, store_session, without_result
from hermes.state.sqlite.ledger import SqliteLedger, existing_ledger, open_ledger

PAGE = 200


class CarriedSession(Struct, frozen=True, kw_only=True):
    session: NewSession
    messages: tuple[Seated, ...]
    keys: tuple[str, ...] = ()
    """The places that go on in it."""
    ended_at: float | None = None
    end_reason: str | None = None
    usage: Usage = Usage()
    cost_usd: float = 0.0


async def carried_sessions(home: HermesHome) -> AsyncIterator[CarriedSession]:
    """Yield the conversations of a home, without those that are empty."""
    async with existing_ledger(home) as ledger:
        assert isinstance(ledger, SqliteLedger)
        offset = 0
        while page := await ledger.sessions(
            SessionQuery(min_messages=1, limit=PAGE, offset=offset)
        ):
            for each in page:
                said = await ledger.transcript(each.id)
                yield CarriedSession(
                    session=convert(each, NewSession, from_attributes=True),
                    messages=tuple(
                        Seated(seq=m.seq, at=m.at, message=m.message, active=m.active) for m in said
                    ),
                    keys=tuple(await ledger.keys_of(each.id)),
                    ended_at=each.ended_at,
                    end_reason=each.end_reason,
                    usage=each.usage,
                    cost_usd=each.cost_usd,
                )
            offset += len(page)


async def bring_sessions(home: HermesHome, file: Path) -> int:
    """Bring the conversations of a file; return how many."""
    try:
        with file.open("rb") as lines:
            found = [msgspec.json.decode(line, type=CarriedSession) for line in lines]
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"The conversations in {file.name} cannot be read: {error}.") from error
    async with open_ledger(home) as ledger:
        assert isinstance(ledger, SqliteLedger)
        await ledger._write(lambda db: _store(db, found))  # noqa: SLF001
    return len(found)


def _store(db: Connection, found: Sequence[CarriedSession]) -> None:
    for each in found:
        session, cost = each.session, {"estimated_cost_usd": each.cost_usd}
        usage = {name: getattr(each.usage, name) for name in Usage.__struct_fields__}
        row = {"id": session.id, "ended_at": each.ended_at, "end_reason": each.end_reason}
        alone = replace(session, parent_id=None, lineage=None)
        store_session(db, alone, {**row, **usage, **cost}, _seated(each.messages))
        for key in each.keys:
            change(db, "sessions.bind_key", (key, session.id, session.started_at))
    for each in found:
        line = {"id": each.session.id, "parent": each.session.parent_id}
        change(db, "sessions.imported_parent", {**line, "lineage": each.session.lineage})


def _seated(messages: Sequence[Seated]) -> list[Seated]:
    """Return the messages from the first seat on; calls that were under way get an answer."""
    first = min((each.seq for each in messages), default=0)
    seated = [replace(each, seq=each.seq - first) for each in messages]
    taken = {each.seq for each in seated}
    for each in list(seated):
        calls = each.message.tool_calls if isinstance(each.message, AssistantMessage) else ()
        for seat, call in enumerate(calls, each.seq + 1):
            if each.active and seat not in taken:
                seated.append(Seated(seq=seat, at=each.at, message=without_result(call)))
    return seated
