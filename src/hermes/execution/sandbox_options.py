"""What can be set for the `sandbox` backend."""

from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.errors import ConfigError

__all__ = ["SandboxOptions", "sandbox_options"]


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


def sandbox_options(options: Any) -> SandboxOptions:
    """Check and convert the options of an environment."""
    try:
        return msgspec.convert(dict(options), SandboxOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"The sandbox cannot be set up as configured: {error}.",
            hint="Check the `terminal` section of config.yaml.",
        ) from error
