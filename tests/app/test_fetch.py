"""Pages that a person refers to: fetched from the public network only."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.cpu import least_cpu
from fakes.listener import start_server
from hermes.agent.fetch import PageFetcher, is_public, readable
from hermes.app.tools import browser_security
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.settings import Settings
from hermes.domain.settings.agent import BrowserSettings
from hermes.domain.settings.live import LiveSettings

PAGES = {
    "/": ("200 OK", "text/html", "<html><script>x()</script><p>Hello &amp; welcome</p></html>"),
    "/away": ("302 Found", "text/html", ""),
    "/loop": ("302 Found", "text/html", ""),
    "/picture": ("200 OK", "image/png", "..."),
    "/gone": ("404 Not Found", "text/html", ""),
    "/plain": ("200 OK", "text/plain", "a < b"),
}
TARGETS = {"/away": "/plain", "/loop": "/loop"}


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        status, kind, body = PAGES[path]
        location = f"Location: {TARGETS[path]}\r\n" if path in TARGETS else ""
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"{location}Connection: close\r\n\r\n{body}".encode()
        )
        writer.close()

    server = await start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def anywhere(address: str) -> bool:
    return True


async def test_a_page_is_read_as_text() -> None:
    async with site() as url:
        assert await PageFetcher(anywhere)(f"{url}/") == "Hello & welcome"
        assert await PageFetcher(anywhere)(f"{url}/plain") == "a < b"


async def test_a_setting_opens_private_networks_for_the_browser_alone() -> None:
    live = LiveSettings()
    for_browser = PageFetcher(security=partial(browser_security, live))
    with pytest.raises(UsageError):
        await for_browser.address_of("10.0.0.1", 80)
    live.update(Settings(browser=BrowserSettings(allow_private_urls=True)))
    assert await for_browser.address_of("10.0.0.1", 80) == "10.0.0.1"
    with pytest.raises(UsageError):
        await PageFetcher(security=lambda: live().security).address_of("10.0.0.1", 80)


async def test_redirects_are_followed_but_not_for_ever() -> None:
    async with site() as url:
        assert await PageFetcher(anywhere)(f"{url}/away") == "a < b"
        with pytest.raises(HermesError, match="too often"):
            await PageFetcher(anywhere)(f"{url}/loop")


async def test_private_networks_are_refused_before_anything_is_sent() -> None:
    async with site() as url:
        with pytest.raises(UsageError, match="private network"):
            await PageFetcher()(f"{url}/")
    for host in ("localhost", "127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1"):
        with pytest.raises(UsageError, match="private network"):
            await PageFetcher()(f"http://{host}/")


@pytest.mark.parametrize(("path", "words"), [("/picture", "not text"), ("/gone", "404")])
async def test_what_cannot_be_read_is_said(path: str, words: str) -> None:
    async with site() as url:
        with pytest.raises(HermesError, match=words):
            await PageFetcher(anywhere)(url + path)


@pytest.mark.parametrize(
    "url",
    [
        *("http://h:99999999/", "http://h:-1/", "http://[::1/", "http://.../", "http://a b/"),
        *(f"http://{'a' * 70}.example/", "http://\ud800/", "http://\x00/"),
    ],
)
async def test_an_address_that_cannot_be_is_said_and_not_a_bug(url: str) -> None:
    with pytest.raises(HermesError):
        await PageFetcher().data(url, 1000)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/", "http://"])
async def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        await PageFetcher(anywhere)(url)


@given(st.ip_addresses(v=4, network="10.0.0.0/8") | st.ip_addresses(v=4, network="127.0.0.0/8"))
def test_private_addresses_are_never_public(address: object) -> None:
    assert not is_public(str(address))


INSIDE = (
    *("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    *("100.64.0.0/10", "0.0.0.0/8", "224.0.0.0/3", "192.88.99.0/24"),
)
PRIVATE = st.one_of(*(st.ip_addresses(v=4, network=network).map(int) for network in INSIDE))
OUTSIDE = 0x2606_4700_0000_0000 << 64


def translated(prefix: str, length: int, address: int) -> int:
    """Put an address behind a prefix as RFC 6052 does, around the byte that stays empty."""
    whole = int(ipaddress.IPv6Address(prefix))
    if length == 96:
        return whole | address
    before = 64 - length
    high, low = address >> (32 - before), address & ((1 << (32 - before)) - 1)
    return whole | (high << 64) | (low << (24 + before)) | 0x80808


FORMS: dict[str, Callable[[int], int]] = {
    "mapped": lambda a: 0xFFFF_0000_0000 | a,
    "translated": lambda a: 0xFFFF_0000_0000_0000 | a,
    "compatible": lambda a: a,
    "6to4": lambda a: (0x2002 << 112) | (a << 80) | 1,
    "teredo client": lambda a: (0x2001 << 112) | (0x0808_0808 << 64) | (a ^ 0xFFFF_FFFF),
    "teredo server": lambda a: (0x2001 << 112) | (a << 64) | (0x0808_0808 ^ 0xFFFF_FFFF),
    "isatap": lambda a: OUTSIDE | (0x5EFE << 32) | a,
    "isatap, universal": lambda a: OUTSIDE | (0x0200_5EFE << 32) | a,
    "isatap in 6to4": lambda a: (0x2002_0808_0808 << 80) | (0x5EFE << 32) | a,
    "nat64": lambda a: translated("64:ff9b::", 96, a),
    **{
        f"local nat64 /{length}": partial(translated, "64:ff9b:1::", length)
        for length in (48, 56, 64, 96)
    },
}


@pytest.mark.parametrize("form", FORMS)
@given(address=PRIVATE)
def test_a_private_address_is_not_public_in_any_other_form(form: str, address: int) -> None:
    assert not is_public(str(ipaddress.IPv6Address(FORMS[form](address))))


@given(st.text(max_size=200))
def test_any_text_can_be_made_readable(text: str) -> None:
    assert "<script" not in readable(f"<p>{text}</p><script>evil()</script>") or "<script" in text


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "198.18.0.1"),
        *("224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "ff02::1", "ff0e::1"),
        *("::1", "::", "fd00::1", "fe80::1%eth0", "fec0::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::a00:1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::"),
        *("2002:a00:1::1", "2001:0:7f00:1:8000:63bf:3fff:fdd2", "64:ff9b:1:7f00:0:100:808:808"),
        *("64:ff9b:1::808:808", "64:ff9b:1:808:8:800::", "3fff::1", "3fff:fff::1", "5f00::1"),
        *("192.88.99.1", "2002:c058:6301::1", "fd00::5efe:808:808", "fe80::200:5efe:808:808"),
    ],
)
def test_addresses_that_lead_inside_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"),
        *("2002:808:808::1", "2606:4700::5efe:808:808", "192.89.99.1", "2606:4700::6efe:a00:1"),
    ],
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("part", ["<script>", "<", "\n \n", "<a ", "&#", "<!--", "<svg><p>"])
def test_a_hostile_page_is_read_in_proportion_to_its_length(part: str) -> None:
    quarter = least_cpu(lambda: readable(part * 50_000))
    assert least_cpu(lambda: readable(part * 200_000)) < 11 * max(quarter, 0.02)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([301, 302, 303, 307, 308]), max_size=4),
    st.sampled_from(["127.0.0.2", "127.1.2.3", "2130706434", "0x7f000002", "0177.0.0.2"]),
    st.booleans(),
)
def test_no_chain_of_redirects_leads_inside(hops: list[int], host: str, leads_inside: bool) -> None:
    asyncio.run(_followed(hops, host, leads_inside=leads_inside))


async def _followed(hops: list[int], host: str, *, leads_inside: bool) -> None:
    """127.0.0.1 plays the internet; the last of its redirects leads to another address of ours."""
    reached: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        here, port = writer.get_extra_info("sockname")
        reached.append(here)
        number = len(reached) - 1
        if number < len(hops):
            last = leads_inside and number == len(hops) - 1
            where = f"http://{host if last else '127.0.0.1'}:{port}/{number}"
            head = f"HTTP/1.1 {hops[number]} x\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"
        else:
            head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nread"
        writer.write(head.encode())
        await writer.drain()
        writer.close()

    server = await start_server(answer, "0.0.0.0", 0)
    fetch = PageFetcher(lambda address: address == "127.0.0.1")
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        if hops and leads_inside:
            with pytest.raises(HermesError, match="private network"):
                await fetch(url)
        else:
            assert await fetch(url) == "read"
    finally:
        server.close()
    assert set(reached) == {"127.0.0.1"}
