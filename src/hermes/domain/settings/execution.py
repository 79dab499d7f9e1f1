"""Execution settings: the place of side effects, and what may happen without asking."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from hermes.domain.settings.section import Count, Port, Seconds, Section

_IMAGE = "nikolaik/python-nodejs:python3.11-nodejs20"


class Terminal(Section, frozen=True, kw_only=True):
    """Where commands run. Each key is also `TERMINAL_<KEY>` in the environment."""

    backend: Annotated[str, Meta(extra={"entry_points": "hermes.backends"})] = "sandbox"
    """Where commands run; `TERMINAL_ENV` in the environment. `local` protects nothing."""
    backend_options: dict[str, Any] = field(default_factory=dict)
    """What the chosen backend understands beyond the keys here."""
    cwd: str = "."
    """Where commands start; `.` is where Hermes was started."""
    lifetime_seconds: Seconds = 300.0
    """Seconds an unused environment is kept."""
    daemon_term_grace_seconds: Seconds = 2.0
    """Seconds between asking a process to end and ending it."""
    env_passthrough: tuple[str, ...] = ()
    """Variables that commands may see beside the ordinary ones; `*` stands for anything."""
    sandbox_dir: str = ""
    """Where sandboxes keep their files; empty for the Hermes home."""
    sandbox_network: bool | None = None
    """Let commands on `sandbox` use the host's network, loopback included; unset: terminal only."""
    sandbox_read_only_paths: tuple[str, ...] = ()
    """Further places that commands on `sandbox` may read."""
    docker_image: str = _IMAGE
    singularity_image: str = f"docker://{_IMAGE}"
    modal_image: str = _IMAGE
    daytona_image: str = _IMAGE
    docker_forward_env: tuple[str, ...] = ()
    """Variables handed to containers by name."""
    docker_env: dict[str, str] = field(default_factory=dict)
    """Variables set in containers."""
    docker_volumes: tuple[str, ...] = ()
    docker_mount_cwd_to_workspace: bool = False
    docker_network: bool = True
    docker_extra_args: tuple[str, ...] = ()
    docker_run_as_host_user: bool = False
    container_cpu: Seconds = 1.0
    container_memory: Count = 5120
    """MB."""
    container_disk: Count = 51200
    """MB."""
    container_persistent: bool = True
    """Keep a container's files between sessions."""
    ssh_host: str = ""
    ssh_user: str = ""
    ssh_port: Port = 22
    ssh_key: str = ""
    """Path of the private key; empty for what ssh finds by itself."""


class Approvals(Section, frozen=True, kw_only=True):
    """What a person has to allow."""

    mode: Literal["manual", "smart", "off"] = "manual"
    """manual: always ask; smart: a model decides clear cases; off: never ask."""
    timeout: Seconds = 300.0
    """Seconds until an unanswered request counts as denied."""
    deny: tuple[str, ...] = ()
    """Patterns of commands that are never run."""
