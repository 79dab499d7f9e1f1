"""A Slack on the loopback: Web API and Socket Mode of one app in one or more workspaces.

It keeps what was posted, delivers events by one of the open sockets, delivers again what was not
acknowledged, and refuses what Slack refuses. The real SDK is its client in
`entry/chat/slack/test_slack_fake_honesty.py`.
"""

import asyncio
import itertools
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Self

from aiohttp import WSMsgType, web
from msgspec import Struct, field

__all__ = ["APP_TOKEN", "BOT", "TOKEN", "FakeSlack", "Posted"]

TOKEN, APP_TOKEN = "xoxb-1111111111-aaaaaaaaaa", "xapp-1-2222222222-bbbbbbbbbb"
BOT, BOT_ID, TEAM = "UBOT", "BBOT", "T1"
_LIMITS = {"chat.postMessage": 40_000, "chat.update": 4_000}


class ApiError(Exception):
    def __init__(self, word: str, status: int = 200, **headers: str) -> None:
        super().__init__(word)
        self.word, self.status, self.headers = word, status, headers


class Posted(Struct, kw_only=True):
    """A message that the bot shows."""

    channel: str
    ts: str
    text: str
    thread_ts: str = ""
    blocks: list[Any] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    broadcast: bool = False
    user: str = BOT
    bot_id: str = BOT_ID
    edits: int = 0

    @property
    def buttons(self) -> list[dict[str, Any]]:
        rows = (block["elements"] for block in self.blocks if block["type"] == "actions")
        return [button for row in rows for button in row]

    def wire(self) -> dict[str, Any]:
        shape = {"type": "message", "user": self.user, "ts": self.ts, "text": self.text}
        more = {"thread_ts": self.thread_ts, "metadata": self.metadata, "files": self.files}
        bot = {"bot_id": self.bot_id} if self.bot_id else {}
        return shape | bot | {name: value for name, value in more.items() if value}


