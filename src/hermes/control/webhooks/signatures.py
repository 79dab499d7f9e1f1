"""Signatures: the proof of who sent a webhook delivery.

A request is checked by the strongest scheme whose header it carries, and by
that one only: a wrong strong signature is not made good by a right weak one.
Schemes that sign a time are accepted within five minutes of it. All
comparisons take the same time wherever the values differ.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Container, Mapping
from enum import StrEnum

from hermes.domain.errors import ConfigError

NO_AUTH = "INSECURE_NO_AUTH"
"""Instead of a secret: everybody who reaches the port is believed."""
WINDOW_SECONDS = 300
MAX_SIGNATURES = 16
_SVIX_PREFIX = "whsec_"


class Scheme(StrEnum):
    """How a delivery proves where it comes from, the strongest first."""

    SVIX = "svix"
    """HMAC over id, time and body."""
    GENERIC_V2 = "generic_v2"
    """HMAC over time and body."""
    GITHUB = "github"
    """HMAC over the body."""
    GENERIC_V1 = "generic_v1"
    """HMAC over the body."""
    GITLAB = "gitlab"
    """The secret itself."""
    NONE = "none"
    """Nothing is asked for."""


def check_secret(secret: str) -> None:
    """Raise `ConfigError` for a secret that could never verify anything."""
    if secret.startswith(_SVIX_PREFIX):
        try:
            key = _svix_key(secret)
        except (binascii.Error, ValueError):
            key = b""
        if not key:
            raise ConfigError(
                "A secret that begins with `whsec_` goes on in base64, and this one does not.",
                hint="Copy the signing secret again, as a whole.",
            )


def verified_by(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Scheme | None:
    """Return the scheme that a delivery was verified by; None if it is not genuine."""
    if secret == NO_AUTH:
        return Scheme.NONE
    scheme = _scheme_of(headers)
    if scheme is None or not secret:
        return None
    return scheme if _genuine(scheme, secret, headers, body, now) else None


def carries_signature(secret: str, names: Container[bytes]) -> bool:
    """Tell by the names of its headers whether a request can be genuine at all."""
    signed = (name.encode() for _, all_names in _SIGNATURE_HEADERS for name in all_names)
    return secret == NO_AUTH or any(name in names for name in signed)


def identity(
    scheme: Scheme, headers: Mapping[str, str], body: bytes
) -> tuple[str | None, str | None]:
    """Return the sender's id of a genuine delivery, and a digest of what was signed without it.

    What was signed and comes again is the same delivery, whatever id stands beside it. Where the
    id is signed, or nothing is, the id is as good as all the rest.
    """
    if scheme is Scheme.SVIX:
        return headers[f"{_svix_prefix(headers)}-id"], None
    given = next((headers[name] for name in _ID_HEADERS if headers.get(name)), None)
    if scheme in (Scheme.GITLAB, Scheme.NONE):
        return given, None
    time = headers["x-webhook-timestamp"] if scheme is Scheme.GENERIC_V2 else ""
    proof = hashlib.sha256(f"{time}.".encode() + body).hexdigest()
    return given or (f"signed-{proof[:32]}" if time else None), proof


def sign_v2(secret: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a delivery signed by the generic scheme with a time."""
    signature = _hex_mac(secret, f"{timestamp}.".encode() + body)
    return {"x-webhook-timestamp": str(timestamp), "x-webhook-signature-v2": signature}


def _scheme_of(headers: Mapping[str, str]) -> Scheme | None:
    for scheme, names in _SIGNATURE_HEADERS:
        if any(name in headers for name in names):
            return scheme
    return None


_ID_HEADERS = (
    "x-github-delivery",
    "svix-id",
    "x-request-id",
    "webhook-id",
    "x-gitlab-event-uuid",
)
_SIGNATURE_HEADERS: tuple[tuple[Scheme, tuple[str, ...]], ...] = (
    (Scheme.SVIX, ("svix-signature", "webhook-signature")),
    (Scheme.GENERIC_V2, ("x-webhook-signature-v2",)),
    (Scheme.GITHUB, ("x-hub-signature-256",)),
    (Scheme.GENERIC_V1, ("x-webhook-signature",)),
    (Scheme.GITLAB, ("x-gitlab-token",)),
)


def _genuine(
    scheme: Scheme, secret: str, headers: Mapping[str, str], body: bytes, now: float
) -> bool:
    match scheme:
        case Scheme.SVIX:
            return _svix(secret, headers, body, now)
        case Scheme.GENERIC_V2:
            sent = headers.get("x-webhook-timestamp", "")
            expected = _hex_mac(secret, f"{sent}.".encode() + body)
            given = headers["x-webhook-signature-v2"].removeprefix("sha256=")
            return _recent(sent, now) and _same(given, expected)
        case Scheme.GITHUB:
            return _same(headers["x-hub-signature-256"], f"sha256={_hex_mac(secret, body)}")
        case Scheme.GENERIC_V1:
            given = headers["x-webhook-signature"].removeprefix("sha256=")
            return _same(given, _hex_mac(secret, body))
        case Scheme.GITLAB:
            return _same(headers["x-gitlab-token"], secret)
        case _:
            return False


def _svix(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    prefix = _svix_prefix(headers)
    message_id, sent = headers.get(f"{prefix}-id", ""), headers.get(f"{prefix}-timestamp", "")
    if not message_id or not _recent(sent, now):
        return False
    signed = f"{message_id}.{sent}.".encode() + body
    mac = hmac.new(_svix_key(secret), signed, hashlib.sha256).digest()
    expected = f"v1,{base64.b64encode(mac).decode()}"
    given = headers[f"{prefix}-signature"].split(" ")[:MAX_SIGNATURES]
    # All are compared, so that the time does not tell which of them was right.
    return any([_same(each, expected) for each in given])  # noqa: C419


def _svix_prefix(headers: Mapping[str, str]) -> str:
    return "svix" if "svix-signature" in headers else "webhook"


def _svix_key(secret: str) -> bytes:
    if not secret.startswith(_SVIX_PREFIX):
        return secret.encode()
    return base64.b64decode(secret.removeprefix(_SVIX_PREFIX), validate=True)


def _recent(timestamp: str, now: float) -> bool:
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):
        return False
    return abs(now - int(timestamp)) <= WINDOW_SECONDS


def _hex_mac(secret: str, message: bytes) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
