"""How the agent works: the loop, its context, memory, skills and helpers."""

from typing import Any

from msgspec import field

from hermes.config.schema.base import Count, Fraction, Positive, Seconds, Section

__all__ = [
    "Agent",
    "AgentEntry",
    "Checkpoints",
    "Compression",
    "ContextEngine",
    "Curator",
    "CuratorBackup",
    "Delegation",
    "Goals",
    "GuardrailLimits",
    "Kanban",
    "Memory",
    "Skills",
    "ToolLoopGuardrails",
    "ToolOutput",
]


class Agent(Section, frozen=True, kw_only=True):
    """The loop that runs a turn."""

    max_turns: Positive = 90
    """Model calls one turn may make."""
    gateway_timeout: Seconds = 1800.0
    """Seconds without any activity after which a turn is ended."""
    gateway_timeout_warning: Seconds = 900.0
    """Seconds without any activity after which the person is told."""
    gateway_notify_interval: Seconds = 180.0
    """Seconds between two notices that a turn is still working."""
    restart_drain_timeout: Seconds = 0.0
    """Seconds running turns get to finish before a restart."""
    api_max_retries: Count = 3
    """How often a failed model call is repeated."""
    service_tier: str = ""
    tool_use_enforcement: str | bool | tuple[str, ...] = "auto"
    """Remind models to act with tools: auto, true, false, or a list of models."""
    intent_ack_continuation: str | bool = "auto"
    """Go on by itself when the model only announces what it will do."""
    task_completion_guidance: bool = True
    parallel_tool_call_guidance: bool = True
    environment_probe: bool = True
    """Tell the model which programs are installed."""
    environment_hint: str = ""
    """Further words about the machine for the system prompt."""
    coding_context: str | bool = "auto"
    coding_instructions: str = ""
    ephemeral_system_prompt: str = ""
    """Instructions added to each call and never stored."""
    verify_guidance: bool = True
    verify_on_stop: str | bool = "auto"
    """Ask the model to check its work before a turn ends."""
    max_verify_nudges: Count = 3
    clarify_timeout: Seconds = 3600.0
    """Seconds a question to a person stays open."""
    gateway_auto_continue_freshness: Seconds = 3600.0
    """Oldest interrupted turn, in seconds, that goes on after a restart."""
    local_stream_stale_timeout: Seconds = 900.0
    """Seconds a model on this machine may stay silent."""
    image_input_mode: str = "auto"
    """How pictures reach the model: auto, native or text."""
    disabled_toolsets: tuple[str, ...] = ()
    """Toolsets no agent gets."""
    reasoning_effort: str = ""
    """none, minimal, low, medium, high, xhigh, max; empty for the model's own."""
    reasoning_overrides: dict[str, str] = field(default_factory=dict)
    """Reasoning effort by model name."""


class AgentEntry(Section, frozen=True, kw_only=True):
    """One further agent. What is not set is as for the default agent."""

    home: str = ""
    """Its home; empty for `profiles/<id>` below the Hermes home."""
    description: str = ""
    model: str = ""
    provider: str = ""
    toolsets: tuple[str, ...] | None = None
    disabled_toolsets: tuple[str, ...] | None = None
    backend: str = ""
    """Where its commands run; empty for `terminal.backend`."""
    workspace: str = ""
    """Where its tools start."""
    secrets: tuple[str, ...] | None = None
    """Names of the secrets it may use."""
    enabled: bool = True


class Compression(Section, frozen=True, kw_only=True):
    """Making room when a conversation outgrows the context."""

    enabled: bool = True
    threshold: Fraction = 0.5
    """Share of the context in use at which compression starts."""
    target_ratio: Fraction = 0.2
    """Share of the context that recent messages keep."""
    protect_first_n: Count = 3
    protect_last_n: Count = 20
    hygiene_hard_message_limit: Positive = 5000
    """Messages after which compression happens whatever the size."""
    abort_on_summary_failure: bool = False
    in_place: bool = True
    """Keep the session; false opens a child session."""


