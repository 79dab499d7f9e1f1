"""A Discord on loopback: REST and gateway with its limits, errors, resumes and repetitions.

Behaves like the platform as a bot sees it: snowflakes, nonces that make sends idempotent,
sessions that can be resumed for as long as they are remembered, interactions that must be answered
within three seconds, 429 with `retry_after`, error codes. Checked with discord.py as its client in
`test_discord_fake.py`.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from aiohttp import BodyPartReader, WSMsgType, web

__all__ = ["APP", "BOT", "GENERAL", "GUILD", "FakeDiscord"]

TOKEN = "MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDE.abcdefghijklmnopqrstuvwxyz0123456789AB"
BOT, APP, GUILD, GENERAL = "900000000000000001", "900000000000000002", "500", "600"
EPOCH = 1_420_070_400_000


class Session:
    def __init__(self, number: int) -> None:
        self.id = f"session-{number}"
        self.log: list[dict[str, Any]] = []
        """Everything that was said in it, for resumes."""
        self.socket: web.WebSocketResponse | None = None
        self.outbox: asyncio.Queue[tuple[web.WebSocketResponse, dict[str, Any]]] = asyncio.Queue()
        self.sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        """Send one after the other, as they were said."""
        while True:
            socket, frame = await self.outbox.get()
            with suppress(ConnectionError, RuntimeError):
                await socket.send_json(frame)


class Refused(Exception):
    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"code": code, "message": message, **more}


class FakeDiscord:
    def __init__(self, *, beat: float = 41.25, token: str = TOKEN, bot: str = BOT) -> None:
        self.token, self.bot = token, bot
        self.beat = beat
        self.users: dict[str, dict[str, Any]] = {bot: _user(bot, "Hermes", bot=True)}
        self.roles: dict[str, list[str]] = {bot: ["777"]}
        """Person -> roles in the guild."""
        self.channels: dict[str, dict[str, Any]] = {
            GENERAL: {"id": GENERAL, "type": 0, "name": "general", "guild_id": GUILD, "position": 0}
        }
        self.messages: dict[str, list[dict[str, Any]]] = {GENERAL: []}
        self.reactions: dict[str, list[str]] = {}
        self.files: dict[str, bytes] = {}
        self.commands: list[dict[str, Any]] = []
        self.interactions: dict[str, dict[str, Any]] = {}
        self.sessions: list[Session] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.identified: list[dict[str, Any]] = []
        self.resumed: list[dict[str, Any]] = []
        self.faults: list[tuple[str, str]] = []
        """(part of `METHOD path`, kind): each happens once; `reset after`: when it was done."""
        self.limit = (1000, 1.0)
        """Messages to one channel within seconds."""
        self.refuse_identify = 0
        """Close code that an identify gets."""
        self.refuse_resume = 0
        self.starts_left = 999
        """Sessions that may be begun today."""
        self.mute = False
        """Heartbeats are not answered."""
        self.down = False
        """Nothing is let through."""
        self._sent: dict[str, list[float]] = {}
        self._nonces: dict[str, dict[str, Any]] = {}
        self._last_id = 0
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.port = 0

    # -- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_get("/gateway", self._gateway)
        app.router.add_get("/cdn/{name}", self._cdn)
        app.router.add_route("*", "/api/v10/{path:.*}", self._rest)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        for session in self.sessions:
            if session.socket is not None:
                await session.socket.close(code=1001)
            session.socket = None
            session.sending.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v10"

    def touch(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await self._changed.wait()

    def called(self, part: str) -> list[dict[str, Any]]:
        return [body for call, body in self.calls if part in call]

    def fault(self, part: str, kind: str, times: int = 1) -> None:
        """Have the next calls whose `METHOD path` has `part` go wrong."""
        self.faults += [(part, kind)] * times

    # -- what people do ----------------------------------------------------------------------

    def snowflake(self) -> str:
        self._last_id = max(self._last_id + 1, (int(time.time() * 1000) - EPOCH) << 22)
        return str(self._last_id)

    def person(self, user_id: str, name: str = "", *, bot: bool = False) -> dict[str, Any]:
        return self.users.setdefault(user_id, _user(user_id, name or f"user{user_id}", bot=bot))

    def private(self, user_id: str) -> str:
        """Return the private channel of a person."""
        self.person(user_id)
        channel = f"1{user_id}"
        recipients = [self.users[user_id]]
        self.channels.setdefault(channel, {"id": channel, "type": 1, "recipients": recipients})
        self.messages.setdefault(channel, [])
        return channel

    def thread(self, thread_id: str, parent: str, owner: str, **more: Any) -> dict[str, Any]:
        made = {
            "id": thread_id,
            "type": 11,
            "name": "thread",
            "guild_id": GUILD,
            "parent_id": parent,
            "owner_id": owner,
            "thread_metadata": {
                "archived": False,
                "auto_archive_duration": 1440,
                "locked": False,
                "archive_timestamp": _now(),
            },
            "message_count": 0,
            "member_count": 1,
        } | more
        self.channels[thread_id] = made
        self.messages.setdefault(thread_id, [])
        self.dispatch("THREAD_CREATE", made | {"newly_created": True})
        return made

    def say(self, channel: str, user_id: str, text: str = "", **more: Any) -> str:
        """Have a person write; a private channel is named by `private`. Returns the id."""
        author = self.person(user_id)
        message = self._message(channel, author, text) | more
        message["mentions"] = [
            self.users[each]
            for each in dict.fromkeys(re.findall(r"<@!?(\d+)>", text))
            if each in self.users
        ] + more.get("mentions", [])
        self.messages[channel].append(message)
        self.dispatch("MESSAGE_CREATE", self._told(message))
        return str(message["id"])

    def redeliver(self, channel: str, message_id: str) -> None:
        self.dispatch("MESSAGE_CREATE", self._told(self.find(channel, message_id)))

    def attach(self, name: str, content: bytes, media_type: str = "") -> dict[str, Any]:
        """Put a file on the CDN and return how a message names it."""
        number = self.snowflake()
        self.files[number] = content
        url = f"http://127.0.0.1:{self.port}/cdn/{number}"
        described = {"id": number, "filename": name, "size": len(content), "url": url}
        return described | {"proxy_url": url, "content_type": media_type or None}

    def slash(self, channel: str, user_id: str, name: str, text: str | None = None) -> str:
        options = [] if text is None else [{"name": "text", "type": 3, "value": text}]
        data = {"id": "1", "name": name, "type": 1, "options": options}
        return self._interaction(channel, user_id, 2, {"data": data})

    def press(self, channel: str, user_id: str, message_id: str, custom_id: str) -> str:
        data = {"custom_id": custom_id, "component_type": 2}
        message = self.find(channel, message_id)
        return self._interaction(channel, user_id, 3, {"data": data, "message": message})

    def _interaction(self, channel: str, user_id: str, kind: int, more: dict[str, Any]) -> str:
        number, user, place = self.snowflake(), self.person(user_id), self.channels[channel]
        told = {
            "id": number,
            "application_id": APP,
            "type": kind,
            "version": 1,
            "token": f"token-{number}",
            "channel_id": channel,
            "channel": {"id": channel, "type": place["type"]},
            "entitlements": [],
            "attachment_size_limit": 10_485_760,
            "locale": "en-US",
        } | more
        if "guild_id" in place:
            told |= {"guild_id": GUILD, "member": self._member(user_id) | {"user": user}}
        else:
            told["user"] = user
        self.interactions[number] = {"at": time.monotonic(), "channel": channel, "answer": None}
        self.dispatch("INTERACTION_CREATE", told)
        return number

    # -- what can be seen --------------------------------------------------------------------

    def find(self, channel: str, message_id: str) -> dict[str, Any]:
        for message in self.messages.get(channel, ()):
            if message["id"] == message_id:
                return message
        raise Refused(404, 10008, "Unknown Message")

    def replies(self, channel: str) -> list[dict[str, Any]]:
        own = [each for each in self.messages.get(channel, ()) if each["author"]["id"] == self.bot]
        return [each for each in own if not each["flags"] & 64]

    def texts(self, channel: str) -> list[str]:
        return [each["content"] for each in self.replies(channel)]

    # -- the gateway -------------------------------------------------------------------------

    def dispatch(self, name: str, data: Any) -> None:
        for session in self.sessions:
            self._tell(session, name, data)
        self.touch()

    def _tell(self, session: Session, name: str, data: Any) -> None:
        frame = {"op": 0, "t": name, "s": len(session.log) + 1, "d": data}
        session.log.append(frame)
        if session.socket is not None and not session.socket.closed:
            session.outbox.put_nowait((session.socket, frame))

    @property
    def connected(self) -> Session | None:
        open_ = [s for s in self.sessions if s.socket is not None and not s.socket.closed]
        return open_[-1] if open_ else None

    async def hang_up(self, code: int) -> None:
        """Close the connection with a code."""
        session = self.connected
        assert session is not None
        assert session.socket is not None
        await session.socket.close(code=code)

    async def order(self, op: int, data: Any = None) -> None:
        """Send op 7 (reconnect), 9 (invalid session) or 1 (heartbeat)."""
        session = self.connected
        assert session is not None
        assert session.socket is not None
        if op == 9 and not data:
            self.sessions.remove(session)
        await session.socket.send_json({"op": op, "d": data, "s": None, "t": None})

    async def _gateway(self, request: web.Request) -> web.StreamResponse:
        if self.down:
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": self.beat * 1000}})
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            frame = json.loads(message.data)
            if frame["op"] == 1 and not self.mute:
                await socket.send_json({"op": 11, "d": None})
            elif frame["op"] == 2:
                await self._identify(socket, frame["d"])
            elif frame["op"] == 6:
                await self._resume(socket, frame["d"])
            self.touch()
        return socket

    async def _identify(self, socket: web.WebSocketResponse, wish: dict[str, Any]) -> None:
        self.identified.append(wish)
        if wish["token"] != self.token or self.refuse_identify:
            await socket.close(code=self.refuse_identify or 4004)
            return
        session = Session(len(self.identified))
        session.socket = socket
        self.sessions.append(session)
        url = f"ws://127.0.0.1:{self.port}/gateway"
        ready = {
            "v": 10,
            "user": self.users[self.bot],
            "session_id": session.id,
            "private_channels": [],
        }
        ready |= {"resume_gateway_url": url, "guilds": [{"id": GUILD, "unavailable": True}]}
        self._tell(session, "READY", ready | {"application": {"id": APP, "flags": 0}})
        self._tell(session, "GUILD_CREATE", self._guild())
        self.touch()

    async def _resume(self, socket: web.WebSocketResponse, wish: dict[str, Any]) -> None:
        self.resumed.append(wish)
        known = [each for each in self.sessions if each.id == wish["session_id"]]
        if self.refuse_resume:
            await socket.close(code=self.refuse_resume)
            return
        if not known:
            await socket.send_json({"op": 9, "d": False, "s": None, "t": None})
            return
        session = known[0]
        session.socket = socket
        for frame in session.log[wish["seq"] :]:
            session.outbox.put_nowait((socket, frame))
        self._tell(session, "RESUMED", {})
        self.touch()

    def _guild(self) -> dict[str, Any]:
        own = [each for each in self.channels.values() if each.get("guild_id") == GUILD]
        for each in own:
            said = self.messages.get(each["id"])
            each["last_message_id"] = said[-1]["id"] if said else None
        return {
            "id": GUILD,
            "name": "Guild",
            "owner_id": "1",
            "roles": [{"id": GUILD, "name": "@everyone"}],
            "channels": [each for each in own if each["type"] not in (10, 11, 12)],
            "threads": [each for each in own if each["type"] in (10, 11, 12)],
            "members": [self._member(self.bot) | {"user": self.users[self.bot]}],
            "emojis": [],
            "features": [],
            "member_count": 2,
            "large": False,
        }

    # -- REST --------------------------------------------------------------------------------

    async def _cdn(self, request: web.Request) -> web.Response:
        content = self.files.get(request.match_info["name"])
        self.calls.append((f"GET /cdn/{request.match_info['name']}", {}))
        return web.Response(status=404) if content is None else web.Response(body=content)

    async def _rest(self, request: web.Request) -> web.StreamResponse:
        call = f"{request.method} /{request.match_info['path']}"
        body, files = await _body(request)
        fault = next((each for each in self.faults if each[0] in call), ("", ""))
        if fault[1]:
            self.faults.remove(fault)
        self.calls.append((call, body if isinstance(body, dict) else {"list": body}))
        try:
            _fail("reset" if self.down else fault[1])
            answer = self._answer(request, call, body, files)
            _fail(fault[1].removesuffix(" after"))
        except Refused as refused:
            return _json(refused.status, refused.body)
        except ConnectionResetError:
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=500)
        finally:
            self.touch()
        return web.Response(status=204) if answer is None else _json(200, answer)

    def _answer(self, request: web.Request, call: str, body: Any, files: list[Any]) -> Any:
        free = re.search(r"/(interactions|webhooks)/", call)
        if not free and request.headers.get("Authorization") != f"Bot {self.token}":
            raise Refused(401, 0, "401: Unauthorized")
        for pattern, handle in self._routes():
            found = re.fullmatch(pattern, call)
            if found:
                names = found.groupdict()
                if "channel" in names and names["channel"] not in self.channels:
                    raise Refused(404, 10003, "Unknown Channel")
                return handle(body=body, files=files, query=dict(request.query), **names)
        raise Refused(404, 0, "404: Not Found")

    def _routes(self) -> list[tuple[str, Callable[..., Any]]]:
        messages = r"/channels/(?P<channel>\d+)/messages"
        message = rf"{messages}/(?P<message>\d+)"
        reaction = rf"{message}/reactions/(?P<emoji>[^/]+)/@me"
        original = r"/webhooks/(?P<app>\d+)/(?P<token>[^/]+)/messages/@original"
        return [
            ("GET /users/@me", lambda **_: self.users[self.bot]),
            ("GET /oauth2/applications/@me", lambda **_: _application()),
            ("GET /gateway/bot", lambda **_: self._address()),
            ("POST /users/@me/channels", self._open_private),
            (r"GET /channels/(?P<channel>\d+)", lambda channel, **_: self.channels[channel]),
            (r"POST /channels/(?P<channel>\d+)/typing", lambda **_: None),
            (r"POST /channels/(?P<channel>\d+)/threads", self._new_thread),
            (f"GET {messages}", self._history),
            (f"POST {messages}", self._post),
            (f"GET {message}", lambda channel, message, **_: self.find(channel, message)),
            (f"PATCH {message}", self._edit),
            (f"DELETE {message}", self._delete),
            (f"POST {message}/threads", self._thread_from),
            (f"PUT {reaction}", self._react),
            (f"DELETE {reaction}", self._unreact),
            (r"GET /guilds/\d+/members/(?P<user>\d+)", self._member_of),
            (r"PUT /applications/\d+/commands", self._set_commands),
            (r"POST /interactions/(?P<number>\d+)/(?P<token>[^/]+)/callback", self._callback),
            (f"GET {original}", lambda token, **_: self._original(token)),
            (f"PATCH {original}", self._edit_original),
        ]

    def _address(self) -> dict[str, Any]:
        limit = {"total": 1000, "remaining": self.starts_left, "reset_after": 14_400_000}
        url = f"ws://127.0.0.1:{self.port}/gateway"
        return {"url": url, "shards": 1, "session_start_limit": limit | {"max_concurrency": 1}}

    def _open_private(self, body: Any, **_: Any) -> Any:
        return self.channels[self.private(str(body["recipient_id"]))]

    def _history(self, channel: str, query: dict[str, str], **_: Any) -> Any:
        limit = int(query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise Refused(400, 50035, "Invalid Form Body")
        found = self.messages[channel]
        if "after" in query:
            found = [each for each in found if int(each["id"]) > int(query["after"])][:limit]
        elif "before" in query:
            found = [each for each in found if int(each["id"]) < int(query["before"])]
        # As on Discord: newest first, without the guild and without members.
        return found[-limit:][::-1]

    def _post(self, channel: str, body: Any, files: list[Any], **_: Any) -> Any:
        place = self.channels[channel]
        if place["type"] in (4, 15):
            raise Refused(400, 50008, "Cannot send messages in a non-text channel")
        nonce = str(body.get("nonce") or "")
        if len(nonce) > 25:
            raise Refused(400, 50035, "Invalid Form Body")
        if nonce and body.get("enforce_nonce") and nonce in self._nonces:
            return self._nonces[nonce]
        self._count(channel)
        content = body.get("content") or ""
        _check_length(content)
        if not content and not files and not body.get("components"):
            raise Refused(400, 50006, "Cannot send an empty message")
        reference = body.get("message_reference")
        known = {each["id"] for each in self.messages[channel]}
        if reference and str(reference["message_id"]) not in known:
            if reference.get("fail_if_not_exists", True):
                errors = {
                    "message_reference": {
                        "_errors": [
                            {"code": "REPLIES_UNKNOWN_MESSAGE", "message": "Unknown message"}
                        ]
                    }
                }
                raise Refused(400, 50035, "Invalid Form Body", errors=errors)
            reference = None
        message = self._message(channel, self.users[self.bot], content)
        message |= {"components": body.get("components") or [], "flags": body.get("flags", 0)}
        message["attachments"] = [self.attach(name, content) for name, content in files]
        if reference:
            message |= {"type": 19, "message_reference": reference}
        self.messages[channel].append(message)
        self._nonces[nonce or message["id"]] = message
        self.dispatch("MESSAGE_CREATE", self._told(message) | {"nonce": nonce or None})
        return message | {"nonce": nonce or None}

    def _count(self, channel: str) -> None:
        calls, seconds = self.limit
        now = time.monotonic()
        recent = [at for at in self._sent.get(channel, ()) if now - at < seconds]
        if len(recent) >= calls:
            raise _limited(seconds - (now - recent[0]))
        self._sent[channel] = [*recent, now]

    def _edit(self, channel: str, message: str, body: Any, **_: Any) -> Any:
        found = self.find(channel, message)
        if found["author"]["id"] != self.bot:
            raise Refused(403, 50005, "Cannot edit a message authored by another user")
        _check_length(body.get("content") or "")
        found.setdefault("history", []).append(found["content"])
        found |= {key: body[key] for key in ("content", "components") if key in body}
        return found

    def _delete(self, channel: str, message: str, **_: Any) -> None:
        self.messages[channel].remove(self.find(channel, message))

    def _react(self, channel: str, message: str, emoji: str, **_: Any) -> None:
        self.find(channel, message)
        self.reactions.setdefault(message, []).append(emoji)

    def _unreact(self, message: str, emoji: str, **_: Any) -> None:
        if emoji not in self.reactions.get(message, ()):
            raise Refused(404, 10014, "Unknown Emoji")
        self.reactions[message].remove(emoji)

    def _thread_from(self, channel: str, message: str, body: Any, **_: Any) -> Any:
        self.find(channel, message)
        if message in self.channels:
            raise Refused(400, 160004, "A thread has already been created for this message")
        return self.thread(message, channel, self.bot, name=_thread_name(body))

    def _new_thread(self, channel: str, body: Any, **_: Any) -> Any:
        if self.channels[channel]["type"] == 15 and "message" not in body:
            raise Refused(400, 50035, "Invalid Form Body")
        return self.thread(self.snowflake(), channel, self.bot, name=_thread_name(body))

    def _member_of(self, user: str, **_: Any) -> Any:
        if user not in self.users:
            raise Refused(404, 10007, "Unknown Member")
        return self._member(user) | {"user": self.users[user]}

    def _set_commands(self, body: Any, **_: Any) -> Any:
        for each in body:
            named = re.fullmatch(r"[-_a-z0-9]{1,32}", each["name"])
            if not named or not 1 <= len(each["description"]) <= 100 or len(body) > 100:
                raise Refused(400, 50035, "Invalid Form Body")
        self.commands = body
        return body

    def _callback(self, number: str, token: str, body: Any, query: dict[str, str], **_: Any) -> Any:
        known = self.interactions.get(number)
        if known is None or token != f"token-{number}" or time.monotonic() - known["at"] > 3:
            raise Refused(404, 10062, "Unknown interaction")
        if known["answer"] is not None:
            raise Refused(400, 40060, "Interaction has already been acknowledged.")
        known["answer"] = body
        if body["type"] in (4, 5):
            channel, data = known["channel"], body.get("data") or {}
            message = self._message(channel, self.users[self.bot], data.get("content", ""))
            message["flags"] = data.get("flags", 0) | (128 if body["type"] == 5 else 0)
            known["message"] = message
            self.messages[channel].append(message)
        if "with_response" not in query:
            return None
        told = {"id": number, "type": 2, "response_message_id": known.get("message", {}).get("id")}
        resource = {"type": body["type"], "message": known.get("message")}
        return {"interaction": told, "resource": resource}

    def _original(self, token: str) -> dict[str, Any]:
        known = self.interactions.get(token.removeprefix("token-"), {})
        if "message" not in known:
            raise Refused(404, 10015, "Unknown Webhook")
        found: dict[str, Any] = known["message"]
        return found

    def _edit_original(self, token: str, body: Any, files: list[Any], **_: Any) -> Any:
        found = self._original(token)
        _check_length(body.get("content") or "")
        found |= {key: body[key] for key in ("content", "components") if key in body}
        found["attachments"] = [self.attach(name, content) for name, content in files]
        found["flags"] &= ~128
        return found

    # -- shapes ------------------------------------------------------------------------------

    def _member(self, user_id: str) -> dict[str, Any]:
        usual = {"joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}
        return usual | {"roles": self.roles.get(user_id, []), "nick": None}

    def _message(self, channel: str, author: dict[str, Any], text: str) -> dict[str, Any]:
        return {
            "id": self.snowflake(),
            "channel_id": channel,
            "author": author,
            "type": 0,
            "content": text,
            "timestamp": _now(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": [],
            "pinned": False,
            "flags": 0,
        }

    def _told(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message as the gateway tells it: with the guild and the member."""
        place = self.channels[message["channel_id"]]
        if "guild_id" not in place:
            return dict(message)
        member = self._member(message["author"]["id"])
        return message | {"guild_id": GUILD, "member": member}


