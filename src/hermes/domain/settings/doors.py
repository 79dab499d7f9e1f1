"""Doors: the gateway and its platforms, sessions, and what a person sees."""

from typing import Any, Literal

from msgspec import field

from hermes.domain.settings.section import AtStart, Count, Hour, Positive, Seconds, Section

ToolProgress = Literal["off", "new", "all", "verbose", "log"]
BusyInputMode = Literal["interrupt", "queue", "steer"]


class HomeChannelSettings(Section, frozen=True, kw_only=True):
    """Where messages go that nobody asked for."""

    chat_id: str = ""
    name: str = ""
    thread_id: str | None = None


class Platform(Section, frozen=True, kw_only=True):
    """One platform the gateway is connected to. Further keys belong to `extra`."""

    enabled: AtStart[bool] = False
    token: AtStart[str] = ""
    """Better kept in `.env`."""
    home_channel: HomeChannelSettings | None = None
    """Where messages go that nobody asked for."""
    allowed_users: tuple[str, ...] = ()
    """Ids that may talk to the agent here; `*` for everybody."""
    allow_all_users: bool = False
    extra: AtStart[dict[str, Any]] = field(default_factory=dict)
    """What only this platform knows."""


class ApiServerLimits(Section, frozen=True, kw_only=True):
    """Limits of the HTTP door."""

    max_concurrent_runs: AtStart[Positive] = 2000
    """Runs under way at once; more are told to come back."""


class GatewaySettings(Section, frozen=True, kw_only=True):
    """The process behind all doors but the terminal."""

    platform_connect_timeout: AtStart[Seconds] = 30.0
    """Seconds a platform has to connect before it is tried again."""
    media_delivery_allow_dirs: tuple[str, ...] = ()
    """Further folders whose files may be sent to chats."""
    api_server: ApiServerLimits = ApiServerLimits()
    allowed_users: tuple[str, ...] = ()
    """Ids that may talk to the agent on every platform."""
    allow_all_users: bool = False


class Streaming(Section, frozen=True, kw_only=True):
    """Showing an answer in chats while it is being written."""

    enabled: bool = True
    transport: Literal["auto", "draft", "edit", "off"] = "auto"
    edit_interval: Seconds = 0.8
    """Seconds between two edits of the same message."""
    buffer_threshold: Count = 24
    """Characters that make an edit worthwhile before that."""
    cursor: str = " ▉"


class SessionReset(Section, frozen=True, kw_only=True):
    """When a chat starts over by itself."""

    mode: Literal["none", "idle", "daily", "both"] = "none"
    at_hour: Hour = 4
    """Local hour of the daily reset."""
    idle_minutes: Positive = 1440
    """Minutes of silence after which a chat starts over."""
    notify: bool = True
    """Tell the person that a new conversation has begun."""
    bg_process_max_age_hours: Seconds = 24.0
    """Background work older than this does not keep a conversation any more."""
    reset_by_type: dict[str, Any] = field(default_factory=dict)
    """Other settings by kind of chat."""
    reset_by_platform: dict[str, Any] = field(default_factory=dict)
    """Other settings by platform."""


class Sessions(Section, frozen=True, kw_only=True):
    """What is kept of conversations."""

    write_jsonl: bool = False
    """Mirror each conversation into `sessions/<id>.jsonl`."""


class PlatformDisplay(Section, frozen=True, kw_only=True):
    """Display settings of one platform; null for the general setting."""

    streaming: bool | None = None
    tool_progress: ToolProgress | None = None
    tool_progress_grouping: Literal["accumulate", "separate"] | None = None
    tool_preview_length: Count | None = None
    show_reasoning: bool | None = None
    interim_assistant_messages: bool | None = None
    friendly_tool_labels: bool | None = None
    busy_input_mode: BusyInputMode | None = None


class Display(Section, frozen=True, kw_only=True):
    """What is shown, and how."""

    compact: bool = False
    """Start the terminal chat without its banner."""
    resume_display: str = "full"
    """How an earlier conversation is shown when it goes on: full or minimal."""
    busy_input_mode: BusyInputMode = "interrupt"
    """What a message does that comes while a turn is running."""
    bell_on_complete: bool = False
    """Ring the terminal's bell when an answer is complete."""
    show_reasoning: bool = True
    """Show the model's reasoning at the terminal."""
    final_response_markdown: str = "strip"
    """What happens to Markdown at the terminal: strip, render or raw."""
    inline_diffs: bool = True
    show_cost: bool = False
    skin: str = "default"
    tool_progress: ToolProgress | None = None
    """Which tool calls chats show; null for the platform's usual."""
    tool_preview_length: Count = 0
    """0 for no limit."""
    tool_progress_grouping: Literal["accumulate", "separate"] = "accumulate"
    interim_assistant_messages: bool = True
    friendly_tool_labels: bool = True
    platforms: dict[str, PlatformDisplay] = field(default_factory=dict)
    """Other settings by platform."""


class Logging(Section, frozen=True, kw_only=True):
    """The log files."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    max_size_mb: Positive = 5
    """Size at which a log file is put aside."""
    backup_count: Count = 3
    """How many older files are kept."""


class Plugins(Section, frozen=True, kw_only=True):
    """Which plugins are loaded."""

    enabled: tuple[str, ...] | None = None


class Privacy(Section, frozen=True, kw_only=True):
    """What the model learns about people."""

    redact_pii: bool = False
    """Replace ids and numbers of people by hashes."""
