"""Migrations between versions of `config.yaml`, as pure functions.

Each takes the data of the version before and returns that of its own version.
They are applied in order. A migration leaves all other data unchanged, and
applying it twice is harmless.
"""

from collections.abc import Callable
from typing import Any

from hermes.domain.settings import CONFIG_VERSION

Data = dict[str, Any]

OBSOLETE_VARIABLES = {9: ("ANTHROPIC_TOKEN",), 13: ("LLM_MODEL", "OPENAI_MODEL")}
"""Version -> names removed from `.env`, because they override the file silently."""


_ASKING = ("approve", "approval", "ask", "confirm", "manual")


def version_of(data: Data) -> int:
    """Return the version a file says it has; 0 when it says nothing."""
    version = data.get("_config_version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 0


def migrate_data(data: Data) -> Data:
    """Return `data` in the current version; newer data is returned as it is."""
    version = version_of(data)
    for number, step in MIGRATIONS.items():
        if number > version:
            data = step(data)
    return data


def _providers_by_name(data: Data) -> Data:
    """12: the list `custom_providers` became the mapping `providers`."""
    listed = data.get("custom_providers", False)
    if listed is None:
        return _without(data, "custom_providers")
    if not isinstance(listed, list):
        return data
    providers = dict(_mapping(data, "providers"))
    for entry in listed:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            name = entry["name"].strip().lower().replace(" ", "-")
            providers.setdefault(name, {k: v for k, v in entry.items() if k != "name"})
    return {**_without(data, "custom_providers"), "providers": providers}


def _stt_model_per_provider(data: Data) -> Data:
    """14: `stt.model` moved to the provider it belongs to."""
    stt = _mapping(data, "stt")
    if "model" not in stt:
        return data
    provider = stt.get("provider") if isinstance(stt.get("provider"), str) else "local"
    own = {"model": stt["model"], **_mapping(stt, str(provider))}
    return {**data, "stt": {**_without(stt, "model"), str(provider): own}}


def _progress_per_platform(data: Data) -> Data:
    """16: `display.tool_progress_overrides` moved into `display.platforms`."""
    display = _mapping(data, "display")
    overrides = display.get("tool_progress_overrides")
    if not isinstance(overrides, dict):
        return data
    platforms = dict(_mapping(display, "platforms"))
    for platform, mode in overrides.items():
        word = {False: "off", True: "all"}.get(mode, mode) if isinstance(mode, bool) else mode
        platforms[platform] = {"tool_progress": word, **_mapping(platforms, platform)}
    display = _without(display, "tool_progress_overrides")
    return {**data, "display": {**display, "platforms": platforms}}


def _no_summary_model(data: Data) -> Data:
    """17: `compression.summary_*` gave way to `auxiliary.compression`."""
    compression = _mapping(data, "compression")
    old = {key: value for key, value in compression.items() if key.startswith("summary_")}
    if not old:
        return data
    names = {
        "summary_model": "model",
        "summary_provider": "provider",
        "summary_base_url": "base_url",
    }
    task = {names[key]: value for key, value in old.items() if key in names and value}
    auxiliary = _mapping(data, "auxiliary")
    result = {**data, "compression": _without(compression, *old)}
    if task:
        own = {**task, **_mapping(auxiliary, "compression")}
        result["auxiliary"] = {**auxiliary, "compression": own}
    return result


def _catalog_hour(data: Data) -> Data:
    """25: the catalogue is read again after an hour, no longer after a day."""
    catalog = _mapping(data, "model_catalog")
    if catalog.get("ttl_hours") != 24:
        return data
    return {**data, "model_catalog": {**catalog, "ttl_hours": 1}}


def _write_approval(data: Data) -> Data:
    """29: the word `write_mode` became the switch `write_approval`."""
    for section in ("memory", "skills"):
        own = _mapping(data, section)
        if "write_mode" in own:
            asks = own["write_mode"] in _ASKING
            data = {**data, section: {"write_approval": asks, **_without(own, "write_mode")}}
    return data


def _one_limit_for_children(data: Data) -> Data:
    """33: `max_async_children` was folded into `max_concurrent_children`."""
    delegation = _mapping(data, "delegation")
    if "max_async_children" not in delegation:
        return data
    limits = (delegation.get("max_concurrent_children"), delegation["max_async_children"])
    numbers = [limit for limit in limits if isinstance(limit, int)]
    rest = _without(delegation, "max_async_children")
    return {
        **data,
        "delegation": {**rest, **({"max_concurrent_children": max(numbers)} if numbers else {})},
    }


def _no_older_forms(data: Data) -> Data:
    """34: the older forms of providers and fallbacks are no longer accepted."""
    return _fallback_list(_providers_by_name(data))


def _fallback_list(data: Data) -> Data:
    """The single `fallback_model` became the list `fallback_providers`."""
    if "fallback_model" not in data:
        return data
    old, listed = data["fallback_model"], data.get("fallback_providers") or []
    entries = old if isinstance(old, list) else [old]
    usable = [e for e in entries if isinstance(e, dict) and e.get("provider")]
    result = _without(data, "fallback_model")
    if usable and isinstance(listed, list):
        known = [e for e in usable if e not in listed]
        result["fallback_providers"] = [*listed, *known]
    return result


def _mapping(data: Data, key: str) -> Data:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _without(data: Data, *keys: str) -> Data:
    return {key: value for key, value in data.items() if key not in keys}


MIGRATIONS: dict[int, Callable[[Data], Data]] = {
    12: _providers_by_name,
    14: _stt_model_per_provider,
    16: _progress_per_platform,
    17: _no_summary_model,
    25: _catalog_hour,
    29: _write_approval,
    33: _one_limit_for_children,
    CONFIG_VERSION: _no_older_forms,
}
