"""Which model answers, over which provider, and what it may cost."""

from typing import Any, Literal

from msgspec import field

from hermes.config.schema.base import Count, Fraction, Positive, Seconds, Section

__all__ = [
    "Auxiliary",
    "AuxiliaryTask",
    "Bedrock",
    "Budget",
    "FallbackProvider",
    "Moa",
    "ModelCatalog",
    "ModelChoice",
    "ModelTimeouts",
    "OpenRouter",
    "PromptCaching",
    "Provider",
    "TitleGeneration",
]


class ModelChoice(Section, frozen=True, kw_only=True):
    """A model and how to reach it. In the file also a plain string: the model."""

    provider: str = ""
    """Empty: found from the model's name and the keys that are present."""
    model: str = ""
    """The model's name at its provider; `default` is accepted as well."""
    base_url: str = ""
    """The provider's address; empty for its usual one."""
    api_key: str = ""
    """Better kept in `.env`; may refer to it as `${NAME}`."""
    api_mode: str = ""
    """The wire protocol; empty for the provider's usual one."""
    context_length: Positive | None = None
    """Tokens the model can read; null for what the catalogue says."""
    max_tokens: Positive | None = None
    """Most tokens of one answer; null for the provider's limit."""


class Provider(Section, frozen=True, kw_only=True):
    """A model provider that is not built in, or changes to one that is."""

    name: str = ""
    """How it is shown; empty for its key."""
    base_url: str = ""
    """Address of its API."""
    api_key: str = ""
    """Better kept in `.env` and named by `key_env`."""
    key_env: str = ""
    """Name of the variable that holds the key."""
    api_mode: str = ""
    """The wire protocol it speaks."""
    model: str = ""
    """The model to use when none is named."""
    models: Any = None
    """Its models: a list of names, or a mapping of name to settings."""
    context_length: Positive | None = None
    """Tokens its models can read."""
    vision: bool | None = None
    """Whether its models see pictures; null for what the catalogue says."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Further fields for the body of every request."""
    extra_headers: dict[str, str] = field(default_factory=dict)
    """Further headers for every request."""
    ssl_verify: bool = True
    """False accepts any certificate; for test servers only."""
    ssl_ca_cert: str = ""
    """A file with the authority that signed the server's certificate."""
    ssl_client_cert: str = ""
    """A client certificate file."""
    ssl_client_key: str = ""
    """The key file of the client certificate."""


class FallbackProvider(Section, frozen=True, kw_only=True):
    """What answers when the model before it cannot."""

    provider: str
    model: str = ""
    base_url: str = ""
    key_env: str = ""
    """Name of the variable that holds the key."""
    api_key: str = ""
    api_mode: str = ""


class ModelTimeouts(Section, frozen=True, kw_only=True):
    """How long a model call may take, in seconds."""

    connect: Seconds = 10.0
    """Until the connection stands."""
    first_byte: Seconds = 120.0
    """Until the first byte of the answer."""
    idle: Seconds = 90.0
    """Between two pieces of the answer."""
    total: Seconds = 1800.0
    """For the call as a whole."""


class Budget(Section, frozen=True, kw_only=True):
    """Hard limits; null means no limit."""

    session_tokens: Count | None = None
    """Most tokens one session may use."""
    session_usd: Seconds | None = None
    """Most money one session may cost, in US dollars."""
    day_tokens: Count | None = None
    """Most tokens all sessions together may use in a day."""
    day_usd: Seconds | None = None
    """Most money all sessions together may cost in a day, in US dollars."""


class PromptCaching(Section, frozen=True, kw_only=True):
    """Prompt caching at providers that ask for marks."""

    cache_ttl: Literal["5m", "1h"] = "5m"


class OpenRouter(Section, frozen=True, kw_only=True):
    """What only OpenRouter knows."""

    response_cache: bool = True
    ttl: Count = 300
    """Seconds a cached answer stays good."""
    min_coding_score: Fraction = 0.65


class Bedrock(Section, frozen=True, kw_only=True):
    """What only AWS Bedrock knows."""

    region: str = ""
    discovery: dict[str, Any] = field(default_factory=dict)
    guardrail: dict[str, Any] = field(default_factory=dict)


class ModelCatalog(Section, frozen=True, kw_only=True):
    """Where context lengths and prices come from."""

    url: str = ""
    """Empty for the catalogue that is part of Hermes."""
    ttl_hours: Seconds = 1.0


class AuxiliaryTask(Section, frozen=True, kw_only=True):
    """The model for one side task."""

    provider: str = "auto"
    """`auto`: the model of the conversation, then any that has a key."""
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    timeout: Seconds = 30.0
    extra_body: dict[str, Any] = field(default_factory=dict)
    reasoning_effort: str = ""


class TitleGeneration(AuxiliaryTask, frozen=True, kw_only=True):
    """The model that names sessions."""

    enabled: bool = True
    language: str = ""
    """Empty: the language of the conversation."""


class Auxiliary(Section, frozen=True, kw_only=True):
    """Models for side tasks."""

    transient_retries: Count = 2
    vision: AuxiliaryTask = AuxiliaryTask(timeout=120)
    web_extract: AuxiliaryTask = AuxiliaryTask(timeout=360)
    compression: AuxiliaryTask = AuxiliaryTask(timeout=120)
    skills_hub: AuxiliaryTask = AuxiliaryTask()
    approval: AuxiliaryTask = AuxiliaryTask()
    mcp: AuxiliaryTask = AuxiliaryTask()
    title_generation: TitleGeneration = TitleGeneration()
    memory_query_rewrite: AuxiliaryTask = AuxiliaryTask(timeout=8)
    tts_audio_tags: AuxiliaryTask = AuxiliaryTask()
    triage_specifier: AuxiliaryTask = AuxiliaryTask(timeout=120)
    kanban_decomposer: AuxiliaryTask = AuxiliaryTask(timeout=180)
    profile_describer: AuxiliaryTask = AuxiliaryTask(timeout=60)
    goal_judge: AuxiliaryTask = AuxiliaryTask(timeout=60)
    curator: AuxiliaryTask = AuxiliaryTask(timeout=600)
    monitor: AuxiliaryTask = AuxiliaryTask(timeout=60)
    background_review: AuxiliaryTask = AuxiliaryTask(timeout=120)
    moa_reference: AuxiliaryTask = AuxiliaryTask(timeout=900)
    moa_aggregator: AuxiliaryTask = AuxiliaryTask(timeout=900)


class MoaPreset(Section, frozen=True, kw_only=True):
    """Several models that answer together."""

    reference_models: tuple[Any, ...] = ()
    """Models that answer first."""
    aggregator: Any = None
    """The model that merges their answers."""
    max_tokens: Positive | None = None


class Moa(Section, frozen=True, kw_only=True):
    """Mixtures of models."""

    default_preset: str = ""
    active_preset: str = ""
    save_traces: bool = False
    presets: dict[str, MoaPreset] = field(default_factory=dict)
