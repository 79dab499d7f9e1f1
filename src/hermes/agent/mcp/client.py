"""One connection to an MCP server; beside `login`, `program` and `bounds` all that knows the SDK.

The SDK ties a connection to the task that opened it, so each has a task of its own
(`McpConnection.run`), which connects, lists, listens for changes, and connects again with growing
pauses. Calls come from the tasks of turns. A call that is under way when the connection ends is
reported as such, never repeated: nobody knows whether it happened.
"""

import asyncio
import base64
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TextIO, cast

import httpx2
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.auth import OAuthFlowError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from msgspec import Struct
from pydantic import ValidationError

from hermes import __version__
from hermes.agent.mcp.bounds import MAX_PARTS, SMALL, bound_body, bounded
from hermes.agent.mcp.login import sign_in
from hermes.agent.mcp.program import program
from hermes.domain.errors import HermesError, ToolRefused
from hermes.domain.messages import Content, ImagePart, Part, TextPart, ToolOutcome
from hermes.domain.settings.agent import McpServerSettings
from hermes.domain.tools import ToolContext, ToolResult

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
CLOSED = -32000
MAX_PAGES = 50
_TROUBLE = (MCPError, OSError, httpx2.HTTPError, OAuthFlowError, ValidationError, RuntimeError)


class ListedTool(Struct, frozen=True, kw_only=True):
    """A tool as the server describes it."""

    name: str
    description: str
    parameters: dict[str, Any]
    read_only: bool = False
    destructive: bool = False


class McpParts(Struct, frozen=True, kw_only=True):
    """What connections share."""

    tokens: Path
    """Directory of what signing in gave."""
    redact: Callable[[str], str] = str
    sample: Callable[[str, list[tuple[str, str]], str, int], Awaitable[tuple[str, str]]] | None = (
        None
    )
    """(server, messages, system, tokens) -> (model, text): a model call for a server."""
    stderr: TextIO | None = None
    """Where programs complain; None: nobody hears."""
    on_login: Callable[[str], Awaitable[None]] | None = None
    """Shows an address to the person who signs in; None: nobody is there."""


