"""Signatures: the proof of who sent a webhook delivery.

A scheme is data: the header that carries the signature, the algorithm, what is signed, the
encoding, and where the time stands. Those that services use are in `SCHEMES`; a route may name
one of them or describe its own. Without that a request is checked by the strongest scheme whose
header it carries, and by that one only: a wrong strong signature is not made good by a right weak
one.

Where a scheme has a time, deliveries are accepted within its tolerance. What was signed with one
is no body of a scheme without: the same signature would be right for both. All comparisons take
the same time wherever the values differ. Places are named alike everywhere: a header by its name,
`signature.t` for the field `t` of a header such as `t=1,v1=ab`, `body.a.b` for a field of the JSON.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Container, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from hermes.domain.errors import ConfigError
from hermes.domain.nesting import MAX_VALUES, more_values_than

NO_AUTH = "INSECURE_NO_AUTH"
"""Instead of a secret: everybody who reaches the port is believed."""
MAX_SIGNATURES = 16
MAX_HEAD = 512
"""Of a body, in which a time that was signed is looked for."""
_WHSEC = "whsec_"
_PLACES = re.compile(r"\{(\w+)\}")
_MILLISECONDS = 10**11
"""From here on a time is not in seconds."""
_SIGNED, _IN_BODY = "signature.", "body."
_TIMED = re.compile(rb'(?:[^=&{"\[\s]*={0,2}[.:])?\d{9,14}[^=&\d]')
"""How what is signed with a time begins, after an id or not; no JSON and no form begins so."""


class SignatureScheme(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a service signs its deliveries."""

    header: Annotated[str, Meta(min_length=1)]
    """Carries the signature, or several with spaces between them."""
    name: str = "custom"
    algorithm: Literal["sha256", "sha1", "sha512", "none"] = "sha256"
    """Of the HMAC; `none`: the header holds the secret itself."""
    encoding: Literal["hex", "base64"] = "hex"
    signed: str = "{body}"
    """What is signed: `{body}`, with `{timestamp}` and `{id}` as far as they are part of it."""
    prefix: str = ""
    """What may stand before each signature, such as `sha256=`."""
    field: str = ""
    """The field with the signature, if the header is a list such as `t=1,v1=ab`."""
    timestamp: str = ""
    """Where the time is, in seconds or milliseconds; empty: there is none."""
    tolerance: Annotated[float, Meta(gt=0)] = 300.0
    """How many seconds it may differ from ours."""
    key: Literal["text", "base64", "hex", "whsec"] = "text"
    """How the secret is written; `whsec`: base64 after `whsec_`, otherwise text."""
    id: str = ""
    """Where the sender's id of the delivery is."""
    event: str = ""
    """Where the kind of the event is."""


def _named(*schemes: SignatureScheme) -> dict[str, SignatureScheme]:
    return {scheme.name: scheme for scheme in schemes}


def _svix(name: str, prefix: str) -> SignatureScheme:
    return SignatureScheme(
        name=name,
        header=f"{prefix}-signature",
        encoding="base64",
        signed="{id}.{timestamp}.{body}",
        prefix="v1,",
        timestamp=f"{prefix}-timestamp",
        key="whsec",
        id=f"{prefix}-id",
    )


NONE = SignatureScheme(name="none", header="-", algorithm="none")
"""Nothing is asked for."""
SCHEMES = _named(
    _svix("svix", "svix"),
    _svix("standard", "webhook"),
    SignatureScheme(
        name="generic_v2",
        header="x-webhook-signature-v2",
        signed="{timestamp}.{body}",
        prefix="sha256=",
        timestamp="x-webhook-timestamp",
    ),
    SignatureScheme(
        name="stripe",
        header="stripe-signature",
        signed="{timestamp}.{body}",
        field="v1",
        timestamp="signature.t",
        id="body.id",
    ),
    SignatureScheme(
        name="slack",
        header="x-slack-signature",
        signed="v0:{timestamp}:{body}",
        prefix="v0=",
        timestamp="x-slack-request-timestamp",
        id="body.event_id",
        event="body.event.type",
    ),
    SignatureScheme(
        name="linear",
        header="linear-signature",
        timestamp="body.webhookTimestamp",
        tolerance=60.0,
        id="linear-delivery",
        event="linear-event",
    ),
    SignatureScheme(
        name="shopify",
        header="x-shopify-hmac-sha256",
        encoding="base64",
        id="x-shopify-webhook-id",
        event="x-shopify-topic",
    ),
    SignatureScheme(
        name="github", header="x-hub-signature-256", prefix="sha256=", id="x-github-delivery"
    ),
    SignatureScheme(name="generic_v1", header="x-webhook-signature", prefix="sha256="),
    SignatureScheme(
        name="gitlab", header="x-gitlab-token", algorithm="none", id="x-gitlab-event-uuid"
    ),
)
"""The strongest first."""
_ID_HEADERS = (
    "x-github-delivery",
    "svix-id",
    "x-request-id",
    "webhook-id",
    "x-gitlab-event-uuid",
)


