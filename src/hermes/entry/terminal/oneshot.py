"""One question, one answer: `hermes chat -q` and `-z`.

The answer streams to stdout and nothing else does; notices go to stderr; the
exit code tells how it ended. Ctrl+C interrupts the turn and leaves a valid
history behind.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from hermes.control.lanes.gateway import Gateway
from hermes.domain.events import TurnFinished, TurnJob
from hermes.domain.ids import new_id
from hermes.domain.inbound import Attachment, Chat, ChatKind, InboundMessage, Sender
from hermes.domain.session import Session
from hermes.domain.tools import ToolSpec
from hermes.domain.turn import TurnState
from hermes.streaming.stdout import PlainOutput, write_plain
from hermes.streaming.view import ToolDone

PLATFORM = "cli"


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


async def earlier_tools(
    gateway: Gateway, job: TurnJob, specs: Sequence[ToolSpec]
) -> dict[str, ToolDone]:
    """Return what earlier processes carried out for a turn that goes on, by call."""
    return {
        finished.call_id: ToolDone(started=started, finished=finished)
        for started, finished in await gateway.earlier_calls(job, specs)
    }


async def finish_earlier(
    gateway: Gateway, session: Session, output: PlainOutput, specs: Sequence[ToolSpec]
) -> TurnFinished | None:
    """Write what becomes of a turn that another process left open, if there is one.

    Its answer is not the one that was asked for now, so all of it goes among the notices.
    """
    jobs: asyncio.Queue[TurnJob] = asyncio.Queue()
    with (
        gateway.doors.watching(lambda job: jobs.put_nowait(job) if job.resumed else None),
        _interrupt_on_sigint(gateway, session.id),
    ):
        if not await gateway.recover(session.id):
            return None
        job = await jobs.get()
        output.note("· finishing the interrupted turn first")
        aside = PlainOutput(out=_Lines(output.note), note=output.note, monotonic=output.monotonic)
        finished = await write_plain(job.stream, aside, await earlier_tools(gateway, job, specs))
    _explain(finished, output)
    return finished


class _Lines:
    """Takes text in pieces and passes it on line by line."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._rest = ""

    def write(self, text: str) -> None:
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._line(f"  {line}")

    def flush(self) -> None:
        pass


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
    _explain(finished, output)
    return finished


def _explain(finished: TurnFinished, output: PlainOutput) -> None:
    if finished.error is not None:
        output.note(f"hermes: {finished.error.message}")
        if finished.error.hint:
            output.note(f"  -> {finished.error.hint}")
    elif finished.outcome is TurnState.INTERRUPTED:
        output.note("· interrupted")


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
