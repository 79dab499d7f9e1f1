"""web_search and web_extract against a web on loopback, and what may not be reached."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes.toolbox import Toolbox, local_environment
from fakes.web import web
from hermes.agent.fetch import PageFetcher, blocked, is_not_of_the_host
from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.web.pages import decoded
from hermes.domain.messages import ToolOutcome
from hermes.domain.settings import Settings
from hermes.domain.settings.agent import Security, Web, WebsiteBlocklist
from hermes.domain.tools import Need, ToolCapabilities, ToolContext

SECRET = "topsecret-9f8e7d6c5b4a"


def first_loopback_only(address: str) -> bool:
    return address == "127.0.0.1"


class WebBox(Toolbox):
    """A toolbox with the web; 127.0.0.1 plays the internet, all else is private."""

    variables: dict[str, str]
    settings: Settings

    def context(self, call_id: str = "call_0") -> ToolContext:
        fetcher = PageFetcher(
            first_loopback_only,
            lambda: self.settings.security,
            lambda text: text.replace(SECRET, "***"),
        )
        return replace(
            super().context(call_id),
            capabilities=ToolCapabilities(
                fetch=fetcher.fetch, settings=lambda: self.settings, variable=self.variables.get
            ),
        )


@asynccontextmanager
async def box(
    tmp_path: Path, settings: Settings | None = None, **variables: str
) -> AsyncIterator[WebBox]:
    async with local_environment(tmp_path) as environment:
        tools = ToolRegistry(["web"], granted=frozenset({Need.FETCH}))
        made = WebBox(environment, tools)
        made.settings, made.variables = settings or Settings(), variables
        yield made


async def test_pages_are_read_as_markdown_several_at_once(tmp_path: Path) -> None:
    async with web() as site, box(tmp_path) as tools:
        urls = [f"{site.url}/{name}" for name in ("out", "paper", "gone", "picture", "latin")]
        text = await tools.text("web_extract", urls=urls, char_limit=900)
        assert "# On Herons" in text
        assert "Herons wait 3 hours" in text
        assert "**fish**" in text
        assert "Login" not in text
        assert "Cookies and imprint" not in text
        assert f"Redirected to: {site.url}/article" in text
        assert "Hello from a paper" in text
        assert "status 410" in text
        assert "is not text but image/png" in text
        assert "Grüße aus Köln" in text
        whole = text.split("the whole page is in ")[1].split(",")[0]
        assert "Herons wait 39 hours" in await asyncio.to_thread(Path(whole).read_text)


async def test_the_rest_of_a_page_goes_to_a_file(tmp_path: Path) -> None:
    settings = Settings(web=Web(extract_char_limit=600))
    async with web() as site, box(tmp_path, settings) as tools:
        assert "[Cut: 600 of" in await tools.text("web_extract", urls=[f"{site.url}/article"])


async def test_traps_end_and_say_why(tmp_path: Path) -> None:
    async with web() as site, box(tmp_path) as tools:
        names = ("inside", "endless", "bogus", "bomb")
        urls = [f"{site.url}/{name}" for name in names]
        text = await tools.text("web_extract", urls=[*urls, "http://10.1.2.3/"])
        inside, endless, bogus, bomb, private = text.split("\n\n---\n\n")
        assert "private network" in inside
        assert "Only the first 20000000 bytes" in endless
        assert "naïve" in bogus
        assert "Only the first 20000000 bytes" in bomb
        assert "private network" in private
        failed = await tools.do("web_extract", urls=["http://169.254.169.254/latest/meta-data"])
        assert failed.outcome is ToolOutcome.ERROR


async def test_a_secret_goes_into_no_address_and_no_query(tmp_path: Path) -> None:
    async with web() as site, box(tmp_path, SEARXNG_URL="") as tools:
        tools.variables["SEARXNG_URL"] = site.url
        text = await tools.text("web_extract", urls=[f"{site.url}/article?k={SECRET}"])
        assert "contains a secret" in text
        text = await tools.text("web_search", query=f"who owns {SECRET}")
        assert "contains a secret" in text
        assert site.hits == []


async def test_blocked_sites_are_not_reached_also_by_a_redirect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "list.txt").write_text("# bad ones\nbad.example # ads\n127.0.0.1\n")
    blocklist = WebsiteBlocklist(
        enabled=True, domains=("*.evil.example",), shared_files=(str(tmp_path / "list.txt"),)
    )
    for host in ("evil.example", "a.b.evil.example", "bad.example", "sub.BAD.example."):
        assert blocked(blocklist, host)
    assert not blocked(blocklist, "notevil.example")
    # A list that is not there is warned of, and the others count.
    partly = replace(blocklist, shared_files=(f"{tmp_path}/gone", *blocklist.shared_files))
    assert not blocked(partly, "good.example")
    assert blocked(partly, "bad.example")
    assert "/gone cannot be read (No such file or directory)" in caplog.text
    settings = Settings(security=Security(website_blocklist=blocklist))
    async with web() as site, box(tmp_path, settings) as tools:
        text = await tools.text("web_extract", urls=[f"{site.url}/article"])
        assert "blocked sites" in text
        assert site.hits == []


async def test_private_pages_are_read_where_the_operator_allows_them(tmp_path: Path) -> None:
    settings = Settings(security=Security(allow_private_urls=True))
    async with web() as site, box(tmp_path, settings) as tools:
        url = site.url.replace("127.0.0.1", "localhost")
        assert "Herons" in await tools.text("web_extract", urls=[f"{url}/article"])
        text = await tools.text("web_extract", urls=["http://169.254.169.254/"])
        assert "private network" in text


@pytest.mark.parametrize("metadata", ["169.254.169.254", "100.100.100.200"])
def test_the_metadata_of_a_cloud_is_refused_in_every_form_of_its_address(metadata: str) -> None:
    number = int(ipaddress.IPv4Address(metadata))
    mapped = ("::ffff:0:0", "::", "64:ff9b::", "64:ff9b:1::")
    forms = [str(ipaddress.IPv6Address(int(ipaddress.ip_address(p)) + number)) for p in mapped]
    forms += [str(ipaddress.IPv6Address((0x2002 << 112) + (number << 80)))]
    forms += [f"2606:4700::5efe:{metadata}", f"::ffff:0:{metadata}"]
    forms += [str(ipaddress.IPv6Address((0x64FF9B0001 << 80) + ((number >> 16) << 64)))]
    assert not any(is_not_of_the_host(form) for form in (metadata, *forms))
    others = ("10.0.0.1", "::1", "fd00::1", "64:ff9b::a00:1", "2002:a00:1::", "192.168.1.9")
    assert all(is_not_of_the_host(each) for each in others)


SEARCHES = {
    "searxng": ("SEARXNG_URL", "", "GET /search?q=herons&format=json"),
    "tavily": ("TAVILY_API_URL", "TAVILY_API_KEY", "POST /search"),
    "exa": ("EXA_API_URL", "EXA_API_KEY", "POST /search"),
    "firecrawl": ("FIRECRAWL_API_URL", "FIRECRAWL_API_KEY", "POST /v2/search"),
    "brave-free": (
        "BRAVE_SEARCH_API_URL",
        "BRAVE_SEARCH_API_KEY",
        "GET /res/v1/web/search?q=herons&count=3",
    ),
}


async def test_every_backend_searches_with_its_own_key(tmp_path: Path) -> None:
    async with web() as site, box(tmp_path) as tools:
        for name, (address, key, request) in SEARCHES.items():
            tools.settings = Settings(web=Web(search_backend=name))
            tools.variables = {address: site.url, **({key: f"key-of-{name}"} if key else {})}
            text = await tools.text("web_search", query="herons", limit=3)
            assert text.splitlines()[:2] == ["1. T0", "   https://r0.example/"]
            assert "T2" in text
            assert "T3" not in text
            hit = site.hits.pop()
            assert f"{hit.method} {hit.target}" == request
            assert (f"key-of-{name}" in " ".join(hit.headers.values())) is bool(key)


async def test_without_a_key_the_keyless_backend_searches(tmp_path: Path) -> None:
    async with web() as site, box(tmp_path, DDGS_URL=site.url) as tools:
        text = await tools.text("web_search", query="ducks")
        assert text == "1. Ducks & more\n   https://ducks.example/a\n   They quack."
        assert site.hits[0].body == b"q=ducks"


async def test_what_is_missing_is_said(tmp_path: Path) -> None:
    async with web() as site, box(tmp_path, Settings(web=Web(backend="tavily"))) as tools:
        assert "needs TAVILY_API_KEY" in await tools.text("web_search", query="x")
        tools.settings = Settings(web=Web(backend="altavista"))
        assert "no search backend `altavista`" in await tools.text("web_search", query="x")
        tools.settings, tools.variables = Settings(), {"SEARXNG_URL": site.url}
        text = await tools.text("web_search", query="trouble")
        assert "status 403: no json here" in text
        assert "search.formats" in text


@given(st.binary(max_size=300), st.sampled_from(["", "charset=utf-8", "charset=nonsense", "x=1"]))
def test_any_bytes_become_text(body: bytes, parameters: str) -> None:
    assert isinstance(decoded(body, parameters), str)


@pytest.mark.parametrize("text", ["žluťoučký kůň", "Съешь ещё этих мягких французских булок"])
def test_a_charset_that_the_page_names_counts(text: str) -> None:
    charset = "cp1250" if text.startswith("ž") else "cp1251"
    page = f'<meta charset="{charset}"><p>{text}</p>'.encode(charset)
    assert text in decoded(page, "")
