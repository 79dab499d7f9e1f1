"""Connections for the HTTP library, on plain asyncio streams.

The library's own connections use an adapter for several event loops, which
costs more per read than everything else together, and answers arrive in many
small reads.
"""

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2

_Option = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            if timeout is None:
                return await self._reader.read(max_bytes)
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout(str(error)) from error
        except (OSError, ssl.SSLError) as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError as error:
            raise httpcore2.WriteTimeout(str(error)) from error
        except (OSError, ssl.SSLError) as error:
            raise httpcore2.WriteError(str(error)) from error

    async def aclose(self) -> None:
        # Not awaited: a peer that is gone would delay the caller.
        self._writer.close()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except TimeoutError as error:
            self._writer.close()
            raise httpcore2.ConnectTimeout(str(error)) from error
        except (OSError, ssl.SSLError) as error:
            self._writer.close()
            raise httpcore2.ConnectError(str(error)) from error
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # An idle connection with something to read has been closed by the peer.
            return self._reader.at_eof() or self._writer.is_closing()
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._writer.get_extra_info(names.get(info, info))


class StreamBackend(httpcore2.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_Option] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of `host` that answers."""
        local = None if local_address is None else (local_address, 0)
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(
                    host, port, local_addr=local, happy_eyeballs_delay=0.25
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        raw = writer.get_extra_info("socket")
        for option in socket_options or ():
            raw.setsockopt(*option)
        return _Stream(reader, writer)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
