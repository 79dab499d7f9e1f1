"""Which variables a child process gets to see.

Secrets of Hermes stay with Hermes: the named ones and everything that looks
like one are left out, unless `env_passthrough` lets a name through.
"""

from collections.abc import Collection, Mapping

_SECRET_ENDINGS = (
    "_API_KEY",
    "_APIKEY",
    "_ACCESS_KEY",
    "_CREDENTIALS",
    "_KEY_ID",
    "_PASSPHRASE",
    "_PASSWORD",
    "_PRIVATE_KEY",
    "_SECRET",
    "_SECRET_KEY",
    "_TOKEN",
)
_SECRET_NAMES = frozenset(
    {"API_KEY", "PASSWORD", "SECRET", "TOKEN", "DATABASE_URL", "PGPASSWORD", "MYSQL_PWD"}
)


def looks_secret(name: str) -> bool:
    """Tell whether a variable of this name usually holds a secret."""
    upper = name.upper()
    return upper in _SECRET_NAMES or upper.endswith(_SECRET_ENDINGS)


def child_environment(
    base_env: Mapping[str, str],
    secret_names: Collection[str] = (),
    env_passthrough: Collection[str] = (),
) -> dict[str, str]:
    """Return what of `base_env` a child may have."""
    return {
        name: value
        for name, value in base_env.items()
        if name in env_passthrough or not (name in secret_names or looks_secret(name))
    }
