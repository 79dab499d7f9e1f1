"""PageFetcher: what tools, and a person who writes `@url:`, get from the network.

The address is checked after its name is resolved, on every redirect, and the
connection goes to exactly the address that was checked: a name that points into
a private network is refused, even if its address changes in between.
"""

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Callable
from functools import cache
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from msgspec.structs import replace

from hermes.domain.errors import HermesError, ToolRefused, UsageError
from hermes.domain.settings.agent import Security, WebsiteBlocklist
from hermes.domain.tools import WebAnswer, WebRequest, tells_secret

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})

_TAG = re.compile(r"/?[a-z0-9]+", re.IGNORECASE)
_DROPPED = frozenset({"script", "style", "noscript", "template", "svg"})
_BREAKS = frozenset(
    {"br", "/p", "/div", "/li", "/h1", "/h2", "/h3", "/h4", "/h5", "/h6"}
    | {"/tr", "/section", "/article"}
)
_BLANKS = re.compile(r"[ \t]+")
_METADATA = frozenset({"100.100.100.200", "fd00:ec2::254"})
"""Where clouds hand out credentials, besides the link-local addresses."""
_ENDING_IN_IPV4 = tuple(map(ipaddress.ip_network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Of compatible and translated addresses."""
_OTHER_FORMS = (
    *_ENDING_IN_IPV4,
    *map(ipaddress.ip_network, ("::ffff:0:0/96", "2002::/16", "2001::/32")),
)
"""An address in them is as public as those that it carries."""
_LOCAL_TRANSLATION = ipaddress.ip_network("64:ff9b:1::/48")
"""Where networks put an address in is their own choice."""
_NEVER_PUBLIC = (
    _LOCAL_TRANSLATION,
    *map(ipaddress.ip_network, ("2001:db8::/32", "3fff::/20", "5f00::/16")),
    ipaddress.ip_network("192.88.99.0/24"),
)
"""Examples, segments and relays, which not every Python knows."""


def is_public(address: str) -> bool:
    """Tell whether an address is out on the internet, also if it carries another inside."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.is_site_local:
        return False
    if any(found in each for each in _NEVER_PUBLIC):
        return False
    if not all(is_public(str(each)) for each in _carried(found)):
        return False
    if any(found in each for each in _OTHER_FORMS):
        return True
    return found.is_global and not (found.is_multicast or found.is_reserved)


def is_not_of_the_host(address: str) -> bool:
    """Tell whether an address may be fetched where private ones are: not the cloud's own."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if found in _LOCAL_TRANSLATION:
        return False
    reached = (found, *_carried(found))
    return not any(each.is_link_local or str(each) in _METADATA for each in reached)


def _carried(
    found: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> list[ipaddress.IPv4Address]:
    """Return the addresses that one of another form stands for, or leads through."""
    if isinstance(found, ipaddress.IPv4Address):
        return []
    inside = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    isatap = (int(found) >> 32) & 0xFDFFFFFF == 0x5EFE
    if isatap or any(found in each for each in _ENDING_IN_IPV4):
        inside.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
    return [each for each in inside if each is not None]


def blocked(blocklist: WebsiteBlocklist, host: str) -> bool:
    """Tell whether a host is on the list, as far as its files can be read."""
    if not blocklist.enabled:
        return False
    domains, missing = _blocked_domains(blocklist)
    for each in missing:
        _warn_of_list(each)
    wanted = {each.strip().lower().removeprefix("*.").strip(".") for each in domains} - {""}
    labels = host.lower().rstrip(".").split(".")
    return any(".".join(labels[number:]) in wanted for number in range(len(labels)))


def unreadable_lists(blocklist: WebsiteBlocklist) -> list[str]:
    """Say which files of the list of blocked sites do not count."""
    return _blocked_domains(blocklist)[1] if blocklist.enabled else []


def _blocked_domains(blocklist: WebsiteBlocklist) -> tuple[list[str], list[str]]:
    domains, missing = list(blocklist.domains), []
    for name in blocklist.shared_files:
        try:
            lines = Path(name).expanduser().read_text("utf-8", "replace").splitlines()
        except (OSError, RuntimeError) as error:
            missing.append(
                f"security.website_blocklist.shared_files: {name} cannot be read"
                f" ({getattr(error, 'strerror', None) or error}), so its sites are not blocked"
            )
        else:
            domains += [line.partition("#")[0] for line in lines]
    return domains, missing


@cache
def _warn_of_list(text: str) -> None:
    """Warn once, not with every request."""
    log.warning("%s", text)


class PageFetcher:
    """Fetches for tools and for `@url:`; what may be reached is policy, read at each call."""

    def __init__(
        self,
        allowed: Callable[[str], bool] = is_public,
        security: Callable[[], Security] = Security,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._allowed = allowed
        self._security = security
        self._redact = redact

    async def __call__(self, url: str) -> str:
        answer = await self.fetch(WebRequest(url=url))
        return await asyncio.to_thread(_text, answer)

    async def data(self, url: str, limit: int) -> tuple[str, bytes]:
        """Return the media type and the content, at most `limit` bytes."""
        answer = await self.fetch(WebRequest(url=url, limit=limit))
        if answer.status >= 400:
            raise HermesError(f"{url} answered with status {answer.status}.")
        if answer.cut:
            raise UsageError(f"{url} is larger than {limit} bytes.")
        return answer.kind, answer.body

    async def fetch(self, request: WebRequest) -> WebAnswer:
        told = urlsplit(request.url).query if request.by_operator else request.url
        told += request.body.decode("utf-8", "replace")
        if await asyncio.to_thread(tells_secret, told, self._redact):
            raise ToolRefused("The request contains a secret. Nothing was sent.")
        try:
            async with asyncio.timeout(request.timeout):
                return await self._follow(request)
        except TimeoutError as error:
            raise HermesError(
                f"{request.url} did not answer in full within {request.timeout:.0f} seconds."
            ) from error

    async def _follow(self, request: WebRequest) -> WebAnswer:
        import httpx2  # noqa: PLC0415 - seldom needed, and slow to import

        url = request.url
        async with httpx2.AsyncClient(
            trust_env=False, follow_redirects=False, timeout=None
        ) as client:
            for _ in range(MAX_REDIRECTS + 1):
                url = request.url
                try:
                    answer, location = await self._get(client, request)
                    if not location:
                        return answer
                    request = _redirected(request, answer.status, urljoin(url, location))
                except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
                    # Of a name or a port that cannot be, libraries say so with a ValueError.
                    raise HermesError(f"{url} could not be fetched: {error}") from error
        raise HermesError(f"{url} redirects too often.")

    async def _get(
        self, client: "httpx2.AsyncClient", request: WebRequest
    ) -> tuple[WebAnswer, str]:
        parts = urlsplit(request.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError("Only http and https addresses can be fetched.")
        usual = 443 if parts.scheme == "https" else 80
        address = await self._resolve(
            parts.hostname, parts.port or usual, by_operator=request.by_operator
        )
        host = f"[{address}]" if ":" in address else address
        port = f":{parts.port}" if parts.port else ""
        sent = client.build_request(
            request.method,
            parts._replace(netloc=f"{host}{port}").geturl(),
            headers={
                "User-Agent": "hermes",
                **request.headers,
                "Host": f"{parts.hostname}{port}",
                "Accept-Encoding": "gzip",
            },
            content=request.body or None,
            extensions={"sni_hostname": parts.hostname},
        )
        response = await client.send(sent, stream=True)
        try:
            location = response.headers.get("location", "")
            if response.status_code in REDIRECTS and location:
                return WebAnswer(url=request.url, status=response.status_code, kind="", body=b""), (
                    location
                )
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > request.limit:
                    break
        finally:
            await response.aclose()
        answer = WebAnswer(
            url=request.url,
            status=response.status_code,
            kind=response.headers.get("content-type", ""),
            body=bytes(body[: request.limit]),
            cut=len(body) > request.limit,
        )
        return answer, ""

    async def address_of(self, host: str, port: int) -> str:
        """Return the address to which a browser may connect."""
        return await self._resolve(host, port, by_operator=False)

    async def _resolve(self, host: str, port: int, *, by_operator: bool) -> str:
        """Return the address to connect to; every address of the name must be allowed."""
        security = self._security()
        if not by_operator and await asyncio.to_thread(blocked, security.website_blocklist, host):
            raise UsageError(
                f"{host} is on the list of blocked sites (security.website_blocklist)."
            )
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise HermesError(f"{host} could not be found.") from error
        addresses = [str(entry[4][0]) for entry in found]
        if by_operator and addresses:
            return addresses[0]
        allowed = is_not_of_the_host if security.allow_private_urls else self._allowed
        if not addresses or not all(allowed(address) for address in addresses):
            raise UsageError(f"{host} is in a private network and is not fetched.")
        return addresses[0]


def _redirected(request: WebRequest, status: int, url: str) -> WebRequest:
    """Return the next request; what is for one host only does not go to another."""
    old, new = urlsplit(request.url), urlsplit(url)
    if (old.scheme, old.netloc) == (new.scheme, new.netloc) and status in {307, 308}:
        return replace(request, url=url)
    if request.method != "GET" and status in {307, 308}:
        raise HermesError(f"{request.url} redirects what was sent to it to {new.hostname}.")
    return WebRequest(url=url, limit=request.limit, timeout=request.timeout)


def _text(answer: WebAnswer) -> str:
    if answer.status >= 400:
        raise HermesError(f"{answer.url} answered with status {answer.status}.")
    kind = (answer.kind or "text/html").split(";")[0].strip().lower()
    if not kind.startswith("text/") and kind not in {"application/json", "application/xml"}:
        raise UsageError(f"{answer.url} is not text but {kind}.")
    text = answer.body.decode("utf-8", "replace")
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
