"""Calls of the Web API through the SDK, and what a failed one means for the piece it carried.

The SDK's own retries are off: it repeats a send whose connection broke, which may show it twice.
Whatever may have had an effect is `UNKNOWN`, and the message is looked for in the history by
the key that went along with it. Errors come as HTTP 200 with a word; the word decides.
"""

import asyncio
from collections.abc import Mapping
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.domain.errors import MissingExtra
from hermes.domain.ports.platform import Button, FailureAction, Outgoing, PlatformFailure
from hermes.domain.wording import clean_text
from hermes.entry.chat.kit import http
from hermes.entry.chat.kit.decode import texts_in
from hermes.entry.chat.kit.http import Effect, HttpClient, HttpRequest, broken, on_this_machine
from hermes.entry.chat.slack.settings import SlackSettings
from hermes.streaming.markup.slack_mrkdwn import rich_blocks, sections

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse
    from slack_sdk.web.async_client import AsyncWebClient


Fields = Mapping[str, Any]


class SocketEnvelope(Struct, frozen=True, kw_only=True):
    """A frame of Socket Mode: `hello`, `disconnect`, or something to acknowledge."""

    type: str = ""
    envelope_id: str = ""
    payload: dict[str, Any] = {}
    retry_attempt: int | None = None
    reason: str | None = None
    num_connections: int | None = None


class Workspace(Struct, frozen=True, kw_only=True):
    """A team that has the app, and who we are there."""

    team_id: str
    user_id: str
    bot_id: str
    token: str
    client: Any


_BY_ERROR = {
    FailureAction.FATAL: "invalid_auth not_authed account_inactive token_revoked token_expired "
    "not_allowed_token_type org_login_required user_removed_from_team team_access_not_granted",
    FailureAction.WAIT: "ratelimited rate_limited",
    FailureAction.PLAIN: "invalid_blocks invalid_blocks_format msg_blocks_too_long msg_too_long",
    FailureAction.SEND_NEW: "message_not_found cant_update_message edit_window_closed",
    FailureAction.DROP_THREAD: "thread_not_found cannot_reply_to_message invalid_thread_ts",
    FailureAction.RETRY: "internal_error fatal_error service_unavailable request_timeout",
}
_ACTIONS = {word: action for action, words in _BY_ERROR.items() for word in words.split()}
_TOKEN_HINT = (
    "Check SLACK_BOT_TOKEN (xoxb-…, from OAuth & Permissions) and SLACK_APP_TOKEN "  # noqa: S105
    "(xapp-…, with connections:write); install the app again if it was removed."
)
_MOST_BLOCKS, _CONNECT_SECONDS = 50, 15.0


class SlackApi:
    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self.http = HttpClient("Slack", settings.base_url, proxy=settings.proxy)
        """For the bytes of files; everything else goes through the SDK."""
        self._session: ClientSession | None = None
        self._library: Any = None

    async def open(self) -> list[Workspace]:
        """Load the SDK beside the event loop, and ask each workspace who we are there."""
        self._library = await asyncio.to_thread(_library)
        await self.http.prepare()
        # Idle connections are not kept long: one that drops a message makes its fate unknown.
        connector = self._library.aiohttp.TCPConnector(limit=32, keepalive_timeout=15.0)
        self._session = self._library.aiohttp.ClientSession(connector=connector)
        return [await self._who(token) for token in self._settings.tokens]

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await self.http.close()

    def _client(self, token: str) -> "AsyncWebClient":
        root, session, proxy = self._settings.base_url, self._session, self._settings.proxy
        client: AsyncWebClient = self._library.AsyncWebClient(
            token, base_url=root, session=session, retry_handlers=[], proxy=proxy
        )
        # The SDK takes a proxy from the environment, whatever the address.
        client.proxy = None if on_this_machine(root) else client.proxy
        return client

    async def _who(self, token: str) -> Workspace:
        client = self._client(token)
        me = await self.call(client, "auth_test", {})
        team, user, bot = texts_in(me, "team_id", "user_id", "bot_id")
        if not bot:
            message = "The Slack token belongs to a person, not to a bot."
            raise PlatformFailure(FailureAction.FATAL, message, hint=_TOKEN_HINT)
        return Workspace(team_id=team, user_id=user, bot_id=bot, token=token, client=client)

    async def call(
        self, client: Any, method: str, fields: Fields, effect: Effect = Effect.REPEATABLE
    ) -> Fields:
        """Make a call under the SDK's name for it; `PlatformFailure` says what a failure means."""
        library, name = self._library, method.replace("_", ".")
        try:
            async with asyncio.timeout(self._settings.request_timeout):
                answer = await getattr(client, method)(**fields)
        except library.SlackApiError as error:
            raise _refused(name, error.response, effect) from None
        except library.lost as error:
            sent = not isinstance(error, library.unsent)
            why = " ".join(str(error).split())[:200] or type(error).__name__
            raise broken("Slack", name, why, sent=sent, effect=effect) from None
        found: Fields = answer.data
        return found

    async def socket(self) -> "ClientWebSocketResponse":
        """Open a Socket Mode connection: an address for this one time, and then its socket."""
        session, token = self._session, {"app_token": self._settings.app_token}
        client, beat = self._client(token["app_token"]), self._settings.heartbeat
        assert session is not None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                found = await self.call(client, "apps_connections_open", token)
                url = str(found.get("url") or "")
                proxy = None if on_this_machine(url) else client.proxy
                return await session.ws_connect(url, autoping=False, heartbeat=beat, proxy=proxy)
        except self._library.lost as error:
            # The address has a ticket in it, which the library's words may show.
            why, effect = type(error).__name__, Effect.REPEATABLE
            raise broken("Slack", "Socket Mode", why, sent=False, effect=effect) from None

    async def download(self, workspace: Workspace, url: str, path: Path, *, pages: bool) -> int:
        host, ours = urlsplit(url).hostname or "", urlsplit(self._settings.base_url).hostname
        trusted = host == ours or (host.endswith(".slack.com") and url.startswith("https:"))
        # Files that stand elsewhere are fetched without showing who we are.
        headers = {"authorization": f"Bearer {workspace.token}"} if trusted else {}
        seconds = self._settings.download_timeout
        request = HttpRequest(name="a file", url=url, headers=headers, timeout=seconds, pages=pages)
        return await self.http.download(request, path, self._settings.max_download_bytes)

    async def upload(self, workspace: Workspace, name: str, content: bytes) -> str:
        """Put a file where it can be shared from; nobody sees it yet."""
        size = {"filename": name, "length": len(content)}
        place = await self.call(workspace.client, "files_getUploadURLExternal", size)
        address = urlsplit(str(place["upload_url"]))
        answer = await self.http.call(
            HttpRequest(
                name="an upload",
                url=address._replace(query="").geturl(),
                target=f"{address.path}?{address.query}" if address.query else "",
                headers={"content-type": "application/octet-stream"},
                content=content,
            )
        )
        if answer.status != 200:
            message = f"Slack did not take the file {name} (HTTP {answer.status})."
            action = FailureAction.GIVE_UP if answer.status < 429 else FailureAction.RETRY
            raise PlatformFailure(action, message)
        return str(place["file_id"])


