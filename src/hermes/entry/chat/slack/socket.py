"""Socket Mode: connections that follow each other without a gap, and acknowledgements.

Slack recycles connections every few hours. It says so before (`disconnect`, with the reason
`warning` or `refresh_requested`): the next connection is opened while the old one is read until
Slack closes it. An envelope is acknowledged on the connection it came by, after the inbox has
it; what is not acknowledged comes again, perhaps by another connection.

The SDK's socket client is not used: it hands envelopes over side by side, closes the old
connection before it has a new one, and tries an address that is good for one time again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import FailureAction, InboundSink, PlatformFailure
from hermes.entry.chat.kit.decode import decode_leniently
from hermes.entry.chat.kit.intake import batches, together
from hermes.entry.chat.kit.receiver import Patience
from hermes.entry.chat.slack.wire import SocketEnvelope

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse as Socket

_LOG = logging.getLogger(__name__)
_SHORT = 5.0  # a connection that ends sooner than this did not do its work
_FAREWELL = 30.0  # so long a connection that Slack wants to end is read at the most
Take = Callable[[Sequence[SocketEnvelope]], Awaitable[None]]
"""Hands envelopes over; when it returns they may be acknowledged."""
Waiting = asyncio.Queue[SocketEnvelope | None]
Connect = Callable[[], "Awaitable[Socket]"]


async def receive_envelopes(connect: Connect, clock: Clock, sink: InboundSink, take: Take) -> None:
    """Receive until cancelled; raise the failure that cannot be overcome."""
    patience, short = Patience(clock), 0
    async with together() as group:
        while True:
            try:
                socket = await connect()
            except PlatformFailure as failure:
                await patience.overcome(failure, sink)
                continue
            began, ending = clock.monotonic(), asyncio.Event()
            group.create_task(_serve(socket, sink, take, ending))
            await ending.wait()
            short = short + 1 if clock.monotonic() - began < _SHORT else 0
            if short > 1:
                message = "Slack ends connections soon after they are made."
                await patience.overcome(PlatformFailure(FailureAction.RETRY, message), sink)
            else:
                patience.worked()


async def _serve(socket: "Socket", sink: InboundSink, take: Take, ending: asyncio.Event) -> None:
    """Read one connection to its end, and hand over what it brings beside reading."""
    waiting: Waiting = asyncio.Queue()
    try:
        async with together() as group:
            group.create_task(_hand_over(socket, waiting, take))
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    async for envelope in _envelopes(socket, sink):
                        if envelope.envelope_id:
                            waiting.put_nowait(envelope)
                        elif envelope.type == "disconnect":
                            seconds = _farewell(envelope.reason)
                            ending.set()
                            limit.reschedule(asyncio.get_running_loop().time() + seconds)
                        elif (envelope.num_connections or 0) > 2:  # ours and one that ends
                            _LOG.warning("Another gateway shares this Slack app and its messages")
            waiting.put_nowait(None)
    finally:
        ending.set()
        await socket.close()


def _farewell(reason: str | None) -> float:
    """Return how long a connection that Slack ends is still read."""
    _LOG.info("Slack ends a connection: %s", reason)
    if reason == "link_disabled":
        raise PlatformFailure(
            FailureAction.FATAL,
            "Socket Mode is switched off for the Slack app.",
            hint="Switch it on at api.slack.com/apps, under Socket Mode.",
        )
    return 0.0 if reason == "too_many_websockets" else _FAREWELL


async def _envelopes(socket: "Socket", sink: InboundSink) -> AsyncIterator[SocketEnvelope]:
    from aiohttp import WSMsgType  # noqa: PLC0415 - loaded by now

    ended = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)
    while (frame := await socket.receive()).type not in ended:
        sink.alive()
        if frame.type is WSMsgType.PING:
            with suppress(ConnectionError):
                await socket.pong(frame.data)
        elif frame.type is WSMsgType.TEXT:
            envelope = decode_leniently(frame.data.encode("utf-8", "replace"), SocketEnvelope)
            if envelope is not None:
                yield envelope


async def _hand_over(socket: "Socket", waiting: Waiting, take: Take) -> None:
    """Hand over all that waits, together: a burst must not miss the three seconds."""
    async for batch in batches(waiting):
        envelopes = [each for each in batch if each is not None]
        await take(envelopes)
        # On a connection that is gone: they come again, and the inbox knows them.
        with suppress(ConnectionError):
            for each in envelopes:
                await socket.send_json({"envelope_id": each.envelope_id})
        if batch[-1] is None:
            return
