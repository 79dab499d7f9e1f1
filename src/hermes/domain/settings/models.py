"""Model settings: the model that answers, its provider, and what it may cost."""

from typing import Any, Literal

from msgspec import field

from hermes.domain.settings.section import Count, Positive, Seconds, Section

ApiModeName = Literal[
    "",
    "auto",
    "chat_completions",
    "chat",
    "openai",
    "responses",
    "codex_responses",
    "openai_responses",
    "anthropic_messages",
    "anthropic",
    "messages",
]
"""The wire protocols by all their names."""


class ModelEndpoint(Section, frozen=True, kw_only=True):
    """A model and where it is served."""

    provider: str = ""
    """The provider's name; empty to derive it from the model's name and the keys that are set."""
    model: str = ""
    """The model's name at its provider."""
    base_url: str = ""
    """The address of the API; empty for the provider's own."""
    api_key: str = ""
    """The key; better kept in `.env` and referred to as `${NAME}`."""


class ModelChoice(ModelEndpoint, frozen=True, kw_only=True):
    """A model and how to reach it. In the file also a plain string: the model's name."""

    api_mode: ApiModeName = ""
    """chat_completions, responses or anthropic_messages; empty for the provider's default."""
    context_length: Positive | None = None
    """Tokens in the context window; null to look it up in the catalogue."""
    max_tokens: Positive | None = None
    """Tokens that one answer may have; null for the provider's limit."""


