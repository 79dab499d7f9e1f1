"""Config: everything in `config.yaml`, with the value of what is left out."""

from typing import Any

from msgspec import field

from hermes.config.schema import agent as core
from hermes.config.schema import doors, execution, machine, surface
from hermes.config.schema import model as models
from hermes.config.schema.base import Count, Positive, Seconds, Section

__all__ = ["CONFIG_VERSION", "Config"]

CONFIG_VERSION = 34
"""The version that this schema describes; older files are migrated."""


class Config(Section, frozen=True, kw_only=True, rename={"config_version": "_config_version"}):
    """The effective configuration."""

    config_version: Count = CONFIG_VERSION
    """Version of the file's layout; written by `hermes config migrate`."""

    model: models.ModelChoice = models.ModelChoice()
    """The model of the default agent: its name, or a mapping."""
    providers: dict[str, models.Provider] = field(default_factory=dict)
    """Model providers by name."""
    fallback_providers: tuple[models.FallbackProvider, ...] = ()
    """What answers when the model cannot, in this order."""
    credential_pool_strategies: dict[str, str] = field(default_factory=dict)
    """Provider -> fill_first, round_robin, random or least_used."""
    model_timeouts: models.ModelTimeouts = models.ModelTimeouts()
    budget: models.Budget = models.Budget()
    prompt_caching: models.PromptCaching = models.PromptCaching()
    openrouter: models.OpenRouter = models.OpenRouter()
    bedrock: models.Bedrock = models.Bedrock()
    vertex: dict[str, Any] = field(default_factory=dict)
    auxiliary: models.Auxiliary = models.Auxiliary()
    model_catalog: models.ModelCatalog = models.ModelCatalog()
    moa: models.Moa = models.Moa()
    smart_model_routing: dict[str, Any] = field(default_factory=dict)

    toolsets: tuple[str, ...] = ("hermes-cli",)
    """Toolsets of the default agent at the terminal."""
    max_concurrent_sessions: Positive | None = None
    """Sessions that may run a turn at once; null for no limit."""
    max_live_sessions: Positive = 16
    agent: core.Agent = core.Agent()
    context: core.ContextEngine = core.ContextEngine()
    compression: core.Compression = core.Compression()
    memory: core.Memory = core.Memory()
    delegation: core.Delegation = core.Delegation()
    goals: core.Goals = core.Goals()
    skills: core.Skills = core.Skills()
    curator: core.Curator = core.Curator()
    checkpoints: core.Checkpoints = core.Checkpoints()
    tool_output: core.ToolOutput = core.ToolOutput()
    tool_loop_guardrails: core.ToolLoopGuardrails = core.ToolLoopGuardrails()
    kanban: core.Kanban = core.Kanban()
    prefill_messages_file: str = ""
    """A JSON file with messages put before each conversation."""
    context_file_max_chars: Positive | None = None
    """Longest project context file; null for a share of the context."""
    file_read_max_chars: Positive = 100000
    personalities: dict[str, Any] = field(default_factory=dict)
    """Name -> instructions for `/personality`."""

    terminal: execution.Terminal = execution.Terminal()
    code_execution: execution.CodeExecution = execution.CodeExecution()
    web: execution.Web = execution.Web()
    browser: execution.Browser = execution.Browser()
    approvals: execution.Approvals = execution.Approvals()
    command_allowlist: tuple[str, ...] = ()
    """Commands that need no approval, written by the answer `always`."""
    security: execution.Security = execution.Security()
    tools: execution.Tools = execution.Tools()
    mcp: execution.Mcp = execution.Mcp()
    mcp_servers: dict[str, execution.McpServer] = field(default_factory=dict)
    """MCP servers by name."""
    mcp_discovery_timeout: Seconds = 1.5
    """Seconds the first turn waits for MCP servers."""

    default_agent: str = "main"
    """The agent that answers when no route matches."""
    agents: dict[str, core.AgentEntry] = field(default_factory=dict)
    """Further agents by id."""
    routes: tuple[doors.Route, ...] = ()
    """Which agent answers where; the first match wins."""
    multiplex_profiles: bool = False
    """Serve every profile below the home from one gateway."""
    profile_routes: tuple[doors.ProfileRoute, ...] = ()
    """The older form of `routes`."""
    gateway: doors.Gateway = doors.Gateway()
    platforms: dict[str, doors.Platform] = field(default_factory=dict)
    """Platforms by name."""
    streaming: doors.Streaming = doors.Streaming()
    session_reset: doors.SessionReset = doors.SessionReset()
    sessions: doors.Sessions = doors.Sessions()
    cron: doors.Cron = doors.Cron()
    group_sessions_per_user: bool = True
    """Each member of a group has a session of their own."""
    thread_sessions_per_user: bool = False
    """Also within a thread."""
    reset_triggers: tuple[str, ...] = ()
    """Words that start a new session, besides `/new`."""
    require_mention: bool | None = None
    """Answer in groups only when addressed; null for the platform's usual."""
    unauthorized_dm_behavior: str = ""
    """Strangers get a pairing code (`pair`) or nothing (`ignore`)."""
    always_log_local: bool = True
    filter_silence_narration: bool = True
    platform_toolsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Platform -> toolsets."""
    known_plugin_toolsets: dict[str, Any] = field(default_factory=dict)
    platform_hints: dict[str, Any] = field(default_factory=dict)
    """Platform -> words for the system prompt."""
    telegram: dict[str, Any] = field(default_factory=dict)
    discord: dict[str, Any] = field(default_factory=dict)
    slack: dict[str, Any] = field(default_factory=dict)
    matrix: dict[str, Any] = field(default_factory=dict)
    mattermost: dict[str, Any] = field(default_factory=dict)
    whatsapp: dict[str, Any] = field(default_factory=dict)
    signal: dict[str, Any] = field(default_factory=dict)

    display: surface.Display = surface.Display()
    dashboard: surface.Dashboard = surface.Dashboard()
    voice: surface.Voice = surface.Voice()
    tts: surface.Tts = surface.Tts()
    stt: surface.Stt = surface.Stt()
    human_delay: surface.HumanDelay = surface.HumanDelay()
    timezone: str = ""
    """IANA name; empty for the machine's."""
    paste_collapse_threshold: Count = 5
    """Lines from which a paste is shown as one word."""
    paste_collapse_char_threshold: Count = 2000

    quick_commands: dict[str, Any] = field(default_factory=dict)
    """Name -> a slash command that runs without the model."""
    hooks: dict[str, Any] = field(default_factory=dict)
    """Event -> shell hooks."""
    hooks_auto_accept: bool = False
    """Run shell hooks without asking the first time."""
    plugins: machine.Plugins = machine.Plugins()
    logging: machine.Logging = machine.Logging()
    updates: machine.Updates = machine.Updates()
    lsp: machine.Lsp = machine.Lsp()
    network: machine.Network = machine.Network()
    privacy: machine.Privacy = machine.Privacy()
    secrets: machine.SecretManagers = machine.SecretManagers()
    honcho: dict[str, Any] = field(default_factory=dict)
    image_gen: dict[str, Any] = field(default_factory=dict)
    video_gen: dict[str, Any] = field(default_factory=dict)
    x_search: dict[str, Any] = field(default_factory=dict)
    computer_use: dict[str, Any] = field(default_factory=dict)
    desktop: dict[str, Any] = field(default_factory=dict)
    onboarding: dict[str, Any] = field(default_factory=dict)
