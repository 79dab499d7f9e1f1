"""Section: the base of every configuration struct.

A section is frozen and never shows a secret: `repr` masks by field name and
looks into nested mappings, so a config in a log line or a traceback is safe.
"""

from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import fields

T = TypeVar("T")

RESTART = "needs a restart"
AtStart = Annotated[T, RESTART]
"""A setting, or a section, that is read once when the gateway starts."""

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Hour = Annotated[int, Meta(ge=0, le=23)]
Port = Annotated[int, Meta(ge=0, le=65535)]

_SECRET_WORDS = frozenset(
    {"apikey", "authorization", "cookie", "credential", "credentials", "key", "passphrase"}
    | {"password", "passwd", "pat", "secret", "token", "keys", "passwords", "secrets", "tokens"}
)
_ALSO_SECRET = frozenset({"password_hash"})
_NOT_SECRET = frozenset(
    {"record_key", "ssh_key", "terminal_ssh_key", "public_key", "rule_key"}
    | {"max_tokens", "session_tokens", "day_tokens", "context_tokens"}
)
_MASK = "***"


def is_secret_name(name: str) -> bool:
    """Tell whether a key or variable with this name holds a secret."""
    folded = name.lower().replace("-", "_")
    if folded in _ALSO_SECRET:
        return True
    return folded.rsplit("_", 1)[-1] in _SECRET_WORDS and folded not in _NOT_SECRET


def masked(name: str, value: Any) -> Any:
    """Return `value` with everything secret in it replaced by a mask."""
    if isinstance(value, dict):
        return {key: masked(str(key), item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(masked(name, item) for item in value)
    if isinstance(value, list):
        return [masked(name, item) for item in value]
    if isinstance(value, str) and value and is_secret_name(name):
        return _MASK
    return value


class Section(Struct, frozen=True, kw_only=True):
    """One mapping of the configuration."""

    def __repr__(self) -> str:
        shown = (f"{f.name}={masked(f.name, getattr(self, f.name))!r}" for f in fields(self))
        return f"{type(self).__name__}({', '.join(shown)})"