class ContextEngine(Section, frozen=True, kw_only=True):
    """What manages the context."""

    engine: str = "compressor"


class Memory(Section, frozen=True, kw_only=True):
    """What the agent remembers between sessions."""

    memory_enabled: bool = True
    user_profile_enabled: bool = True
    write_approval: bool = False
    """Ask a person before something is remembered."""
    memory_char_limit: Positive = 2200
    user_char_limit: Positive = 1375
    provider: str = ""
    """An external memory; empty for the built-in files only."""


class Delegation(Section, frozen=True, kw_only=True):
    """Agents that the agent starts."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    api_mode: str = ""
    inherit_mcp_toolsets: bool = True
    max_iterations: Positive = 50
    max_summary_chars: Positive = 24000
    child_timeout_seconds: Seconds = 0.0
    """0 for no limit."""
    max_concurrent_children: Positive = 3
    max_spawn_depth: Count = 1
    orchestrator_enabled: bool = True
    subagent_auto_approve: bool = False
    reasoning_effort: str = ""


class Goals(Section, frozen=True, kw_only=True):
    """Goals that span several turns."""

    max_turns: Positive = 20


class Skills(Section, frozen=True, kw_only=True):
    """Skills the agent can read."""

    external_dirs: tuple[str, ...] = ()
    template_vars: bool = True
    inline_shell: bool = False
    """Run commands that are written into skills."""
    inline_shell_timeout: Seconds = 10.0
    guard_agent_created: bool = False
    write_approval: bool = False
    disabled: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    """Settings that skills declare for themselves."""


class CuratorBackup(Section, frozen=True, kw_only=True):
    """Copies the curator keeps."""

    enabled: bool = True
    keep: Count = 5


class Curator(Section, frozen=True, kw_only=True):
    """Tidying up skills nobody uses."""

    enabled: bool = True
    interval_hours: Seconds = 168.0
    min_idle_hours: Seconds = 2.0
    stale_after_days: Count = 30
    archive_after_days: Count = 90
    consolidate: bool = False
    backup: CuratorBackup = CuratorBackup()


class Checkpoints(Section, frozen=True, kw_only=True):
    """Snapshots before files are changed."""

    enabled: bool = False
    max_snapshots: Positive = 20
    max_total_size_mb: Count = 500
    max_file_size_mb: Count = 10
    auto_prune: bool = True
    retention_days: Count = 7


class ToolOutput(Section, frozen=True, kw_only=True):
    """How much of a tool's output the model sees."""

    max_bytes: Positive = 50000
    max_lines: Positive = 2000
    max_line_length: Positive = 2000


class GuardrailLimits(Section, frozen=True, kw_only=True):
    """How often the same thing may go wrong."""

    exact_failure: Positive = 2
    same_tool_failure: Positive = 3
    idempotent_no_progress: Positive = 2


class ToolLoopGuardrails(Section, frozen=True, kw_only=True):
    """Noticing that the model goes round in circles."""

    warnings_enabled: bool = True
    hard_stop_enabled: bool = False
    warn_after: GuardrailLimits = GuardrailLimits()
    hard_stop_after: GuardrailLimits = GuardrailLimits(
        exact_failure=5, same_tool_failure=8, idempotent_no_progress=5
    )


class Kanban(Section, frozen=True, kw_only=True):
    """A board of tasks that agents share."""

    dispatch_in_gateway: bool = True
    dispatch_interval_seconds: Seconds = 60.0
    failure_limit: Positive = 2
    auto_decompose: bool = True
    auto_decompose_per_tick: Positive = 3
    dispatch_stale_timeout: Seconds = 14400.0
    orchestrator_profile: str = ""
    default_assignee: str = ""
    max_in_progress_per_profile: Positive | None = None
    worker_log_rotate_bytes: Positive = 2 * 1024 * 1024
