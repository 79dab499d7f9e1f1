"""Settings: everything in `config.yaml`, with its defaults."""

from typing import Any

from msgspec import field

from hermes.domain.settings import agent as core
from hermes.domain.settings import doors, execution, models
from hermes.domain.settings.section import AtStart, Positive, Seconds, Section

CONFIG_VERSION = 34
"""The version of the file format; older files are migrated."""


class Settings(Section, frozen=True, kw_only=True):
    """The effective configuration."""

    model: AtStart[models.ModelChoice] = models.ModelChoice()
    """The model of the default agent: its name, or a mapping."""
    providers: AtStart[dict[str, models.Provider]] = field(default_factory=dict)
    """Model providers by name."""
    fallback_providers: AtStart[tuple[models.FallbackProvider, ...]] = ()
    """Models that answer when the main model fails, in this order."""
    credential_pool_strategies: AtStart[dict[str, str]] = field(default_factory=dict)
    """Provider -> how its keys are used: fill_first, round_robin, random or least_used."""
    model_timeouts: AtStart[models.ModelTimeouts] = models.ModelTimeouts()
    stt: models.Transcription = models.Transcription()
    tts: models.Speech = models.Speech()
    image_gen: models.ImageService = models.ImageService()
    prompt_caching: AtStart[models.PromptCaching] = models.PromptCaching()
    auxiliary: AtStart[models.Auxiliary] = models.Auxiliary()
    budget: models.Budget = models.Budget()

    toolsets: tuple[str, ...] = ("hermes-cli",)
    """Toolsets of the default agent at the terminal."""
    platform_toolsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Platform -> toolsets of its sessions."""
    agent: core.AgentLoop = core.AgentLoop()
    tool_loop_guardrails: core.LoopGuardrails = core.LoopGuardrails()
    tools: core.ToolUse = core.ToolUse()
    delegation: core.ToolDelegation = core.ToolDelegation()
    ask_agent: core.AskAgent = core.AskAgent()
    compression: core.Compression = core.Compression()
    memory: core.Memory = core.Memory()
    web: core.Web = core.Web()
    browser: core.BrowserSettings = core.BrowserSettings()
    security: core.Security = core.Security()
    checkpoints: core.CheckpointSettings = core.CheckpointSettings()
    mcp_servers: dict[str, core.McpServerSettings] = field(default_factory=dict)
    """MCP servers, by name."""
    mcp_discovery_timeout: Seconds = 1.5
    """Seconds that the first turn waits for MCP servers; who is late is there for the next."""
    context_file_max_chars: Positive | None = None
    """Characters of a project context file that are read; null for 20000."""
    platform_hints: dict[str, Any] = field(default_factory=dict)
    """Platform -> text for the system prompt, in place of the built-in hint."""

    terminal: AtStart[execution.Terminal] = execution.Terminal()
    approvals: execution.Approvals = execution.Approvals()
    code_execution: execution.CodeExecution = execution.CodeExecution()
    command_allowlist: tuple[str, ...] = ()
    """Patterns of commands that need no approval."""

    gateway: doors.GatewaySettings = doors.GatewaySettings()
    platforms: dict[str, doors.Platform] = field(default_factory=dict)
    """Chat platforms, the HTTP API and webhooks, by name."""
    streaming: doors.Streaming = doors.Streaming()
    session_reset: doors.SessionReset = doors.SessionReset()
    sessions: AtStart[doors.Sessions] = doors.Sessions()
    group_sessions_per_user: AtStart[bool] = True
    """Give each member of a group a session of their own."""
    thread_sessions_per_user: AtStart[bool] = False
    """Give each participant of a thread a session of their own."""
    agents: dict[str, Any] = field(default_factory=dict)
    """Agents beside `main`: id -> home, description, model, provider, toolsets, backend, prompt,
    workspace, secrets, settings, expose."""
    routes: tuple[Any, ...] = ()
    """Agents by place, the first that matches: `{match: {platform, account, guild_id, chat_id,
    thread_id, user_id, chat_type}, agent, model, prompt, toolsets}`; a value, a list or a pattern
    with `*`. Messages for an agent that is not served are refused."""
    profile_routes: tuple[Any, ...] = ()
    """The same as version 0.19 writes it: `{platform, guild_id, chat_id, thread_id, profile}`, the
    most specific one."""
    default_agent: str = "main"
    """The agent of messages without a route."""
    reset_triggers: tuple[str, ...] = ()
    """Words that start a new session, besides `/new`."""
    unauthorized_dm_behavior: str = ""
    """What strangers get: a pairing code (`pair`) or nothing (`ignore`); empty for a code unless
    users are listed."""

    display: doors.Display = doors.Display()
    privacy: doors.Privacy = doors.Privacy()
    timezone: AtStart[str] = ""
    """IANA name of the time zone; empty for the machine's."""
    plugins: AtStart[doors.Plugins] = doors.Plugins()
    logging: AtStart[doors.Logging] = doors.Logging()
