"""Reading `AuthzSettings` from plain mappings: a platform's section and variables.

Lists may be written as YAML lists or with commas. What stands in several places
is put together, so a list in `.env` never takes away somebody in the file.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from hermes.control.authz import AuthzSettings, BotPolicy, ChatPolicy, Strangers
from hermes.domain.errors import ConfigError

__all__ = ["ACCESS_KEYS", "ACCESS_SUFFIXES", "authz_settings"]

PROVE_THEMSELVES = frozenset({"homeassistant", "webhook"})
"""Platforms whose messages carry a secret of their own."""

ACCESS_KEYS = frozenset(
    {"allowed_users", "allow_all_users", "group_allowed_users", "group_allowed_chats"}
    | {"allowed_roles", "allow_bots", "dm_policy", "group_policy", "unauthorized_dm_behavior"}
    | {"allow_admin_from", "user_allowed_commands"}
    | {"group_allow_admin_from", "group_user_allowed_commands"}
)
"""Keys of a platform's section that only say who may do what."""

ACCESS_SUFFIXES = tuple(f"_{name.upper()}" for name in sorted(ACCESS_KEYS))
"""The same as ends of variable names: `TELEGRAM_ALLOWED_USERS`."""

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off", "none"})
E = TypeVar("E", bound=StrEnum)


def authz_settings(
    platform: str,
    section: Mapping[str, Any],
    *,
    gateway: Mapping[str, Any],
    variables: Mapping[str, str],
    prefix: str = "",
) -> AuthzSettings:
    """Build one platform's settings.

    `section` is `platforms.<p>` with its `extra` and the older `<p>:` block laid
    into it; `gateway` has `allowed_users`, `allow_all_users` and
    `unauthorized_dm_behavior` for all platforms. `ConfigError` for a word that
    means nothing: who may talk is never guessed.
    """
    source = _Source(platform, section, variables, prefix or platform.upper())
    strangers = source.word("unauthorized_dm_behavior", Strangers)
    if strangers is None:
        strangers = _word(
            gateway.get("unauthorized_dm_behavior"), Strangers, "unauthorized_dm_behavior"
        )
    return AuthzSettings(
        platform=platform,
        trusted=platform in PROVE_THEMSELVES,
        users=source.names("allowed_users") or frozenset(),
        group_users=source.names("group_allowed_users") or frozenset(),
        group_chats=source.names("group_allowed_chats") or frozenset(),
        gateway_users=_names(gateway.get("allowed_users"))
        | _names(variables.get("GATEWAY_ALLOWED_USERS")),
        roles=source.names("allowed_roles") or frozenset(),
        allow_all=source.flag("allow_all_users"),
        gateway_allow_all=_flag(gateway.get("allow_all_users"), "gateway.allow_all_users")
        or _flag(variables.get("GATEWAY_ALLOW_ALL_USERS"), "GATEWAY_ALLOW_ALL_USERS"),
        bots=source.bots(),
        dm_policy=source.word("dm_policy", ChatPolicy),
        group_policy=source.word("group_policy", ChatPolicy),
        strangers=strangers,
        admins=source.names("allow_admin_from"),
        user_commands=_commands(source.names("user_allowed_commands")),
        group_admins=source.names("group_allow_admin_from"),
        group_user_commands=_commands(source.names("group_user_allowed_commands")),
    )


class _Source:
    """One platform's section and variables, read by key."""

    def __init__(
        self, platform: str, section: Mapping[str, Any], variables: Mapping[str, str], prefix: str
    ) -> None:
        self._platform = platform
        self._section = section
        self._variables = variables
        self._prefix = prefix

    def _variable(self, key: str) -> str | None:
        return self._variables.get(f"{self._prefix}_{key.upper()}") or None

    def _where(self, key: str) -> str:
        return f"platforms.{self._platform}.{key}"

    def names(self, key: str) -> frozenset[str] | None:
        """Return the names under `key`; None when it is written nowhere."""
        found = [v for v in (self._section.get(key), self._variable(key)) if v not in (None, "")]
        return frozenset[str]().union(*map(_names, found)) if found else None

    def flag(self, key: str) -> bool:
        """Return whether `key` is switched on anywhere."""
        values = (self._section.get(key), self._variable(key))
        return any(_flag(value, self._where(key)) for value in values)

    def word(self, key: str, kind: type[E]) -> E | None:
        """Return what `key` says; the variable wins."""
        value = self._variable(key) or self._section.get(key)
        return _word(value, kind, self._where(key))

    def bots(self) -> BotPolicy:
        """Return what happens to bots; `true` means all of them."""
        value = self._variable("allow_bots") or self._section.get("allow_bots")
        if isinstance(value, bool):
            return BotPolicy.ALL if value else BotPolicy.NONE
        text = str(value or "").strip().lower()
        if text in _FALSE:
            return BotPolicy.NONE
        if text in _TRUE:
            return BotPolicy.ALL
        return _word(text, BotPolicy, self._where("allow_bots")) or BotPolicy.NONE


def _names(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, int):
        items = [items]
    return frozenset(name for item in items if (name := str(item).strip()))


def _commands(names: frozenset[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(name.lstrip("/").lower() for name in names)


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, bool) or value is None:
        return bool(value)
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ConfigError(f"{where} is `{value}`, which is neither true nor false.")


def _word(value: Any, kind: type[E], where: str) -> E | None:
    text = str(value or "").strip().lower()
    if not text:
        return None
    if text not in set(kind):
        raise ConfigError(
            f"{where} is `{text}`, which does not exist.", hint=f"Use one of: {', '.join(kind)}."
        )
    return kind(text)
