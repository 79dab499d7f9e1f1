"""A delivery as it came in, and the answer it gets."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from hermes.control.webhooks.signatures import Scheme
from hermes.domain.errors import HermesError

__all__ = ["HookAnswer", "HookRefused", "HookRequest", "delivery_id_of", "event_of", "parse_body"]

MAX_FORM_FIELDS = 1000
MAX_EVENT_CHARS = 100
UNKNOWN_EVENT = "unknown"
_ID = re.compile(r"[\x21-\x7e]{1,200}")
_ID_HEADERS = (
    "x-github-delivery",
    "svix-id",
    "x-request-id",
    "webhook-id",
    "x-gitlab-event-uuid",
)
_EVENT_HEADERS = ("x-github-event", "x-gitlab-event")
_EVENT_FIELDS = ("event_type", "type")


class HookRequest(Struct, frozen=True, kw_only=True):
    """What a service sent."""

    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class HookAnswer(Struct, frozen=True, kw_only=True):
    """What the service is told."""

    status: int
    body: dict[str, Any]
    retry_after: int | None = None
    """Seconds."""


class HookRefused(HermesError):
    """A delivery that is not taken."""

    code = "webhook_refused"

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def answer(self) -> HookAnswer:
        """Return what the service is told."""
        body = {"status": "error", "error": self.message}
        return HookAnswer(status=self.status, body=body, retry_after=self.retry_after)


def parse_body(body: bytes) -> Any:
    """Return the payload: a JSON object or list, or the fields of a form."""
    try:
        payload = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        payload = _form(body)
    if not isinstance(payload, (dict, list)):
        raise HookRefused(400, "The body is neither a JSON object or list nor a form.")
    return payload


def event_of(headers: Mapping[str, str], payload: Any) -> str:
    """Return what kind of event it is, or `unknown`."""
    named: list[Any] = [headers.get(name) for name in _EVENT_HEADERS]
    if isinstance(payload, dict):
        named += [payload.get(name) for name in _EVENT_FIELDS]
    for name in named:
        if isinstance(name, str) and name.strip():
            return _printable(name.strip())[:MAX_EVENT_CHARS] or UNKNOWN_EVENT
    return UNKNOWN_EVENT


def delivery_id_of(route: str, request: HookRequest, scheme: Scheme) -> str:
    """Return the sender's id of the delivery, or else one made of what it sent.

    An id that the signature covers comes before one that anybody could change.
    A body without an id is known by itself, so its repetition is recognised.
    """
    headers = request.headers
    if scheme is Scheme.SVIX:
        names: tuple[str, ...] = ("svix-id", "webhook-id")
    else:
        names = _ID_HEADERS
    given = next((headers[name] for name in names if headers.get(name)), None)
    if given is None:
        digest = hashlib.sha256(route.encode() + b"\0" + request.body).hexdigest()
        return f"body-{digest[:40]}"
    if _ID.fullmatch(given) is None:
        raise HookRefused(400, "The delivery id has more than 200 or unusual characters.")
    return given


def _form(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MAX_FORM_FIELDS,
        )
    except ValueError:
        raise HookRefused(400, "The body is neither JSON nor a form.") from None
    if not pairs:
        raise HookRefused(400, "The body is empty.")
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], list):
            fields[name].append(value)
        else:
            fields[name] = [fields[name], value]
    return _unpacked(fields)


def _unpacked(fields: dict[str, Any]) -> Any:
    """Return the JSON in a form's only field `payload`, which is how GitHub sends forms."""
    inner = fields.get("payload")
    if len(fields) != 1 or not isinstance(inner, str):
        return fields
    try:
        return msgspec.json.decode(inner)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return fields


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())
