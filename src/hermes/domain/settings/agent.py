"""Agent settings: the loop, its context and its memory."""

from hermes.domain.settings.section import AtStart, Count, Fraction, Positive, Seconds, Section


class AgentLoop(Section, frozen=True, kw_only=True):
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
    api_max_retries: AtStart[Count] = 3
    """How often a failed model call is repeated."""
    ephemeral_system_prompt: str = ""
    """Instructions added to each call and never stored."""
    disabled_toolsets: AtStart[tuple[str, ...]] = ()
    """Toolsets no agent gets."""
    reasoning_effort: str = ""
    """none, minimal, low, medium, high, xhigh, max; empty for the model's own."""


class Compression(Section, frozen=True, kw_only=True):
    """Making room when a conversation outgrows the context."""

    enabled: bool = True
    threshold: Fraction = 0.5
    """Share of the context in use at which compression starts."""
    target_ratio: Fraction = 0.2
    """Share of the context that recent messages keep."""
    protect_last_n: Count = 20
    """Messages at the end that are never compressed."""


class Memory(Section, frozen=True, kw_only=True):
    """What the agent remembers between sessions."""

    memory_enabled: bool = True
    user_profile_enabled: bool = True
    memory_char_limit: Positive = 2200
    user_char_limit: Positive = 1375
