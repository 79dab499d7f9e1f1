"""web_search: results of a search engine, from whichever backend is at hand.

A backend is a row of `BACKENDS`: the variable with its key, its address (a variable can name
another one), how a request is made and where the results are in the answer. Without any key
DuckDuckGo's page for browsers without scripts is read.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import msgspec
from msgspec import Meta, Struct

from hermes.agent.tools.define import tool
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.tools import Need, Parallel, ToolContext, ToolResult, ToolSpec, WebRequest

MAX_RESULTS = 20
_MAX_SNIPPET = 400


class WebHit(Struct, frozen=True):
    title: str
    url: str
    text: str = ""


class SearchBackend(Struct, frozen=True, kw_only=True):
    address: str = ""
    address_variable: str
    key_variable: str = ""
    key_header: str = ""
    """Empty: as a bearer token."""
    path: str
    query: Callable[[str, int], dict[str, Any]]
    """(text, limit) -> the fields of the request."""
    method: str = "POST"
    body: str = "json"
    results: tuple[str, ...] = ("results",)
    """Where the list is in the answer; empty: the answer is DuckDuckGo's page."""
    text: str = "content"


BACKENDS: Mapping[str, SearchBackend] = {
    "firecrawl": SearchBackend(
        address="https://api.firecrawl.dev",
        address_variable="FIRECRAWL_API_URL",
        key_variable="FIRECRAWL_API_KEY",
        path="/v2/search",
        query=lambda text, limit: {"query": text, "limit": limit},
        results=("data", "web"),
        text="description",
    ),
    "parallel": SearchBackend(
        address="https://api.parallel.ai",
        address_variable="PARALLEL_API_URL",
        key_variable="PARALLEL_API_KEY",
        key_header="x-api-key",
        path="/v1beta/search",
        query=lambda text, limit: {
            "objective": text,
            "search_queries": [text],
            "max_results": limit,
        },
        text="excerpts",
    ),
    "tavily": SearchBackend(
        address="https://api.tavily.com",
        address_variable="TAVILY_API_URL",
        key_variable="TAVILY_API_KEY",
        path="/search",
        query=lambda text, limit: {"query": text, "max_results": limit},
    ),
    "exa": SearchBackend(
        address="https://api.exa.ai",
        address_variable="EXA_API_URL",
        key_variable="EXA_API_KEY",
        key_header="x-api-key",
        path="/search",
        query=lambda text, limit: {
            "query": text,
            "numResults": limit,
            "contents": {"highlights": True},
        },
        text="highlights",
    ),
    "searxng": SearchBackend(
        address_variable="SEARXNG_URL",
        path="/search",
        query=lambda text, _limit: {"q": text, "format": "json"},
        method="GET",
    ),
    "brave": SearchBackend(
        address="https://api.search.brave.com",
        address_variable="BRAVE_SEARCH_API_URL",
        key_variable="BRAVE_SEARCH_API_KEY",
        key_header="X-Subscription-Token",
        path="/res/v1/web/search",
        query=lambda text, limit: {"q": text, "count": limit},
        method="GET",
        results=("web", "results"),
        text="description",
    ),
    "ddgs": SearchBackend(
        address="https://html.duckduckgo.com",
        address_variable="DDGS_URL",
        path="/html/",
        query=lambda text, _limit: {"q": text},
        body="form",
        results=(),
    ),
}
_ALIASES = {"brave-free": "brave", "duckduckgo": "ddgs"}


class WebSearchArgs(Struct, frozen=True, kw_only=True):
    query: str
    limit: Annotated[int, Meta(description="Default 5")] = 5


async def web_search(args: WebSearchArgs, context: ToolContext) -> ToolResult:
    """Search the web; read what looks right with web_extract."""
    text = " ".join(args.query.split())[:1000]
    if not text:
        raise UsageError("The query is empty.")
    name, backend = _chosen(context)
    limit = min(max(1, args.limit), MAX_RESULTS)
    request = _request(backend, text, limit, context)
    answer = await context.fetch(request)
    if answer.status >= 400:
        raise HermesError(
            f"The search with {name} failed with status {answer.status}: {_said(answer.body)}",
            hint=_status_hint(name, backend, answer.status),
        )
    read = _listed if backend.results else _duckduckgo
    hits = (await asyncio.to_thread(read, backend, answer.body))[:limit]
    lines = [
        f"{number}. {hit.title or hit.url}\n   {hit.url}\n   {hit.text}".rstrip()
        for number, hit in enumerate(hits, 1)
    ]
    return ToolResult(content="\n".join(lines) or f"Nothing found for {text!r}.")


