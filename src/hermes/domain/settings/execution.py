"""Execution settings: where commands run, and which of them need a person's approval."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from hermes.domain.settings.section import Count, Port, Seconds, Section

_IMAGE = "nikolaik/python-nodejs:python3.11-nodejs20"


class Terminal(Section, frozen=True, kw_only=True):
    """Where commands run. Each key is also `TERMINAL_<KEY>` in the environment."""

    backend: Annotated[str, Meta(extra={"entry_points": "hermes.backends"})] = "sandbox"
    """Where commands run; `TERMINAL_ENV` in the environment. `local` protects nothing."""
    backend_options: dict[str, Any] = field(default_factory=dict)
    """Options that only the chosen backend has."""
    cwd: str = "."
    """Directory that commands start in; `.` is where Hermes was started."""
    timeout: Seconds = 180.0
    """Seconds that a command may take if the model sets no limit; at most 600."""
    lifetime_seconds: Seconds = 300.0
    """Seconds that an unused environment is kept."""
    daemon_term_grace_seconds: Seconds = 2.0
    """Seconds between asking a process to end and killing it."""
    env_passthrough: tuple[str, ...] = ()
    """Variables passed on to commands beside the ordinary ones; `*` matches anything."""
    sandbox_dir: str = ""
    """Directory for the files of sandboxes and containers; empty for the Hermes home."""
    sandbox_network: bool | None = None
    """Let commands on `sandbox` use the host's network, loopback included; null: only those
    started at the terminal."""
    sandbox_read_only_paths: tuple[str, ...] = ()
    """More paths that commands on `sandbox` may read."""
    docker_image: str = _IMAGE
    """Image for `docker`."""
    singularity_image: str = f"docker://{_IMAGE}"
    """Image for `singularity`."""
    modal_image: str = _IMAGE
    """Image for `modal`."""
    daytona_image: str = _IMAGE
    """Image for `daytona`."""
    docker_forward_env: tuple[str, ...] = ()
    """Names of variables that are passed on to containers."""
    docker_env: dict[str, str] = field(default_factory=dict)
    """Variables that are set in containers."""
    docker_volumes: tuple[str, ...] = ()
    """Volumes to mount, as `host:container[:ro]`."""
    docker_mount_cwd_to_workspace: bool = False
    """Mount the working directory at `/workspace`."""
    docker_network: bool = True
    """Give containers a network."""
    docker_extra_args: tuple[str, ...] = ()
    """More arguments for `docker run`."""
    docker_run_as_host_user: bool = False
    """Run as the user that runs Hermes, so that files in volumes belong to that user."""
    container_cpu: Seconds = 1.0
    """CPU cores of a container; 0 for no limit."""
    container_memory: Count = 5120
    """Memory of a container in MB; 0 for no limit."""
    container_disk: Count = 51200
    """Disk of a session in MB, for `sandbox` and `daytona`."""
    container_persistent: bool = True
    """Keep a container's files between sessions."""
    ssh_host: str = ""
    """Host for `ssh`."""
    ssh_user: str = ""
    """User on that host; empty for what ssh's own configuration says."""
    ssh_port: Port = 22
    """Port of the SSH server."""
    ssh_key: str = ""
    """Path of the private key; empty for what ssh finds itself."""


class Approvals(Section, frozen=True, kw_only=True):
    """Which actions need a person's approval."""

    mode: Literal["manual", "smart", "off"] = "manual"
    """manual: ask a person; smart: a model decides clear cases; off: ask what nobody can read."""
    timeout: Seconds = 300.0
    """Seconds until an unanswered request counts as denied."""
    deny: tuple[str, ...] = ()
    """Patterns of commands that are never run."""


class CodeExecution(Section, frozen=True, kw_only=True):
    """Python scripts that call tools (`execute_code`)."""

    mode: Literal["project", "strict"] = "project"
    """project: in the session's directory; strict: in an empty one."""
    timeout: Seconds = 300.0
    """Seconds that a script may run; what the tools it calls take is not counted."""
    max_tool_calls: Count = 50
    """Tool calls that one script may make."""
