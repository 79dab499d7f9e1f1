"""Writing the chosen model into the configuration, in one step."""

from collections.abc import Mapping

from hermes.app.settings import route_book
from hermes.config.atomic import editing
from hermes.config.document import parse_document
from hermes.config.edit import apply_change, read_text, set_value, write_checked
from hermes.config.keys import Path
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, UsageError
from hermes.models.local.files import EMBEDDED, PROVIDER, find_local, list_local
from hermes.models.providers import PROVIDERS, canonical_name
from hermes.models.routes import resolve_route
from hermes.models.settings import ModelTarget

__all__ = ["key_variable", "needed_key", "provider_of", "save_key", "write_choice"]

_OF_THE_OLD_CHOICE = ("base_url", "api_key", "api_mode", "context_length", "max_tokens")
"""Settings of `model:` that belong to the model chosen before."""


def provider_of(loaded: LoadedConfig, home: HermesHome, model: str, provider: str) -> str:
    """Return the provider to use for a model; explain if that cannot work."""
    if provider == PROVIDER or (not provider and _is_local(home, model)):
        find_local(home, model)
        return PROVIDER
    if not provider:
        return resolve_route(ModelTarget(model=model), route_book(loaded)).provider
    name = provider if provider in loaded.config.providers else canonical_name(provider)
    if name not in PROVIDERS and name not in loaded.config.providers:
        resolve_route(ModelTarget(model=model, provider=name), route_book(loaded))
    return name


def needed_key(loaded: LoadedConfig, provider: str, model: str, base_url: str) -> str:
    """Return what is missing before the model can answer; empty if nothing is."""
    if provider == PROVIDER:
        return ""
    target = ModelTarget(model=model, provider=provider, base_url=base_url)
    try:
        resolve_route(target, route_book(loaded))
    except ConfigError as error:
        return f"{error.message} {error.hint}"
    return ""


def write_choice(
    home: HermesHome,
    provider: str,
    model: str,
    *,
    base_url: str = "",
    environ: Mapping[str, str],
) -> bool:
    """Make `model` the default agent's model; tell whether anything changed."""
    with editing(home):
        before = read_text(home)
        after = _with_choice(before, provider, model, base_url)
        if after == before:
            return False
        write_checked(home, before, after, environ=environ)
    return True


def key_variable(provider: str) -> str:
    """Return the name of the variable that holds a provider's key."""
    spec = PROVIDERS.get(canonical_name(provider))
    if spec is None or not spec.key_env:
        raise UsageError(
            f"It is not known in which variable the key of `{provider}` is kept.",
            hint="Name it with --key-env NAME.",
        )
    return spec.key_env[0]


def save_key(home: HermesHome, provider: str, name: str, key: str) -> None:
    """Keep a key in `.env`, and say where it is if that is not the usual name."""
    set_value(home, name, key)
    spec = PROVIDERS.get(provider)
    if spec is None or name not in spec.key_env:
        set_value(home, f'providers."{provider}".key_env', name)


def _is_local(home: HermesHome, model: str) -> bool:
    return model == EMBEDDED or any(each.name == model for each in list_local(home))


def _with_choice(text: str, provider: str, model: str, base_url: str) -> str:
    current = parse_document(text.encode(), "config.yaml").data.get("model")
    if not isinstance(current, dict):
        chosen = {"default": model, "provider": provider}
        return apply_change(text, ("model",), chosen | ({"base_url": base_url} if base_url else {}))
    name = "model" if "model" in current else "default"
    same = current.get(name) == model and current.get("provider") == provider
    wanted: dict[str, str] = {name: model, "provider": provider}
    if base_url:
        wanted["base_url"] = base_url
    for key in () if same else _OF_THE_OLD_CHOICE:
        if key in current and key not in wanted:
            text = apply_change(text, ("model", key), None, remove=True)
    for key, value in wanted.items():
        path: Path = ("model", key)
        if current.get(key) != value:
            text = apply_change(text, path, value)
    return text
