"""The machine around Hermes: logs, updates, network, language servers."""

from typing import Any, Literal

from msgspec import field

from hermes.config.schema.base import Count, Positive, Seconds, Section

__all__ = ["Logging", "Lsp", "Network", "Plugins", "Privacy", "SecretManagers", "Updates"]


class Logging(Section, frozen=True, kw_only=True):
    """The log files."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    max_size_mb: Positive = 5
    """Size at which a log file is put aside."""
    backup_count: Count = 3
    """How many older files are kept."""


class Updates(Section, frozen=True, kw_only=True):
    """What happens before an update."""

    pre_update_backup: Literal["quick", "full", "off"] | bool = "quick"
    backup_keep: Count = 5


class Lsp(Section, frozen=True, kw_only=True):
    """Diagnostics from language servers after edits."""

    enabled: bool = True
    wait_timeout: Seconds = 5.0
    install_strategy: str = "auto"
    servers: dict[str, Any] = field(default_factory=dict)


class Network(Section, frozen=True, kw_only=True):
    """How connections are made."""

    force_ipv4: bool = False


class Privacy(Section, frozen=True, kw_only=True):
    """What the model learns about people."""

    redact_pii: bool = False
    """Replace ids and numbers of people by hashes."""


class Plugins(Section, frozen=True, kw_only=True):
    """Which plugins are loaded."""

    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()
    entries: dict[str, Any] = field(default_factory=dict)
    """Settings by plugin."""


class SecretManagers(Section, frozen=True, kw_only=True):
    """Programs that hold secrets."""

    bitwarden: dict[str, Any] = field(default_factory=dict)
    onepassword: dict[str, Any] = field(default_factory=dict)
