"""A web on loopback, traps included: search engines, articles, endless bodies, lying charsets."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from urllib.parse import parse_qs, quote, urlsplit

from msgspec import Struct

from fakes.listener import start_server

ARTICLE = (
    "<html><head><title>On Herons</title></head><body><nav>Home | Shop | Login</nav><article>"
    "<h1>On Herons</h1>"
    + "".join(f"<p>Herons wait {n} hours in shallow water for <b>fish</b>.</p>" for n in range(40))
    + "</article><footer>Cookies and imprint</footer></body></html>"
)
DUCKS = (
    '<div class="result result--ad"><a class="result__a" href="https://ads.example">Ad</a></div>'
    '<div class="result results_links"><a class="result__a" '
    'href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fducks.example%2Fa">Ducks &amp; more</a>'
    '<a class="result__snippet">They <b>quack</b>.</a></div>'
)
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
ROWS = [
    {"title": f"T{n}", "url": f"https://r{n}.example/", "content": f"text {n}", "description": "d"}
    for n in range(9)
]


def pdf(text: str) -> bytes:
    """Return a small PDF that shows `text`."""
    from pypdf import PdfWriter  # noqa: PLC0415
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject  # noqa: PLC0415

    writer = PdfWriter()
    page = writer.add_blank_page(200, 200)
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
    page[NameObject("/Contents")] = writer._add_object(stream)
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
    )
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


class Hit(Struct):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Web(Struct):
    url: str
    hits: list[Hit] = []


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _page(path: str, query: dict[str, list[str]], base: str) -> tuple[str, dict[str, str], bytes]:
    html = {"Content-Type": "text/html; charset=utf-8"}
    pages = {
        "/article": ("200 OK", html, ARTICLE.encode()),
        "/latin": ("200 OK", html, "<p>Grüße aus Köln und Düsseldorf</p>".encode("latin-1")),
        "/bogus": ("200 OK", {"Content-Type": "text/plain; charset=x-none"}, "naïve".encode()),
        "/paper": ("200 OK", {"Content-Type": "application/pdf"}, pdf("Hello from a paper")),
        "/picture": ("200 OK", {"Content-Type": "image/png"}, b"\x89PNG"),
        "/gone": ("410 Gone", html, b"gone"),
        "/inside": ("302 Found", {"Location": base.replace("127.0.0.1", "127.0.0.2")}, b""),
        "/out": ("302 Found", {"Location": "/article"}, b""),
        "/bomb": (
            "200 OK",
            {**html, "Content-Encoding": "gzip"},
            gzip.compress(b"<p>boom " * 4_000_000),
        ),
        "/search": (
            ("200 OK", {}, json.dumps({"results": ROWS}).encode())
            if query.get("q") != ["trouble"]
            else ("403 Forbidden", {}, b"no json here")
        ),
        "/html/": ("200 OK", html, DUCKS.encode()),
        "/v1/audio/speech": ("200 OK", {"Content-Type": "audio/ogg"}, b"OggS spoken"),
        "/v1/images/generations": (
            "200 OK",
            {},
            json.dumps({"data": [{"b64_json": DOT}]}).encode(),
        ),
        "/v1/images/edits": ("200 OK", {}, json.dumps({"data": [{"url": f"{base}/dot"}]}).encode()),
        "/dot": ("200 OK", {"Content-Type": "image/png"}, base64.b64decode(DOT)),
        "/v2/search": ("200 OK", {}, json.dumps({"data": {"web": ROWS}}).encode()),
        "/res/v1/web/search": ("200 OK", {}, json.dumps({"web": {"results": ROWS}}).encode()),
    }
    return pages.get(path, ("404 Not Found", html, quote(path).encode()))


@asynccontextmanager
async def web(planted: str = "") -> AsyncIterator[Web]:
    """Serve it; `planted` stands on the page /planted."""
    served = Web("")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        served.hits.append(Hit(method, target, headers, body))
        parts = urlsplit(target)
        try:
            if parts.path == "/endless":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
                while not writer.is_closing():
                    writer.write(b"<p>and on it goes</p>" * 5000)
                    await writer.drain()
                return
            status, extra, data = _page(parts.path, parse_qs(parts.query), served.url)
            if planted and parts.path == "/planted":
                status, data = "200 OK", ARTICLE.replace("<h1>", f"<p>{planted}</p><h1>").encode()
            lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in extra.items()]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await start_server(answer, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
