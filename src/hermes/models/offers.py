"""Models that can be chosen: files, local servers, providers with a key.

Local servers are probed on their usual ports, concurrently and with a short
timeout; no other machine is asked. A provider is offered when its key is in
`.env` or the environment.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from hermes.config.environment import is_loopback
from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.domain.settings.models import Provider
from hermes.models.catalog import FREE, UNKNOWN, ModelFacts, catalog
from hermes.models.local.files import EMBEDDED, PROVIDER, info_of, list_local
from hermes.models.providers import PROVIDERS, ProviderSpec
from hermes.models.routes import main_target, model_facts
from hermes.models.transport import Transport
from hermes.models.wire import WireFault

_PATIENCE: Final = 0.5
"""Seconds that a local server has to answer."""
_OPENROUTER: Final = (
    "anthropic/claude-sonnet-5",
    "openai/gpt-5.2",
    "google/gemini-3-flash",
    "deepseek/deepseek-chat",
    "qwen/qwen3-coder",
    "nousresearch/hermes-4-70b",
)
_MOST_SUGGESTED: Final = 6


class LocalServer(Struct, frozen=True, kw_only=True):
    provider: str
    base_url: str
    models: tuple[str, ...]
    needs_key: bool = False
    """It answers but requires a key that is not set."""


class ModelOffer(Struct, frozen=True, kw_only=True):
    provider: str
    model: str
    why: str
    """Why it is offered, e.g. `OPENAI_API_KEY is set`."""
    base_url: str = ""
    """Only when it is not the provider's usual address."""
    facts: ModelFacts = UNKNOWN


class _Listed(Struct):
    id: str = ""


class _Listing(Struct):
    data: list[_Listed] = []


async def detect_servers(
    variables: Mapping[str, str], *, timeout: float = _PATIENCE
) -> tuple[LocalServer, ...]:
    """Return the local model servers that answer, asking all of them at once."""
    specs = [spec for spec in PROVIDERS.values() if spec.local]
    transport = Transport()
    await transport.warm("http://127.0.0.1")
    try:
        async with asyncio.TaskGroup() as group:
            asked = (_ask(spec, variables, transport, timeout) for spec in specs)
            tasks = [group.create_task(each) for each in asked]
    finally:
        await transport.close()
    return tuple(server for task in tasks if (server := task.result()) is not None)


class ServerAnswer(Struct, frozen=True, kw_only=True):
    """What an address has to say when it is asked for its models."""

    base_url: str
    """Where its API is: the address, or `/v1` below it."""
    models: tuple[str, ...] = ()
    needs_key: bool = False
    trouble: str = ""
    """Why no model can answer there; empty if one can."""


async def ask_server(address: str, key: str = "", *, timeout: float = 5.0) -> ServerAnswer:
    """Ask a server of one's own for its models, also at `/v1` below the address."""
    base_url = address.rstrip("/")
    tried = [base_url] if base_url.endswith("/v1") else [base_url, f"{base_url}/v1"]
    transport, trouble = Transport(), ""
    try:
        for url in tried:
            async with asyncio.timeout(timeout):
                status, body = await transport.get(f"{url}/models", key)
            if status in {401, 403}:
                trouble = "it refuses the key" if key else "it needs a key"
                return ServerAnswer(base_url=url, needs_key=True, trouble=trouble)
            with suppress(msgspec.MsgspecError):
                listing = msgspec.json.decode(body, type=_Listing) if status == 200 else _Listing()
                if models := tuple(dict.fromkeys(each.id for each in listing.data if each.id)):
                    return ServerAnswer(base_url=url, models=models)
            trouble = trouble or (
                f"it answers, but there is no model API at this path (HTTP {status});"
                " most addresses end in /v1"
            )
    except TimeoutError:
        trouble = "it gives no answer"
    except WireFault as fault:
        trouble = f"nothing answers there ({fault.message or 'no connection'})"
    finally:
        await transport.close()
    return ServerAnswer(base_url=base_url, trouble=trouble)