class Price(Section, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    input: Seconds
    output: Seconds
    cache_read: Seconds | None = None
    """What cached tokens cost; null: as much as others."""
    cache_write: Seconds | None = None


class OwnModel(Section, frozen=True, kw_only=True):
    """What is known about one model of a provider."""

    context_length: Positive | None = None
    vision: bool | None = None
    price: Price | None = None


class Provider(Section, frozen=True, kw_only=True):
    """A model provider that is not built in, or changes to one that is."""

    base_url: str = ""
    """The address of its API."""
    api_key: str = ""
    """The key; better kept in `.env` and named by `key_env`."""
    key_env: str = ""
    """Name of the variable that holds the key."""
    api_mode: ApiModeName = ""
    """chat_completions, responses or anthropic_messages; empty to derive it from the address."""
    model: str = ""
    """The model to use when none is named."""
    models: dict[str, OwnModel | None] | tuple[Any, ...] | None = None
    """Its models: a list of names, or a mapping of name to settings: `context_length`, `vision` and
    `price: {input, output, cache_read, cache_write}` in US dollars for a million tokens."""
    context_length: Positive | None = None
    """Tokens in the context window of its models; null to look it up in the catalogue."""
    vision: bool | None = None
    """Whether its models accept images; null to look it up in the catalogue."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Fields added to the body of every request."""
    extra_headers: dict[str, str] = field(default_factory=dict)
    """Headers added to every request."""
    ssl_verify: bool = True
    """Check the server's certificate; switch it off for test servers only."""
    ssl_ca_cert: str = ""
    """A file with the certificate authority to trust; empty for the system's."""


class FallbackProvider(ModelEndpoint, frozen=True, kw_only=True):
    """A model that answers when those before it fail."""

    provider: str
    """The provider's name."""
    key_env: str = ""
    """Name of the variable that holds the key."""
    api_mode: ApiModeName = ""
    """chat_completions, responses or anthropic_messages; empty for the provider's default."""


class ModelTimeouts(Section, frozen=True, kw_only=True):
    """How long a model call may take, in seconds."""

    connect: Seconds = 10.0
    """Seconds to connect."""
    first_byte: Seconds = 120.0
    """Seconds until the first byte of the answer."""
    idle: Seconds = 90.0
    """Seconds between two pieces of the answer."""
    total: Seconds = 1800.0
    """Seconds for the whole call."""


class Budget(Section, frozen=True, kw_only=True):
    """Hard limits on what is spent."""

    session_tokens: Count | None = None
    """Tokens that one session may use; null for no limit."""
    session_usd: Seconds | None = None
    """US dollars that one session may cost; null for no limit."""
    day_tokens: Count | None = None
    """Tokens that all sessions of an agent may use in a day; null for no limit."""
    day_usd: Seconds | None = None
    """US dollars that all sessions of an agent may cost in a day; null for no limit."""


class PromptCaching(Section, frozen=True, kw_only=True):
    """Prompt caching at providers that ask for cache marks."""

    cache_ttl: Literal["5m", "1h"] = "5m"
    """How long the provider keeps a cached prompt."""


class AuxiliaryTask(ModelEndpoint, frozen=True, kw_only=True):
    """The model for one side task."""

    provider: str = "auto"
    """The provider's name; `auto` uses the model of the conversation."""
    timeout: Seconds = 30.0
    """Seconds that one call may take."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Fields added to the body of every request."""
    reasoning_effort: str = ""
    """none, minimal, low, medium, high, xhigh or max; empty for the task's default."""


class TitleGeneration(AuxiliaryTask, frozen=True, kw_only=True):
    """The model that gives sessions their titles."""

    enabled: bool = True
    """Give each session a title after its first answer."""


class Auxiliary(Section, frozen=True, kw_only=True):
    """Models for side tasks."""

    transient_retries: Count = 2
    """How often a side call is retried after a temporary failure."""
    compression: AuxiliaryTask = AuxiliaryTask(timeout=120)
    approval: AuxiliaryTask = AuxiliaryTask()
    mcp: AuxiliaryTask = AuxiliaryTask()
    vision: AuxiliaryTask = AuxiliaryTask(timeout=120)
    title_generation: TitleGeneration = TitleGeneration()


class TranscriptionService(Section, frozen=True, kw_only=True):
    """A service that is spoken to like OpenAI's `/v1/audio/transcriptions`."""

    base_url: str = ""
    """Its address up to `/v1`; empty for the usual one."""
    api_key: str = ""
    """Its key; better kept in `.env`."""
    model: str = ""
    """Model that transcribes; empty for the usual one."""


class LocalTranscription(Section, frozen=True, kw_only=True):
    """Transcription on this machine, with the package faster-whisper."""

    model: str = "base"
    """Size of the Whisper model: tiny, base, small, medium, large-v3; fetched with first use."""


class Transcription(Section, frozen=True, kw_only=True):
    """Voice messages as text."""

    enabled: bool = True
    """Transcribe voice messages."""
    echo_transcripts: bool = True
    """Show the person what was understood."""
    provider: str = "local"
    """Who transcribes: local, openai, groq or mistral. Without faster-whisper, `local` stands for
    the first service below that has an address or a key."""
    language: str = ""
    """Language that is spoken, such as `en`; empty to find out."""
    local: LocalTranscription = LocalTranscription()
    openai: TranscriptionService = TranscriptionService()
    groq: TranscriptionService = TranscriptionService()
    mistral: TranscriptionService = TranscriptionService()


class SpeechService(Section, frozen=True, kw_only=True):
    """A service that is spoken to like OpenAI's `/v1/audio/speech`."""

    base_url: str = ""
    """Its address up to `/v1`; empty for OpenAI's."""
    api_key: str = ""
    """Its key; better kept in `.env` as VOICE_TOOLS_OPENAI_KEY."""
    model: str = "gpt-4o-mini-tts"
    """The model that speaks."""
    voice: str = "alloy"
    """Its voice."""


class SpeechEngine(Section, frozen=True, kw_only=True):
    """espeak-ng, where commands run."""

    voice: str = "en"
    """Its voice or language."""


class Speech(Section, frozen=True, kw_only=True):
    """Texts that are spoken (`text_to_speech`)."""

    provider: str = ""
    """openai or espeak; empty for the service if it has a key or an address, else espeak."""
    openai: SpeechService = SpeechService()
    espeak: SpeechEngine = SpeechEngine()


class ImageService(Section, frozen=True, kw_only=True):
    """Pictures that are made (`image_generate`), by a service like OpenAI's `/v1/images`."""

    base_url: str = ""
    """Its address up to `/v1`; empty for OpenAI's."""
    api_key: str = ""
    """Its key; empty for OPENAI_API_KEY."""
    model: str = "gpt-image-1"
    """The model that paints."""