def scheme_of(written: str | SignatureScheme) -> SignatureScheme | None:
    """Return the scheme that a route names or describes; None if it does neither."""
    if not written:
        return None
    if isinstance(written, str):
        if written not in SCHEMES:
            raise ConfigError(
                f"there is no signature scheme `{written}`.",
                hint=f"Known are {', '.join(SCHEMES)}; others are described by their `header`.",
            )
        return SCHEMES[written]
    named = set(_PLACES.findall(written.signed))
    if "body" not in named or not named <= {"body", "timestamp", "id"}:
        raise ConfigError(
            f"`signed: {written.signed}` cannot be checked.",
            hint="Use {body}, and {timestamp} and {id} where they are signed, too.",
        )
    for place in ("timestamp", "id"):
        if place in named and not getattr(written, place):
            raise ConfigError(f"`{place}` is signed, but it is not said where it is.")
    places = {
        name: place if place.startswith((_SIGNED, _IN_BODY)) else place.lower()
        for name in ("header", "timestamp", "id", "event")
        if (place := getattr(written, name))
    }
    return replace(written, **places)


def check_secret(secret: str, scheme: SignatureScheme | None = None) -> None:
    """Raise `ConfigError` for a secret that could never verify anything."""
    if secret == NO_AUTH:
        return
    try:
        _key(scheme or SCHEMES["svix"], secret)
    except (binascii.Error, ValueError):
        kind = scheme.key if scheme is not None and scheme.key != "whsec" else "base64"
        known = secret.startswith(_WHSEC) and kind == "base64"
        what = f"A secret that begins with `{_WHSEC}` goes on" if known else "The secret has to be"
        raise ConfigError(
            f"{what} in {kind}, and this one is not.",
            hint="Copy the signing secret again, as a whole; or name the service, as in "
            "`signature: stripe`.",
        ) from None


def verified_by(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    scheme: SignatureScheme | None = None,
) -> SignatureScheme | None:
    """Return the scheme that a delivery was verified by; None if it is not genuine.

    With a scheme of the route only that one counts.
    """
    if secret == NO_AUTH:
        return NONE
    found = scheme or next((each for each in SCHEMES.values() if each.header in headers), None)
    if found is None or found.header not in headers or not secret:
        return None
    return found if _genuine(found, secret, headers, body, now) else None


def carries_signature(
    secret: str, names: Container[bytes], scheme: SignatureScheme | None = None
) -> bool:
    """Tell by the names of its headers whether a request can be genuine at all."""
    wanted = SCHEMES.values() if scheme is None else (scheme,)
    return secret == NO_AUTH or any(each.header.encode() in names for each in wanted)


def identity(
    scheme: SignatureScheme, headers: Mapping[str, str], body: bytes
) -> tuple[str | None, str | None]:
    """Return the sender's id of a genuine delivery, and a digest of what was signed without it.

    What was signed and comes again is the same delivery, whatever id stands beside it. Where the
    id is signed, or nothing is, the id is as good as all the rest.
    """
    given: str | None = found(scheme.id, scheme, headers, body)
    if "{id}" in scheme.signed:
        return given, None
    given = given or next((headers[name] for name in _ID_HEADERS if headers.get(name)), None)
    if scheme.algorithm == "none":
        return given, None
    signed = "{timestamp}" in scheme.signed
    time = found(scheme.timestamp, scheme, headers, body) if signed else ""
    proof = hashlib.sha256(f"{time}.".encode() + body).hexdigest()
    return given or (f"signed-{proof[:32]}" if time else None), proof