def _chosen(context: ToolContext) -> tuple[str, SearchBackend]:
    web, variable = context.settings.web, context.capabilities.variable
    name = web.search_backend or web.backend
    if not name:
        able = (
            n
            for n, each in BACKENDS.items()
            if variable(each.key_variable or each.address_variable)
        )
        name = next(able, "ddgs")
    name = _ALIASES.get(name, name)
    backend = BACKENDS.get(name)
    if backend is None:
        raise HermesError(
            f"There is no search backend `{name}`.",
            hint=f"Set web.search_backend to one of {', '.join(BACKENDS)}.",
        )
    missing = backend.key_variable or ("" if backend.address else backend.address_variable)
    if missing and not variable(missing):
        raise HermesError(
            f"Searching with {name} needs {missing}.", hint=f"Put {missing} into .env."
        )
    return name, backend


def _request(backend: SearchBackend, text: str, limit: int, context: ToolContext) -> WebRequest:
    variable = context.capabilities.variable
    own = variable(backend.address_variable)
    url = urljoin((own or backend.address).rstrip("/") + "/", backend.path.lstrip("/"))
    fields = backend.query(text, limit)
    headers = {"Accept": "application/json"}
    if backend.key_variable:
        key = variable(backend.key_variable) or ""
        shown = (
            (backend.key_header, key) if backend.key_header else ("Authorization", f"Bearer {key}")
        )
        headers[shown[0]] = shown[1]
    if backend.method == "GET":
        return WebRequest(url=f"{url}?{urlencode(fields)}", headers=headers, by_operator=bool(own))
    if backend.body == "json":
        body, kind = msgspec.json.encode(fields), "application/json"
    else:
        body, kind = urlencode(fields).encode(), "application/x-www-form-urlencoded"
        headers |= {"Accept": "text/html", "User-Agent": "Mozilla/5.0 (compatible; hermes)"}
    headers["Content-Type"] = kind
    return WebRequest(url=url, method="POST", headers=headers, body=body, by_operator=bool(own))


def _listed(backend: SearchBackend, body: bytes) -> list[WebHit]:
    try:
        found: Any = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise HermesError(f"The search backend did not answer with JSON: {_said(body)}") from error
    for name in backend.results:
        found = found.get(name) if isinstance(found, dict) else None
    rows = [row for row in found or () if isinstance(row, dict) and row.get("url")]
    return [
        WebHit(str(row.get("title") or ""), str(row["url"]), _snippet(row.get(backend.text)))
        for row in rows
    ]


def _duckduckgo(_backend: SearchBackend, body: bytes) -> list[WebHit]:
    from lxml import html  # type: ignore[import-untyped]  # noqa: PLC0415 - for this backend only

    hits = []
    for result in html.document_fromstring(body or b"<p>").find_class("result"):
        links, texts = result.find_class("result__a"), result.find_class("result__snippet")
        address = links[0].get("href", "") if links else ""
        # Links go through the engine, which names the real one.
        target = parse_qs(urlsplit(address).query).get("uddg", [address])[0]
        if target.startswith("http") and "result--ad" not in result.get("class", ""):
            text = _snippet(texts[0].text_content() if texts else "")
            hits.append(WebHit(links[0].text_content().strip(), target, text))
    return hits


def _snippet(value: Any) -> str:
    text = " … ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    text = " ".join(text.split())
    return f"{text[:_MAX_SNIPPET]} …" if len(text) > _MAX_SNIPPET else text


def _said(body: bytes) -> str:
    return " ".join(body[:300].decode("utf-8", "replace").split())


def _status_hint(name: str, backend: SearchBackend, status: int) -> str:
    if status in {401, 403} and backend.key_variable:
        return f"Check {backend.key_variable} in .env."
    if name == "searxng" and status == 403:
        return "Allow the format json in SearXNG's settings (search.formats)."
    return "Try again later, or set web.search_backend to another one."


TOOL = tool(
    web_search,
    ToolSpec(
        name="web_search",
        toolset="web",
        emoji="🌐",
        verb="search",
        label_field="query",
        parallel=Parallel.ALWAYS,
        replay_safe=True,
        needs=frozenset({Need.FETCH}),
    ),
)
