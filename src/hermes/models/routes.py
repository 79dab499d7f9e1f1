"""Routes: everything that one model call needs, resolved from a name in the configuration.

A route is protocol x endpoint x auth x quirks. It is resolved once, fails
with a `ConfigError` that says what to do, and is plain data afterwards.
"""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from hermes.config.environment import is_loopback
from hermes.domain.errors import ConfigError
from hermes.domain.ports.model import ModelInfo
from hermes.domain.settings import Settings
from hermes.domain.settings.models import (
    ApiModeName,
    FallbackProvider,
    ModelChoice,
    ModelEndpoint,
    ModelTimeouts,
    OwnModel,
    Provider,
)
from hermes.models.catalog import FREE, UNKNOWN, ModelFacts, find_model
from hermes.models.credentials import PoolStrategy, ProviderKey
from hermes.models.providers import (
    ANTHROPIC_TIERS,
    GENERIC,
    PROVIDERS,
    TAKES,
    ApiMode,
    Auth,
    ProviderSpec,
    Quirks,
    canonical_name,
)

SecretSource = Callable[[str], str | None]
"""Returns the secret of that name, if there is one."""

_MODE_NAMES = {
    ApiMode.CHAT_COMPLETIONS: ("chat_completions", "chat", "openai"),
    ApiMode.RESPONSES: ("responses", "codex_responses", "openai_responses"),
    ApiMode.ANTHROPIC_MESSAGES: ("anthropic_messages", "anthropic", "messages"),
}
_AUTO_ORDER = ("openrouter", "anthropic", "openai", "gemini", "deepseek", "xai", "groq")
_MAX_NUMBERED_KEYS = 20


class ModelTarget(ModelChoice, frozen=True, kw_only=True):
    """Which model to call: `model:`, an entry of `fallback_providers:` or a task override."""

    key_env: str = ""
    extra_body: dict[str, Any] = field(default_factory=dict)


class ModelRoute(Struct, frozen=True, kw_only=True):
    provider: str
    model: str
    base_url: str
    query: str = ""
    """Of the address as it is configured, for every call: `api-version=1`."""
    api_mode: ApiMode
    keys: tuple[ProviderKey, ...] = ()
    """Empty for servers that ask for none."""
    strategy: PoolStrategy = PoolStrategy.FILL_FIRST
    auth: Auth = "bearer"
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    quirks: Quirks = GENERIC
    facts: ModelFacts = UNKNOWN
    max_tokens: int | None = None
    timeouts: ModelTimeouts = ModelTimeouts()
    notice: float = 15.0
    """Seconds without an answer after which the person is told that Hermes is waiting."""
    cache_ttl: str = "5m"
    local: bool = False
    ssl_verify: bool = True
    ssl_ca: str = ""
    key_names: tuple[str, ...] = ()
    """Names of the variables that may hold the key, for hints."""

    @property
    def info(self) -> ModelInfo:
        claude = self.api_mode is ApiMode.ANTHROPIC_MESSAGES
        return ModelInfo(
            provider=self.provider,
            model=self.model,
            context_window=self.facts.context_window,
            max_output=self.max_tokens or self.facts.max_output,
            vision=self.facts.vision,
            takes=frozenset(TAKES[self.api_mode]) - self.quirks.lacks,
            max_temperature=1.0 if claude else 2.0,
            service_tiers=tuple(ANTHROPIC_TIERS) if claude else None,
        )


class ModelSources(Struct, frozen=True, kw_only=True):
    secret: SecretSource
    settings: Settings = Settings()
    env_file: Path | None = None
    """Where the secrets of an agent belong that has its own; for hints."""


_IN_URLS = "/?:@!$&'()*+,;=%~[]"
"""Signs that stand in paths and queries as they are."""


