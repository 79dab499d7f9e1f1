"""Being called by Telegram: a listener that answers only when the inbox has the update.

One connection, one request, one update. Anything but a correct POST with the
right secret is turned away before its body is read. An update that could not be
taken is answered with 500, and Telegram delivers it again.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from hermes.domain.errors import HermesError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import FailureAction, InboundSink, PlatformFailure
from hermes.entry.chat.telegram.api import BotApi
from hermes.entry.chat.telegram.settings import WebhookSettings

__all__ = ["WebhookListener"]

_LOG = logging.getLogger(__name__)
_SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - a header's name
_MAX_BODY = 16 * 1024 * 1024
_MAX_HEAD = 16 * 1024
_READ_SECONDS = 20.0
_CHECK_SECONDS = 60.0
_CHECKS = 5
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}
Take = Callable[[list[bytes]], Awaitable[int | None]]


class _Refused(Exception):
    """The request is answered with a status and nothing else."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class WebhookListener:
    """Listens, and keeps Telegram pointed here."""

    def __init__(self, api: BotApi, settings: WebhookSettings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._secret = settings.secret or secrets.token_urlsafe(32)
        self._path = urlsplit(settings.url).path or "/"
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0
        """Where it listens, once it does; other than the setting only for port 0."""

    async def register(self) -> None:
        """Tell Telegram where to send updates and what to send along."""
        await self._api.set_webhook(self._settings.url, self._secret)

    async def run(self, sink: InboundSink, take: Take) -> None:
        """Serve until cancelled; raise `PlatformFailure` if updates go elsewhere."""
        turn = asyncio.Lock()

        async def taken(body: bytes) -> None:
            # One after the other, like a poll: the order within a chat must hold.
            async with turn:
                await take([body])
            sink.alive()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._open.add(task)
            try:
                await self._serve(reader, writer, taken)
            except asyncio.CancelledError:
                # The listener closes; asyncio.streams reports a cancelled handler as an error.
                pass
            finally:
                self._open.discard(task)

        server = await self._listen(connected)
        try:
            async with server:
                await self._watch(sink)
        finally:
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _listen(
        self, connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> asyncio.Server:
        settings = self._settings
        try:
            server = await asyncio.start_server(
                connected, settings.host, settings.port, limit=_MAX_HEAD
            )
        except OSError as error:
            raise PlatformFailure(
                FailureAction.RETRY,
                f"The Telegram webhook cannot listen on {settings.host}:{settings.port} "
                f"({error.strerror}).",
                hint="Set TELEGRAM_WEBHOOK_PORT to a free port.",
            ) from None
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _watch(self, sink: InboundSink) -> None:
        """Ask Telegram now and then whether it still sends its updates here."""
        failures = 0
        sink.alive()
        while True:
            await self._clock.sleep(_CHECK_SECONDS)
            try:
                info = await self._api.webhook_info()
            except PlatformFailure as failure:
                failures += 1
                if failure.action is FailureAction.FATAL or failures >= _CHECKS:
                    raise
                continue
            failures = 0
            if info.url != self._settings.url:
                raise PlatformFailure(
                    FailureAction.RETRY,
                    "Telegram sends this bot's updates to another place.",
                    hint="Stop the other gateway that uses this token.",
                )
            if info.last_error_message:
                _LOG.warning("Telegram had trouble calling us: %s", info.last_error_message)
            sink.alive()

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        taken: Callable[[bytes], Awaitable[None]],
    ) -> None:
        try:
            status = await self._status(reader, taken)
            reason = _REASONS.get(status, "Error")
            head = f"HTTP/1.1 {status} {reason}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            writer.write(head.encode())
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _status(
        self, reader: asyncio.StreamReader, taken: Callable[[bytes], Awaitable[None]]
    ) -> int:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                body = await self._body(reader)
        except _Refused as refused:
            return refused.status
        except (TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return 400
        try:
            await taken(body)
        except HermesError as error:
            _LOG.error("An update could not be taken and will be sent again: %s", error)
            return 500
        return 200

    async def _body(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.split("\r\n")
        method, target, _ = request.split(" ", 2)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        given = headers.get(_SECRET_HEADER, "").encode("latin-1")
        if not hmac.compare_digest(given, self._secret.encode()):
            raise _Refused(401)
        if method != "POST" or target.partition("?")[0] != self._path:
            raise _Refused(404)
        length = int(headers.get("content-length", "-1"))
        if not 0 <= length <= _MAX_BODY:
            raise _Refused(413 if length > _MAX_BODY else 411)
        return await reader.readexactly(length)
