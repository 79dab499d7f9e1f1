"""Telegram on loopback: a server that behaves like the Bot API, and its users.

In a test: `async with FakeTelegram() as telegram`, then `telegram.say(...)`,
`telegram.replies(chat)`, `await telegram.until(...)`. As a process that outlives
the gateway: `python -m fakes.telegram --port 0`, which prints its port on the
first line and is driven through `RemoteTelegram` (see `telegram_remote`).

Updates are confirmed by offset only; a second poller ends the first one's poll
with 409; markup, lengths, topics, buttons and rates are checked as Telegram
checks them; faults can come before or after the effect.
"""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct

from fakes.telegram_faults import REAL_LIMITS, Fault, FaultRates, Faults, RateLimiter, RateLimits
from fakes.telegram_http import Gone, Request, head, post, read_request, refuse, reply, reset
from fakes.telegram_methods import METHODS, SENDS, chat_of, nested
from fakes.telegram_world import ApiError, Seen, TelegramChat, World

__all__ = [
    "REAL_LIMITS",
    "TOKEN",
    "Call",
    "FakeTelegram",
    "Fault",
    "FaultRates",
    "RateLimits",
    "Seen",
]

TOKEN = "4242:fake-secret_TOKEN"
_TERMINATED = (
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance "
    "is running"
)
_WEBHOOK = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to "
    "delete the webhook first"
)


class Call(Struct, kw_only=True):
    """One call as it arrived."""

    method: str
    params: dict[str, Any]
    at: float
    outcome: str = ""
    """`ok`, the error's description, or the fault that hit it."""

    @property
    def refused(self) -> bool:
        return self.outcome.startswith(("429", "Too Many"))