def _refused(name: str, answer: Any, effect: Effect) -> PlatformFailure:
    """Say what an error means; `answer` is the SDK's, or bare HTTP if its body was no JSON."""
    status = getattr(answer, "status_code", 0) or getattr(answer, "status", 0)
    word, needed = texts_in(getattr(answer, "data", None), "error", "needed")
    action = _ACTIONS.get(word, FailureAction.GIVE_UP)
    if status == 429:
        action = FailureAction.WAIT
    elif status >= 500 or not word:
        action = FailureAction.RETRY
    if action is FailureAction.RETRY and effect is Effect.ONCE:
        action = FailureAction.UNKNOWN
    scope = f"Give the app the scope {needed} and install it again." if needed else ""
    return PlatformFailure(
        action,
        f"Slack refused {name}: {word or f'HTTP {status}'}.",
        hint=_TOKEN_HINT if action is FailureAction.FATAL else scope,
        status=status,
        description=word,
        retry_after=http.pause_wanted(answer.headers, 1.0),
    )


def _library() -> SimpleNamespace:
    try:
        import aiohttp  # noqa: PLC0415 - a third of a second, and only for Slack
        from slack_sdk.errors import SlackApiError  # noqa: PLC0415
        from slack_sdk.web.async_client import AsyncWebClient  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("slack", "Slack") from error
    return SimpleNamespace(
        aiohttp=aiohttp,
        AsyncWebClient=AsyncWebClient,
        SlackApiError=SlackApiError,
        lost=(aiohttp.ClientError, TimeoutError, OSError, ValueError),
        unsent=(aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL),
    )


def look(outgoing: Outgoing, *, rich: bool) -> dict[str, Any]:
    """Return the text with its markup, or the plain text where it has none, and the blocks."""
    marked = bool(outgoing.text) and outgoing.text != outgoing.plain
    text = clean_text(outgoing.text if marked else outgoing.plain)
    # Without markup, too, three characters have a meaning.
    text = text if marked else escape(text, quote=False)
    blocks = list[dict[str, Any]]()
    if marked and rich:
        blocks += rich_blocks(text, _MOST_BLOCKS - len(outgoing.buttons))
    elif rich or outgoing.buttons:
        blocks += sections(text, "mrkdwn" if marked else "plain_text")
    for number, row in enumerate(outgoing.buttons):
        elements = [_button(each, f"hermes_{number}_{n}") for n, each in enumerate(row)]
        blocks.append({"type": "actions", "elements": elements})
    fields = {"text": text} | ({} if marked else {"mrkdwn": False})
    return fields | ({"blocks": blocks} if 0 < len(blocks) <= _MOST_BLOCKS else {})


def _button(button: Button, action_id: str) -> dict[str, Any]:
    label = {"type": "plain_text", "text": clean_text(button.label)[:75], "emoji": True}
    does = {"url": button.url} if button.url else {"value": button.data}
    style = {"style": button.style} if button.style in ("primary", "danger") else {}
    return {"type": "button", "action_id": action_id, "text": label} | does | style
