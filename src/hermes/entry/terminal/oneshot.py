"""One question, one answer: `hermes chat -q` and `-z`.

The answer streams to stdout and nothing else does; notices go to stderr; the
exit code tells how it ended. Ctrl+C interrupts the turn and leaves a valid
history behind.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

from hermes.control.lanes.gateway import Gateway
from hermes.domain.events import TurnFinished, TurnStream
from hermes.domain.ids import new_id
from hermes.domain.inbound import Attachment, Chat, ChatKind, InboundMessage, Sender
from hermes.domain.session import Session
from hermes.domain.turn import TurnError, TurnState
from hermes.streaming.stdout import PlainOutput, write_plain

PLATFORM = "cli"
EXIT_CODES = {TurnState.DONE: 0, TurnState.FAILED: 1, TurnState.INTERRUPTED: 130}


class Question(Struct, frozen=True, kw_only=True):
    agent_id: str
    session: Session
    text: str
    asked_by: str
    at: float
    attachments: tuple[Attachment, ...] = ()


def inbound(question: Question) -> InboundMessage:
    """Make the inbound message; at the terminal the session itself is the chat."""
    return InboundMessage(
        platform=PLATFORM,
        account="local",
        native_id=new_id("cli"),
        chat=Chat(kind=ChatKind.PRIVATE, id=question.session.id),
        sender=Sender(id=question.asked_by, name=question.asked_by),
        text=question.text,
        sent_at=question.at,
        attachments=question.attachments,
    )


async def answer_once(gateway: Gateway, question: Question, output: PlainOutput) -> TurnFinished:
    """Submit the question, write the answer and return how it ended."""
    with _interrupt_on_sigint(gateway, question.session.id):
        ticket = await gateway.submit(
            question.agent_id, inbound(question), session_id=question.session.id
        )
        stream = await ticket.stream()
        try:
            return await _follow(stream, output)
        except BrokenPipeError:
            # Nobody reads the answer any more: end the turn properly, then say so.
            gateway.interrupt(question.session.id)
            await stream.wait()
            raise


async def _follow(stream: TurnStream, output: PlainOutput) -> TurnFinished:
    finished = await write_plain(stream, output)
    if finished.error is not None:
        _report(finished.error, output.note)
    elif finished.outcome is TurnState.INTERRUPTED:
        output.note("· interrupted")
    return finished


def _report(error: TurnError, note: Callable[[str], None]) -> None:
    note(f"hermes: {error.message}")
    if error.hint:
        note(f"  -> {error.hint}")


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