class FakeTelegram:
    """The server, its world and the people in it."""

    def __init__(
        self,
        token: str = TOKEN,
        username: str = "hermes_bot",
        limits: RateLimits | None = None,
    ) -> None:
        self.world = World(token, username)
        self.faults = Faults()
        self.limiter = RateLimiter(limits)
        self.calls: list[Call] = []
        self.conflicts = 0
        self.refused_tokens = 0
        self.port = 0
        self._poll: asyncio.Event | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    # The test's side

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return self.world.token

    def say(self, chat_id: int, user_id: int | None = None, text: str = "", **more: Any) -> int:
        return self.world.say(chat_id, user_id, text, **more)

    def press(self, chat_id: int, user_id: int, message_id: int, data: str) -> str:
        return self.world.press(chat_id, user_id, message_id, data)

    def chat(self, chat_id: int, type: str = "", **more: Any) -> TelegramChat:  # noqa: A002
        return self.world.chat(chat_id, type, **more)

    def visible(self, chat_id: int) -> list[Seen]:
        return self.world.visible(chat_id)

    def replies(self, chat_id: int) -> list[Seen]:
        return self.world.replies(chat_id)

    def fault(self, kind: str, method: str = "", **more: Any) -> None:
        self.faults.plan(Fault(kind=kind, method=method, **more))

    def called(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method.lower()]

    @asynccontextmanager
    async def outage(self, kind: str) -> AsyncIterator[None]:
        """Let nothing through for the length of the body: no connection (`refused`), or a fault."""
        if kind != "refused":
            self.faults.outage = Fault(kind=kind)
        elif self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
        try:
            yield
        finally:
            self.faults.outage = None
            if kind == "refused":
                await self._listen(self.port)

    async def until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        await self.world.until(condition, seconds)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        await self._listen(port)
        self._tasks.add(asyncio.ensure_future(self._call_webhook()))

    async def _listen(self, port: int) -> None:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", port, limit=64 * 1024 * 1024, backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # The wire's side

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            while (request := await read_request(reader)) is not None:
                await self._answer(request, reader, writer)
                await writer.drain()
                if not request.keep_alive:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, Gone):
            pass
        except asyncio.CancelledError:
            # The server stops; asyncio.streams reports a cancelled handler as an error.
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if request.path == "/__control/change":
            await asyncio.wait({waiting := asyncio.ensure_future(self.world.change())}, timeout=1)
            waiting.cancel()
            reply(writer, 200, self.stats())
        elif request.path.startswith("/__control/"):
            reply(writer, 200, self._control(request.path.rpartition("/")[2], request.params))
        elif request.path.startswith("/file/bot"):
            await self._file(request, reader, writer)
        elif request.path.startswith("/bot"):
            await self._method(request, reader, writer)
        else:
            reply(writer, 404, {"ok": False, "error_code": 404, "description": "Not Found"})

    async def _method(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        token, _, name = request.path.removeprefix("/bot").partition("/")
        method = name.lower()
        if token != self.token:
            self.refused_tokens += 1
            reply(writer, 401, {"ok": False, "error_code": 401, "description": "Unauthorized"})
            return
        call = Call(method=method, params=request.params, at=time.monotonic())
        self.calls.append(call)
        self.world.touch()
        fault = self.faults.next(method, chat_of(request.params))
        if fault is not None:
            call.outcome = fault.kind
            self.world.touch()
            if not await self._trouble_before(fault, reader, writer):
                return
        try:
            result = await self._carry_out(method, request, reader)
        except ApiError as error:
            call.outcome = call.outcome or error.description
            if fault is not None and fault.kind == "reset_after":
                reset(writer)
            refuse(writer, error)
            self.world.touch()
            return
        call.outcome = call.outcome or "ok"
        self.world.touch()
        if fault is not None and fault.kind == "reset_after":
            reset(writer)
        reply(writer, 200, {"ok": True, "result": result})

    async def _trouble_before(
        self, fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Do what a fault does before the effect; True if the call goes on."""
        match fault.kind:
            case "429":
                wait = fault.seconds
                refuse(
                    writer,
                    ApiError(429, f"Too Many Requests: retry after {wait:g}", retry_after=wait),
                )
            case "502" | "504":
                page = "<html><head><title>Bad Gateway</title></head></html>"
                reply(writer, int(fault.kind), page)
            case "page":
                reply(writer, fault.code, "<html>Please log in.</html>")
            case "garbage":
                reply(writer, 200, '{"ok": tru')
            case "error":
                refuse(writer, ApiError(fault.code, fault.description))
            case "reset_before":
                reset(writer)
            case "hang":
                await reader.read(1)
                raise Gone
            case "slow":
                await asyncio.sleep(fault.seconds)
                return True
            case _:
                return True
        return False

    async def _carry_out(self, method: str, request: Request, reader: asyncio.StreamReader) -> Any:
        if method == "getupdates":
            return await self._get_updates(request.params, reader)
        handler = METHODS.get(method)
        if handler is None:
            raise ApiError(404, "Not Found")
        if method in SENDS:
            self.limiter.charge(chat_of(request.params))
        try:
            return handler(self.world, request.params, request.files)
        except (KeyError, ValueError, TypeError) as error:
            raise ApiError(400, f"Bad Request: wrong parameters ({error!r})") from error

    async def _get_updates(self, params: dict[str, Any], reader: asyncio.StreamReader) -> Any:
        world = self.world
        if world.webhook:
            raise ApiError(409, _WEBHOOK)
        if self._poll is not None:
            self._poll.set()
            world.touch()
        displaced = self._poll = asyncio.Event()
        try:
            allowed = nested(params, "allowed_updates")
            world.allowed = world.allowed if allowed is None else allowed
            self._confirm(int(params.get("offset") or 0))
            limit = int(params.get("limit") or 100)
            end = time.monotonic() + float(params.get("timeout") or 0)
            while not world.updates:
                if displaced.is_set():
                    self.conflicts += 1
                    raise ApiError(409, _TERMINATED)
                if not await self._hold(reader, end - time.monotonic()):
                    break
            batch = world.updates[:limit]
            world.delivered += [update["update_id"] for update in batch]
            return batch
        finally:
            if self._poll is displaced:
                self._poll = None

    async def _hold(self, reader: asyncio.StreamReader, seconds: float) -> bool:
        """Wait for a change; False when the time is over."""
        if seconds <= 0:
            return False
        change = asyncio.ensure_future(self.world.change())
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait(
                {change, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if leaving.done():
                raise Gone
            return True
        finally:
            change.cancel()
            leaving.cancel()
            await asyncio.gather(change, leaving, return_exceptions=True)

    def _confirm(self, offset: int) -> None:
        world = self.world
        if offset < 0:
            kept = world.updates[offset:]
        else:
            kept = [update for update in world.updates if update["update_id"] >= offset]
        world.confirmed += len(world.updates) - len(kept)
        world.updates = kept
        world.touch()

    async def _file(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        token, _, path = request.path.removeprefix("/file/bot").partition("/")
        found = next((f for f in self.world.files.values() if f.path == path), None)
        self.calls.append(Call(method="file", params={"path": path}, at=time.monotonic()))
        fault = self.faults.next("file", None)
        if fault is not None and not await self._trouble_before(fault, reader, writer):
            return
        if token != self.token or found is None:
            reply(writer, 404, {"ok": False, "error_code": 404, "description": "Not Found"})
            return
        length = {"content-length": str(len(found.content))}
        writer.write(head(200, {"content-type": "application/octet-stream"} | length))
        writer.write(found.content)

    async def _call_webhook(self) -> None:
        """Deliver updates to the webhook, in order, until each is answered with 2xx."""
        world = self.world
        while True:
            if not world.webhook or not world.updates:
                await world.change()
                continue
            update = world.updates[0]
            status = await post(world.webhook, update)
            if 200 <= status < 300:
                world.updates.remove(update)
                world.delivered.append(update["update_id"])
                world.confirmed += 1
                world.touch()
            else:
                world.webhook_error = f"Wrong response from the webhook: {status}"
                await asyncio.sleep(0.02)

    # For tests in another process

    def _control(self, operation: str, given: dict[str, Any]) -> Any:
        world = self.world
        operations: dict[str, Callable[..., Any]] = {
            "say": world.say,
            "press": world.press,
            "chat": lambda **more: msgspec.to_builtins(world.chat(**more)),
            "block": self._block,
            "migrate": self._migrate,
            "redeliver": self._redeliver,
            "visible": lambda chat_id: msgspec.to_builtins(world.visible(chat_id)),
            "chats": lambda: sorted(world.chats),
            "calls": lambda: msgspec.to_builtins(self.calls),
            "fault": self.fault,
            "draw": lambda **more: self.faults.draw(FaultRates(**more) if more else None),
            "limits": self._set_limits,
            "stats": self.stats,
        }
        return operations[operation](**given)

    def stats(self) -> dict[str, Any]:
        return {
            "pending": len(self.world.updates),
            "confirmed": self.world.confirmed,
            "delivered": len(self.world.delivered),
            "calls": len(self.calls),
            "methods": Counter(call.method for call in self.calls),
            "refused": sum(call.refused for call in self.calls),
            "conflicts": self.conflicts,
            "faults": self.faults.happened,
        }

    def _block(self, chat_id: int, *, blocked: bool = True) -> None:
        self.world.chat(chat_id).blocked = blocked

    def _migrate(self, chat_id: int, new_id: int) -> None:
        self.world.chat(chat_id).migrated_to = new_id
        self.world.chat(new_id, "supergroup")

    def _redeliver(self, chat_id: int, message_id: int) -> int:
        seen = self.world.chats[chat_id].messages[message_id]
        return self.world.push("message", self.world.wire(seen) | {"text": seen.text})

    def _set_limits(self, **given: Any) -> None:
        self.limiter = RateLimiter(RateLimits(**given) if given else None)


async def _main() -> None:
    parser = argparse.ArgumentParser(description="A Bot API server on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default=TOKEN)
    parser.add_argument("--username", default="hermes_bot")
    options = parser.parse_args()
    server = FakeTelegram(options.token, options.username)
    await server.start(options.port)
    print(server.port, flush=True)  # noqa: T201 - how the parent learns the port
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
