"""Doors: the gateway and its platforms, sessions, and what a person sees."""

from typing import Any, Literal

from msgspec import field

from hermes.domain.settings.section import AtStart, Count, Hour, Positive, Seconds, Section

ToolProgress = Literal["off", "new", "all", "verbose", "log"]
BusyInputMode = Literal["interrupt", "queue", "steer"]


class HomeChannelSettings(Section, frozen=True, kw_only=True):
    """The chat for messages that answer nobody, such as results of jobs."""

    chat_id: str = ""
    """The chat's id on the platform."""
    name: str = ""
    """A name for display."""
    thread_id: str | None = None
    """The thread in that chat; null for the chat itself."""


class Platform(Section, frozen=True, kw_only=True):
    """One platform the gateway is connected to. Other keys belong to `extra`."""

    enabled: AtStart[bool] = False
    """Connect to the platform; on by itself when all its credentials are set."""
    token: AtStart[str] = ""
    """The access token; better kept in `.env`."""
    home_channel: HomeChannelSettings | None = None
    """The chat for messages that answer nobody; null for none."""
    allowed_users: tuple[str, ...] = ()
    """Ids of users who may talk to the agent here; `*` for everybody."""
    allow_all_users: bool = False
    """Let everybody on the platform talk to the agent."""
    extra: AtStart[dict[str, Any]] = field(default_factory=dict)
    """Settings that only this platform has."""


class ApiServerLimits(Section, frozen=True, kw_only=True):
    """Limits of the HTTP API."""

    max_concurrent_runs: AtStart[Positive] = 2000
    """Runs of an agent in progress at once; more are refused with a request to retry."""


class GatewaySettings(Section, frozen=True, kw_only=True):
    """The process that serves chats, the HTTP API and webhooks."""

    platform_connect_timeout: AtStart[Seconds] = 30.0
    """Seconds that a platform has to connect before the attempt is repeated."""
    media_delivery_allow_dirs: tuple[str, ...] = ()
    """More folders whose files may be sent to chats."""
    message_targets: tuple[str, ...] = ()
    """Chats that `send_message` may send to besides home channels: `platform:chat[:thread]`, with
    `*` for any."""
    api_server: ApiServerLimits = ApiServerLimits()
    allowed_users: tuple[str, ...] = ()
    """Ids of users who may talk to the agent on every platform."""
    allow_all_users: bool = False
    """Let everybody on every platform talk to the agent."""


class Streaming(Section, frozen=True, kw_only=True):
    """Showing an answer in chats while it is being written."""

    enabled: bool = True
    """Show answers while they are being written."""
    transport: Literal["auto", "draft", "edit", "off"] = "auto"
    """off shows complete answers only; the others edit one message, where the platform can."""
    edit_interval: Seconds = 0.8
    """Seconds between two edits of the same message."""
    buffer_threshold: Count = 24
    """New characters after which an edit is made sooner; 0 to always wait."""
    cursor: str = " ▉"
    """Shown at the end of an answer that is still being written."""


class SessionReset(Section, frozen=True, kw_only=True):
    """When a chat starts a new session by itself."""

    mode: Literal["none", "idle", "daily", "both"] = "none"
    """none: never; idle: after silence; daily: at an hour; both: whichever comes first."""
    at_hour: Hour = 4
    """Hour of the daily reset, in the configured time zone."""
    idle_minutes: Positive = 1440
    """Minutes of silence after which a chat starts a new session."""
    notify: bool = True
    """Tell the chat that a new session has begun."""
    bg_process_max_age_hours: Seconds = 24.0
    """Hours for which a running background process prevents a reset."""
    reset_by_type: dict[str, Any] = field(default_factory=dict)
    """Kind of chat -> settings of this section that differ there."""
    reset_by_platform: dict[str, Any] = field(default_factory=dict)
    """Platform -> settings of this section that differ there."""


class Sessions(Section, frozen=True, kw_only=True):
    """Copies of conversations, and how long they are kept."""

    write_jsonl: bool = False
    """Also write each conversation to `sessions/<id>.jsonl`."""
    auto_prune: bool | None = None
    """Delete old conversations: true those that have ended, null only those that were opened for
    requests over HTTP without a name and never got a title, false none."""
    retention_days: Positive = 90
    """Days after its last use until an old conversation is deleted; those of requests only at most
    30, after which their runs are forgotten, too."""


class PlatformDisplay(Section, frozen=True, kw_only=True):
    """Display settings of one platform; null uses the general setting."""

    streaming: bool | None = None
    """Show answers while they are being written."""
    tool_progress: ToolProgress | None = None
    """Which tool calls are shown."""
    tool_progress_grouping: Literal["accumulate", "separate"] | None = None
    """Show tool calls in one message or in one each."""
    tool_preview_length: Count | None = None
    """Characters of a tool line."""
    show_reasoning: bool | None = None
    """Show the model's reasoning; off unless set."""
    interim_assistant_messages: bool | None = None
    """Keep what the model says before it calls tools."""
    friendly_tool_labels: bool | None = None
    """Describe tool calls by verbs instead of the tools' names."""
    busy_input_mode: BusyInputMode | None = None
    """What happens to a message that arrives during a turn."""
    busy_ack_enabled: bool | None = None
    """Say in the chat what happens to a message that arrives during a turn."""


class Display(Section, frozen=True, kw_only=True):
    """What is shown, and how."""

    compact: bool = False
    """Start the terminal chat without its banner."""
    resume_display: str = "full"
    """How much of a resumed conversation the terminal shows: full or minimal."""
    busy_input_mode: BusyInputMode = "interrupt"
    """What happens to a message that arrives during a turn: interrupt, queue or steer."""
    busy_ack_enabled: bool = True
    """Say in chats what happens to a message that arrives during a turn."""
    bell_on_complete: bool = False
    """Ring the terminal's bell when an answer is complete."""
    show_reasoning: bool = True
    """Show the model's reasoning at the terminal."""
    final_response_markdown: str = "strip"
    """Markdown at the terminal: raw shows it as written, strip and render format it."""
    inline_diffs: bool = True
    """Show at the terminal what a tool call changed in files."""
    show_cost: bool = False
    """Show the cost in the terminal's status bar."""
    skin: str = "default"
    """Colours and symbols of the terminal, by name."""
    tool_progress: ToolProgress | None = None
    """Which tool calls chats show: off, new, all, verbose or log; null for off."""
    tool_preview_length: Count = 0
    """Characters of a tool line; 0 for the usual length."""
    tool_progress_grouping: Literal["accumulate", "separate"] = "accumulate"
    """Show tool calls in chats in one message (accumulate) or in one each (separate)."""
    interim_assistant_messages: bool = True
    """Keep in chats what the model says before it calls tools."""
    friendly_tool_labels: bool = True
    """Describe tool calls in chats by verbs instead of the tools' names."""
    platforms: dict[str, PlatformDisplay] = field(default_factory=dict)
    """Platform -> display settings that differ there."""


class Logging(Section, frozen=True, kw_only=True):
    """The log files."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least important records that are written."""
    max_size_mb: Positive = 5
    """Size in MB at which a log file is rotated."""
    backup_count: Count = 3
    """How many rotated files are kept."""


class Plugins(Section, frozen=True, kw_only=True):
    """Installed packages that may hook into Hermes."""

    enabled: tuple[str, ...] | None = None
    """Names of the plugins to load; null for none."""


class Privacy(Section, frozen=True, kw_only=True):
    """What the model learns about people."""

    redact_pii: bool = False
    """Show the model hashes instead of the ids of people and chats."""
