"""From a name in the configuration to a `Route`: everything one call needs to know.

A route is protocol x endpoint x auth x quirks. It is resolved once, fails
with a `ConfigError` that says what to do, and is plain data afterwards.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.domain.errors import ConfigError
from hermes.domain.ports.model import ModelInfo
from hermes.models.catalog import UNKNOWN, ModelFacts, find_model
from hermes.models.credentials import ApiKey
from hermes.models.providers import (
    GENERIC,
    PROVIDERS,
    Auth,
    ProviderSpec,
    Quirks,
    canonical_name,
)
from hermes.models.settings import (
    ApiMode,
    CacheTtl,
    ModelTarget,
    PoolStrategy,
    ProviderSettings,
    Timeouts,
)

SecretSource = Callable[[str], str | None]
"""Returns the secret of that name, if there is one."""

_MODES = {
    "chat_completions": ApiMode.CHAT_COMPLETIONS,
    "chat": ApiMode.CHAT_COMPLETIONS,
    "openai": ApiMode.CHAT_COMPLETIONS,
    "responses": ApiMode.RESPONSES,
    "codex_responses": ApiMode.RESPONSES,
    "openai_responses": ApiMode.RESPONSES,
    "anthropic_messages": ApiMode.ANTHROPIC_MESSAGES,
    "anthropic": ApiMode.ANTHROPIC_MESSAGES,
    "messages": ApiMode.ANTHROPIC_MESSAGES,
}
_LOCAL_TIMEOUTS = {"first_byte": 300.0, "idle": 300.0}
_AUTO_ORDER = ("openrouter", "anthropic", "openai", "gemini", "deepseek", "xai", "groq")
_MODEL_HOMES = (
    ("claude", "anthropic"),
    ("gpt-", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini", "gemini"),
    ("deepseek", "deepseek"),
    ("grok", "xai"),
    ("kimi", "kimi"),
    ("glm", "zai"),
)
_MAX_NUMBERED_KEYS = 20


class Route(Struct, frozen=True, kw_only=True):
    """One way to reach one model."""

    provider: str
    model: str
    base_url: str
    api_mode: ApiMode
    keys: tuple[ApiKey, ...] = ()
    """Empty for servers that ask for none."""
    strategy: PoolStrategy = PoolStrategy.FILL_FIRST
    auth: Auth = "bearer"
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    quirks: Quirks = GENERIC
    facts: ModelFacts = UNKNOWN
    max_tokens: int | None = None
    timeouts: Timeouts = Timeouts()
    cache_ttl: CacheTtl = CacheTtl.FIVE_MINUTES
    local: bool = False
    stream: bool = True
    ssl_verify: bool = True
    ssl_ca: str = ""
    key_names: tuple[str, ...] = ()
    """The secrets that would have been used, for hints."""

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            provider=self.provider,
            model=self.model,
            context_window=self.facts.context_window,
            max_output=self.max_tokens or self.facts.max_output,
            vision=self.facts.vision,
        )


class RouteBook(Struct, frozen=True, kw_only=True):
    """What routes are resolved against."""

    secret: SecretSource
    providers: Mapping[str, ProviderSettings] = {}
    timeouts: Timeouts | None = None
    """None: defaults, more patient for local servers."""
    cache_ttl: CacheTtl = CacheTtl.FIVE_MINUTES


def resolve_route(target: ModelTarget, book: RouteBook) -> Route:
    """Return the route to `target`; `ConfigError` says what is missing."""
    if not target.model:
        raise ConfigError(
            "No model is chosen.",
            hint="Choose one with `hermes model`, or set `model:` in config.yaml.",
        )
    name = _provider_name(target, book)
    settings = _settings(name, book)
    spec = _spec(name, settings, book)
    base_url = target.base_url or settings.base_url or _default_url(spec, book)
    if not base_url:
        raise ConfigError(
            f"Provider `{name}` has no address.",
            hint=f"Set `base_url` for it in config.yaml, or {spec.base_url_env or 'a base URL'}.",
        )
    local = spec.local or _is_loopback(base_url)
    keys = _keys(target, settings, spec, base_url, book)
    if not keys and not local and _needs_key(name, settings, target):
        raise _missing_key(name, spec, settings, target)
    mode = _mode(target.api_mode or settings.api_mode, spec, base_url)
    return Route(
        provider=name,
        model=_model_id(target.model, name, settings),
        base_url=base_url.rstrip("/"),
        api_mode=mode,
        keys=keys,
        strategy=settings.strategy,
        auth=_auth(spec, mode),
        headers=dict(settings.headers),
        extra_body={**settings.extra_body, **target.extra_body},
        quirks=spec.quirks,
        facts=_facts(target, settings),
        max_tokens=target.max_tokens or settings.max_output,
        timeouts=book.timeouts or (Timeouts(**_LOCAL_TIMEOUTS) if local else Timeouts()),
        cache_ttl=book.cache_ttl,
        local=local,
        stream=settings.stream,
        ssl_verify=settings.ssl_verify,
        ssl_ca=settings.ssl_ca,
        key_names=_key_names(target, settings, spec),
    )


def _provider_name(target: ModelTarget, book: RouteBook) -> str:
    named = target.provider.strip()
    if named and named.lower() not in {"auto", "default"}:
        return named if named in book.providers else canonical_name(named)
    if target.base_url:
        return _name_of_url(target.base_url)
    return _guess(target.model, book)


def _name_of_url(base_url: str) -> str:
    host = urlsplit(base_url).hostname or ""
    for spec in PROVIDERS.values():
        if not spec.local and host and host == urlsplit(spec.base_url).hostname:
            return spec.name
    return "custom"


def _guess(model: str, book: RouteBook) -> str:
    for name, settings in book.providers.items():
        if model in settings.models:
            return name
    vendor, slash, _ = model.partition("/")
    wanted = ["openrouter", canonical_name(vendor)] if slash else []
    wanted += [home for prefix, home in _MODEL_HOMES if model.lower().startswith(prefix)]
    for name in [*wanted, *_AUTO_ORDER]:
        spec = PROVIDERS.get(name)
        if spec is not None and any(map(book.secret, spec.key_env)):
            return name
    if book.secret("OPENAI_BASE_URL"):
        return "custom"
    return wanted[0] if wanted else _AUTO_ORDER[0]


def _settings(name: str, book: RouteBook) -> ProviderSettings:
    return book.providers.get(name) or ProviderSettings()


def _spec(name: str, settings: ProviderSettings, book: RouteBook) -> ProviderSpec:
    known = PROVIDERS.get(name)
    if known is not None:
        return known
    if name in book.providers:
        like = PROVIDERS[_name_of_url(settings.base_url)] if settings.base_url else None
        quirks = like.quirks if like is not None else GENERIC
        return ProviderSpec(name=name, base_url=settings.base_url, quirks=quirks)
    names = sorted({*PROVIDERS, *book.providers})
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    meant = f"Did you mean {' or '.join(f'`{c}`' for c in close)}? " if close else ""
    raise ConfigError(
        f"There is no provider named `{name}`.",
        hint=f"{meant}Known: {', '.join(names)}. Others go under `providers:` in config.yaml.",
    )


def _default_url(spec: ProviderSpec, book: RouteBook) -> str:
    from_env = book.secret(spec.base_url_env) if spec.base_url_env else None
    return from_env or spec.base_url


def _is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    return host in {"localhost", "::1", "0.0.0.0"} or host.startswith("127.")  # noqa: S104 - compared only


def _key_names(
    target: ModelTarget, settings: ProviderSettings, spec: ProviderSpec
) -> tuple[str, ...]:
    if target.key_env:
        return (target.key_env,)
    return settings.key_env or spec.key_env


def _keys(
    target: ModelTarget,
    settings: ProviderSettings,
    spec: ProviderSpec,
    base_url: str,
    book: RouteBook,
) -> tuple[ApiKey, ...]:
    if target.api_key:
        return (ApiKey(secret=target.api_key, label="api_key"),)
    keys = [ApiKey(secret=key, label="api_key") for key in settings.api_keys if key]
    foreign = bool(target.base_url or settings.base_url) and not _same_host(base_url, spec)
    own_names = bool(target.key_env or settings.key_env)
    if foreign and not own_names and spec.name != "custom":
        return tuple(keys)
    for name in _key_names(target, settings, spec):
        found = _numbered(name, book)
        keys += found
        if found and not own_names:
            break
    return tuple(keys)


def _same_host(base_url: str, spec: ProviderSpec) -> bool:
    """Whether `base_url` is the provider's own: a key is never sent to another host."""
    own = urlsplit(spec.base_url).hostname
    return own is None or own == urlsplit(base_url).hostname


