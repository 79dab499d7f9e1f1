"""Discord's REST calls and gateway, both by discord.py, and what a failed call means.

The library brings what is hard to get right: rate limits, retries after 429 and 5xx, heartbeats,
compression. Its caches and objects are not used: events are taken as they come, so that an odd one
does not cost the connection and memory does not grow with servers. The loop around its socket is
ours, because the next process resumes a session, too. Sends carry a nonce, so they may be
repeated; one that may have arrived is `UNKNOWN` all the same: its first text counts.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial
from string import Formatter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import MissingExtra
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import FailureAction, InboundSink, PlatformFailure
from hermes.entry.chat.discord.settings import DiscordSettings
from hermes.entry.chat.kit.http import Effect, Upload, broken, on_this_machine, pause_wanted
from hermes.entry.chat.kit.receiver import Patience

PLACES = ("CHANNEL_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "THREAD_UPDATE")
_TAKEN = ("READY", "RESUMED", "GUILD_CREATE", "MESSAGE_CREATE", "INTERACTION_CREATE", *PLACES)
_INTENTS = ("guilds", "guild_messages", "dm_messages", "message_content")
SEND = "POST /channels/{channel_id}/messages"
_PORTAL = "at discord.com/developers/applications, under Bot"
_TOKEN_HINT = f"Copy the token again ({_PORTAL}: Reset Token) and set DISCORD_BOT_TOKEN to it."
_CLOSED = {
    4004: ("Discord does not accept the bot's token.", _TOKEN_HINT),
    4014: (
        "Discord does not give the bot the text of messages.",
        f"Switch on the Message Content Intent ({_PORTAL}, Privileged Gateway Intents).",
    ),
}
"""Close code -> what that means, and what to do."""
_BY_CODE = {
    **dict.fromkeys((10008, 30046), FailureAction.SEND_NEW),
    **dict.fromkeys((10015, 10062, 50027, 160002), FailureAction.DROP_REPLY),
    # Where there is no thread to drop, these end the piece.
    **dict.fromkeys((10003, 50001, 50013, 50083, 160005), FailureAction.DROP_THREAD),
    **dict.fromkeys((20028, 40062), FailureAction.WAIT),
}
PASSING = (FailureAction.RETRY, FailureAction.WAIT, FailureAction.FATAL)


class GatewaySession(Struct, frozen=True):
    """Where a connection can be taken up again; without an id there is nothing to take up."""

    id: str = ""
    sequence: int = 0
    url: str = ""


class Received(Struct, frozen=True):
    name: str
    data: Mapping[str, Any]
    session: GatewaySession
    """As it is behind this event."""
    missed: bool
    """It was there before the connection: a resumed session brings it."""


class DiscordApi:
    def __init__(self, settings: DiscordSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._patience = Patience(clock)
        self._library: Any = None
        self._client: Any = None
        self._troubles: tuple[type[Exception], ...] = ()
        self._session = GatewaySession()
        self._heard = False  # anything since the last connection was made
        self._behind = True  # what comes was said before
        self.user_id = self.application_id = ""

    async def open(self) -> None:
        """Load the library and log in."""
        library = self._library = await asyncio.to_thread(_load)
        root, proxy = self._settings.base_url, self._settings.proxy
        client = self._client = library.Client(
            intents=library.Intents(**dict.fromkeys(_INTENTS, True)),
            proxy=None if on_this_machine(root) or not proxy else proxy,
            max_messages=None,
            max_ratelimit_timeout=30.0,
        )
        request, public = client.http.request, library.http.Route.BASE
        self._troubles = (library.DiscordException, library.http.aiohttp.ClientError, OSError)

        async def rebased(route: Any, **more: Any) -> Any:
            route.url = root + route.url.removeprefix(public)
            try:
                return await request(route, **more)
            except asyncio.CancelledError:
                # Whoever is cut off while it waits out a global limit would block all others.
                client.http._global_over.set()  # noqa: SLF001 - the library has no other way
                raise

        client.http.request = rebased
        await self._explained("the login", client.login(self._settings.token))
        self.user_id = str(client.user.id)
        self.application_id = str(client.application_id or client.user.id)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            if client.ws is not None and client.ws.open:
                # Closed with 1000 the session would be over.
                await client.ws.close(code=4000)
            await client.close()

    async def call(
        self, method: str, *ids: str, body: Any = None, upload: Upload | None = None, **query: Any
    ) -> Any:
        """Make a call such as `GET /channels/{channel_id}`; `ids` fill in the path."""
        if self._client is None:
            raise PlatformFailure(FailureAction.RETRY, "Discord is not connected.")
        verb, path = method.split(" ")
        names = [name for _, name, _, _ in Formatter().parse(path) if name]
        more: dict[str, Any] = {"params": query} if query else {}
        if upload is not None:
            attached = {"attachments": [{"id": 0, "filename": upload.name}]}
            document = msgspec.json.encode((body or {}) | attached).decode()
            more["form"] = [
                {"name": "payload_json", "value": document, "content_type": "application/json"},
                {"name": upload.field, "value": upload.content, "filename": upload.name},
            ]
        elif body is not None:
            more["json"] = body
        route = self._library.http.Route(verb, path, **dict(zip(names, ids, strict=True)))
        return await self._explained(method, self._client.http.request(route, **more))

    async def _explained(self, name: str, work: Any) -> Any:
        """Await something of the library's; translate what goes wrong."""
        try:
            async with asyncio.timeout(self._settings.request_timeout):
                return await work
        except self._troubles as error:
            raise self._failure(name, error) from None

    async def listen(
        self, sink: InboundSink, take: Callable[[Received], None], session: GatewaySession
    ) -> None:
        """Receive until cancelled, from where `session` was; raise what cannot be overcome."""
        self._session = session
        parsers = {name: partial(self._take, name, take) for name in _TAKEN}
        self._client._connection.parsers = parsers  # noqa: SLF001 - see above
        while True:
            self._heard, self._behind = False, True
            try:
                resumable = await self._connection(sink)
            except PlatformFailure as failure:
                # The place to resume at may be gone; the usual one knows the session, too.
                self._session = replace(self._session, url="")
                await self._patience.overcome(failure, sink)
                continue
            if not resumable or not self._heard:
                self._session = GatewaySession()
            if resumable and not self._heard:
                lost = PlatformFailure(FailureAction.RETRY, "Discord closed the connection.")
                await self._patience.overcome(lost, sink)
            elif not resumable:
                await self._clock.sleep(random.uniform(1.0, 5.0))  # noqa: S311 - as Discord wants

    async def _connection(self, sink: InboundSink) -> bool:
        """Connect and receive until the connection is over; return whether it can be resumed."""
        gateway, session = self._library.gateway, self._session
        told = {} if session.url else await self.call("GET /gateway/bot")
        starts, url = told.get("session_start_limit") or {}, session.url or told["url"]
        if not session.id and starts.get("remaining") == 0:
            message = "Discord lets this bot begin no more sessions for now."
            pause = starts.get("reset_after", 60_000) / 1000
            raise PlatformFailure(FailureAction.WAIT, message, retry_after=pause)
        where = {"initial": True, "gateway": gateway.yarl.URL(url), "resume": bool(session.id)}
        where |= {"session": session.id, "sequence": session.sequence} if session.id else {}
        try:
            opening = gateway.DiscordWebSocket.from_client(self._client, **where)
            ws = self._client.ws = await self._explained("the gateway", opening)
            beats = ws._keep_alive  # noqa: SLF001 - it waits a minute, however short the beat
            beats.heartbeat_timeout = min(60.0, max(5.0, 2.0 * beats.interval))
            while True:
                await ws.poll_event()
                if self._heard:
                    self._patience.worked()
                sink.alive()
        except gateway.ReconnectWebSocket as wish:
            return bool(wish.resume)
        except self._troubles as error:
            raise self._failure("the gateway", error) from None

    def _take(self, name: str, take: Callable[[Received], None], data: Any) -> None:
        ws = self._client.ws
        if name == "READY":
            self._session = GatewaySession(ws.session_id, 0, str(ws.gateway))
        self._session = replace(self._session, sequence=ws.sequence or 0)
        self._heard, self._behind = True, self._behind and name not in ("READY", "RESUMED")
        known = data if isinstance(data, Mapping) else {}
        take(Received(name, known, self._session, missed=self._behind))

    def _failure(self, name: str, error: Any) -> PlatformFailure:
        library = self._library
        if isinstance(error, library.RateLimited):
            message = f"Discord wants fewer calls of {name}."
            return PlatformFailure(FailureAction.WAIT, message, retry_after=error.retry_after)
        if isinstance(error, library.LoginFailure | library.ConnectionClosed):
            code = getattr(error, "code", 4004)
            fatal = code == 4004 or 4010 <= code <= 4014
            action = FailureAction.FATAL if fatal else FailureAction.RETRY
            message, hint = _CLOSED.get(code, ("Discord refused the connection.", ""))
            return PlatformFailure(action, f"{message} ({code})", hint=hint)
        if isinstance(error, library.HTTPException) and (error.status < 500 or error.status == 501):
            return _refused(name, error)
        why = " ".join(str(error).split())[:200] or type(error).__name__
        sent = not isinstance(error, library.http.aiohttp.ClientConnectorError)
        effect = Effect.ONCE if name == SEND else Effect.REPEATABLE
        return broken("Discord", name, why, sent=sent, effect=effect)


def _load() -> Any:
    try:
        import discord  # noqa: PLC0415 - takes 400 ms, and most commands call no platform
    except ImportError as error:
        raise MissingExtra("discord", "Discord") from error
    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody speaks here
    return discord


def _refused(name: str, error: Any) -> PlatformFailure:
    words = " ".join(error.text.split())[:300]
    by_status = {401: FailureAction.FATAL, 429: FailureAction.WAIT}
    action = _BY_CODE.get(error.code) or by_status.get(error.status, FailureAction.GIVE_UP)
    if name == SEND and (error.code == 10008 or "message_reference" in words):
        action = FailureAction.DROP_REPLY
    pause = pause_wanted(error.response.headers, 5.0)
    return PlatformFailure(
        action,
        f"Discord refused {name}: {words or 'no reason'} (HTTP {error.status}, {error.code})",
        hint=_TOKEN_HINT if action is FailureAction.FATAL else "",
        status=error.status,
        description=f"{error.code} {words}",
        retry_after=pause if action is FailureAction.WAIT else 0.0,
    )
