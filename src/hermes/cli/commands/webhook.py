"""`hermes webhook`: routes by which services wake the agent, while the gateway runs."""

import secrets
import time
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from hermes.app.settings import platform_section
from hermes.config.environment import process_environ
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.control.webhooks.routes import HookRoute, RouteRules, read_route
from hermes.control.webhooks.signatures import NO_AUTH, SCHEMES, SignatureScheme, sign
from hermes.domain.errors import Conflict, HermesError, NotFound, UsageError
from hermes.entry.http.settings import WebhookSettings, webhook_settings
from hermes.execution.webhook_effects import HookScripts
from hermes.state.webhook_routes import HookRouteFile

TEST_TIMEOUT = 40.0
_NAMED = "--signature (github, stripe, slack, ...)"
TEST_PAYLOAD = '{"event_type": "test", "message": "Hello from hermes webhook test"}'


@click.group("webhook")
def command() -> None:
    """Let services wake the agent: add, list, remove and test webhook routes."""


@command.command("subscribe")
@click.argument("name")
@click.option("--prompt", default=None, help="What the agent is asked; {a.b} is filled in.")
@click.option("--events", default=None, help="Only these kinds of events, with commas.")
@click.option("--deliver", default=None, help="log, github_comment, platform[:chat[:thread]].")
@click.option("--deliver-chat-id", default=None, help="The chat that results go to.")
@click.option("--deliver-only", is_flag=True, help="Forward the text without asking the agent.")
@click.option("--secret", default=None, help="The shared secret; generated if left out.")
@click.option("--signature", default=None, help="How the service signs, e.g. stripe or slack.")
@click.option("--skills", default=None, help="Skills to use, with commas.")
@click.option("--script", default=None, help="A file in the scripts directory to run first.")
@click.option("--agent", default=None, help="The agent that is asked; else routes decide.")
@click.option("--description", default=None, help="What it is for.")
def subscribe_command(
    name: str,
    deliver_only: bool,
    events: str | None,
    skills: str | None,
    deliver_chat_id: str | None,
    **written: str | None,
) -> None:
    """Add the route NAME, or change it if it was added before."""
    place = _Place()
    if name in place.settings.routes:
        raise Conflict(
            f"The route `{name}` is in config.yaml, which comes first.",
            hint="Change it there, or choose another name.",
        )
    given: dict[str, Any] = {key: value for key, value in written.items() if value is not None}
    given |= {
        key: [item.strip() for item in text.split(",") if item.strip()]
        for key, text in (("events", events), ("skills", skills))
        if text is not None
    }
    if deliver_only:
        given["deliver_only"] = True
    if deliver_chat_id is not None:
        given["deliver_extra"] = {"chat_id": deliver_chat_id}
    fresh = secrets.token_hex(32)
    made: dict[str, Any] = {}

    def edit(routes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        made.update(_merged(routes.get(name), given, fresh))
        read_route(name, made, place.rules)
        return {**routes, name: made}

    place.file.change(edit)
    _say_added(name, place.settings, fresh if made["secret"] == fresh else None)
    if not made.get("signature") and made["secret"] != NO_AUTH:
        click.echo(f"Every kind of signature is taken; name the service's with {_NAMED}")
    if not place.enabled:
        click.echo("The receiver is off: hermes config set platforms.webhook.enabled true")


@command.command("list")
def list_command() -> None:
    """List the routes, without their secrets."""
    place = _Place()
    added = {name: raw for name, raw in place.file.read().items() if not place.fixed(name)}
    if not added and not place.settings.routes:
        click.echo("There are no routes. Add one with: hermes webhook subscribe NAME")
    for origin, routes in (("config.yaml", place.settings.routes), ("added", added)):
        for name, raw in sorted(routes.items()):
            click.echo(_line(name, raw, origin, place))


@command.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Remove the route NAME."""
    place = _Place()

    def edit(routes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if name not in routes:
            hint = "List the routes with: hermes webhook list"
            if place.fixed(name):
                hint = "It is in config.yaml: remove it there."
            raise NotFound(f"No route `{name}` was added.", hint=hint)
        return {other: raw for other, raw in routes.items() if other != name}

    place.file.change(edit)
    click.echo(f"Route {name} removed.")


@command.command("test")
@click.argument("name")
@click.option("--payload", default=TEST_PAYLOAD, help="JSON, or @file.", show_default=False)
def test_command(name: str, payload: str) -> None:
    """Send a signed delivery to the running receiver and show its answer."""
    place = _Place()
    route = place.route(name)
    body = _payload(payload)
    headers = {"content-type": "application/json", "x-request-id": f"test-{secrets.token_hex(8)}"}
    if route.secret != NO_AUTH:
        scheme, now = route.scheme or SCHEMES["generic_v2"], int(time.time())
        body = _stamped(body, scheme, now)
        headers |= sign(scheme, route.secret, now, body, headers["x-request-id"])
    status, answer = _post(place.settings, f"/webhooks/{name}", body, headers)
    click.echo(f"{status} {answer}")
    if status >= 400:
        raise HermesError("The receiver refused the delivery.", hint="See the log of the gateway.")


def _stamped(body: bytes, scheme: SignatureScheme, now: int) -> bytes:
    """Return a body with the time in it, where that is the place for it."""
    place = scheme.timestamp.removeprefix("body.")
    if place == scheme.timestamp:
        return body
    return msgspec.json.encode({**msgspec.json.decode(body), place: now * 1000})


class _Place:
    def __init__(self) -> None:
        environ = process_environ()
        self.home = HermesHome.from_environ(environ)
        loaded = load_config(self.home, environ)
        receiver = loaded.config.platforms.get("webhook")
        self.enabled = receiver is not None and bool(receiver.enabled)
        self.settings = webhook_settings(platform_section(loaded, "webhook"))
        self.file = HookRouteFile(self.home)
        self.rules = RouteRules(
            home=self.home.root,
            secret=self.settings.secret,
            loopback=self.settings.loopback,
            check_script=HookScripts(self.home.scripts_dir, environ).check,
        )

    def fixed(self, name: str) -> bool:
        return name in self.settings.routes

    def route(self, name: str) -> HookRoute:
        raw = self.settings.routes.get(name) or self.file.read().get(name)
        if raw is None:
            raise NotFound(
                f"There is no route `{name}`.", hint="List the routes with: hermes webhook list"
            )
        return read_route(name, raw, self.rules)


def _merged(
    earlier: dict[str, Any] | None, given: dict[str, Any], fresh_secret: str
) -> dict[str, Any]:
    """Return the route with what was given now; the rest stays, or is as usual."""
    usual: dict[str, Any] = {
        "description": "",
        "events": [],
        "secret": fresh_secret,
        "prompt": "",
        "skills": [],
        "deliver": "log",
        "created_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {**usual, **(earlier or {}), **given}


def _say_added(name: str, settings: WebhookSettings, secret: str | None) -> None:
    click.echo(f"Route {name}: {settings.base_url}/webhooks/{name}")
    if secret is not None:
        click.echo(f"Secret (shown once): {secret}")
    click.echo(f"Try it with: hermes webhook test {name}")


def _line(name: str, raw: Any, origin: str, place: _Place) -> str:
    try:
        route = read_route(name, raw, place.rules)
    except HermesError as error:
        return f"{name}  ({origin})  not served: {error.message}"
    events = ", ".join(sorted(route.events)) or "all events"
    how = f"forwarded to {route.deliver}" if route.deliver_only else f"result to {route.deliver}"
    off = "" if route.enabled else "  switched off"
    text = f"{name}  ({origin})  {events}, {how}{off}  {route.description}"
    return "".join(c for c in text if c.isprintable()).rstrip()


def _payload(text: str) -> bytes:
    if text.startswith("@"):
        try:
            body = Path(text[1:]).read_bytes()
        except OSError as error:
            raise UsageError(f"{text[1:]} cannot be read: {error.strerror}.") from None
    else:
        body = text.encode()
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise UsageError(f"The payload is not JSON: {error}.") from None
    return body


def _post(
    settings: WebhookSettings, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, str]:
    address = urlsplit(settings.base_url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=TEST_TIMEOUT)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    except (OSError, HTTPException) as error:
        raise HermesError(
            f"Nothing answers at {settings.base_url}: {error}.",
            hint="Enable platforms.webhook and start the gateway: hermes gateway run",
        ) from None
    finally:
        connection.close()
