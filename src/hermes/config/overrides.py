"""Environment variables that stand for a configuration key, as a table.

They come from `.env` or the process environment and win over the file. Lists
are written with commas; anything that begins with `[` or `{` is JSON.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hermes.config.check import fields_by_name
from hermes.config.document import Path, parse_key
from hermes.domain.settings.execution import Terminal

_VARIABLES: dict[str, str] = {
    "HERMES_MODEL": "model.model",
    "HERMES_INFERENCE_MODEL": "model.model",
    "HERMES_EPHEMERAL_SYSTEM_PROMPT": "agent.ephemeral_system_prompt",
    "GATEWAY_ALLOW_ALL_USERS": "gateway.allow_all_users",
    "GATEWAY_ALLOWED_USERS": "gateway.allowed_users",
    "API_SERVER_ENABLED": "platforms.api_server.enabled",
    "API_SERVER_KEY": "platforms.api_server.extra.key",
    "API_SERVER_PORT": "platforms.api_server.extra.port",
    "API_SERVER_HOST": "platforms.api_server.extra.host",
    "API_SERVER_MODEL_NAME": "platforms.api_server.extra.model_name",
    "API_SERVER_CORS_ORIGINS": "platforms.api_server.extra.cors_origins",
    "API_SERVER_ALLOWED_HOSTS": "platforms.api_server.extra.allowed_hosts",
    "WEBHOOK_ENABLED": "platforms.webhook.enabled",
    "WEBHOOK_PORT": "platforms.webhook.extra.port",
    "WEBHOOK_SECRET": "platforms.webhook.extra.secret",
}
"""Where two variables stand for one key, the later one wins."""

_PLATFORM_SUFFIXES = {
    "_ALLOWED_USERS": "allowed_users",
    "_ALLOW_ALL_USERS": "allow_all_users",
    "_HOME_CHANNEL": "home_channel.chat_id",
    "_HOME_CHANNEL_NAME": "home_channel.name",
    "_HOME_CHANNEL_THREAD_ID": "home_channel.thread_id",
}
_LISTS = ("allowed_users", "allowed_hosts", "cors_origins")
_WHOLE_NUMBERS = ("port",)


def overrides_in(variables: Mapping[str, str]) -> Iterator[tuple[str, Path, Any]]:
    """Yield (variable, key, value) for each variable that stands for a key."""
    for name, path in variables_for(variables):
        text = variables.get(name, "").strip()
        if text:
            yield name, path, _value(path, text)
    if variables.get("HERMES_YOLO_MODE", "").strip().lower() in {"1", "true", "yes", "on"}:
        yield "HERMES_YOLO_MODE", ("approvals", "mode"), "off"


def variables_for(variables: Iterable[str] = ()) -> Iterator[tuple[str, Path]]:
    """Yield each variable with the key it stands for; those of platforms if they are named."""
    for name, key in _VARIABLES.items():
        yield name, parse_key(key)
    yield "TERMINAL_ENV", ("terminal", "backend")
    for name in fields_by_name(Terminal):
        if name != "backend":
            yield f"TERMINAL_{name.upper()}", ("terminal", name)
    for name in variables:
        for suffix, key in _PLATFORM_SUFFIXES.items():
            platform = name.removesuffix(suffix).lower()
            if name.endswith(suffix) and platform and name not in _VARIABLES:
                yield name, ("platforms", platform, *parse_key(key))


def _value(path: Path, text: str) -> Any:
    if text[0] in "[{":
        try:
            return json.loads(text)
        except ValueError:
            return text
    if path[-1] in _LISTS or (path[0] == "terminal" and _is_list(path[-1])):
        return [item.strip() for item in text.split(",") if item.strip()]
    # `extra` has no schema that would turn text into a number.
    return int(text) if path[-1] in _WHOLE_NUMBERS and text.isdecimal() else text


def _is_list(field: str) -> bool:
    return isinstance(fields_by_name(Terminal)[field].default, tuple)
