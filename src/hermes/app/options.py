"""What a command line may change about one run."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from hermes.config.paths import HermesHome

__all__ = ["AppOptions"]


class AppOptions(Struct, frozen=True, kw_only=True):
    """Where to run, and what to use instead of the configuration."""

    home: HermesHome
    environ: Mapping[str, str]
    cwd: Path
    model: str | None = None
    provider: str | None = None
    toolsets: tuple[str, ...] | None = None
    max_turns: int | None = None
    yolo: bool = False
    can_ask: bool = False
    """Whether a person at this door can answer approvals."""
    ignore_rules: bool = False
    """Leave out SOUL.md, memory, skills and project files."""
    platform: str = "cli"