def resolve_route(target: ModelTarget, sources: ModelSources) -> ModelRoute:
    """Return the route to `target`; `ConfigError` says what is missing."""
    if not target.model:
        raise ConfigError(
            "No model is chosen.",
            hint="Choose one with `hermes model`, or set `model:` in config.yaml.",
        )
    name = _provider_name(target, sources)
    own = _providers(sources).get(name) or Provider()
    spec = _spec(name, own, sources)
    named_url = target.base_url or own.base_url
    base_url = named_url or sources.secret(spec.base_url_env) or spec.base_url
    if not base_url:
        raise ConfigError(
            f"Provider `{name}` has no address.",
            hint=f"Set `base_url` for it in config.yaml, or {spec.base_url_env or 'a base URL'}.",
        )
    parts = urlsplit(base_url)
    path, query = (quote(each, safe=_IN_URLS) for each in (parts.path, parts.query))
    host = parts.hostname or ""
    local = spec.local or is_loopback(host) or host == "0.0.0.0"  # noqa: S104 - compared only
    own_names = tuple(filter(None, (target.key_env or own.key_env,)))
    names = own_names or spec.key_env
    # A key is never sent to another host than its provider's.
    theirs = not named_url or _same_host(base_url, spec) or spec.name == "custom"
    found = _numbered_keys(names, sources, every=bool(own_names)) if own_names or theirs else []
    keys = _given_keys(target, own, found)
    optional = not own_names and (name == "custom" or name not in PROVIDERS)
    if not keys and not local and not optional:
        raise _missing_key(name, spec, names, sources.env_file)
    mode = _mode(target.api_mode or own.api_mode, spec, base_url)
    return ModelRoute(
        provider=name,
        model=_model_id(target.model, name, own),
        base_url=parts._replace(path=path, query="", fragment="").geturl().rstrip("/"),
        query=query,
        api_mode=mode,
        keys=keys,
        strategy=_strategy(name, sources.settings),
        auth=_auth(spec, mode),
        headers=dict(own.extra_headers),
        extra_body={**own.extra_body, **target.extra_body},
        quirks=spec.quirks,
        facts=model_facts(target, own, local=spec.local),
        max_tokens=target.max_tokens,
        timeouts=_timeouts(sources.settings.model_timeouts, local=local),
        cache_ttl=sources.settings.prompt_caching.cache_ttl,
        local=local,
        ssl_verify=own.ssl_verify,
        ssl_ca=own.ssl_ca_cert,
        key_names=names,
    )


def main_target(settings: Settings, provider: str, model: str) -> ModelTarget:
    choice = settings.model
    if not model and provider in settings.providers:
        model = settings.providers[provider].model
    same = model == choice.model and provider == choice.provider
    # Another model at the address of the configured one.
    there = bool(choice.base_url) and provider == (choice.provider or _name_of_url(choice.base_url))
    return ModelTarget(
        model=model,
        provider=provider,
        base_url=choice.base_url if same or there or not provider else "",
        api_key=choice.api_key if same or there else "",
        api_mode=choice.api_mode if same or there else "",
        context_length=choice.context_length if same else None,
        max_tokens=choice.max_tokens,
    )


def fallback_target(entry: FallbackProvider, settings: Settings) -> ModelTarget:
    named = settings.providers.get(entry.provider) or Provider()
    entry = replace(entry, model=entry.model or named.model)
    return target_of(entry, key_env=entry.key_env, api_mode=entry.api_mode)


def target_of(endpoint: ModelEndpoint, **more: Any) -> ModelTarget:
    return ModelTarget(
        provider=endpoint.provider,
        model=endpoint.model,
        base_url=endpoint.base_url,
        api_key=endpoint.api_key,
        **more,
    )


def _timeouts(wanted: ModelTimeouts, *, local: bool) -> ModelTimeouts:
    """Return the timeouts; longer ones for a local server unless they are configured."""
    patient = local and wanted == ModelTimeouts()
    return replace(wanted, first_byte=300.0, idle=300.0) if patient else wanted


def _strategy(name: str, settings: Settings) -> PoolStrategy:
    strategy = settings.credential_pool_strategies.get(name, PoolStrategy.FILL_FIRST)
    if strategy not in set(PoolStrategy):
        raise ConfigError(
            f"credential_pool_strategies.{name} is `{strategy}`, which does not exist.",
            hint=f"Use one of: {', '.join(PoolStrategy)}.",
        )
    return PoolStrategy(strategy)


def _providers(sources: ModelSources) -> Mapping[str, Provider]:
    """Return the providers of the configuration.

    A model route of the API server (`model_routes`) with an address or a key of its own is one.
    """
    settings = sources.settings
    server = settings.platforms.get("api_server")
    routes = server.extra.get("model_routes") if server is not None else None
    found: dict[str, Provider] = {}
    for alias, route in routes.items() if isinstance(routes, dict) else ():
        spec = PROVIDERS.get(canonical_name(str(route.get("provider") or "")))
        found[route_provider(alias)] = Provider(
            base_url=route.get("base_url") or (spec.base_url if spec else ""),
            api_key=route.get("api_key") or "",
            key_env=route.get("key_env") or "",
        )
    return {**found, **settings.providers}


def route_provider(alias: str) -> str:
    """Return the name of the provider that a model route is itself."""
    return f"model_routes.{alias}"


def _provider_name(target: ModelTarget, sources: ModelSources) -> str:
    named = target.provider.strip()
    if named and named.lower() not in {"auto", "default"}:
        return named if named in _providers(sources) else canonical_name(named)
    if target.base_url:
        return _name_of_url(target.base_url)
    return _guess(target.model, sources)


def _name_of_url(base_url: str) -> str:
    host = urlsplit(base_url).hostname or ""
    for spec in PROVIDERS.values():
        if not spec.local and host and host == urlsplit(spec.base_url).hostname:
            return spec.name
    return "custom"


