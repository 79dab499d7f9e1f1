"""What a person sees and hears: display, dashboard, voice."""

from typing import Any, Literal

from msgspec import field

from hermes.config.schema.base import Count, Positive, Seconds, Section

__all__ = [
    "BasicAuth",
    "Dashboard",
    "Display",
    "HumanDelay",
    "PlatformDisplay",
    "RuntimeFooter",
    "Stt",
    "SttLocal",
    "Tts",
    "Voice",
]

ToolProgress = Literal["off", "new", "all", "verbose", "log"]


class PlatformDisplay(Section, frozen=True, kw_only=True):
    """Display settings of one platform; null for the general setting."""

    streaming: bool | None = None
    tool_progress: ToolProgress | None = None
    tool_progress_grouping: Literal["accumulate", "separate"] | None = None
    tool_preview_length: Count | None = None
    show_reasoning: bool | None = None
    reasoning_style: str | None = None
    interim_assistant_messages: bool | None = None
    friendly_tool_labels: bool | None = None
    busy_input_mode: Literal["interrupt", "queue", "steer"] | None = None
    busy_text_mode: str | None = None
    runtime_footer: "RuntimeFooter | None" = None


class RuntimeFooter(Section, frozen=True, kw_only=True):
    """A line below each answer."""

    enabled: bool = False
    fields: tuple[str, ...] = ("model", "context_pct", "cwd")


def _platforms() -> dict[str, PlatformDisplay]:
    return {
        "telegram": PlatformDisplay(streaming=True),
        "discord": PlatformDisplay(streaming=False),
    }


class Display(Section, frozen=True, kw_only=True):
    """What is shown, and how."""

    compact: bool = False
    personality: str = ""
    resume_display: str = "full"
    """How an earlier conversation is shown when it goes on: full or minimal."""
    busy_input_mode: Literal["interrupt", "queue", "steer"] = "interrupt"
    """What a message does that comes while a turn is running."""
    interface: str = "cli"
    bell_on_complete: bool = False
    show_reasoning: bool = True
    reasoning_full: bool = False
    reasoning_style: str = "code"
    streaming: bool = False
    """For the terminal; chats have `streaming.enabled`."""
    timestamps: bool = False
    final_response_markdown: str = "strip"
    """What happens to Markdown at the terminal: strip, render or raw."""
    inline_diffs: bool = True
    show_cost: bool = False
    skin: str = "default"
    language: str = "en"
    tool_progress: ToolProgress | None = None
    """Which tool calls chats show; null for the platform's usual."""
    tool_progress_command: bool = False
    tool_preview_length: Count = 0
    """0 for no limit."""
    tool_progress_grouping: Literal["accumulate", "separate"] = "accumulate"
    interim_assistant_messages: bool = True
    friendly_tool_labels: bool = True
    ephemeral_system_ttl: Seconds = 0.0
    platforms: dict[str, PlatformDisplay] = field(default_factory=_platforms)
    runtime_footer: RuntimeFooter = RuntimeFooter()
    pet: dict[str, Any] = field(default_factory=dict)


class BasicAuth(Section, frozen=True, kw_only=True):
    """One name and password for the dashboard."""

    username: str = ""
    password_hash: str = ""
    secret: str = ""
    session_ttl_seconds: Positive = 86400


class Dashboard(Section, frozen=True, kw_only=True):
    """The web page."""

    theme: str = ""
    turn_isolation: bool = False
    oauth: dict[str, Any] = field(default_factory=dict)
    basic_auth: BasicAuth = BasicAuth()
    drain_auth: dict[str, Any] = field(default_factory=dict)
    public_url: str = ""


class Voice(Section, frozen=True, kw_only=True):
    """Talking at the terminal."""

    record_key: str = "ctrl+b"
    max_recording_seconds: Positive = 120
    auto_tts: bool = False
    beep_enabled: bool = True
    silence_threshold: Count = 200
    silence_duration: Seconds = 3.0


class Tts(Section, frozen=True, kw_only=True):
    """Speaking answers. Further keys belong to the provider of that name."""

    provider: str = "edge"
    edge: dict[str, Any] = field(default_factory=dict)
    elevenlabs: dict[str, Any] = field(default_factory=dict)
    openai: dict[str, Any] = field(default_factory=dict)
    minimax: dict[str, Any] = field(default_factory=dict)
    mistral: dict[str, Any] = field(default_factory=dict)
    gemini: dict[str, Any] = field(default_factory=dict)
    xai: dict[str, Any] = field(default_factory=dict)
    neutts: dict[str, Any] = field(default_factory=dict)
    kittentts: dict[str, Any] = field(default_factory=dict)
    piper: dict[str, Any] = field(default_factory=dict)
    deepinfra: dict[str, Any] = field(default_factory=dict)
    providers: dict[str, Any] = field(default_factory=dict)
    """Commands that speak, by name."""


class SttLocal(Section, frozen=True, kw_only=True):
    """Recognition on this machine."""

    model: str = "base"
    language: str = ""


class Stt(Section, frozen=True, kw_only=True):
    """Understanding voice messages."""

    enabled: bool = True
    echo_transcripts: bool = True
    """Post what was understood back into the chat."""
    provider: str = "local"
    local: SttLocal = SttLocal()
    groq: dict[str, Any] = field(default_factory=dict)
    openai: dict[str, Any] = field(default_factory=dict)
    mistral: dict[str, Any] = field(default_factory=dict)
    xai: dict[str, Any] = field(default_factory=dict)
    elevenlabs: dict[str, Any] = field(default_factory=dict)
    deepinfra: dict[str, Any] = field(default_factory=dict)


class HumanDelay(Section, frozen=True, kw_only=True):
    """Pauses between messages, as a person would make them."""

    mode: Literal["off", "natural", "custom"] = "off"
    min_ms: Count = 800
    max_ms: Count = 2500
