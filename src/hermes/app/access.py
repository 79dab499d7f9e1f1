"""Who may talk on which platform, from the configuration."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hermes.config.loader import LoadedConfig
from hermes.control.admission.authz import AuthzSettings, authz_settings

__all__ = ["access_settings", "platform_section"]


def access_settings(
    loaded: LoadedConfig, platforms: Iterable[tuple[str, str]]
) -> dict[str, AuthzSettings]:
    """Return the settings of each (platform, prefix of its variables)."""
    config = loaded.config
    gateway = {
        "allowed_users": config.gateway.allowed_users,
        "allow_all_users": config.gateway.allow_all_users,
        "unauthorized_dm_behavior": config.unauthorized_dm_behavior,
    }
    return {
        name: authz_settings(
            name,
            platform_section(loaded, name),
            gateway=gateway,
            variables=loaded.variables,
            prefix=prefix,
        )
        for name, prefix in platforms
    }


def platform_section(loaded: LoadedConfig, name: str) -> dict[str, Any]:
    """Return everything written about a platform as one mapping.

    `platforms.<name>.extra` wins over the older block `<name>:`, and the fields
    of `platforms.<name>` itself win over both where they say something.
    """
    block = getattr(loaded.config, name, None)
    section: dict[str, Any] = dict(block) if isinstance(block, Mapping) else {}
    platform = loaded.config.platforms.get(name)
    if platform is None:
        return section
    section.update(platform.extra)
    for field in msgspec.structs.fields(platform):
        value = getattr(platform, field.name)
        if field.name != "extra" and (value or field.name not in section):
            section[field.name] = value
    return section
