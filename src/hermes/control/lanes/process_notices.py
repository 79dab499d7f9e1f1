"""What goes on beside the lanes: reaping idle environments, passing on process notices."""

import logging

from hermes.control.lanes.gateway import Gateway
from hermes.domain.errors import HermesError
from hermes.domain.ids import new_id
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import ProcessNotice, ProcessNotices

log = logging.getLogger(__name__)

PLATFORM = "process"


async def pass_on_notices(source: ProcessNotices, gateway: Gateway, clock: Clock) -> None:
    """Give every notice about a background process to the session that asked for it."""
    while True:
        notice = await source.next_notice()
        try:
            await gateway.submit(
                notice.agent_id, _inbound(notice, clock.now()), session_id=notice.session_id
            )
        except HermesError as error:
            log.warning("a process notice was not delivered: %s", error.message)


def _inbound(notice: ProcessNotice, now: float) -> InboundMessage:
    return InboundMessage(
        platform=PLATFORM,
        account="local",
        native_id=new_id("notice"),
        chat=Chat(kind=ChatKind.PRIVATE, id=notice.session_id),
        sender=Sender(id=notice.process_id, name="background process"),
        text=notice.text,
        sent_at=now,
        internal=True,
    )