def _user(user_id: str, name: str, *, bot: bool = False) -> dict[str, Any]:
    return {
        "id": user_id,
        "username": name.lower(),
        "global_name": name,
        "discriminator": "0",
        "avatar": None,
        "bot": bot,
    }


def _application() -> dict[str, Any]:
    return {
        "id": APP,
        "name": "Hermes",
        "description": "",
        "icon": None,
        "bot_public": True,
        "bot_require_code_grant": False,
        "verify_key": "00",
        "owner": _user("1", "Owner"),
        "team": None,
        "flags": 0,
    }


def _fail(kind: str) -> None:
    """Go wrong in a way: a status, a code, or a connection that breaks."""
    if kind == "429":
        raise _limited(0.05)
    if kind == "reset":
        raise ConnectionResetError
    if kind.isdigit():
        raise Refused(int(kind), 0, "broken")
    if kind.startswith("code "):
        raise Refused(400, int(kind[5:]), "as asked for")


def _limited(seconds: float) -> Refused:
    told = {"retry_after": seconds, "global": False}
    return Refused(429, 0, "You are being rate limited.", **told)


def _thread_name(body: Any) -> str:
    name = str(body.get("name", ""))
    if not 1 <= len(name) <= 100:
        raise Refused(400, 50035, "Invalid Form Body")
    return name


