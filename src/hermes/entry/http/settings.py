"""Settings of `platforms.api_server`, checked before anything listens.

Without a key nothing listens at all. A key that everybody could guess is
refused everywhere, a short one where others than this machine can connect.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hermes.config.environment import is_loopback
from hermes.domain.errors import ConfigError

MIN_KEY_LENGTH = 16
_SECTION = "platforms.api_server.extra"
_MAKE_A_KEY = "hermes config set API_SERVER_KEY $(openssl rand -hex 32)"
_PLACEHOLDERS = frozenset(
    {"changeme", "change-me", "change_me", "secret", "password", "key", "api-key", "api_key"}
    | {"your-api-key", "your_api_key", "your-secret-key", "your-key-here", "sk-xxx", "test"}
    | {"example", "placeholder", "none", "null", "undefined", "not-needed", "hermes", "todo"}
)


class HttpSettings(Struct, frozen=True, kw_only=True):
    """How the API server listens and what it lets through."""

    host: str = "127.0.0.1"
    port: int = 8642
    keys: tuple[str, ...] = ()
    """Any of them is the owner's key; several, so that one can be rotated out."""
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    model_name: str = ""
    """What the default agent is called in the `model` field; empty for `hermes`."""
    max_body_bytes: int = 10 * 1024 * 1024
    body_seconds: float = 60.0
    """How long a client may take to send its body."""
    keepalive_seconds: float = 15.0
    """Silence in a stream after which a comment is sent."""
    grace_seconds: float = 5.0
    """How long running answers may go on when the server stops."""
    max_auth_failures: int = 20
    """Wrong keys a minute from one address before it is told to slow down."""
    helper_patterns: tuple[str, ...] = ()
    """Regular expressions: what begins or holds them is a helper call of a web interface."""


def http_settings(section: Mapping[str, Any]) -> HttpSettings:
    """Return the settings in a section; `ConfigError` if nothing may listen with them."""
    host = _text(section, "host") or "127.0.0.1"
    keys = configured_keys(section)
    _check_keys(keys, host)
    return HttpSettings(
        host=host,
        port=int(_number(section, "port", 8642, 0, 65535)),
        keys=keys,
        cors_origins=tuple(_origin(item) for item in _list(section, "cors_origins")),
        allowed_hosts=tuple(item.lower() for item in _list(section, "allowed_hosts")),
        model_name=_text(section, "model_name"),
        max_body_bytes=int(_number(section, "max_body_bytes", 10 * 1024 * 1024, 1024, 2**31)),
        body_seconds=_number(section, "body_seconds", 60.0, 1, 3600),
        keepalive_seconds=_number(section, "keepalive_seconds", 15.0, 0.01, 3600),
        grace_seconds=_number(section, "grace_seconds", 5.0, 0, 600),
        max_auth_failures=int(_number(section, "max_auth_failures", 20, 1, 1_000_000)),
        helper_patterns=_patterns(section, "helper_patterns"),
    )


def configured_keys(section: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the owner's keys: `key`, then `keys`."""
    named = (_text(section, "key"), *_list(section, "keys"))
    return tuple(dict.fromkeys(key for key in named if key))


def acceptable_keys(section: Mapping[str, Any], host: str) -> tuple[str, ...]:
    """Return the owner's keys without those that nothing would listen with; none if in doubt."""
    try:
        keys = configured_keys(section)
    except ConfigError:
        return ()
    return tuple(key for key in keys if _is_acceptable(key, host))


def _is_acceptable(key: str, host: str) -> bool:
    try:
        _check_key(key, host)
    except ConfigError:
        return False
    return True


def _check_keys(keys: Sequence[str], host: str) -> None:
    if not keys:
        raise ConfigError(
            "The API server has no key and does not start without one.",
            hint=f"Make one with: {_MAKE_A_KEY}",
        )
    for key in keys:
        _check_key(key, host)


def _check_key(key: str, host: str) -> None:
    if any(c.isspace() or not c.isprintable() for c in key) or not key.isascii():
        raise ConfigError(
            "The key of the API server has characters that a header cannot carry.",
            hint=f"Make another one with: {_MAKE_A_KEY}",
        )
    if key.lower() in _PLACEHOLDERS or len(set(key)) == 1:
        raise ConfigError(
            "The key of the API server is a placeholder that anybody could guess.",
            hint=f"Make a real one with: {_MAKE_A_KEY}",
        )
    if len(key) < MIN_KEY_LENGTH and not is_loopback(host):
        raise ConfigError(
            f"The key of the API server has {len(key)} characters, too few to listen on {host}"
            f": others than this machine can connect there, and {MIN_KEY_LENGTH} are needed.",
            hint=f"Make a longer one with: {_MAKE_A_KEY}",
        )


def _text(section: Mapping[str, Any], name: str) -> str:
    value = section.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _wrong(name, "text")
    return str(value).strip()


def _list(section: Mapping[str, Any], name: str) -> list[str]:
    value = section.get(name)
    if isinstance(value, str):
        value = value.split(",")
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise _wrong(name, "a list of texts, or one text with commas")
    return [item.strip() for item in value if item.strip()]


def _patterns(section: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return regular expressions: one text, or a list; commas mean nothing in them."""
    value = section.get(name)
    items = [value] if isinstance(value, str) else value or []
    wanted = "a regular expression, or a list of them"
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise _wrong(name, wanted)
    for item in items:
        try:
            re.compile(item)
        except re.error as error:
            raise _wrong(name, f"{wanted}; `{item}` is none: {error}") from error
    return tuple(item for item in items if item)


def _number(
    section: Mapping[str, Any], name: str, default: float, least: float, most: float
) -> float:
    value = section.get(name)
    if value is None or value == "":
        return default
    try:
        number = float(value) if not isinstance(value, bool) else least - 1
    except (TypeError, ValueError):
        number = least - 1
    if not least <= number <= most:
        raise _wrong(name, f"a number from {least:g} to {most:g}")
    return number


def _origin(text: str) -> str:
    origin = text.rstrip("/").lower()
    if origin not in {"*", "null"} and "://" not in origin:
        raise _wrong("cors_origins", "origins like `https://chat.example.org`, or `*`")
    return origin


def _wrong(name: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"{_SECTION}.{name} has to be {wanted}.",
        hint=f"Change it with: hermes config edit ({name})",
    )
