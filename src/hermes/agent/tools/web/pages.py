"""Pages: the readable text of what a web server sent.

Strangers write pages, and libraries that read HTML or PDF can be kept busy by one for ever. So a
page is read by a process of its own, with a bound on its time and memory.
"""

import asyncio
import codecs
import re
import sys
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes.domain.tools import WebAnswer

SECONDS = 30.0
_MEMORY = 1_500_000_000
_MAX_TEXT = 2_000_000
_MAX_HTML = 3_000_000
_MAX_ARTICLE = 600_000
"""Finding the article in a page takes time with its square."""
_META = re.compile(rb"""(?i)<meta[^>]{0,200}charset\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]{1,40})""")
_TEXT_KINDS = ("json", "xml", "javascript", "yaml", "toml", "csv", "x-sh", "markdown")


class PageText(Struct, frozen=True, kw_only=True):
    title: str = ""
    text: str = ""
    error: str = ""


class _Job(Struct, frozen=True, array_like=True):
    kind: str
    url: str
    body: bytes


async def read_pages(answers: Sequence[WebAnswer]) -> list[PageText]:
    """Return title and text of each, HTML as Markdown, or why it cannot be read."""
    jobs = [_Job(answer.kind, answer.url, answer.body) for answer in answers]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", "from hermes.agent.tools.web import pages; pages.child()"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin
    assert process.stdout
    found: list[PageText] = []
    try:
        async with asyncio.timeout(SECONDS):
            process.stdin.write(msgspec.msgpack.encode(jobs))
            process.stdin.write_eof()
            for _ in jobs:
                size = int.from_bytes(await process.stdout.readexactly(4), "big")
                output = await process.stdout.readexactly(size)
                found.append(msgspec.msgpack.decode(output, type=PageText))
    except (TimeoutError, EOFError, ConnectionError):
        found.append(PageText(error="takes too long, or too much memory, to be read."))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    missing = len(jobs) - len(found)
    return [*found, *[PageText(error="was not read: another page took too long.")] * missing]


def child() -> None:
    import resource  # noqa: PLC0415 - in the child only

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    for job in msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[_Job]):
        try:
            page = page_of(job.kind, job.url, job.body)
        except (ValueError, RecursionError, MemoryError) as error:
            page = PageText(error=f"could not be read: {type(error).__name__}.")
        output = msgspec.msgpack.encode(page)
        sys.stdout.buffer.write(len(output).to_bytes(4, "big") + output)
        sys.stdout.buffer.flush()


def page_of(kind: str, url: str, body: bytes) -> PageText:
    name, _, parameters = kind.lower().partition(";")
    name = name.strip()
    if body.startswith(b"%PDF-") or name == "application/pdf":
        return _pdf(body)
    if name in {"", "text/html", "application/xhtml+xml"} or body[:200].lstrip()[:5].lower() in {
        b"<!doc",
        b"<html",
    }:
        return _html(decoded(body[:_MAX_HTML], parameters), url)
    if name.startswith("text/") or any(each in name for each in _TEXT_KINDS):
        return PageText(text=decoded(body, parameters)[:_MAX_TEXT])
    return PageText(error=f"is not text but {name}.")


def decoded(body: bytes, parameters: str) -> str:
    """Return the text: by its mark, as the server says, as the page says, or as it looks."""
    for mark, charset in ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16")):
        if body.startswith(mark):
            return body.decode(charset, "replace")
    named = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", parameters)
    meta = _META.search(body[:4096])
    said = [named[1]] if named else []
    said += [meta[1].decode("ascii", "ignore")] if meta else []
    for charset in (*said, "utf-8"):
        try:
            return body.decode(charset)
        except (LookupError, UnicodeDecodeError):
            continue
    from charset_normalizer import from_bytes  # noqa: PLC0415 - for pages that say nothing true

    best = from_bytes(body[:100_000]).best()
    return body.decode(best.encoding if best else "utf-8", "replace")


def _html(html: str, url: str) -> PageText:
    import trafilatura  # noqa: PLC0415 - slow to import

    from hermes.agent.fetch import readable  # noqa: PLC0415

    # Pages that are no article: better everything that is on them than next to nothing.
    plain = readable(html)
    if len(html) > _MAX_ARTICLE:
        return PageText(text=plain[:_MAX_TEXT])
    tree = trafilatura.load_html(html)
    if tree is None:
        return PageText(text=plain[:_MAX_TEXT])
    title = trafilatura.extract_metadata(tree, default_url=url).title or ""
    text = trafilatura.extract(
        tree, url=url, output_format="markdown", include_links=True, include_tables=True
    )
    if not text or len(text) < 200 < len(plain):
        text = plain
    return PageText(title=title, text=text[:_MAX_TEXT])


def _pdf(body: bytes) -> PageText:
    from io import BytesIO  # noqa: PLC0415

    from pypdf import PdfReader  # noqa: PLC0415 - for the few that are PDF
    from pypdf.errors import PyPdfError  # noqa: PLC0415

    try:
        reader = PdfReader(BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            return PageText(error="is a PDF with a password.")
        texts: list[str] = []
        for page in reader.pages:
            texts.append(page.extract_text())
            if sum(map(len, texts)) > _MAX_TEXT:
                break
        title = (reader.metadata.title if reader.metadata else None) or ""
    except PyPdfError as error:
        return PageText(error=f"is a broken PDF ({error}).")
    text = "\n\n".join(texts).strip()
    return (
        PageText(title=title, text=text)
        if text
        else PageText(error="is a PDF without text (scanned).")
    )
