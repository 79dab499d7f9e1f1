"""Doors: the gateway, platforms, sessions, streaming, routes and jobs."""

from typing import Any, Literal

from msgspec import field

from hermes.config.schema.base import Count, Positive, Seconds, Section

__all__ = [
    "ApiServer",
    "Cron",
    "Gateway",
    "HomeChannel",
    "MessageTimestamps",
    "Platform",
    "ProfileRoute",
    "RateGuard",
    "Route",
    "ScaleToZero",
    "SessionReset",
    "Sessions",
    "Streaming",
]


class HomeChannel(Section, frozen=True, kw_only=True):
    """Where messages go that nobody asked for."""

    chat_id: str = ""
    name: str = ""
    thread_id: str | None = None


class Platform(Section, frozen=True, kw_only=True):
    """One platform the gateway is connected to."""

    enabled: bool = False
    token: str = ""
    """Better kept in `.env`."""
    api_key: str = ""
    """Better kept in `.env`."""
    home_channel: HomeChannel | None = None
    reply_to_mode: Literal["off", "first", "all"] = "first"
    """Which pieces of an answer quote the question."""
    allowed_users: tuple[str, ...] = ()
    """Ids that may talk to the agent here; `*` for everybody."""
    allow_all_users: bool = False
    gateway_restart_notification: bool = True
    typing_indicator: bool = True
    typing_status_text: str = ""
    channel_overrides: dict[str, Any] = field(default_factory=dict)
    """Chat id -> model, provider, system_prompt."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What only this platform knows."""


class Route(Section, frozen=True, kw_only=True):
    """Which agent answers. All given conditions must hold; the first match wins."""

    agent: str
    name: str = ""
    platform: str = ""
    account: str = ""
    guild_id: str = ""
    chat_id: str = ""
    thread_id: str = ""
    user_id: str = ""
    enabled: bool = True


class ProfileRoute(Section, frozen=True, kw_only=True):
    """The older form of a route."""

    profile: str
    name: str = ""
    platform: str = ""
    guild_id: str = ""
    chat_id: str = ""
    thread_id: str = ""
    enabled: bool = True


class ScaleToZero(Section, frozen=True, kw_only=True):
    """Ending the gateway when nobody needs it."""

    enabled: bool = False
    idle_timeout_minutes: Seconds = 5.0


class RateGuard(Section, frozen=True, kw_only=True):
    """So many times within so many seconds is too often."""

    max_count: Positive = 3
    window_seconds: Seconds = 60.0


class MessageTimestamps(Section, frozen=True, kw_only=True):
    """Telling the model when a message was sent."""

    enabled: bool = False


class ApiServer(Section, frozen=True, kw_only=True):
    """Limits of the HTTP door."""

    max_concurrent_runs: Positive = 2000
    """Runs under way at once; more are told to come back."""


class Gateway(Section, frozen=True, kw_only=True):
    """The process behind all doors but the terminal."""

    delivery_ledger: bool = True
    platform_connect_timeout: Seconds = 30.0
    write_sessions_json: bool = True
    """Keep `sessions/sessions.json` as a readable mirror."""
    scale_to_zero: ScaleToZero = ScaleToZero()
    restart_loop_guard: RateGuard = RateGuard()
    respawn_storm: RateGuard = RateGuard(max_count=5, window_seconds=120)
    message_timestamps: MessageTimestamps = MessageTimestamps()
    max_inbound_media_bytes: Positive = 134217728
    strict: bool = False
    """Send files from `media_delivery_allow_dirs` and fresh ones only."""
    media_delivery_allow_dirs: tuple[str, ...] = ()
    trust_recent_files: bool = True
    trust_recent_files_seconds: Seconds = 600.0
    api_server: ApiServer = ApiServer()
    allowed_users: tuple[str, ...] = ()
    """Ids that may talk to the agent on every platform."""
    allow_all_users: bool = False
    proxy_url: str = ""
    """Hand turns to the API server at this address."""
    proxy_key: str = ""


class Streaming(Section, frozen=True, kw_only=True):
    """Showing an answer in chats while it is being written."""

    enabled: bool = True
    transport: Literal["auto", "draft", "edit", "off"] = "auto"
    edit_interval: Seconds = 0.8
    """Seconds between two edits of the same message."""
    buffer_threshold: Count = 24
    """Characters that make an edit worthwhile before that."""
    cursor: str = " ▉"
    fresh_final_after_seconds: Seconds = 0.0
    """Send the end as a new message after so many seconds; 0 for never."""


class SessionReset(Section, frozen=True, kw_only=True):
    """When a chat starts over by itself."""

    mode: Literal["none", "idle", "daily", "both"] = "none"
    at_hour: Count = 4
    """Local hour of the daily reset."""
    idle_minutes: Positive = 1440
    notify: bool = True
    bg_process_max_age_hours: Seconds = 24.0
    reset_by_type: dict[str, Any] = field(default_factory=dict)
    """Other settings by kind of chat."""
    reset_by_platform: dict[str, Any] = field(default_factory=dict)
    """Other settings by platform."""


class Sessions(Section, frozen=True, kw_only=True):
    """What happens to old conversations."""

    auto_prune: bool = False
    retention_days: Positive = 90
    vacuum_after_prune: bool = True
    write_json_snapshots: bool = False
    write_jsonl: bool = False
    """Mirror each conversation into `sessions/<id>.jsonl`."""


class Cron(Section, frozen=True, kw_only=True):
    """Scheduled jobs."""

    provider: str = ""
    """An external scheduler; empty for the gateway itself."""
    chronos: dict[str, Any] = field(default_factory=dict)
    wrap_response: bool = True
    """Say which job a delivered message belongs to."""
    mirror_delivery: bool = False
    max_parallel_jobs: Positive | None = None
    output_retention: Count = 50
