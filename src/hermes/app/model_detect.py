"""What models could answer here: files, local servers, providers with a key.

Local servers are asked on their usual ports, all at once and with a short
patience; nothing is ever asked of a machine other than this one. A provider
counts when its key is in `.env` or the environment.
"""

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from hermes.config.loader import LoadedConfig
from hermes.config.paths import HermesHome
from hermes.execution.local_model.files import EMBEDDED, PROVIDER, list_local
from hermes.execution.local_model.profile import profile_for
from hermes.execution.local_model.wire import BadMessage, exchange
from hermes.models.catalog import ROWS, UNKNOWN, ModelFacts, find_model
from hermes.models.providers import PROVIDERS, ProviderSpec
from hermes.models.settings import Price

__all__ = [
    "LocalServer",
    "Offer",
    "detect_servers",
    "facts_for",
    "keys_present",
    "local_offers",
    "offers",
    "server_offers",
    "suggested_models",
]

PATIENCE: Final = 0.5
"""Seconds a local server has for its answer."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_FREE: Final = Price(input=0.0, output=0.0)
_FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "anthropic": ("", ("claude-",)),
    "openai": ("", ("gpt-5", "gpt-4", "o3", "o4")),
    "gemini": ("", ("gemini-",)),
    "deepseek": ("", ("deepseek-chat", "deepseek-reasoner")),
    "xai": ("", ("grok-",)),
    "kimi": ("", ("kimi-",)),
    "zai": ("", ("glm-",)),
    "minimax": ("", ("minimax-",)),
    "mistral": ("", ("mistral-", "codestral", "devstral")),
}
"""Provider -> what to put before a catalogue name, and which names it serves."""
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
    """A model server that answered on this machine."""

    provider: str
    base_url: str
    models: tuple[str, ...]
    needs_key: bool = False
    """It is there but wants a key that was not given."""


class Offer(Struct, frozen=True, kw_only=True):
    """A model that a person may choose."""

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
    variables: Mapping[str, str], *, timeout: float = PATIENCE
) -> tuple[LocalServer, ...]:
    """Return the local model servers that answer, asking all of them at once."""
    specs = [spec for spec in PROVIDERS.values() if spec.local]
    found: dict[str, LocalServer] = {}

    async def look(spec: ProviderSpec) -> None:
        server = await _ask(spec, variables, timeout)
        if server is not None:
            found[spec.name] = server

    async with asyncio.TaskGroup() as group:
        for spec in specs:
            group.create_task(look(spec))
    return tuple(found[spec.name] for spec in specs if spec.name in found)


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
    """Return well-known models of a provider, best known first."""
    if provider == "openrouter":
        return _OPENROUTER
    lead, prefixes = _FAMILIES.get(provider, ("", ()))
    if not prefixes:
        return ()
    names = [row[0] for row in ROWS if row[0].startswith(prefixes) and "gpt-oss" not in row[0]]
    return tuple(lead + name for name in names[:_MOST_SUGGESTED])


def facts_for(loaded: LoadedConfig, home: HermesHome, provider: str, model: str) -> ModelFacts:
    """Return what is known about a model; the configuration wins over the table."""
    if provider == PROVIDER:
        local = next((each for each in list_local(home) if each.name == model), None)
        window = profile_for(local).n_ctx if local is not None else None
        return ModelFacts(context_window=window, price=_FREE)
    known = find_model(model) or UNKNOWN
    chosen = loaded.config.model
    current = model == chosen.model and provider in {"", chosen.provider}
    named = loaded.config.providers.get(provider)
    spec = PROVIDERS.get(provider)
    free = spec is not None and spec.local
    return ModelFacts(
        context_window=(chosen.context_length if current else None)
        or (named.context_length if named is not None else None)
        or known.context_window,
        max_output=(chosen.max_tokens if current else None) or known.max_output,
        vision=known.vision,
        price=_FREE if free else known.price,
    )


def local_offers(loaded: LoadedConfig, home: HermesHome) -> tuple[Offer, ...]:
    """Return the models that Hermes can serve itself, the embedded one even if not fetched."""
    models = list_local(home)
    offered = [
        Offer(
            provider=PROVIDER,
            model=model.name,
            why="toy-sized, runs here" if model.name == EMBEDDED else f"runs here: {model.path}",
            facts=facts_for(loaded, home, PROVIDER, model.name),
        )
        for model in models
    ]
    if all(model.name != EMBEDDED for model in models):
        why = "toy-sized, runs here; 98 MB to fetch first"
        offered.insert(0, Offer(provider=PROVIDER, model=EMBEDDED, why=why))
    return tuple(offered)


def server_offers(
    loaded: LoadedConfig, home: HermesHome, servers: tuple[LocalServer, ...]
) -> tuple[Offer, ...]:
    """Return the models of local servers."""
    return tuple(
        Offer(
            provider=server.provider,
            model=model,
            why=f"answers at {server.base_url}",
            base_url="" if _is_usual(server) else server.base_url,
            facts=facts_for(loaded, home, server.provider, model),
        )
        for server in servers
        for model in server.models
    )


def offers(
    loaded: LoadedConfig, home: HermesHome, servers: tuple[LocalServer, ...]
) -> tuple[Offer, ...]:
    """Return everything that could be chosen now, most capable kinds first."""
    hosted = tuple(
        Offer(
            provider=provider,
            model=model,
            why=f"{name} is set",
            facts=facts_for(loaded, home, provider, model),
        )
        for provider, name in keys_present(loaded.variables)
        for model in suggested_models(provider)
    )
    own = tuple(
        Offer(
            provider=name,
            model=settings.model,
            why="in config.yaml",
            facts=facts_for(loaded, home, name, settings.model),
        )
        for name, settings in loaded.config.providers.items()
        if settings.model
    )
    return (*own, *hosted, *server_offers(loaded, home, servers), *local_offers(loaded, home))


async def _ask(
    spec: ProviderSpec, variables: Mapping[str, str], timeout: float
) -> LocalServer | None:
    base_url = (variables.get(spec.base_url_env, "").strip() or spec.base_url).rstrip("/")
    parts = urlsplit(base_url)
    if parts.scheme != "http" or parts.hostname not in _LOOPBACK:
        return None
    key = next((variables[name] for name in spec.key_env if variables.get(name)), "")
    try:
        status, body = await exchange(f"{base_url}/models", api_key=key, timeout=timeout)
        if status in {401, 403}:
            return LocalServer(provider=spec.name, base_url=base_url, models=(), needs_key=True)
        listing = msgspec.json.decode(body, type=_Listing)
    except (OSError, BadMessage, msgspec.MsgspecError):
        return None
    models = tuple(dict.fromkeys(each.id for each in listing.data if each.id))
    return LocalServer(provider=spec.name, base_url=base_url, models=models) if models else None


def _is_usual(server: LocalServer) -> bool:
    return PROVIDERS[server.provider].base_url == server.base_url
