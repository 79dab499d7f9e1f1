"""Routes: what is done with the deliveries to `/webhooks/<name>`.

Routes come from the configuration, where a mistake keeps the gateway from
starting, and from the file that `hermes webhook` writes, where a mistake
takes that one route out of service. The file is read again when it changes;
the configuration wins where both have a name.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.control.webhooks.payload import Filter, as_text
from hermes.control.webhooks.signatures import NO_AUTH, SignatureScheme, check_secret, scheme_of
from hermes.domain.errors import ConfigError, HermesError

log = logging.getLogger(__name__)

GITHUB_COMMENT = "github_comment"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class HookRoute(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One route, as people write it; `read_route` names it and fills in the shared secret."""

    name: str = ""
    secret: str = ""
    signature: str | SignatureScheme = ""
    """The only scheme that counts, by its name or described; empty: any that is known."""
    agent: str = ""
    """Who is asked; empty: `routes` decide, then it is the default agent."""
    enabled: bool = True
    events: frozenset[str] = frozenset()
    """Only these; empty: all."""
    prompt: str = ""
    skills: tuple[str, ...] = ()
    filters: Filter | None = None
    script: str | None = None
    deliver: str = "log"
    deliver_extra: dict[str, Any] = {}
    deliver_only: bool = False
    description: str = ""
    created_at: Any = None

    @property
    def scheme(self) -> SignatureScheme | None:
        return scheme_of(self.signature)


class RouteRules(Struct, frozen=True, kw_only=True):
    home: Path
    """The Hermes home: files of filters are below it."""
    secret: str = ""
    """For routes that have none of their own."""
    loopback: bool = True
    """Whether only this machine reaches the port."""
    check_script: Callable[[str], None] = lambda _script: None


def read_routes(raw: Mapping[str, Any], rules: RouteRules) -> dict[str, HookRoute]:
    """Check all routes of the configuration; `ConfigError` names the first that is wrong."""
    return {str(name): read_route(str(name), written, rules) for name, written in raw.items()}


def read_route(name: str, raw: Any, rules: RouteRules) -> HookRoute:
    """Check one route; `ConfigError` says what is wrong with it."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"`{name}` cannot be the name of a webhook route.",
            hint="Use up to 64 letters, digits, dots, hyphens and underscores.",
        )
    try:
        route = msgspec.convert(
            raw,
            HookRoute,
            strict=False,
            dec_hook=lambda _, filters: Filter(filters or [], rules.home),
        )
        route = replace(
            route,
            name=name,
            secret=route.secret or rules.secret,
            deliver=route.deliver.strip() or "log",
            deliver_extra={key: as_text(value) for key, value in route.deliver_extra.items()},
        )
        _check(route, rules)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"The webhook route `{name}` is not written correctly: {error}.",
            hint="See docs/how-to/webhooks.md for what a route can have.",
        ) from None
    except ConfigError as error:
        raise ConfigError(f"Webhook route `{name}`: {error.message}", hint=error.hint) from None
    return route


def _check(route: HookRoute, rules: RouteRules) -> None:
    if not route.secret:
        raise ConfigError(
            "it has no secret, so anybody could wake the agent.",
            hint="Set `secret` for the route or for platforms.webhook.extra; "
            "`hermes webhook subscribe` makes one.",
        )
    if route.secret == NO_AUTH and not rules.loopback:
        raise ConfigError(
            f"{NO_AUTH} is for a receiver that only this machine reaches.",
            hint="Set a secret, or let platforms.webhook.extra.host be 127.0.0.1.",
        )
    check_secret(route.secret, route.scheme)
    if route.script is not None:
        rules.check_script(route.script)
    if route.deliver == GITHUB_COMMENT and not {"repo", "pr_number"} <= set(route.deliver_extra):
        raise ConfigError(
            "it delivers a GitHub comment but does not say where.",
            hint="Set deliver_extra.repo and deliver_extra.pr_number.",
        )


class RouteSource(Protocol):
    """Routes that were added at run time."""

    async def stamp(self) -> object:
        """Return a value that differs after a change."""
        ...

    async def load(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the routes as they are written; `HermesError` if they cannot be read."""
        ...


class HookRoutes:
    def __init__(
        self, fixed: Mapping[str, HookRoute], source: RouteSource, rules: RouteRules
    ) -> None:
        self._fixed = fixed
        self._source = source
        self._rules = rules
        self._added: dict[str, HookRoute] = {}
        self._stamp: object = None

    async def find(self, name: str) -> HookRoute | None:
        if name in self._fixed:
            return self._fixed[name]
        await self._refresh()
        return self._added.get(name)

    async def _refresh(self) -> None:
        """Take over what has changed in the file; keep what there is if it cannot be read."""
        stamp = await self._source.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            written = await self._source.load()
        except HermesError as error:
            log.error("webhook routes stay as they are: %s %s", error.message, error.hint)
            return
        self._added = await asyncio.to_thread(self._served, written)

    def _served(self, written: Mapping[str, Any]) -> dict[str, HookRoute]:
        """Return the routes that can work; say of the others what is wrong."""
        routes: dict[str, HookRoute] = {}
        for name, raw in written.items():
            try:
                routes[name] = read_route(name, raw, self._rules)
            except ConfigError as error:
                log.error("%s %s It is not served.", error.message, error.hint)
        return routes
