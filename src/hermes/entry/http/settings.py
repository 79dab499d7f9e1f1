"""Settings of the doors that listen, checked before anything does.

Each is read from its section in `platforms`; keys there that belong to other parts of the gateway
are left alone. Without a key the API server does not listen at all. A key that everybody could
guess is refused everywhere, a short one where others than this machine can connect.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.inspect import FloatType, IntType, StrType, type_info
from msgspec.structs import fields, replace

from hermes.config.environment import is_loopback
from hermes.domain.errors import ConfigError
from hermes.domain.patterns import SafePattern

MIN_KEY_LENGTH = 16
_SECTION = "platforms.api_server.extra"
_MAKE_A_KEY = "hermes config set API_SERVER_KEY $(openssl rand -hex 32)"
_PLACEHOLDERS = frozenset(
    {"changeme", "change-me", "change_me", "secret", "password", "key", "api-key", "api_key"}
    | {"your-api-key", "your_api_key", "your-secret-key", "your-key-here", "sk-xxx", "test"}
    | {"example", "placeholder", "none", "null", "undefined", "not-needed", "hermes", "todo"}
)
Port = Annotated[int, Meta(ge=0, le=65535)]
Texts = tuple[str, ...]
"""A list, or one text with commas."""
Patterns = Annotated[tuple[str, ...], "regular expressions, in which commas mean nothing"]
S = TypeVar("S", bound=Struct)


class KeyRefused(ConfigError):
    """Nothing would listen with this key; a running server lets nobody in with it."""


class ModelAlias(Struct, frozen=True, kw_only=True):
    """A name for the `model` field that stands for a language model, with an agent around it."""

    model: str
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    key_env: str = ""
    """Name of the variable that holds the key."""
    agent: str = ""
    """The agent; the default one if there is no name."""


class HttpSettings(Struct, frozen=True, kw_only=True):
    section: ClassVar[str] = _SECTION
    host: str = "127.0.0.1"
    port: Port = 8642
    keys: Texts = ()
    """Any of them is the owner's key; several, so that one can be rotated out."""
    cors_origins: Texts = ()
    allowed_hosts: Texts = ()
    model_name: str = ""
    """What the default agent is called in the `model` field; empty for `hermes`."""
    model_routes: dict[str, ModelAlias] = {}
    """Further names for the `model` field, each with the language model that it stands for."""
    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**31)] = 10 * 1024 * 1024
    body_seconds: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    """How long a client may take to send its body."""
    keepalive_seconds: Annotated[float, Meta(ge=0.01, le=3600)] = 15.0
    """Silence in a stream after which a comment is sent."""
    socket_seconds: Annotated[float, Meta(ge=0.1, le=86400)] = 3600.0
    """How old a WebSocket connection may get."""
    grace_seconds: Annotated[float, Meta(ge=0, le=600)] = 5.0
    """How long running answers may go on when the server stops."""
    max_auth_failures: Annotated[int, Meta(ge=1, le=1_000_000)] = 20
    """Wrong keys a minute from one address before it is told to slow down."""
    helper_patterns: Patterns = ()
    """What begins or holds one of them is a helper call of a web interface."""


class WebhookSettings(Struct, frozen=True, kw_only=True):
    section: ClassVar[str] = "platforms.webhook.extra"
    host: str = "127.0.0.1"
    port: Port = 8644
    secret: str = ""
    """For routes that have none of their own."""
    allowed_hosts: Texts = ()
    """Names under which a tunnel or proxy brings deliveries here."""
    rate_limit: Annotated[int, Meta(ge=0)] = 30
    """Deliveries a minute and route; 0: no limit."""
    max_body_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    script_timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    routes: dict[str, Any] = {}

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def base_url(self) -> str:
        """The address by which this machine reaches the receiver."""
        host = "127.0.0.1" if self.host in {"", "0.0.0.0", "::"} else self.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def http_settings(section: Mapping[str, Any]) -> HttpSettings:
    """Return the settings in a section; `ConfigError` if nothing may listen with them."""
    read = _read(section, HttpSettings, _SECTION)
    keys = configured_keys(section)
    if not keys:
        raise KeyRefused(
            "The API server has no key and does not start without one.",
            hint=f"Make one with: {_MAKE_A_KEY}",
        )
    for flaw in filter(None, (_flaw(key, read.host) for key in keys)):
        hint = f"Make another one with: {_MAKE_A_KEY}"
        raise KeyRefused(f"The key of the API server {flaw}.", hint=hint)
    try:
        _ = [SafePattern(pattern) for pattern in read.helper_patterns]
    except ConfigError as error:
        wanted = f"{_wanted(Patterns)}: {error.message.rstrip('.')}"
        raise _unusable(_SECTION, "helper_patterns", wanted) from error
    return replace(
        read,
        keys=keys,
        cors_origins=tuple(map(_origin, read.cors_origins)),
        allowed_hosts=tuple(host.lower() for host in read.allowed_hosts),
    )


