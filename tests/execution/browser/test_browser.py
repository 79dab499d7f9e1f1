"""The browser tools on a real Chromium, with a site on loopback that plays the web."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.hand_clock import HandClock
from fakes.listener import start_server
from fakes.toolbox import Toolbox, local_environment
from hermes.agent.fetch import PageFetcher
from hermes.agent.tools.registry import ToolRegistry
from hermes.domain.errors import UsageError
from hermes.domain.messages import Content, ImagePart, ToolOutcome
from hermes.domain.ports.clock import Clock
from hermes.domain.settings.agent import BrowserSettings
from hermes.domain.tools import Need, ToolCapabilities, ToolContext
from hermes.execution.browser.browsers import Browsers
from hermes.execution.browser.guard import AddressOf
from hermes.execution.clock import SystemClock

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("chromium", "google-chrome"))), reason="there is no Chromium"
)
SECRET = "topsecret-9f8e7d6c5b4a"
PAGES = {
    "/": """<title>Shop</title><h1>Tea</h1><p>Fine leaves.</p>
<form action="/bought"><label>Name <input name="who" value="old"></label>
<input type="checkbox" aria-label="Gift" checked><button>Buy</button></form>
<a href="/more" target="_blank">More</a> <button onclick="this.textContent=prompt('Your size?')">
Size</button> <img src="/cup.png" alt="A cup"><iframe srcdoc="<button>Inside</button>"></iframe>
<script>console.log("hello", 42); document.cookie="seen=1";</script>""",
    "/bought": "<title>Thanks</title><p>Thank you</p>",
    "/more": "<title>More tea</title><p>Green and black</p>",
    "/form": """<title>Form</title><input aria-label="Name" value="keepme">
<select aria-label="Size"><option>S</option><option>M</option><option>L</option></select>
<textarea aria-label="Note">old</textarea><input type="checkbox" aria-label="Gift">
<input type="date" aria-label="Day"><input type="range" aria-label="Amount" max="9" value="1">
<button>Go</button><div contenteditable="true">rich</div>""",
    "/spin": "<title>Spin</title><script>setTimeout(() => { while (true) {} }, 0)</script>",
    "/twice": "<title>Twice</title><script>alert('one'); alert('two')</script><p>over</p>",
    "/long": f"<title>Long</title><p>{'word ' * 100}end</p>",
    "/restless": """<title>Restless</title><p>Here to stay</p><div></div><script>