def _check_length(content: str) -> None:
    if len(content) > 2000:
        errors = {
            "content": {
                "_errors": [
                    {"code": "BASE_TYPE_MAX_LENGTH", "message": "Must be 2000 or fewer in length."}
                ]
            }
        }
        raise Refused(400, 50035, "Invalid Form Body", errors=errors)


def _now() -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    return f"{stamp}.{int(time.time() * 1000) % 1000:03}000+00:00"


def _json(status: int, body: Any) -> web.Response:
    headers = {"Content-Type": "application/json", "Via": "1.1 google"}
    if status == 429:
        headers |= {"Retry-After": str(body["retry_after"]), "X-RateLimit-Scope": "user"}
    return web.Response(status=status, body=json.dumps(body).encode(), headers=headers)


async def _body(request: web.Request) -> tuple[Any, list[tuple[str, bytes]]]:
    if not request.content_type.startswith("multipart/"):
        raw = await request.read()
        return (json.loads(raw) if raw else {}), []
    body: Any = {}
    files: list[tuple[str, bytes]] = []
    parts = await request.multipart()
    while isinstance(part := await parts.next(), BodyPartReader):
        content = bytes(await part.read())
        if part.name == "payload_json":
            body = json.loads(content)
        elif part.name is not None and re.fullmatch(r"files\[\d\]", part.name):
            files.append((part.filename or "", content))
        else:
            raise Refused(400, 50035, "Invalid Form Body")
    return body, files
