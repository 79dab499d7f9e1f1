"""The process environment, read in this one place.

Everything else receives a mapping, so tests and embedding programs decide
what Hermes sees.
"""

import ipaddress
import os
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit


def process_environ() -> Mapping[str, str]:
    """Return a copy of the environment this process was started with."""
    return dict(os.environ)


def work_on(home: str) -> None:
    """Choose the home for the rest of this process and for those that it starts."""
    os.environ["HERMES_HOME"] = home


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Tell whether a name or address reaches this machine only."""
    bare = host.strip("[]").rstrip(".").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def proxy_for(url: str, variables: Mapping[str, str]) -> str | None:
    """Return the address of the proxy for `url`; None for directly."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if is_loopback(host) or _is_excepted(host, parts.port, _value("no_proxy", variables)):
        return None
    named = _value(f"{parts.scheme}_proxy", variables) or _value("all_proxy", variables)
    return f"http://{named}" if named and "://" not in named else named or None


def _value(name: str, variables: Mapping[str, str]) -> str:
    return (variables.get(name) or variables.get(name.upper()) or "").strip()


def _is_excepted(host: str, port: int | None, exceptions: str) -> bool:
    for entry in exceptions.replace(",", " ").split():
        if entry == "*" or _covers(entry.lower(), host, port):
            return True
    return False


def _covers(entry: str, host: str, port: int | None) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass
    name, _, wanted = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
    if wanted and wanted != str(port):
        return False
    domain = name.lstrip("*").lstrip(".")
    return host == domain or host.endswith(f".{domain}")