setInterval(() => document.querySelector("div").innerHTML =
  Array(4).fill("<iframe srcdoc='<p>gone</p>'></iframe>").join(""), 40)</script>""",
    "/file": "PK",
    "/pdf": "%PDF-1.4",
    "/stay": "<title>Stay</title><script>onbeforeunload = e => e.preventDefault()</script>"
    "<button>Stay</button>",
    "/trap": '<title>Trap</title><img src="http://PRIVATE/steal"><script>fetch("http://PRIVATE/x")'
    ".then(r => document.title = 'leaked ' + r.status, () => document.title = 'held')</script>",
}


class Site:
    url = private = ""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.inside: list[str] = []


@asynccontextmanager
async def site(host: str = "0.0.0.0") -> AsyncIterator[Site]:
    made = Site()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target, inside = head.split()[1], made.private.split("//")[1] in head
        (made.inside if inside else made.paths).append(target)
        page = PAGES.get(target.partition("?")[0], "").replace("http://PRIVATE", made.private)
        data = page.encode()
        status = "302 Found\r\nLocation: " + made.private if target == "/away" else "200 OK"
        kind = {"/file": "application/zip", "/pdf": "application/pdf"}.get(target, "text/html")
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
            "Access-Control-Allow-Origin: *\r\nConnection: close\r\n\r\n".encode()
            + data
        )
        await writer.drain()
        writer.close()

    server = await start_server(answer, host, 0)
    port = server.sockets[0].getsockname()[1]
    made.url, made.private = f"http://127.0.0.1:{port}", f"http://127.0.0.2:{port}"
    try:
        yield made
    finally:
        server.close()


async def look(question: str, image: ImagePart) -> Content:
    return f"{question} {image.url[:40]}"


class BrowserBox(Toolbox):
    browsers: Browsers
    chosen: BrowserSettings

    def context(self, call_id: str = "call_0") -> ToolContext:
        return replace(
            super().context(call_id),
            capabilities=ToolCapabilities(
                browse=self.browsers.page,
                look=look,
                redact=lambda text: text.replace(SECRET, "***"),
            ),
        )


@asynccontextmanager
async def box(
    tmp_path: Path,
    settings: BrowserSettings,
    clock: Clock | None = None,
    address_of: AddressOf | None = None,
) -> AsyncIterator[BrowserBox]:
    found = address_of or PageFetcher(lambda address: address == "127.0.0.1").address_of
    async with local_environment(tmp_path) as environment:
        made = BrowserBox(environment, ToolRegistry(["browser"], granted=frozenset(Need)))
        made.chosen = settings
        made.browsers = Browsers(lambda: made.chosen, found, clock or SystemClock())
        try:
            yield made
        finally:
            await made.browsers.close()


def ref(text: str, name: str) -> str:
    line = next(line for line in text.splitlines() if name in line and "@e" in line)
    return line.strip().split(" ")[0]


async def test_a_person_would_use_a_page_like_this(tmp_path: Path) -> None:
    async with site() as shop, box(tmp_path, BrowserSettings()) as tools:
        page = await tools.text("browser_navigate", url=shop.url)
        assert page.startswith(f"Shop\n{shop.url}/")
        assert 'heading "Tea" [level=1]' in page
        assert 'checkbox "Gift" [checked=true]' in page
        assert "Fine leaves." in page
        assert '"Inside"' in page
        assert "A cup" in await tools.text("browser_get_images")
        assert await tools.text("browser_console", clear=True) == "log: hello 42"
        assert await tools.text("browser_console", expression="1 + 1") == "2"
        assert "data:image/jpeg" in await tools.text("browser_vision", question="Nice?")
        assert "At 0 of" in await tools.text("browser_scroll", direction="down")
        # A dialog waits for an answer, and nothing else goes on meanwhile.
        asked = await tools.text("browser_click", ref=ref(page, "Size"))
        assert "A dialog is open (prompt): Your size?" in asked
        assert "A dialog is open" in await tools.text("browser_snapshot")
        page = await tools.text("browser_dialog", action="accept", prompt_text="XL")
        assert 'button "XL"' in page
        assert "Typed" in await tools.text("browser_type", ref=ref(page, "Name"), text="Ada L")
        done = await tools.text("browser_press", key="Enter")
        assert f"Thanks\n{shop.url}/bought?who=Ada+L" in done
        assert "Thank you" in done
        page = await tools.text("browser_back")
        assert page.startswith("Shop")
        more = await tools.text("browser_click", ref=ref(page, "More"))
        assert "More tea" in more or "More tea" in await tools.text("browser_snapshot", full=True)
        assert "There is no @e99" in await tools.text("browser_click", ref="@e99")
        assert "word …" in await tools.text("browser_navigate", url=f"{shop.url}/long")
        whole = await tools.text("browser_snapshot", full=True)
        assert ("word end" in whole, whole.count("end")) == (True, 1)
        for path in ("/file", "/pdf"):
            told = await tools.text("browser_navigate", url=f"{shop.url}{path}")
            assert "use web_extract" in told


def profiles() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"hermes-browser-{os.getpid()}-*"))


@pytest.mark.parametrize("killed", [False, True])
async def test_a_browser_leaves_nothing_in_the_temporary_folder(
    tmp_path: Path, killed: bool
) -> None:
    async with site() as shop, box(tmp_path, BrowserSettings()) as tools:
        await tools.text("browser_navigate", url=shop.url)
        (profile,) = profiles()
        left = (profile / "SingletonSocket").readlink().parent
        assert left.is_dir()
        if killed:
            browser = int((profile / "SingletonLock").readlink().name.rpartition("-")[2])
            os.kill(browser, signal.SIGKILL)
            assert "The browser has ended" in await tools.text("browser_snapshot")
            await tools.text("browser_navigate", url=shop.url)
            (another,) = profiles()
            assert another != profile
    assert not left.exists()
    assert profiles() == []


async def test_a_temporary_folder_with_a_long_name_does_not_end_the_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with site() as shop, box(tmp_path, BrowserSettings()) as tools:
        assert "Tea" in await tools.text("browser_navigate", url=shop.url)


async def test_frames_may_come_and_go_while_a_page_is_read(tmp_path: Path) -> None:
    async with site() as shop, box(tmp_path, BrowserSettings()) as tools:
        await tools.text("browser_navigate", url=f"{shop.url}/restless")
        for _ in range(5):
            assert "Here to stay" in await tools.text("browser_snapshot", full=True)


async def test_the_browser_reaches_only_what_tools_may_reach(tmp_path: Path) -> None:
    async with site() as shop, box(tmp_path, BrowserSettings()) as tools:
        for url in (shop.private, "http://169.254.169.254/", "file:///etc/passwd", "chrome://gpu"):
            failed = await tools.do("browser_navigate", url=url)
            assert failed.outcome is ToolOutcome.ERROR
        page = await tools.text("browser_navigate", url=f"{shop.url}/trap")
        async with asyncio.timeout(30):
            while "Trap" in page:
                page = await tools.text("browser_console", expression="document.title")
        assert "leaked 403" in page or "held" in page
        assert "Not reachable from here" in await tools.text(
            "browser_navigate", url=f"{shop.url}/away"
        )
        assert shop.inside == []
        before = len(shop.paths)
        refused = await tools.do("browser_navigate", url=f"{shop.url}/?k={SECRET}")
        assert refused.outcome is ToolOutcome.REFUSED
        assert len(shop.paths) == before
        # Sessions share nothing.
        await tools.text("browser_navigate", url=shop.url)
        assert "seen" in await tools.text("browser_console", expression="document.cookie")
        tools.session_id = "another"
        await tools.text("browser_navigate", url=f"{shop.url}/more")
        assert await tools.text("browser_console", expression="document.cookie") == '""'


async def test_fields_of_every_kind_are_filled_in_or_the_model_is_told(tmp_path: Path) -> None:
    async with site() as shop, box(tmp_path, BrowserSettings()) as tools:
        page = await tools.text("browser_navigate", url=f"{shop.url}/form")
        fills = {"Size": "m", "Note": "new", "Day": "2026-12-24", "Amount": "7", "rich": "bold"}
        for name, text in fills.items():
            filled = await tools.do("browser_type", ref=ref(page, name), text=text)
            assert filled.outcome is ToolOutcome.OK, (name, filled.content)
        for name, text, told in (
            ("Go", "x", "is not a text field"),
            ("Gift", "x", "is not a text field"),
            ("Day", "soon", "takes something like 2026-12-31"),
            ("Size", "XXL", "takes: S, M, L"),
        ):
            assert told in await tools.text("browser_type", ref=ref(page, name), text=text)
        values = "[...document.querySelectorAll('input, select, textarea, div')].map(e => e.value"
        found = await tools.text("browser_console", expression=f"{values} ?? e.textContent)")
        assert found == '["keepme","M","new","on","2026-12-24","7","bold"]'
        await tools.text("browser_click", ref=ref(page, 'option "L"'))
        size = "document.querySelector('select').value"
        assert await tools.text("browser_console", expression=size) == '"L"'
        for url in ("data:text/html,x", "javascript:alert(1)", "about:blank", "http://x:y/"):
            assert "address" in await tools.text("browser_navigate", url=url)


async def test_a_page_that_holds_the_browser_up_is_left(tmp_path: Path) -> None:
    settings = BrowserSettings(command_timeout=3.0)
    async with site() as shop, box(tmp_path, settings) as tools:
        await tools.text("browser_navigate", url=f"{shop.url}/form")
        tools.chosen = BrowserSettings(command_timeout=0.3)
        stuck = await tools.text("browser_navigate", url=f"{shop.url}/spin")
        assert "Open another one with browser_navigate" in stuck
        tools.chosen = settings
        assert "Form" in await tools.text("browser_navigate", url=f"{shop.url}/form")
        # One dialog after the other.
        assert "one" in await tools.text("browser_navigate", url=f"{shop.url}/twice")
        assert "two" in await tools.text("browser_dialog", action="accept")
        assert "over" in await tools.text("browser_dialog", action="accept")
        # A page that asks whether one really wants to go.
        page = await tools.text("browser_navigate", url=f"{shop.url}/stay")
        await tools.text("browser_click", ref=ref(page, "Stay"))
        assert "Form" in await tools.text("browser_navigate", url=f"{shop.url}/form")


async def test_the_settings_of_the_browser_count(tmp_path: Path) -> None:
    clock = HandClock()
    async with site() as shop, box(tmp_path, BrowserSettings(), clock) as tools:

        async def size() -> str:
            page = await tools.text("browser_navigate", url=shop.url)
            return await tools.text("browser_click", ref=ref(page, "Size"))

        tools.chosen = BrowserSettings(dialog_policy="accept")
        await size()
        assert "A dialog is open" not in await tools.text("browser_snapshot")
        tools.chosen = BrowserSettings(dialog_timeout_s=0.05)
        await size()
        while "A dialog is open" in await tools.text("browser_snapshot"):
            pass
        tools.chosen = BrowserSettings(command_timeout=0.1)
        slow = await tools.do("browser_console", expression="new Promise(() => 0)")
        assert slow.outcome is ToolOutcome.ERROR
        assert "does not answer" in str(slow.content)
        tools.chosen = BrowserSettings(inactivity_timeout=60.0)
        closing = asyncio.ensure_future(tools.browsers.keep_closing())
        for seconds, same in ((11.0, True), (70.0, False)):
            page = await tools.browsers.page(tools.session_id)
            await clock.pass_by(seconds)
            assert (await tools.browsers.page(tools.session_id) is page) is same
        closing.cancel()


@asynccontextmanager
async def tunnel(port: int) -> AsyncIterator[int]:
    """A way to a browser that it cannot go back."""

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
        sink.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = await start_server(pass_on, "127.0.0.3", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_browser_elsewhere_is_under_the_same_rules(tmp_path: Path) -> None:
    profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    program = shutil.which("chromium") or shutil.which("google-chrome") or ""
    flags = ("--headless=new", "--no-sandbox", "--remote-debugging-port=0", "--disable-gpu")
    process = await asyncio.create_subprocess_exec(
        *(program, *flags, f"--user-data-dir={profile.name}"),
        env={**os.environ, "TMPDIR": profile.name},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stderr
        line = b""
        while b"DevTools listening on" not in line:
            line = await process.stderr.readline()
            assert line
        port = line.decode().split("://")[1].split("/")[0].rpartition(":")[2]
        # The name changes its answer: the browser's own (*.localhost) is not the one of the check.
        public = {"tea.localhost": "127.0.0.7"}

        async def address_of(host: str, port: int) -> str:
            if host not in public:
                raise UsageError(f"{host}:{port} is in a private network.")
            return public[host]

        async with tunnel(int(port)) as far, site() as shop:
            settings = BrowserSettings(cdp_url=f"http://127.0.0.3:{far}")
            async with box(tmp_path, settings, None, address_of) as tools:
                for _ in range(2):
                    url = shop.url.replace("127.0.0.1", "tea.localhost")
                    closed = await tools.do("browser_navigate", url=url)
                    assert closed.outcome is ToolOutcome.REFUSED
                    assert "came from a private network" in str(closed.content)
                assert "hello 42" not in await tools.text("browser_console")
                assert "Tea" not in await tools.text("browser_snapshot")
        public["127.0.0.1"] = "127.0.0.1"
        settings = BrowserSettings(cdp_url=f"http://127.0.0.1:{port}")
        async with site() as shop, box(tmp_path, settings, None, address_of) as tools:
            # In a task of its own, as calls are: the connection outlives it.
            first = asyncio.ensure_future(tools.text("browser_navigate", url=shop.url))
            assert "Tea" in await first
            page = await tools.text("browser_navigate", url=f"{shop.url}/trap")
            while "Trap" in page:
                page = await tools.text("browser_console", expression="document.title")
            assert "leaked 403" in page or "held" in page
            assert shop.inside == []
            async with site("127.0.0.7") as other:
                url = other.url.replace("127.0.0.1", "tea.localhost")
                assert "Tea" in await tools.text("browser_navigate", url=url)
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            gone = await tools.text("browser_navigate", url=shop.url)
            assert "Check browser.cdp_url" in gone or "The browser has ended" in gone, gone
            assert "Check browser.cdp_url" in await tools.text("browser_navigate", url=shop.url)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        profile.cleanup()