def keys_present(variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the providers whose key is set, with the name of the variable."""
    found: list[tuple[str, str]] = []
    for spec in PROVIDERS.values():
        if spec.local or spec.name == "custom":
            continue
        name = next((name for name in spec.key_env if variables.get(name, "").strip()), None)
        if name is not None:
            found.append((spec.name, name))
    return tuple(found)


def suggested_models(provider: str) -> tuple[str, ...]:
    if provider == "openrouter":
        return _OPENROUTER
    spec = PROVIDERS.get(provider)
    prefixes = spec.models if spec is not None else ()
    names = [name for name in catalog() if name.startswith(prefixes) and "gpt-oss" not in name]
    return tuple(names[:_MOST_SUGGESTED])


def facts_for(loaded: LoadedConfig, home: HermesHome, provider: str, model: str) -> ModelFacts:
    """Return what is known about a model; the configuration wins over the table."""
    if provider == PROVIDER:
        local = next((each for each in list_local(home) if each.name == model), None)
        window = info_of(local).context_window if local is not None else None
        return ModelFacts(context_window=window, price=FREE)
    settings = loaded.config
    target = main_target(settings, provider or settings.model.provider, model)
    spec, own = PROVIDERS.get(provider), settings.providers.get(provider) or Provider()
    return model_facts(target, own, local=spec is not None and spec.local)


def offers(
    loaded: LoadedConfig, home: HermesHome, servers: tuple[LocalServer, ...]
) -> tuple[ModelOffer, ...]:
    """Return every model that can be chosen now, most capable kinds first."""

    def offer(provider: str, model: str, why: str, base_url: str = "") -> ModelOffer:
        facts = facts_for(loaded, home, provider, model)
        return ModelOffer(provider=provider, model=model, why=why, base_url=base_url, facts=facts)

    own = loaded.config.providers.items()
    found = [offer(name, own.model, "in config.yaml") for name, own in own if own.model]
    for provider, variable in keys_present(loaded.variables):
        found += [offer(provider, m, f"{variable} is set") for m in suggested_models(provider)]
    for server in servers:
        usual = PROVIDERS[server.provider].base_url == server.base_url
        address = "" if usual else server.base_url
        why = f"answers at {server.base_url}"
        found += [offer(server.provider, model, why, address) for model in server.models]
    local = list_local(home)
    if all(model.name != EMBEDDED for model in local):
        found.append(offer(PROVIDER, EMBEDDED, "toy-sized, runs here; 98 MB to fetch first"))
    for model in local:
        toy = model.name == EMBEDDED
        why = "toy-sized, runs here" if toy else f"runs here: {model.path}"
        found.append(offer(PROVIDER, model.name, why))
    main = loaded.config.model
    chosen = main.provider, main.model
    if all(chosen) and chosen not in {(each.provider, each.model) for each in found}:
        found.insert(0, offer(*chosen, "in config.yaml", main.base_url))
    return tuple(found)


async def _ask(
    spec: ProviderSpec, variables: Mapping[str, str], transport: Transport, timeout: float
) -> LocalServer | None:
    base_url = (variables.get(spec.base_url_env, "").strip() or spec.base_url).rstrip("/")
    parts = urlsplit(base_url)
    if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
        return None
    key = next((variables[name] for name in spec.key_env if variables.get(name)), "")
    try:
        async with asyncio.timeout(timeout):
            status, body = await transport.get(f"{base_url}/models", key)
        listing = msgspec.json.decode(body, type=_Listing) if status == 200 else _Listing()
    except (TimeoutError, WireFault, msgspec.MsgspecError):
        return None
    models = tuple(dict.fromkeys(each.id for each in listing.data if each.id))
    needs_key = status in {401, 403}
    if not models and not needs_key:
        return None
    return LocalServer(provider=spec.name, base_url=base_url, models=models, needs_key=needs_key)
