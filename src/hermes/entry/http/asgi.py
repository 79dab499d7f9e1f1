"""The few names of the ASGI interface that this door uses."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["AsgiApp", "Headers", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[bytes, bytes]
"""Names in lower case."""