def _guess(model: str, sources: ModelSources) -> str:
    for name, own in _providers(sources).items():
        if model == own.model or model in _names(own.models):
            return name
    vendor, slash, _ = model.partition("/")
    wanted = ["openrouter", canonical_name(vendor)] if slash else []
    wanted += [spec.name for spec in PROVIDERS.values() if spec.makes(model)]
    for name in [*wanted, *_AUTO_ORDER]:
        spec = PROVIDERS.get(name)
        if spec is not None and any(map(sources.secret, spec.key_env)):
            return name
    if sources.secret("OPENAI_BASE_URL"):
        return "custom"
    return wanted[0] if wanted else _AUTO_ORDER[0]


def _spec(name: str, own: Provider, sources: ModelSources) -> ProviderSpec:
    known = PROVIDERS.get(name)
    if known is not None:
        return known
    if name in _providers(sources):
        like = PROVIDERS[_name_of_url(own.base_url)] if own.base_url else None
        quirks = like.quirks if like is not None else GENERIC
        return ProviderSpec(name=name, base_url=own.base_url, quirks=quirks)
    names = sorted({*PROVIDERS, *_providers(sources)})
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    meant = f"Did you mean {' or '.join(f'`{c}`' for c in close)}? " if close else ""
    raise ConfigError(
        f"There is no provider named `{name}`.",
        hint=f"{meant}Known: {', '.join(names)}. Others go under `providers:` in config.yaml.",
    )


def _names(models: Any) -> tuple[str, ...]:
    return tuple(map(str, models)) if isinstance(models, list | tuple | dict) else ()


def _given_keys(
    target: ModelTarget, own: Provider, found: list[ProviderKey]
) -> tuple[ProviderKey, ...]:
    """Return the keys to use; the target's own key is used alone."""
    if target.api_key:
        return (ProviderKey(secret=target.api_key, label="api_key"),)
    first = [ProviderKey(secret=own.api_key, label="api_key")] if own.api_key else []
    return (*first, *found)


def _same_host(base_url: str, spec: ProviderSpec) -> bool:
    own = urlsplit(spec.base_url).hostname
    return own is None or own == urlsplit(base_url).hostname


def _numbered_keys(
    names: tuple[str, ...], sources: ModelSources, *, every: bool
) -> list[ProviderKey]:
    """Return `NAME`, `NAME_2`, `NAME_3` and so on while they exist, of the first name or of all."""
    keys: list[ProviderKey] = []
    for name in names:
        for each in (name, *(f"{name}_{number}" for number in range(2, _MAX_NUMBERED_KEYS))):
            secret = (sources.secret(each) or "").strip()
            if not secret:
                break
            keys.append(ProviderKey(secret=secret, label=each))
        if keys and not every:
            break
    return keys


def _missing_key(
    name: str, spec: ProviderSpec, names: tuple[str, ...], env_file: Path | None
) -> ConfigError:
    where = f" Get one at {spec.key_url} ." if spec.key_url else ""
    hint = f"Run `hermes config set {names[0]} <key>`; it is kept in ~/.hermes/.env."
    if env_file is not None:
        hint = f"Put `{names[0]}=<key>` into {env_file}, or lend it with the agent's `secrets`."
    return ConfigError(
        f"Provider `{name}` needs an API key: {' or '.join(names)} is not set.",
        hint=f"{hint}{where}",
    )


def _mode(named: ApiModeName, spec: ProviderSpec, base_url: str) -> ApiMode:
    if named and named != "auto":
        return next(mode for mode, names in _MODE_NAMES.items() if named in names)
    path = urlsplit(base_url).path.rstrip("/")
    if spec.api_mode is ApiMode.ANTHROPIC_MESSAGES or path.endswith("/anthropic"):
        return ApiMode.ANTHROPIC_MESSAGES
    if path.endswith(("/responses", "/codex")):
        return ApiMode.RESPONSES
    return spec.api_mode


def _auth(spec: ProviderSpec, mode: ApiMode) -> Auth:
    if spec.auth == "bearer" and mode is ApiMode.ANTHROPIC_MESSAGES:
        return "x-api-key"
    return spec.auth


def _model_id(model: str, provider: str, own: Provider) -> str:
    """Drop a vendor prefix that names the provider itself; keep all others."""
    vendor, slash, rest = model.partition("/")
    direct = provider in PROVIDERS and bool(PROVIDERS[provider].models)
    if slash and rest and direct and canonical_name(vendor) == provider and not own.base_url:
        return rest
    return model


def model_facts(target: ModelTarget, own: Provider, *, local: bool) -> ModelFacts:
    """Return what is known about a model; the configuration wins over the table."""
    known, said = find_model(target.model) or UNKNOWN, _own_model(target.model, own)
    vision = own.vision if said.vision is None else said.vision
    length = target.context_length or said.context_length or own.context_length
    return ModelFacts(
        context_window=length or known.context_window,
        max_output=known.max_output,
        vision=known.vision if vision is None else vision,
        price=said.price or (FREE if local else known.price),
    )


def _own_model(model: str, own: Provider) -> OwnModel:
    """Return what `providers.<name>.models.<model>` says about a model."""
    return (own.models.get(model) if isinstance(own.models, dict) else None) or OwnModel()
