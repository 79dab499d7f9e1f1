"""One question, one answer: `hermes chat -q` and `-z`.

The answer streams to stdout and nothing else does; notices go to stderr; the
exit code tells how it ended. Ctrl+C interrupts the turn and leaves a valid
history behind.
"""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hermes.control.lanes.gateway import Gateway
from hermes.domain.events import TurnFinished
from hermes.domain.ids import new_id
from hermes.domain.inbound import Attachment, Chat, ChatKind, InboundMessage, Sender
from hermes.domain.session import Session
from hermes.domain.turn import TurnState
from hermes.streaming.stdout import PlainOutput, write_plain

PLATFORM = "cli"
EXIT_CODES = {TurnState.DONE: 0, TurnState.FAILED: 1, TurnState.INTERRUPTED: 130}


def inbound(
    session: Session, text: str, user: str, at: float, attachments: tuple[Attachment, ...] = ()
) -> InboundMessage:
    """Make the inbound message; at the terminal the session itself is the chat."""
    return InboundMessage(
        platform=PLATFORM,
        account="local",
        native_id=new_id("cli"),
        chat=Chat(kind=ChatKind.PRIVATE, id=session.id),
        sender=Sender(id=user, name=user),
        text=text,
        sent_at=at,
        attachments=attachments,
    )


async def answer_once(
    gateway: Gateway, session: Session, message: InboundMessage, output: PlainOutput
) -> TurnFinished:
    """Submit the question, write the answer and return how it ended."""
    with _interrupt_on_sigint(gateway, session.id):
        ticket = await gateway.submit(session.agent_id, message, session_id=session.id)
        stream = await ticket.stream()
        try:
            finished = await write_plain(stream, output)
        except BrokenPipeError:
            # Nobody reads the answer any more: end the turn properly, then say so.
            gateway.interrupt(session.id)
            await stream.wait()
            raise
    if finished.error is not None:
        output.note(f"hermes: {finished.error.message}")
        if finished.error.hint:
            output.note(f"  -> {finished.error.hint}")
    elif finished.outcome is TurnState.INTERRUPTED:
        output.note("· interrupted")
    return finished


@contextmanager
def _interrupt_on_sigint(gateway: Gateway, session_id: str) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, RuntimeError):
        loop.add_signal_handler(signal.SIGINT, gateway.interrupt, session_id)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)
