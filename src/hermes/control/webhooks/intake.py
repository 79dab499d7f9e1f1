"""Intake: from a request to an event that a route cares about.

signature -> rate limit -> payload -> event type -> `events` -> `filters`

Nothing is written down here. The script comes later, once it is known that
the delivery was not seen before.
"""

import asyncio
from typing import Any

from msgspec import Struct

from hermes.control.webhooks.filters import Facts, read_lists
from hermes.control.webhooks.rate import RateLimit
from hermes.control.webhooks.requests import (
    HookRefused,
    HookRequest,
    delivery_id_of,
    event_of,
    parse_body,
)
from hermes.control.webhooks.routes import HookRoute
from hermes.control.webhooks.scripts import Ignored
from hermes.control.webhooks.signatures import verified_by
from hermes.domain.ports.clock import Clock

__all__ = ["Arrived", "Intake"]


class Arrived(Struct, frozen=True, kw_only=True):
    """An event that was understood."""

    event: str
    delivery_id: str
    payload: Any
    ignored: Ignored | None = None
    """Set if the route does not care about it."""


class Intake:
    """Reads requests; raises `HookRefused` for those that are not taken."""

    def __init__(self, clock: Clock, rate_limit: int) -> None:
        self._clock = clock
        self._rate = RateLimit(rate_limit)

    async def read(self, route: HookRoute, request: HookRequest) -> Arrived:
        """Check a request and return what arrived."""
        if not route.secret:
            raise HookRefused(403, "This route has no secret and takes nothing.")
        scheme = verified_by(route.secret, request.headers, request.body, self._clock.now())
        if scheme is None:
            raise HookRefused(401, "The signature is missing or wrong.")
        wait = self._rate.wait(route.name, self._clock.monotonic())
        if wait is not None:
            raise HookRefused(429, "Too many deliveries to this route.", retry_after=wait)
        payload = parse_body(request.body)
        event = event_of(request.headers, payload)
        return Arrived(
            event=event,
            delivery_id=delivery_id_of(route.name, request, scheme),
            payload=payload,
            ignored=await self._uncared_for(route, request, event, payload),
        )

    async def _uncared_for(
        self, route: HookRoute, request: HookRequest, event: str, payload: Any
    ) -> Ignored | None:
        if route.events and event not in route.events:
            return Ignored("event")
        if route.filter is None:
            return None
        lists = (
            await asyncio.to_thread(read_lists, route.filter.files) if route.filter.files else {}
        )
        facts = Facts(payload=payload, event=event, headers=request.headers, lists=lists)
        return None if route.filter.holds(facts) else Ignored("filter")
