"""Calls of the Web API through the SDK, and what a failed one means for the piece it carried.

The SDK's own retries are off: it repeats a send whose connection broke, which may show it twice.
Whatever may have had an effect is `UNKNOWN`, and the message is looked for in the history by
the key that went along with it. Errors come as HTTP 200 with a word; the word decides.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from html import escape, unescape
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.domain.errors import MissingExtra
from hermes.domain.ports.platform import Button, FailureAction, Outgoing, PlatformFailure
from hermes.domain.wording import clean_text
from hermes.entry.chat.kit.http import Effect, HttpClient, HttpRequest, on_this_machine
from hermes.entry.chat.slack.settings import SlackSettings

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse
    from slack_sdk.web.async_client import AsyncWebClient


class Envelope(Struct, frozen=True, kw_only=True):
    """A frame of Socket Mode: `hello`, `disconnect`, or something to acknowledge."""

    type: str = ""
    envelope_id: str = ""
    payload: dict[str, Any] = {}
    retry_attempt: int | None = None
    retry_reason: str | None = None
    reason: str | None = None


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
_SECTION = 3_000
_MOST_BLOCKS = 50
_FENCE = re.compile(r"^```\n?(.*?)\n?```$", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^(\*[^*\n]+\*|———)$", re.MULTILINE)
_UPLOAD_BYTES_PER_SECOND = 100_000
_CONNECT_SECONDS = 15.0


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
        if self._session is None:
            # A connection that is dropped while a message is being written makes its fate
            # unknown, so idle ones are not kept long.
            connector = self._library.aiohttp.TCPConnector(limit=32, keepalive_timeout=15.0)
            self._session = self._library.aiohttp.ClientSession(connector=connector)
        return [await self._who(token) for token in self._settings.tokens]

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await self.http.close()

    def _client(self, token: str) -> "AsyncWebClient":
        root, proxy = self._settings.base_url, self._settings.proxy
        client: AsyncWebClient = self._library.AsyncWebClient(
            token, base_url=root, session=self._session, retry_handlers=[], proxy=proxy or None
        )
        if on_this_machine(root):
            client.proxy = None
        return client

    async def _who(self, token: str) -> Workspace:
        client = self._client(token)
        me = await self.call(client, "auth_test")
        if not me.get("bot_id"):
            raise PlatformFailure(
                FailureAction.FATAL,
                "The Slack token belongs to a person, not to a bot.",
                hint=_TOKEN_HINT,
            )
        return Workspace(
            team_id=me.get("team_id") or "",
            user_id=me.get("user_id") or "",
            bot_id=me["bot_id"],
            token=token,
            client=client,
        )

    async def call(
        self,
        client: Any,
        method: str,
        fields: Mapping[str, Any] = {},
        effect: Effect = Effect.REPEATABLE,
    ) -> Mapping[str, Any]:
        """Make a call under the SDK's name for it; `PlatformFailure` says what a failure means."""
        library, name = self._library, method.replace("_", ".")
        try:
            async with asyncio.timeout(self._settings.request_timeout):
                answer = await getattr(client, method)(**fields)
        except library.SlackApiError as error:
            raise _refused(name, error.response, effect) from None
        except library.Unsent as error:
            raise _unreachable(name, error, effect=Effect.REPEATABLE) from None
        except (library.aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _unreachable(name, error, effect=effect) from None
        found: Mapping[str, Any] = answer.data
        return found

    async def socket(self) -> "ClientWebSocketResponse":
        """Open a Socket Mode connection: an address for this one time, and then its socket."""
        settings, session = self._settings, self._session
        client = self._client(settings.app_token)
        token = {"app_token": settings.app_token}
        found = await self.call(client, "apps_connections_open", token)
        url = str(found.get("url") or "")
        assert session is not None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await session.ws_connect(
                    url,
                    autoping=False,
                    heartbeat=settings.heartbeat,
                    proxy=None if on_this_machine(url) else client.proxy,
                )
        except (self._library.aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            # The address has a ticket in it, which the library's words may show.
            raise _unreachable("Socket Mode", type(error).__name__) from None

    async def download(self, workspace: Workspace, url: str, path: Path, *, pages: bool) -> int:
        host, ours = urlsplit(url).hostname or "", urlsplit(self._settings.base_url).hostname
        trusted = host == ours or (host.endswith(".slack.com") and url.startswith("https:"))
        # Files that stand elsewhere are fetched without showing who we are.
        headers = {"authorization": f"Bearer {workspace.token}"} if trusted else {}
        request = HttpRequest(
            name="a file",
            url=url,
            headers=headers,
            timeout=self._settings.download_timeout,
            pages=pages,
        )
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
                timeout=30.0 + len(content) / _UPLOAD_BYTES_PER_SECOND,
            )
        )
        if answer.status != 200:
            message = f"Slack did not take the file {name} (HTTP {answer.status})."
            again = answer.status >= 500 or answer.status == 429
            raise PlatformFailure(FailureAction.RETRY if again else FailureAction.GIVE_UP, message)
        return str(place["file_id"])