def webhook_settings(section: Mapping[str, Any]) -> WebhookSettings:
    return _read(section, WebhookSettings, WebhookSettings.section)


def configured_keys(section: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the owner's keys: `key`, then `keys`."""
    alone, several = _value(section, "key", str), _value(section, "keys", Texts)
    return tuple(dict.fromkeys(key for key in (alone, *(several or ())) if key))


def acceptable_keys(section: Mapping[str, Any], host: str) -> tuple[str, ...]:
    """Return the owner's keys without those that nothing would listen with; none if in doubt."""
    try:
        keys = configured_keys(section)
    except ConfigError:
        return ()
    return tuple(key for key in keys if _flaw(key, host) is None)


def _flaw(key: str, host: str) -> str | None:
    if not (key.isascii() and key.isprintable()) or " " in key:
        return "has characters that a header cannot carry"
    if key.lower() in _PLACEHOLDERS or len(set(key)) == 1:
        return "is a placeholder that anybody could guess"
    if len(key) < MIN_KEY_LENGTH and not is_loopback(host):
        return (
            f"has {len(key)} characters, too few to listen on {host}: others than this machine "
            f"can connect there, and {MIN_KEY_LENGTH} are needed"
        )
    return None


def _origin(text: str) -> str:
    origin = text.rstrip("/").lower()
    if origin not in {"*", "null"} and "://" not in origin:
        wanted = f"origins like `https://chat.example.org`, or `*`; `{text}` is neither"
        raise _unusable(_SECTION, "cors_origins", wanted)
    return origin


def _read(section: Mapping[str, Any], kind: type[S], where: str) -> S:
    found = {each.name: _value(section, each.name, each.type, where) for each in fields(kind)}
    return kind(**{name: value for name, value in found.items() if value is not None})


def _value(section: Mapping[str, Any], name: str, kind: Any, where: str = _SECTION) -> Any:
    """Return a checked value; None if it is not set."""
    value = section.get(name)
    if isinstance(value, str):
        value = value.strip() or None
    if isinstance(value, str) and kind in (Texts, Patterns):
        value = value.split(",") if kind == Texts else [value]
    if kind is str and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None:
        return None
    try:
        value = msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise _unusable(where, name, _wanted(kind)) from None
    if kind in (Texts, Patterns):
        return tuple(item.strip() for item in value if item.strip())
    return value


def _wanted(kind: Any) -> str:
    """Say in words what a setting of this type may be."""
    if kind == Texts:
        return "a list of texts, or one text with commas"
    if kind == Patterns:
        return "a regular expression, or a list of them"
    match type_info(kind):
        case IntType(ge=least, gt=above, le=most) | FloatType(ge=least, gt=above, le=most):
            if most is None:
                return f"a number of at least {least}"
            low = f"from {least}" if least is not None else f"above {above}, up"
            return f"a number {low} to {most}"
        case StrType():
            return "text"
    return "a mapping"


def _unusable(where: str, name: str, wanted: str) -> ConfigError:
    hint = f"Change it with: hermes config edit ({name})"
    if where != _SECTION:
        hint = "Correct it in config.yaml; see docs/how-to/webhooks.md."
    return ConfigError(f"{where}.{name} has to be {wanted}.", hint=hint)
