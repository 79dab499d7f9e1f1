"""Sessions, their titles, remembered facts and the keys that point at them."""

from functools import partial
from sqlite3 import Connection
from typing import Any

import msgspec

from hermes.domain.errors import Conflict
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.session import Lineage, NewSession, Session
from hermes.domain.wording import clean_text
from hermes.state.sqlite.base import (
    LedgerPart,
    change,
    check_session,
    many,
    one,
    row_of,
    transaction,
)
from hermes.state.sqlite.database import hash_of
from hermes.state.sqlite.errors import id_taken, session_busy, unknown_session
from hermes.state.sqlite.messages import answer_in_branch
from hermes.state.sqlite.rows import columns, dump, reader
from hermes.state.sqlite.search import forget_session
from hermes.state.titles import clean_title, numbered, title_scope

read_session = reader(
    Session,
    json={"state": dict[str, Any]},
    inner=("usage",),
    renamed={"parent_session_id": "parent_id", "estimated_cost_usd": "cost_usd"},
)


_OF_AGENTS = (
    *("sessions", "session_keys", "inbox", "turns", "outbox", "approvals", "model_usage"),
    *("runs", "api_keys"),
)


class SessionPart(LedgerPart):
    @transaction
    def rename_agent(self, db: Connection, old: str, new: str, old_home: str, new_home: str) -> int:
        if one(db, "agents.known", (new, new)):
            raise Conflict(
                f"There are conversations of an earlier agent `{new}`.",
                hint="Choose another name: they are not to be mixed.",
            )
        names = {"old": old, "new": new, "old_home": old_home, "new_home": new_home}
        changed = [change(db, f"agents.rename_{table}", names) for table in _OF_AGENTS]
        return changed[0]

    @transaction
    def create_session(self, db: Connection, new: NewSession) -> Session:
        insert_session(db, new)
        return _get(db, new.id)

    async def session(self, session_id: str) -> Session | None:
        return await self._get(read_session, "sessions.get", (clean_text(session_id),))

    async def find_session(self, reference: str) -> Session | None:
        wanted = clean_text(reference).strip()

        def work(db: Connection) -> Session | None:
            row = one(db, "sessions.get", (wanted,))
            if row is None:
                row = one(db, "sessions.by_title", {"title": wanted})
            if row is not None:
                return read_session(row)
            begins = many(db, "sessions.by_prefix", {"prefix": wanted})
            if len(begins) > 1:
                raise Conflict(
                    f"Several sessions have an id that begins with `{wanted}`.",
                    hint="Give more of the id; `hermes sessions list` shows it in full.",
                )
            return read_session(begins[0]) if begins else None

        return await self._read(work) if wanted else None

    async def sessions(self, query: SessionQuery) -> list[Session]:
        def work(db: Connection) -> list[Session]:
            return [_get(db, session_id) for session_id in _matching(db, query)]

        return await self._read(work)

    @transaction
    def freeze_prompt(self, db: Connection, session_id: str, prompt: str) -> str:
        check_session(db, session_id)
        freeze(db, session_id, prompt)
        return str(row_of(db, "sessions.prompt", (session_id,))["text"])

    @transaction
    def rename_session(self, db: Connection, session_id: str, title: str) -> Session:
        wanted = clean_title(title)
        _check_title_free(db, _get(db, session_id), wanted)
        change(db, "sessions.set_title", {"id": session_id, "title": wanted})
        return _get(db, session_id)

    @transaction
    def name_session(self, db: Connection, session_id: str, title: str) -> Session:
        current = _get(db, session_id)
        if current.title is not None:
            return current
        free = free_title(db, current, clean_title(title))
        change(db, "sessions.set_title", {"id": session_id, "title": free})
        return _get(db, session_id)

    @transaction
    def update_session(
        self,
        db: Connection,
        session_id: str,
        *,
        model: str | None = None,
        provider: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        values = {"id": session_id, "model": model, "provider": provider, "cwd": cwd}
        change(db, "sessions.update", values)
        return _get(db, session_id)

    @transaction
    def end_session(self, db: Connection, session_id: str, reason: str, at: float) -> None:
        values = {"id": session_id, "reason": reason, "at": at}
        if not change(db, "sessions.end", values):
            raise unknown_session(session_id)

    @transaction
    def branch_session(self, db: Connection, session_id: str, new: NewSession) -> Session:
        # A turn that is still open stays with the origin.
        child = msgspec.structs.replace(
            new, parent_id=new.parent_id or session_id, lineage=new.lineage or Lineage.BRANCH
        )
        check_session(db, session_id)
        insert_session(db, child)
        both = {"from": session_id, "to": child.id}
        for step in ("copy_prompt", "copy_messages", "copy_counters"):
            change(db, f"sessions.{step}", both)
        answer_in_branch(db, session_id, child)
        return _get(db, child.id)

    @transaction
    def delete_session(self, db: Connection, session_id: str, *, idle: bool = False) -> bool:
        if idle and one(db, "sessions.is_busy", {"id": session_id}):
            raise session_busy(session_id)
        return _delete(db, session_id)

    async def prune_sessions(self, query: SessionQuery) -> int:
        ids = await self._read(lambda db: _matching(db, query))
        # Each in a transaction of its own, so that other writers get their turn.
        deleted = [await self._write(partial(_delete_idle, session_id=i)) for i in ids]
        return sum(deleted)

    @transaction
    def remember(self, db: Connection, session_id: str, name: str, value: Any) -> None:
        check_session(db, session_id)
        if value is None:
            change(db, "sessions.clear_fact", (session_id, name))
        else:
            change(db, "sessions.set_fact", (session_id, name, dump(value)))

    async def recall(self, session_id: str, name: str) -> Any:
        row = await self._quick(lambda db: one(db, "sessions.fact", (session_id, name)))
        return None if row is None else msgspec.json.decode(row["value"])

    async def facts(self, name: str) -> dict[str, Any]:
        rows = await self._read(lambda db: many(db, "sessions.facts", (name,)))
        return {row["session_id"]: msgspec.json.decode(row["value"]) for row in rows}

    @transaction
    def bind_key(self, db: Connection, key: str, session_id: str, at: float) -> None:
        check_session(db, session_id)
        change(db, "sessions.bind_key", (key, session_id, at))

    async def keys_of(self, session_id: str) -> list[str]:
        return await self._few(
            lambda row: str(row["session_key"]), "sessions.keys_of", (session_id,)
        )

    async def session_for_key(self, key: str) -> Session | None:
        return await self._get(read_session, "sessions.for_key", (key,))


def _get(db: Connection, session_id: str) -> Session:
    row = one(db, "sessions.get", (session_id,))
    if row is None:
        raise unknown_session(session_id)
    return read_session(row)


def freeze(db: Connection, session_id: str, prompt: str) -> None:
    """Give a session its system prompt, unless it has one."""
    text = clean_text(prompt)
    values = {"id": session_id, "prompt": text, "hash": hash_of(text)}
    change(db, "sessions.keep_prompt", values)
    change(db, "sessions.freeze_prompt", values)


def free_title(db: Connection, session: Session | NewSession, wanted: str) -> str:
    """Return the title, with a number if another session has it."""
    free, number = wanted, 1
    while _title_exists(db, session, free):
        number += 1
        free = numbered(wanted, number)
    return free


def _title_exists(db: Connection, session: Session | NewSession, title: str) -> bool:
    scope = title_scope(session.source, session.user_id)
    named = {"title": title, "id": session.id, "scope": scope}
    return one(db, "sessions.title_exists", named) is not None


def _check_title_free(db: Connection, session: Session | NewSession, title: str) -> None:
    if _title_exists(db, session, title):
        raise Conflict(
            f"Another session is already called “{title}”.",
            hint="Choose another title, or rename or delete that session.",
        )


def insert_session(db: Connection, new: NewSession) -> None:
    """Open a session; `Conflict` if the id or the title is taken."""
    title = None if new.title is None else clean_title(new.title)
    if one(db, "sessions.exists", (new.id,)):
        raise id_taken("session", new.id)
    if title is not None:
        _check_title_free(db, new, title)
    if new.parent_id is not None:
        check_session(db, new.parent_id)
    change(db, "sessions.insert", columns(new) | {"title": title})


def _matching(db: Connection, query: SessionQuery) -> list[str]:
    values = columns(query) | {"limit": -1 if query.limit is None else query.limit}
    return [row["id"] for row in many(db, "sessions.matching", values)]


def _delete_idle(db: Connection, session_id: str) -> bool:
    busy = one(db, "sessions.has_open_turn", (session_id,))
    return busy is None and _delete(db, session_id)


def _delete(db: Connection, session_id: str) -> bool:
    """Delete a session and all that belongs to it.

    Runs go with their logs, except those that are open: whoever follows them still
    has to be told their end.
    """
    if one(db, "sessions.exists", (session_id,)) is None:
        return False
    forget_session(db, session_id)
    for step in ("close_inbox", "delete_outbox", "delete_approvals", "detach_usage", "delete"):
        change(db, f"sessions.{step}", (session_id,))
    change(db, "runs.delete_of_session", (session_id,))
    return True