def _refused(name: str, answer: Any, effect: Effect) -> PlatformFailure:
    """Say what an error means; `answer` is the SDK's, or bare HTTP if its body was no JSON."""
    status = getattr(answer, "status_code", 0) or getattr(answer, "status", 0)
    data = getattr(answer, "data", None)
    data = data if isinstance(data, dict) else {}
    word = str(data.get("error") or "")
    action = _ACTIONS.get(word, FailureAction.GIVE_UP)
    if status == 429:
        action = FailureAction.WAIT
    elif status >= 500 or not word:
        action = FailureAction.RETRY
    if action is FailureAction.RETRY and effect is Effect.ONCE:
        action = FailureAction.UNKNOWN
    hint = _TOKEN_HINT if action is FailureAction.FATAL else ""
    if word == "missing_scope":
        hint = f"Give the app the scope {data.get('needed')} and install it again."
    return PlatformFailure(
        action,
        f"Slack refused {name}: {word or f'HTTP {status}'}.",
        hint=hint,
        status=status,
        description=word,
        retry_after=_seconds(answer.headers.get("Retry-After")),
    )


def _seconds(text: str | None) -> float:
    try:
        return max(0.0, float(text or 1))
    except ValueError:
        return 1.0


def _unreachable(
    name: str, error: object, *, effect: Effect = Effect.REPEATABLE
) -> PlatformFailure:
    why = " ".join(str(error).split())[:200] or type(error).__name__
    if effect is Effect.ONCE:
        message = f"The connection broke during {name}; it may have been carried out ({why})."
        return PlatformFailure(FailureAction.UNKNOWN, message)
    return PlatformFailure(FailureAction.RETRY, f"Slack cannot be reached for {name} ({why}).")


def _library() -> SimpleNamespace:
    try:
        import aiohttp  # noqa: PLC0415 - a third of a second, and only for Slack
        from slack_sdk.errors import SlackApiError  # noqa: PLC0415
        from slack_sdk.web.async_client import AsyncWebClient  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("slack", "Slack") from error
    before = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
    return SimpleNamespace(
        aiohttp=aiohttp, AsyncWebClient=AsyncWebClient, SlackApiError=SlackApiError, Unsent=before
    )


# -- how a message looks -------------------------------------------------------------------


def look(outgoing: Outgoing, *, rich: bool) -> dict[str, Any]:
    """Return the text with its markup, or the plain text where it has none, and the blocks."""
    marked = bool(outgoing.text) and outgoing.text != outgoing.plain
    text = clean_text(outgoing.text if marked else outgoing.plain)
    # Without markup, too, three characters have a meaning.
    text = text if marked else escape(text, quote=False)
    blocks = list[dict[str, Any]]()
    if marked and rich:
        blocks += _rich(text)
    elif outgoing.buttons:
        blocks += _sections(text, "mrkdwn" if marked else "plain_text")
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


def _sections(text: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yield a text as sections, which take 3,000 characters each; cut between lines."""
    while text.strip():
        cut = len(text) if len(text) <= _SECTION else text.rfind("\n", 1, _SECTION)
        cut = cut if cut > 0 else _SECTION
        shown = text[:cut] if kind == "mrkdwn" else unescape(text[:cut])
        yield {"type": "section", "text": {"type": kind, "text": shown}}
        text = text[cut:].lstrip("\n")


def _rich(text: str) -> Iterator[dict[str, Any]]:
    """Yield a text in mrkdwn as blocks: code, headings and dividers as such."""
    for number, part in enumerate(_FENCE.split(text)):
        if number % 2:
            code = {"type": "text", "text": unescape(part.strip("\n")) or " "}
            shape = {"type": "rich_text_preformatted", "elements": [code]}
            yield {"type": "rich_text", "elements": [shape]}
            continue
        for line in _LINE.split(part):
            if line == "———":
                yield {"type": "divider"}
            elif _LINE.fullmatch(line):
                shown = {"type": "plain_text", "text": unescape(line.strip("*"))[:150]}
                yield {"type": "header", "text": shown}
            else:
                yield from _sections(line.strip("\n"), "mrkdwn")
