"""BrowserPage: the page that a session has open in its browser."""

from typing import Protocol


class BrowserPage(Protocol):
    async def navigate(self, url: str) -> str:
        """Go to an address; return where that led, with what is on the page."""

    async def back(self) -> str: ...

    async def snapshot(self, *, full: bool = False) -> str:
        """Return the page as people with a screen reader have it; `@e3` are things to act on."""

    async def click(self, ref: str) -> str: ...

    async def type(self, ref: str, text: str) -> str:
        """Replace what is in a field."""

    async def press(self, key: str) -> str: ...

    async def scroll(self, direction: str) -> str: ...

    async def images(self) -> str:
        """List the pictures of the page."""

    async def screenshot(self) -> bytes: ...

    async def console(self, expression: str | None, *, clear: bool = False) -> str:
        """Return what the page said to the console, or evaluate an expression."""

    async def dialog(self, action: str, text: str) -> str:
        """Answer the dialog that is open."""
