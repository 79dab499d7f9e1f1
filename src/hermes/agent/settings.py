"""What the core needs to know from the configuration, and nothing more."""

from collections.abc import Mapping

from msgspec import Struct

__all__ = ["AgentSettings", "CompactionSettings", "SpendLimits"]


class SpendLimits(Struct, frozen=True, kw_only=True):
    """Hard limits, checked before each model call; None does not limit."""

    session_tokens: int | None = None
    session_usd: float | None = None
    day_tokens: int | None = None
    day_usd: float | None = None

    @property
    def any(self) -> bool:
        """True if there is anything to check."""
        return any(
            limit is not None
            for limit in (self.session_tokens, self.session_usd, self.day_tokens, self.day_usd)
        )


class CompactionSettings(Struct, frozen=True, kw_only=True):
    """When and how far to compact a history."""

    enabled: bool = True
    threshold: float = 0.5
    """Share of the context window at which compaction starts."""
    target_ratio: float = 0.2
    """Share of the context window that the kept tail may fill."""
    protect_last_n: int = 20


class AgentSettings(Struct, frozen=True, kw_only=True):
    """How turns behave."""

    max_iterations: int = 90
    max_parallel_tools: int = 8
    tool_seconds: float = 900.0
    """How long one tool call may run once it was allowed to."""
    max_continuations: int = 3
    """How often an answer cut off by its length limit is continued."""
    reasoning_effort: str | None = None
    max_tokens: int | None = None
    title_enabled: bool = True
    title_timeout: float = 30.0
    limits: SpendLimits = SpendLimits()
    compaction: CompactionSettings = CompactionSettings()
    platform_hints: Mapping[str, str] = {}
    context_file_max_chars: int = 20_000
    ephemeral: str = ""
    """Instructions for every call that are never stored."""
    private_workspace: bool = False
    """Sessions start in an empty place of their own: there is no project to look at."""
    load_context_files: bool = True
    """False leaves out project files, memory and skills (`--ignore-rules`)."""
