"""PageFetcher: the page that a person refers to with `@url:`.

The address is checked after its name is resolved, on every redirect, and the
connection goes to exactly the address that was checked: a name that points into
a private network is refused, even if its address changes in between.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from hermes.domain.errors import HermesError, UsageError

if TYPE_CHECKING:
    import httpx2

TIMEOUT = 20.0
MAX_BYTES = 2_000_000
MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})

_TAG = re.compile(r"/?[a-z0-9]+", re.IGNORECASE)
_DROPPED = frozenset({"script", "style", "noscript", "template", "svg"})
_BREAKS = frozenset(
    {"br", "/p", "/div", "/li", "/h1", "/h2", "/h3", "/h4", "/h5", "/h6"}
    | {"/tr", "/section", "/article"}
)
_BLANKS = re.compile(r"[ \t]+")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")


def is_public(address: str) -> bool:
    """Tell whether an address is out on the internet, also if it carries another inside."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inside = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
        if found in _NAT64 or found in _COMPATIBLE:
            inside.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
        carried = [each for each in inside if each is not None]
        if found.is_site_local:
            return False
        if carried:
            return all(is_public(str(each)) for each in carried)
    return found.is_global and not (found.is_multicast or found.is_reserved)


class PageFetcher:
    def __init__(self, allowed: Callable[[str], bool] = is_public) -> None:
        self._allowed = allowed

    async def __call__(self, url: str) -> str:
        return await asyncio.to_thread(_text, url, *await self._fetched(url, MAX_BYTES))

    async def data(self, url: str, limit: int) -> tuple[str, bytes]:
        """Return the media type and the content, at most `limit` bytes."""
        status, headers, body = await self._fetched(url, limit + 1)
        if status >= 400:
            raise HermesError(f"{url} answered with status {status}.")
        if len(body) > limit:
            raise UsageError(f"{url} is larger than {limit} bytes.")
        return headers.get("content-type", ""), body

    async def _fetched(self, url: str, limit: int) -> tuple[int, dict[str, str], bytes]:
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._follow(url, limit)
        except TimeoutError as error:
            raise HermesError(f"{url} did not answer within {TIMEOUT:.0f} seconds.") from error

    async def _follow(self, url: str, limit: int) -> tuple[int, dict[str, str], bytes]:
        import httpx2  # noqa: PLC0415 - seldom needed, and slow to import

        async with httpx2.AsyncClient(trust_env=False, follow_redirects=False) as client:
            for _ in range(MAX_REDIRECTS + 1):
                try:
                    status, headers, body = await self._get(client, url, limit)
                    if status not in REDIRECTS or "location" not in headers:
                        return status, headers, body
                    url = urljoin(url, headers["location"])
                except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
                    # Of a name or a port that cannot be, libraries say so with a ValueError.
                    raise HermesError(f"{url} could not be fetched: {error}") from error
        raise HermesError(f"{url} redirects too often.")

    async def _get(
        self, client: "httpx2.AsyncClient", url: str, limit: int
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError("Only http and https addresses can be fetched.")
        usual = 443 if parts.scheme == "https" else 80
        address = await self._resolve(parts.hostname, parts.port or usual)
        host = f"[{address}]" if ":" in address else address
        port = f":{parts.port}" if parts.port else ""
        pinned = parts._replace(netloc=f"{host}{port}").geturl()
        request = client.build_request(
            "GET",
            pinned,
            headers={"Host": f"{parts.hostname}{port}", "User-Agent": "hermes"},
            extensions={"sni_hostname": parts.hostname},
        )
        response = await client.send(request, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > limit:
                    break
        finally:
            await response.aclose()
        return response.status_code, dict(response.headers), bytes(body[:limit])

    async def _resolve(self, host: str, port: int) -> str:
        """Return the address to connect to; every address of the name must be allowed."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise HermesError(f"{host} could not be found.") from error
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not all(self._allowed(address) for address in addresses):
            raise UsageError(f"{host} is in a private network and is not fetched.")
        return addresses[0]


def _text(url: str, status: int, headers: dict[str, str], body: bytes) -> str:
    if status >= 400:
        raise HermesError(f"{url} answered with status {status}.")
    kind = headers.get("content-type", "text/html").split(";")[0].strip().lower()
    if not kind.startswith("text/") and kind not in {"application/json", "application/xml"}:
        raise UsageError(f"{url} is not text but {kind}.")
    text = body.decode("utf-8", "replace")
    return readable(text) if "html" in kind else text


def readable(html: str) -> str:
    """Return the text of an HTML page, without markup; reads it once, whatever is in it."""
    pieces: list[str] = []
    dropped = ""
    """The element whose content is left out until it ends."""
    for number, part in enumerate(html.split("<")):
        tag, closed, text = part.partition(">") if number else ("", ">", part)
        found = _TAG.match(tag)
        name = found[0].lower() if found else ""
        if dropped:
            dropped = "" if name == f"/{dropped}" else dropped
        elif name in _DROPPED and closed:
            dropped = name
        if dropped:
            continue
        pieces += ["\n" if name in _BREAKS else " ", text] if closed else [" <", part]
    lines = [_BLANKS.sub(" ", line).strip() for line in unescape("".join(pieces)).splitlines()]
    kept = [line for number, line in enumerate(lines) if line or (number and lines[number - 1])]
    return "\n".join(kept).strip()