def sign(
    scheme: SignatureScheme, secret: str, timestamp: int, body: bytes, delivery_id: str = ""
) -> dict[str, str]:
    """Return the headers of a delivery; a time or an id in the body is there already."""
    time, headers = str(timestamp), dict[str, str]()
    for place, value in ((scheme.timestamp, time), (scheme.id, delivery_id)):
        if place and value and not place.startswith((_SIGNED, _IN_BODY)):
            headers[place] = value
    if scheme.algorithm == "none":
        return {**headers, scheme.header: secret}
    signature = _mac(scheme, secret, _message(scheme, time, delivery_id, body))
    if scheme.field:
        stamp = f"{scheme.timestamp.removeprefix(_SIGNED)}={time},"
        stamp = stamp if scheme.timestamp.startswith(_SIGNED) else ""
        return {**headers, scheme.header: f"{stamp}{scheme.field}={scheme.prefix}{signature}"}
    return {**headers, scheme.header: f"{scheme.prefix}{signature}"}


def sign_v2(secret: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a delivery signed by the generic scheme with a time."""
    signed = sign(SCHEMES["generic_v2"], secret, timestamp, body)
    return {name: value.removeprefix("sha256=") for name, value in signed.items()}


def found(place: str, scheme: SignatureScheme, headers: Mapping[str, str], body: bytes) -> str:
    """Return what stands at a place that a scheme names; empty if there is nothing."""
    if place.startswith(_SIGNED):
        wanted = place.removeprefix(_SIGNED)
        values = _fields(headers.get(scheme.header, ""))
        return next((value for name, value in values if name == wanted), "")
    if not place.startswith(_IN_BODY):
        return headers.get(place, "") if place else ""
    try:
        value = read_json(body)
    except ValueError:
        return ""
    for name in place.removeprefix(_IN_BODY).split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return str(value) if isinstance(value, str | int) else ""


def read_json(body: bytes) -> Any:
    """Return what a body says; `ValueError` if it is no JSON, or more than anybody sends."""
    if more_values_than(MAX_VALUES, body):
        raise ValueError("too many values")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("no JSON") from error


def _genuine(
    scheme: SignatureScheme, secret: str, headers: Mapping[str, str], body: bytes, now: float
) -> bool:
    carried = headers[scheme.header]
    if scheme.algorithm == "none":
        return _same(carried, secret)
    time = found(scheme.timestamp, scheme, headers, body)
    if scheme.timestamp and not _recent(time, now, scheme.tolerance):
        return False
    delivery_id = found(scheme.id, scheme, headers, body)
    if "{id}" in scheme.signed and not delivery_id:
        return False
    if "{timestamp}" not in scheme.signed and _TIMED.match(body, 0, MAX_HEAD):
        return False
    expected = _mac(scheme, secret, _message(scheme, time, delivery_id, body))
    given = carried.split(" ")
    if scheme.field:
        given = [value for name, value in _fields(carried) if name == scheme.field]
    # All are compared, so that the time does not tell which of them was right.
    tried = given[:MAX_SIGNATURES]
    return any([_same(each.removeprefix(scheme.prefix), expected) for each in tried])  # noqa: C419


def _fields(header: str) -> list[tuple[str, str]]:
    pairs = (each.strip().partition("=") for each in header.split(","))
    return [(name, value) for name, _, value in pairs]


def _message(scheme: SignatureScheme, time: str, delivery_id: str, body: bytes) -> bytes:
    """Return what is signed, in one pass: a value may look like a place itself."""
    values = {"body": body, "timestamp": time.encode(), "id": delivery_id.encode()}
    parts = _PLACES.split(scheme.signed)
    return b"".join(
        values[part] if number % 2 else part.encode() for number, part in enumerate(parts)
    )


def _mac(scheme: SignatureScheme, secret: str, message: bytes) -> str:
    digest = hmac.new(_key(scheme, secret), message, scheme.algorithm).digest()
    return digest.hex() if scheme.encoding == "hex" else base64.b64encode(digest).decode()


def _key(scheme: SignatureScheme, secret: str) -> bytes:
    """Return the key that a secret stands for; `ValueError` if it stands for none."""
    kind = scheme.key
    if kind == "whsec":
        kind = "base64" if secret.startswith(_WHSEC) else "text"
        secret = secret.removeprefix(_WHSEC)
    if kind == "text":
        return secret.encode()
    key = bytes.fromhex(secret) if kind == "hex" else base64.b64decode(secret, validate=True)
    if not key:
        raise ValueError("the key is empty")
    return key


def _recent(timestamp: str, now: float, tolerance: float) -> bool:
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 14):
        return False
    time = int(timestamp)
    return abs(now - (time / 1000 if time >= _MILLISECONDS else time)) <= tolerance


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
