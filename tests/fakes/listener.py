"""Servers on loopback whose connections are closed however whoever answers on them ends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def start_server(answer: Answer, host: str, port: int) -> asyncio.Server:
    """Start one: a connection on which nothing is asked, as browsers open them, is no failure."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A handler that is cancelled when the loop ends would be reported as an error.
            with suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
                await answer(reader, writer)
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, port)