class FakeSlack:
    def __init__(self, teams: dict[str, str] | None = None, app_token: str = APP_TOKEN) -> None:
        self.app_token = app_token
        self.teams = teams or {TEAM: TOKEN}
        """Team -> token of the bot there."""
        self.messages: dict[str, list[Posted]] = defaultdict(list)
        self.channels: dict[str, str] = {}
        """Channel -> team."""
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.ephemerals: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.reactions: dict[str, list[str]] = defaultdict(list)
        self.files: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {}
        self.names = {"U1": "Ann", "U2": "Ben"}
        self.sockets: list[web.WebSocketResponse] = []
        self.opened = 0
        """Connections so far."""
        self.unacked: dict[str, dict[str, Any]] = {}
        self.acks: list[dict[str, Any]] = []
        self.down = False
        """Every connection is refused or cut."""
        self.retries = True
        """What was said while nobody listened comes as a retry."""
        self.elsewhere = 0
        """Connections of other gateways."""
        self.pongs = True
        """Pings are answered."""
        self.login_page = False
        """Files are answered with a page, as without the scope `files:read`."""
        self.history = True
        self.closed: set[str] = set()
        """Channels that the bot is no member of."""
        self.faults: list[tuple[str, str]] = []
        self.rates: dict[str, float] = {}
        self.counted: Counter[str] = Counter()
        self._chance = random.Random(1)
        self._numbers = itertools.count(1)
        self._tickets: set[str] = set()
        self._changed = asyncio.Event()
        self._transports: dict[web.WebSocketResponse, asyncio.Transport] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0

    # -- its life ----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link/", self._link)
        app.router.add_post("/upload/{file}", self._upload)
        app.router.add_get("/files/{file}", self._download)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for transport in self._transports.values():
            transport.abort()
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.root}/api/"

    async def until(self, condition: Callable[[], object], seconds: float = 15.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await self._changed.wait()

    def _touch(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- what people do ------------------------------------------------------------------

    def say(self, channel: str, user: str, text: str, **more: Any) -> str:
        """Post as a person; in channels a mention of the bot comes as `app_mention`, too."""
        team = self.channels.setdefault(channel, more.pop("team", next(iter(self.teams))))
        ts, private = self._ts(), channel.startswith("D")
        thread = more.get("thread_ts", "")
        self.messages[channel].append(
            Posted(channel=channel, ts=ts, text=text, thread_ts=thread, user=user, bot_id="")
        )
        event = {"channel": channel, "user": user, "text": text, "ts": ts, "event_ts": ts} | more
        if thread:
            parent = next(m for m in self.messages[channel] if m.ts == thread)
            event["parent_user_id"] = parent.user
        kind = {"channel_type": "im" if private else "channel"}
        if f"<@{BOT}>" in text and not private:
            self.event(event | {"type": "app_mention"}, team)
        self.event(event | kind | {"type": "message"}, team)
        return ts

    def event(self, event: dict[str, Any], team: str = TEAM) -> str:
        payload = {
            "type": "event_callback",
            "team_id": team,
            "api_app_id": "A1",
            "event_id": f"Ev{next(self._numbers)}",
            "event_time": int(time.time()),
            "authorizations": [{"team_id": team, "user_id": BOT, "is_bot": True}],
            "event": event,
        }
        return self.envelope("events_api", payload)

    def press(self, posted: Posted, label: str, user: str = "U1") -> str:
        button = next(b for b in posted.buttons if label in b["text"]["text"])
        place = {"type": "message", "message_ts": posted.ts, "channel_id": posted.channel}
        action = {name: button[name] for name in ("action_id", "value")} | {"type": "button"}
        payload = {
            "type": "block_actions",
            "user": {"id": user, "username": self.names.get(user, user)},
            "team": {"id": self.channels[posted.channel]},
            "container": place | ({"thread_ts": posted.thread_ts} if posted.thread_ts else {}),
            "channel": {"id": posted.channel},
            "message": posted.wire(),
            "trigger_id": f"{next(self._numbers)}.1.abc",
            "actions": [action | {"action_ts": self._ts()}],
        }
        return self.envelope("interactive", payload, accepts_response_payload=True)

    def slash(self, channel: str, user: str, command: str, text: str = "") -> str:
        team = self.channels.setdefault(channel, next(iter(self.teams)))
        payload = {
            "command": command,
            "text": text,
            "user_id": user,
            "user_name": self.names.get(user, user),
            "channel_id": channel,
            "team_id": team,
            "trigger_id": f"{next(self._numbers)}.2.def",
            "response_url": f"{self.root}/response",
        }
        return self.envelope("slash_commands", payload, accepts_response_payload=True)

    def share(self, name: str, content: bytes, mimetype: str, **more: Any) -> dict[str, Any]:
        """Return a file for `say(..., subtype="file_share", files=[...])`."""
        file_id = f"F{next(self._numbers)}"
        self.contents[file_id] = content
        url = f"{self.root}/files/{file_id}"
        shape = {"id": file_id, "name": name, "mimetype": mimetype, "size": len(content)}
        self.files[file_id] = shape | {"url_private_download": url, "mode": "hosted"} | more
        return self.files[file_id]

    def replies(self, channel: str) -> list[Posted]:
        return [each for each in self.messages[channel] if each.user == BOT]

    def texts(self, channel: str) -> list[str]:
        return [each.text for each in self.replies(channel)]

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.calls)

    def _ts(self) -> str:
        return f"{int(time.time())}.{next(self._numbers):06d}"

    # -- sockets -------------------------------------------------------------------------

    def envelope(self, kind: str, payload: dict[str, Any], **more: Any) -> str:
        envelope_id = f"e{next(self._numbers)}"
        envelope = {"envelope_id": envelope_id, "type": kind, "payload": payload}
        retry = {"retry_attempt": 0, "retry_reason": "", "accepts_response_payload": False}
        self.unacked[envelope_id] = envelope | retry | more
        self._deliver(envelope_id)
        return envelope_id

    def redeliver(self, envelope_id: str, envelope: dict[str, Any] | None = None) -> None:
        """Send an envelope again, as after three seconds without an acknowledgement."""
        known = self.unacked.setdefault(envelope_id, envelope or {})
        known |= {"retry_attempt": known["retry_attempt"] + 1, "retry_reason": "timeout"}
        self._deliver(envelope_id)

    def _deliver(self, envelope_id: str) -> None:
        if self.sockets:
            socket = self.sockets[next(self._numbers) % len(self.sockets)]
            self._send(socket, self.unacked[envelope_id])

    def _send(self, socket: web.WebSocketResponse, frame: dict[str, Any]) -> None:
        task = asyncio.ensure_future(socket.send_str(json.dumps(frame)))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def disconnect(self, reason: str) -> None:
        """Say to all open connections that they will end."""
        for socket in self.sockets:
            self._send(socket, {"type": "disconnect", "reason": reason, "debug_info": {}})

    def cut(self, count: int | None = None) -> None:
        """Break connections, the oldest first."""
        for socket in self.sockets[:count]:
            self._transports[socket].abort()

    async def _link(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if self.down or ticket not in self._tickets:
            return web.Response(status=403 if not self.down else 503)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        self.opened += 1
        connections = len(self.sockets) + 1 + self.elsewhere
        hello = {"type": "hello", "num_connections": connections, "debug_info": {"host": "fake"}}
        await socket.send_str(json.dumps(hello))
        self.sockets.append(socket)
        assert request.transport is not None
        self._transports[socket] = request.transport
        for envelope_id in list(self.unacked) if len(self.sockets) == 1 else ():
            if self.retries:
                self.redeliver(envelope_id)
            else:
                self._deliver(envelope_id)
        self._touch()
        try:
            async for message in socket:
                if message.type is WSMsgType.PING and self.pongs:
                    await socket.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    ack = json.loads(message.data)
                    self.acks.append(ack)
                    self.unacked.pop(ack["envelope_id"], None)
                    self._touch()
        finally:
            self.sockets.remove(socket)
            self._touch()
        return socket

    # -- calls ---------------------------------------------------------------------------

    def fault(self, kind: str, method: str, count: int = 1) -> None:
        """Have the next calls fail: 429, 500, html, reset_before, reset_after, or a word."""
        self.faults += [(kind, method)] * count

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        params = await _params(request)
        kind = self._fault(method)
        self.counted[kind] += 1
        if self.down or kind == "reset_before":
            _reset(request)
        try:
            self._refuse(kind)
            body = self._call(method, params, request)
        except ApiError as error:
            answer = {"ok": False, "error": error.word}
            return web.json_response(answer, status=error.status, headers=error.headers)
        finally:
            self._touch()
        if kind == "html":
            return web.Response(
                status=502, text="<html>Bad gateway</html>", content_type="text/html"
            )
        if kind == "reset_after":
            _reset(request)
        scopes = {"x-oauth-scopes": "chat:write,files:read"}
        return web.json_response({"ok": True} | body, headers=scopes)

    def _fault(self, method: str) -> str:
        for number, (kind, wanted) in enumerate(self.faults):
            if wanted == method:
                del self.faults[number]
                return kind
        if method in ("chat.postMessage", "chat.update"):
            for kind, rate in self.rates.items():
                if self._chance.random() < rate:
                    return kind
        return ""

    def _refuse(self, kind: str) -> None:
        if kind == "429":
            raise ApiError("ratelimited", 429, **{"Retry-After": "1"})
        if kind == "500":
            raise ApiError("internal_error", 500)
        if kind not in ("", "html", "reset_before", "reset_after"):
            raise ApiError(kind)

    def _call(self, method: str, params: dict[str, Any], request: web.Request) -> dict[str, Any]:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        team = next((each for each, token in self.teams.items() if token == given), "")
        self.calls.append((method, params))
        if method == "apps.connections.open":
            if given != self.app_token:
                raise ApiError("invalid_auth")
            ticket = f"t{next(self._numbers)}"
            self._tickets.add(ticket)
            return {"url": f"ws://127.0.0.1:{self.port}/link/?ticket={ticket}&app_id=A1"}
        if not team:
            raise ApiError("invalid_auth")
        handler = getattr(self, "_" + method.replace(".", "_").lower(), None)
        if handler is None:
            raise ApiError("unknown_method")
        if len(str(params.get("text", ""))) > _LIMITS.get(method, 40_000):
            raise ApiError("msg_too_long")
        place = params.get("channel") or params.get("channel_id")
        if place in self.closed:
            raise ApiError("not_in_channel")
        if place and self.channels.setdefault(place, team) != team:
            raise ApiError("channel_not_found")
        _check_blocks(params.get("blocks") or [])
        answer: dict[str, Any] = handler(params, team)
        return answer

    def _auth_test(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        who = {"user_id": BOT, "bot_id": BOT_ID, "user": "hermes"}
        return who | {"team_id": team, "team": team, "url": self.root}

    def _users_info(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        if params["user"] not in self.names:
            raise ApiError("user_not_found")
        return {
            "user": {"id": params["user"], "profile": {"display_name": self.names[params["user"]]}}
        }

    def _conversations_info(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        return {"channel": {"id": params["channel"]}}

    def _chat_postmessage(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        if not params.get("text") and not params.get("blocks"):
            raise ApiError("no_text")
        self._in_thread(params)
        posted = Posted(
            channel=params["channel"],
            ts=self._ts(),
            text=params.get("text", ""),
            thread_ts=params.get("thread_ts", ""),
            blocks=params.get("blocks") or [],
            metadata=params.get("metadata") or {},
            broadcast=bool(params.get("reply_broadcast")),
        )
        self.messages[posted.channel].append(posted)
        shape = posted.wire()
        # Slack tells an app of its own messages, too.
        self.event(shape | {"channel": posted.channel}, team)
        return {"channel": posted.channel, "ts": posted.ts, "message": shape}

    def _chat_update(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        posted = self._own(params, "ts")
        posted.text, posted.edits = params.get("text", posted.text), posted.edits + 1
        if "blocks" in params:
            posted.blocks = params["blocks"]
        edited = {"type": "message", "subtype": "message_changed", "channel": posted.channel}
        self.event(edited | {"message": posted.wire(), "ts": self._ts()}, team)
        return {"channel": posted.channel, "ts": posted.ts, "text": posted.text}

    def _chat_delete(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        self.messages[params["channel"]].remove(self._own(params, "ts"))
        return {"channel": params["channel"], "ts": params["ts"]}

    def _chat_postephemeral(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        self.ephemerals.append(params)
        return {"message_ts": self._ts()}

    def _assistant_threads_setstatus(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        self.statuses.append(params)
        return {}

    def _reactions_add(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        here = self.reactions[params["timestamp"]]
        if params["name"] in here:
            raise ApiError("already_reacted")
        here.append(params["name"])
        return {}

    def _reactions_remove(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        here = self.reactions[params["timestamp"]]
        if params["name"] not in here:
            raise ApiError("no_reaction")
        here.remove(params["name"])
        return {}

    def _conversations_history(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        found = [m for m in self.messages[params["channel"]] if not m.thread_ts or m.broadcast]
        return self._page(found[::-1], params)

    def _conversations_replies(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        here = self.messages[params["channel"]]
        found = [m for m in here if params["ts"] in (m.ts, m.thread_ts)]
        if not found:
            raise ApiError("thread_not_found")
        return self._page(found, params)

    def _page(self, found: list[Posted], params: dict[str, Any]) -> dict[str, Any]:
        if not self.history:
            raise ApiError("missing_scope")
        start, limit = int(params.get("cursor") or 0), int(params.get("limit") or 100)
        page = [each.wire() for each in found[start : start + limit]]
        if not params.get("include_all_metadata"):
            page = [{k: v for k, v in each.items() if k != "metadata"} for each in page]
        more = str(start + limit) if start + limit < len(found) else ""
        return {"messages": page, "response_metadata": {"next_cursor": more}}

    def _own(self, params: dict[str, Any], name: str) -> Posted:
        here = self.messages[params["channel"]]
        found = next((m for m in here if m.ts == params[name]), None)
        if found is None:
            raise ApiError("message_not_found")
        if found.user != BOT:
            raise ApiError("cant_update_message")
        return found

    def _in_thread(self, params: dict[str, Any]) -> None:
        thread, place = params.get("thread_ts"), params.get("channel") or params.get("channel_id")
        if thread and not any(m.ts == thread for m in self.messages[place or ""]):
            raise ApiError("thread_not_found")

    # -- files ---------------------------------------------------------------------------

    def _files_getuploadurlexternal(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        file_id = f"F{next(self._numbers)}"
        self.files[file_id] = {"id": file_id, "name": params["filename"]}
        self.files[file_id]["length"] = int(params["length"])
        return {"upload_url": f"{self.root}/upload/{file_id}?ticket=1", "file_id": file_id}

    def _files_completeuploadexternal(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        files = params["files"]
        files = json.loads(files) if isinstance(files, str) else files
        if any(each["id"] not in self.contents for each in files):
            raise ApiError("file_not_found")
        self._in_thread(params)
        shown = [self.files[each["id"]] | {"title": each.get("title")} for each in files]
        posted = Posted(
            channel=params["channel_id"],
            ts=self._ts(),
            text=params.get("initial_comment", ""),
            thread_ts=params.get("thread_ts", ""),
            files=shown,
        )
        self.messages[posted.channel].append(posted)
        return {"files": [{"id": each["id"], "title": each.get("title")} for each in files]}

    def _files_info(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        return {"file": self.files[params["file"]]}

    def _files_delete(self, params: dict[str, Any], team: str) -> dict[str, Any]:
        for here in self.messages.values():
            here[:] = [m for m in here if params["file"] not in [f["id"] for f in m.files]]
        return {}

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        content, file_id = await request.read(), request.match_info["file"]
        if len(content) != self.files[file_id]["length"] or "ticket" not in request.query:
            return web.Response(status=400, text="bad length")
        self.contents[file_id] = content
        return web.Response(text=f"OK - {len(content)}")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.login_page or given not in self.teams.values():
            return web.Response(text="<html>Sign in</html>", content_type="text/html")
        content = self.contents[request.match_info["file"]]
        return web.Response(body=content, content_type="application/octet-stream")


async def _params(request: web.Request) -> dict[str, Any]:
    """Read parameters however they were sent."""
    params: dict[str, Any] = dict(request.query)
    as_json = request.content_type == "application/json"
    params |= await request.json() if as_json else dict(await request.post())
    return params


def _check_blocks(blocks: Any) -> None:
    blocks = json.loads(blocks) if isinstance(blocks, str) else blocks
    if len(blocks) > 50:
        raise ApiError("invalid_blocks")
    for block in blocks:
        text = block.get("text") or {}
        limit = {"section": 3000, "header": 150}.get(block["type"], 3000)
        ids = [each.get("action_id") for each in block.get("elements", ())]
        odd = block["type"] == "actions" and (len(set(ids)) != len(ids) or not 0 < len(ids) <= 25)
        if odd or len(text.get("text", "")) > limit or text.get("text") == "":
            raise ApiError("invalid_blocks")


def _reset(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()
    raise asyncio.CancelledError
