"""Browsers: one browser for the process, started with first use, and one context for each session.

Contexts share nothing: no cookies, no storage, no cache. One that nobody used for a while is
closed, and with the last of them the browser.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.domain.errors import HermesError
from hermes.domain.ports.clock import Clock
from hermes.domain.settings.agent import BrowserSettings
from hermes.execution.browser.chrome import Chrome, browser_program
from hermes.execution.browser.guard import AddressOf, GuardProxy
from hermes.execution.browser.page import Page

LOOK_SECONDS = 10.0
"""How long it is taken for granted that the machine has a browser, or none."""


log = logging.getLogger(__name__)


class _Open(Struct):
    page: Page
    used: float


class Browsers:
    def __init__(
        self, settings: Callable[[], BrowserSettings], address_of: AddressOf, clock: Clock
    ) -> None:
        self._settings, self._address_of, self._clock = settings, address_of, clock
        self._pages: dict[str, _Open] = {}
        self._chrome: Chrome | None = None
        self._proxy: GuardProxy | None = None
        self._through = ""
        """The address of the proxy for contexts of a browser elsewhere."""
        self._guarded = False
        self._lock = asyncio.Lock()
        self._found, self._looked_until = False, 0.0

    @property
    def available(self) -> bool:
        if self._settings().cdp_url:
            return True
        now = self._clock.monotonic()
        if now >= self._looked_until:
            self._found, self._looked_until = bool(browser_program()), now + LOOK_SECONDS
        return self._found

    async def page(self, session_id: str) -> Page:
        """Return the page of a session, opened with first use."""
        async with self._lock:
            if self._chrome is not None and self._chrome.ended.is_set():
                await self._end()
            found = self._pages.get(session_id)
            if found is None:
                found = self._pages[session_id] = _Open(await self._opened(), 0.0)
            found.used = self._clock.monotonic()
            return found.page

    async def keep_closing(self) -> None:
        """Close what nobody uses; a background service."""
        while True:
            await self._clock.sleep(10)
            limit = self._clock.monotonic() - self._settings().inactivity_timeout
            async with self._lock:
                for session_id in [s for s, each in self._pages.items() if each.used < limit]:
                    with contextlib.suppress(HermesError):
                        await self._pages.pop(session_id).page.close()
                if not self._pages and self._chrome is not None:
                    await self._end()

    async def close(self) -> None:
        async with self._lock:
            await self._end()

    async def _opened(self) -> Page:
        address = self._settings().cdp_url
        if self._chrome is None:
            self._proxy = proxy = GuardProxy(self._address_of)
            if address:
                self._chrome = await Chrome.connect(address)
                self._through = await self._way_back(proxy, urlsplit(address).hostname or "")
            else:
                self._chrome = await Chrome.start(await proxy.start())
            self._guarded = bool(self._through) or not address
            self._chrome.listeners[""] = self._heard
            await self._chrome.call("Target.setDiscoverTargets", discover=True)
        context = await self._context(self._through)
        await self._chrome.call(
            "Browser.setDownloadBehavior", behavior="deny", browserContextId=context
        )
        page = Page(
            self._chrome,
            context,
            self._settings,
            self._address_of,
            guarded=self._guarded,
        )
        await page.attach()
        return page

    async def _context(self, proxy: str) -> str:
        assert self._chrome is not None
        wanted: dict[str, Any] = {"disposeOnDetach": True}
        if proxy:  # loopback, too, goes through it, and it decides
            wanted |= {"proxyServer": proxy, "proxyBypassList": "<-loopback>"}
        made = await self._chrome.call("Target.createBrowserContext", **wanted)
        return str(made["browserContextId"])

    async def _way_back(self, proxy: GuardProxy, machine: str) -> str:
        """Return the address of our proxy for a browser elsewhere; empty if it gets not there."""
        assert self._chrome is not None
        try:
            address = await proxy.start(machine)
            context = await self._context(address)
            page = Page(self._chrome, context, self._settings, self._address_of, guarded=True)
            await page.attach()
            with contextlib.suppress(HermesError):
                await page.visit(f"http://{proxy.probe}/", within=5.0)
            await page.close()
            if proxy.met:
                return address
        except HermesError as error:
            log.warning("no proxy for the browser at browser.cdp_url: %s", error.message)
        log.warning(
            "The browser at browser.cdp_url does not get to the proxy of Hermes: its requests are"
            " checked one by one, and it looks names up itself."
        )
        await proxy.close()
        return ""

    def _heard(self, method: str, params: dict[str, object]) -> None:
        """Follow a page that opens another one in a window of its own."""
        if method != "Target.targetCreated":
            return
        info = params["targetInfo"]
        assert isinstance(info, dict)
        for each in self._pages.values():
            if info.get("type") == "page" and info.get("openerId") == each.page.target:
                each.page.follow(str(info["targetId"]))

    async def _end(self) -> None:
        self._pages.clear()
        chrome, proxy, self._chrome, self._proxy = self._chrome, self._proxy, None, None
        self._through = ""
        if chrome is not None:
            await chrome.close()
        if proxy is not None:
            await proxy.close()
