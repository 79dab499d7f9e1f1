"""Who may talk on which platform, from the configuration."""

from collections.abc import Iterable
from typing import Any

from hermes.config.loader import LoadedConfig
from hermes.control.admission.authz import AuthzSettings, authz_settings


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

    What `platforms.<name>` itself says wins over its `extra`.
    """
    platform = loaded.config.platforms.get(name)
    if platform is None:
        return {}
    own = {
        "token": platform.token,
        "allowed_users": platform.allowed_users,
        "allow_all_users": platform.allow_all_users,
    }
    return {**platform.extra, **{key: value for key, value in own.items() if value}}
