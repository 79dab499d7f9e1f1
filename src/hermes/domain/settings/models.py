"""Model settings: the model that answers, its provider, and what it may cost."""

from typing import Any, Literal

from msgspec import field

from hermes.domain.settings.section import Count, Positive, Seconds, Section


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
    """How long a provider keeps what was marked."""


class AuxiliaryTask(Section, frozen=True, kw_only=True):
    """The model for one side task."""

    provider: str = "auto"
    """`auto`: the model of the conversation, then any that has a key."""
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    timeout: Seconds = 30.0
    """Seconds one call may take."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Further fields for the body of every request."""
    reasoning_effort: str = ""
    """none, minimal, low, medium, high, xhigh, max; empty for what suits the task."""


class TitleGeneration(AuxiliaryTask, frozen=True, kw_only=True):
    """The model that names sessions."""

    enabled: bool = True


class Auxiliary(Section, frozen=True, kw_only=True):
    """Models for side tasks."""

    transient_retries: Count = 2
    """How often a side call that failed for the moment is repeated."""
    compression: AuxiliaryTask = AuxiliaryTask(timeout=120)
    approval: AuxiliaryTask = AuxiliaryTask()
    title_generation: TitleGeneration = TitleGeneration()