class McpConnection:
    def __init__(self, name: str, settings: McpServerSettings, parts: McpParts) -> None:
        self.name, self.settings, self._parts = name, settings, parts
        self.tools: tuple[ListedTool, ...] = ()
        self.has_resources = self.has_prompts = False
        self.error = ""
        """Why there is no connection now."""
        self.settled = asyncio.Event()
        """Set when it is known what the server offers, or that it cannot be reached."""
        self.changed: Callable[[], None] = lambda: None
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._look = asyncio.Event()
        self._callers: list[ToolContext] = []

    async def run(self) -> None:
        """Stay connected until cancelled."""
        pause = 1.0
        while True:
            try:
                await self._connected()
                pause = 1.0
            except* asyncio.CancelledError:
                raise
            except* (*_TROUBLE, HermesError, TimeoutError) as group:
                self.error = self._said(group)
                log.warning("MCP server %s: %s", self.name, self.error)
            finally:
                self._client = None
                self._up.clear()
                self.settled.set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def once(self) -> None:
        """Connect and list once; `HermesError` says why that does not work."""
        try:
            async with self._opened():
                await self._list()
        except* asyncio.CancelledError:
            raise
        except* (*_TROUBLE, HermesError, TimeoutError) as group:
            self.error = self._said(group)
        if self.error:
            raise HermesError(f"The MCP server {self.name} cannot be used: {self.error}")

    async def call(self, tool: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        client = await self._ready()
        self._callers.append(context)
        try:
            async with asyncio.timeout(self.settings.timeout):
                result = await client.call_tool(
                    tool,
                    arguments,
                    progress_callback=lambda done, total, said: self._progress(
                        context, done, total, said
                    ),
                )
        except TimeoutError:
            raise HermesError(
                f"{self.name} did not answer within {self.settings.timeout:g} seconds. Whether it"
                " did what was asked is not known."
            ) from None
        except MCPError as error:
            raise self._failed(error) from error
        finally:
            self._callers.remove(context)
        failed = ToolOutcome.ERROR if result.is_error else ToolOutcome.OK
        content = content_of(result.content, result.structured_content)
        if len(_text_of(content)) > SMALL:
            return ToolResult(content=await asyncio.to_thread(self._clean, content), outcome=failed)
        return ToolResult(content=self._clean(content), outcome=failed)

    async def resources(self, uri: str | None) -> str:
        """List the resources, or read one."""
        client = await self._ready()
        try:
            async with asyncio.timeout(self.settings.timeout):
                if uri is None:
                    found = (await client.list_resources()).resources
                    return "\n".join(f"{r.uri}  {r.name}  {r.description or ''}" for r in found)
                contents = (await client.read_resource(uri)).contents
        except MCPError as error:
            raise self._failed(error) from error
        return self._parts.redact("\n\n".join(_resource(each) for each in contents))

    async def prompts(self, name: str | None, arguments: dict[str, str]) -> str:
        """List the prompts, or fill one in."""
        client = await self._ready()
        try:
            async with asyncio.timeout(self.settings.timeout):
                if name is None:
                    found = (await client.list_prompts()).prompts
                    return "\n".join(f"{p.name}  {p.description or ''}" for p in found)
                messages = (await client.get_prompt(name, arguments)).messages
        except MCPError as error:
            raise self._failed(error) from error
        texts = [f"{m.role}: {_text_of(content_of([m.content], None))}" for m in messages]
        return self._parts.redact("\n\n".join(texts))

    async def _ready(self) -> Client:
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                await self._up.wait()
        except TimeoutError:
            raise HermesError(
                f"The MCP server {self.name} cannot be reached: {self.error or 'no answer'}."
            ) from None
        assert self._client is not None
        return self._client

    def _failed(self, error: MCPError) -> HermesError:
        if error.error.code == CLOSED:
            self._up.clear()
            self._look.set()
            return HermesError(
                f"The connection to {self.name} ended during the call. Whether it was carried out"
                " is not known. It is being connected again."
            )
        return HermesError(self._parts.redact(f"{self.name} says: {error.error.message}"))

    async def _connected(self) -> None:
        async with self._opened() as client:
            await self._list()
            self._client, self.error = client, ""
            self._up.set()
            self.settled.set()
            log.info("MCP server %s: %d tools", self.name, len(self.tools))
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._listen(client))
                try:
                    while True:
                        try:
                            async with asyncio.timeout(self.settings.keepalive):
                                await self._look.wait()
                        except TimeoutError:
                            pass
                        self._look.clear()
                        await self._list()
                finally:
                    listening.cancel()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Client]:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self.settings.connect_timeout):
                transport = await self._transport(stack)
                client = await stack.enter_async_context(
                    Client(
                        bounded(transport),
                        read_timeout_seconds=self.settings.timeout,
                        client_info=types.Implementation(name="hermes", version=__version__),
                        message_handler=self._heard,
                        sampling_callback=self._sample if self._samples else None,
                        elicitation_callback=self._elicit if self.settings.elicitation else None,
                        list_roots_callback=self._roots if self.settings.roots else None,
                        cache=None,
                    )
                )
            self._client = client
            yield client

    async def _transport(self, stack: AsyncExitStack) -> Any:
        settings = self.settings
        if settings.command:
            sink = self._parts.stderr or stack.enter_context(_nowhere())
            return program(
                StdioServerParameters(
                    command=settings.command,
                    args=list(settings.args),
                    env=dict(settings.env),
                    cwd=settings.cwd or None,
                ),
                sink,
            )
        parts = self._parts
        auth = sign_in(self.name, settings, parts.tokens, parts.on_login) if settings.auth else None
        if settings.transport == "sse":
            return sse_client(
                settings.url,
                headers=dict(settings.headers),
                auth=auth,
                httpx_client_factory=_bounded_client,
            )
        http = await stack.enter_async_context(
            _bounded_client(settings.headers, httpx2.Timeout(30.0, read=settings.timeout), auth)
        )
        return streamable_http_client(settings.url, http_client=http)

    async def _list(self) -> None:
        assert self._client is not None
        client, found, cursor = self._client, [], None
        async with asyncio.timeout(self.settings.connect_timeout):
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if not cursor or len(found) >= MAX_PARTS:
                    break
        capabilities = client.server_capabilities
        self.has_resources = capabilities.resources is not None
        self.has_prompts = capabilities.prompts is not None
        before, self.tools = self.tools, tuple(_described(tool) for tool in found)
        if self.tools != before:
            self.changed()

    async def _listen(self, client: Client) -> None:
        """Hear of changed tools, where the protocol has a stream for that."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed or client.protocol_version < "2026-07-28":
            return
        async with client.listen(tools_list_changed=True) as events:
            async for _ in events:
                self._look.set()

    async def _heard(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._look.set()

    async def _progress(
        self, context: ToolContext, done: float, total: float | None, said: str | None
    ) -> None:
        share = f"{done:g}/{total:g}" if total else f"{done:g}"
        context.progress(self._parts.redact(f"{said} ({share})" if said else share))

    @property
    def _samples(self) -> bool:
        return self._parts.sample is not None and self.settings.sampling.enabled

    async def _sample(
        self,
        context: object,  # noqa: ARG002 - the SDK names it
        params: types.CreateMessageRequestParams,
    ) -> types.CreateMessageResult | types.ErrorData:
        sample, settings = self._parts.sample, self.settings.sampling
        assert sample is not None
        messages: list[tuple[str, str]] = [
            (m.role, _text_of(content_of(_several(m.content), None))) for m in params.messages
        ]
        tokens = min(params.max_tokens, settings.max_tokens_cap)
        try:
            model, text = await sample(self.name, messages, params.system_prompt or "", tokens)
        except HermesError as error:
            return types.ErrorData(code=-1, message=self._parts.redact(error.message))
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text=text),
            model=model,
            stop_reason="endTurn",
        )

    async def _elicit(
        self,
        context: object,  # noqa: ARG002 - the SDK names it
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult:
        """Put what a server wants to know to the person for whom the call is made."""
        if not self._callers or not isinstance(params, types.ElicitRequestFormParams):
            return types.ElicitResult(action="decline")
        caller = self._callers[-1]
        answers: dict[str, str | int | float | bool | list[str] | None] = {}
        fields: dict[str, Any] = dict(params.requested_schema.get("properties", {}))
        try:
            for name, field in fields.items():
                wanted = field.get("title") or field.get("description") or name
                question = f"{self.name} asks: {params.message}\n{wanted}"
                answers[name] = _typed(await caller.ask(question, _choices(field)), field)
        except (ToolRefused, ValueError):
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=answers)

    async def _roots(self, context: object) -> types.ListRootsResult:  # noqa: ARG002
        return types.ListRootsResult(roots=[_root(each) for each in self.settings.roots])

    def _said(self, group: BaseException) -> str:
        """Return what the first of nested failures says."""
        while isinstance(group, BaseExceptionGroup):
            group = group.exceptions[0]
        if isinstance(group, HermesError):
            text = f"{group.message} {group.hint}".strip()
        elif isinstance(group, TimeoutError):
            text = f"no answer within {self.settings.connect_timeout:g} seconds"
        else:
            text = str(group) or type(group).__name__
        return self._parts.redact(text)[:500]

    def _clean(self, content: Content) -> Content:
        if isinstance(content, str):
            return self._parts.redact(content)
        return tuple(
            TextPart(self._parts.redact(part.text)) if isinstance(part, TextPart) else part
            for part in content
        )


def _bounded_client(
    headers: dict[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    hooks = {"response": [bound_body]}
    return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks)


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _described(tool: types.Tool) -> ListedTool:
    hints = tool.annotations
    schema = dict(tool.input_schema)
    schema.setdefault("type", "object")
    fields = schema.get("properties") or {}
    schema["properties"] = {name: f if isinstance(f, dict) else {} for name, f in fields.items()}
    return ListedTool(
        name=tool.name,
        description=" ".join((tool.description or tool.title or tool.name).split())[:1000],
        parameters=schema,
        read_only=bool(hints and hints.read_only_hint),
        destructive=bool(hints and hints.destructive_hint and not hints.read_only_hint),
    )


def _root(folder: str) -> types.Root:
    return types.Root(uri=cast(Any, Path(folder).expanduser().absolute().as_uri()))


def _several(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def content_of(blocks: Sequence[Any], structured: Any) -> Content:
    """Return what a server answered; pictures stay pictures."""
    parts: list[Part] = []
    for block in blocks:
        match block:
            case types.TextContent():
                parts.append(TextPart(block.text))
            case types.ImageContent():
                url = f"data:{block.mime_type};base64,{block.data}"
                parts.append(ImagePart(url=url, media_type=block.mime_type))
            case types.EmbeddedResource():
                parts.append(TextPart(_resource(block.resource)))
            case types.ResourceLink():
                parts.append(TextPart(f"Resource {block.name}: {block.uri}"))
            case _:
                parts.append(TextPart(f"[{getattr(block, 'type', 'something')} left out]"))
    if not parts and structured is not None:
        return json.dumps(structured, ensure_ascii=False)
    if all(isinstance(part, TextPart) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart)) or "(nothing)"
    return tuple(parts)


def _text_of(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(p.text if isinstance(p, TextPart) else "[picture]" for p in content)


def _resource(resource: Any) -> str:
    if isinstance(resource, types.TextResourceContents):
        return f"{resource.uri}:\n{resource.text}"
    size = len(base64.b64decode(getattr(resource, "blob", ""), validate=False))
    return f"{resource.uri}: {size} bytes of {resource.mime_type or 'unknown type'}"


def _choices(field: dict[str, Any]) -> list[str]:
    """Return what is offered to the person; what the server would take comes first."""
    yes_or_no, default = field.get("type") == "boolean", field.get("default")
    offered = ["yes", "no"] if yes_or_no else [str(each) for each in field.get("enum") or ()]
    if default is None:
        return offered
    first = ("yes" if default else "no") if yes_or_no else str(default)
    return list(dict.fromkeys([first, *offered]))


def _typed(answer: str, field: dict[str, Any]) -> str | int | float | bool:
    match field.get("type"):
        case "boolean":
            return answer.strip().lower() in {"yes", "y", "true", "1", "ok"}
        case "integer":
            return int(answer)
        case "number":
            return float(answer)
        case _:
            return answer