def _numbered(name: str, book: RouteBook) -> list[ApiKey]:
    """Return `NAME`, then `NAME_2`, `NAME_3` and so on while they exist."""
    names = [name, *(f"{name}_{number}" for number in range(2, _MAX_NUMBERED_KEYS))]
    keys: list[ApiKey] = []
    for each in names:
        secret = (book.secret(each) or "").strip()
        if not secret:
            break
        keys.append(ApiKey(secret=secret, label=each))
    return keys


def _needs_key(name: str, settings: ProviderSettings, target: ModelTarget) -> bool:
    """Own servers may do without a key unless the configuration names one."""
    own = name == "custom" or name not in PROVIDERS
    return not own or bool(settings.key_env or target.key_env)


def _missing_key(
    name: str, spec: ProviderSpec, settings: ProviderSettings, target: ModelTarget
) -> ConfigError:
    names = _key_names(target, settings, spec)
    where = f" Get one at {spec.key_url} ." if spec.key_url else ""
    return ConfigError(
        f"Provider `{name}` needs an API key: {' or '.join(names)} is not set.",
        hint=f"Run `hermes config set {names[0]} <key>`; it is kept in ~/.hermes/.env.{where}",
    )


def _mode(named: str, spec: ProviderSpec, base_url: str) -> ApiMode:
    if named and named != "auto":
        mode = _MODES.get(named.lower())
        if mode is None:
            raise ConfigError(
                f"There is no api_mode `{named}`.",
                hint="Use chat_completions, responses or anthropic_messages.",
            )
        return mode
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


def _model_id(model: str, provider: str, settings: ProviderSettings) -> str:
    """Drop a vendor prefix that names the provider itself; keep all others."""
    vendor, slash, rest = model.partition("/")
    direct = provider in {"anthropic", "openai", "deepseek", "gemini", "xai", "kimi", "zai"}
    if slash and rest and direct and canonical_name(vendor) == provider and not settings.base_url:
        return rest
    return model


def _facts(target: ModelTarget, settings: ProviderSettings) -> ModelFacts:
    known = find_model(target.model) or UNKNOWN
    return ModelFacts(
        context_window=target.context_length or settings.context_length or known.context_window,
        max_output=settings.max_output or known.max_output,
        vision=known.vision if settings.vision is None else settings.vision,
        price=settings.price or known.price,
    )
