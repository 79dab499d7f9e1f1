"""What can be set for the `sandbox` backend."""

from msgspec import Struct

__all__ = ["SandboxOptions"]


class SandboxOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the `sandbox` backend; keys of `EnvironmentSettings.options`."""

    sandbox_dir: str
    """Where sandboxes keep their files: `<home>/sandboxes`."""
    hermes_home: str
    """Hidden wherever it would show."""
    project: str = ""
    """Directory to work on, writable at its own path; empty for a private workspace."""
    network: bool = False
    """Use the host's network, loopback included. False: none at all."""
    read_only_paths: tuple[str, ...] = ()
    """Further places commands may read."""
    hidden_paths: tuple[str, ...] = ()
    """Further places to hide where a visible one contains them."""
    max_processes: int = 512
    max_memory_mb: int = 4096
    """Of all processes together where cgroups can be written, else of each."""
    max_file_mb: int = 8192
    """Size of one file."""
    shm_mb: int = 64
    kill_grace: float = 2.0
