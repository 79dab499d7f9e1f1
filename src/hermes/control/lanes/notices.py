"""Notices about background processes, given to the conversations that wait for them."""

import logging

from hermes.control.lanes.gateway import Gateway
from hermes.domain.errors import HermesError
from hermes.domain.events import Notice
from hermes.domain.ids import new_id
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.messages import InputKind, shown_text
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import ProcessNotice, ProcessNotices
from hermes.domain.session import ENDED_PROCESSES, PROCESSES, Lineage

log = logging.getLogger(__name__)

MAX_REMEMBERED = 64
"""Ended processes that a session knows; it has no more running at a time."""


async def pass_on_notices(source: ProcessNotices, gateway: Gateway, clock: Clock) -> None:
    """Give every notice about a background process to the session that asked for it."""
    while True:
        notice = await source.next_notice()
        try:
            if notice.text:
                await _tell(gateway, notice, clock.now())
            if notice.exit_code is not None:
                await _keep_end(gateway, notice)
        except HermesError as error:
            log.warning("a process notice was not delivered: %s", error.message)


async def _tell(gateway: Gateway, notice: ProcessNotice, now: float) -> None:
    """Give a notice to whom it is for; the session of a child turn has no other turn to read it."""
    session = await gateway.ledger.session(notice.session_id)
    child = session is not None and session.lineage is Lineage.DELEGATION
    if notice.aside or child:
        _show(gateway, session.family if session else notice.session_id, notice.text)
        return
    await tell_session(gateway, notice, now, new_id("notice"))
    notice.admitted()


def _show(gateway: Gateway, session_id: str, text: str, about: str = "") -> None:
    """Show a notice at once where people follow the turn that the session runs."""
    stream = gateway.current_turn(session_id)
    if stream is not None and stream.events and stream.finished is None:
        line = gateway.redact(shown_text(text, InputKind.NOTICE))
        stream.emit(Notice(code="process", text=line, about=about))


async def tell_session(gateway: Gateway, notice: ProcessNotice, now: float, name: str) -> None:
    """Give a notice to its session, where that takes place; never twice under one name."""
    _show(gateway, notice.session_id, notice.text, name)
    message = _inbound(notice, now, await _place(gateway, notice.session_id), name)
    await gateway.submit(notice.agent_id, message, session_id=notice.session_id)


async def tell_of_restart(gateway: Gateway) -> None:
    """Tell chats of background processes that they wait for and that a process of ours left."""
    ended = await gateway.ledger.facts(ENDED_PROCESSES)
    for session_id, known in (await gateway.ledger.facts(PROCESSES)).items():
        lost = [
            each
            for each in known
            if each["notify"]
            and each["id"] not in ended.get(session_id, ())
            and not gateway.owner_alive(each["owner"])
        ]
        session = await gateway.ledger.session(session_id) if lost else None
        if session is None or not gateway.doors.of(session.source).shows_notices:
            continue
        listed = "\n".join(f"{each['id']}: {each['command']}" for each in lost)
        text = f"Hermes was restarted; ask `process` what became of these:\n{listed}"
        agent_id, first = session.agent_id, lost[0]
        notice = ProcessNotice(
            agent_id=agent_id, session_id=session_id, process_id=first["id"], text=text
        )
        await tell_session(gateway, notice, gateway.clock.now(), f"restart:{first['mark']}")
        told = [{**each, "notify": each["notify"] and each not in lost} for each in known]
        await gateway.ledger.remember(session_id, PROCESSES, told)


async def _keep_end(gateway: Gateway, notice: ProcessNotice) -> None:
    """Write down that a process has ended: after a restart it was not cut off."""
    known = await gateway.ledger.recall(notice.session_id, ENDED_PROCESSES) or {}
    kept = [*known.items(), (notice.process_id, notice.exit_code)][-MAX_REMEMBERED:]
    await gateway.ledger.remember(notice.session_id, ENDED_PROCESSES, dict(kept))


async def _place(gateway: Gateway, session_id: str) -> InboundMessage | None:
    """Return the last message of the chat in which a conversation takes place, if it is one."""
    turns = [stored.turn_id for stored in await gateway.ledger.transcript(session_id)]
    for turn_id in dict.fromkeys(turn for turn in reversed(turns) if turn is not None):
        for entry in await gateway.ledger.entries_of_turn(turn_id):
            if gateway.doors.of(entry.message.platform).shows_notices:
                return entry.message
    return None


def _inbound(
    notice: ProcessNotice, now: float, place: InboundMessage | None, name: str
) -> InboundMessage:
    if place is not None:
        return InboundMessage(
            platform=place.platform,
            account=place.account,
            native_id=name,
            chat=place.chat,
            sender=place.sender,
            thread_id=place.thread_id,
            text=notice.text,
            sent_at=now,
            internal=True,
            kind=InputKind.NOTICE,
        )
    return InboundMessage(
        platform="process",
        account="local",
        native_id=name,
        chat=Chat(kind=ChatKind.PRIVATE, id=notice.session_id),
        sender=Sender(id=notice.process_id, name="background process"),
        text=notice.text,
        sent_at=now,
        internal=True,
        kind=InputKind.NOTICE,
    )
