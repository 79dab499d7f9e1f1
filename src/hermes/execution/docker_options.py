"""What can be set for the `docker` backend."""

from msgspec import Struct

__all__ = ["DockerOptions"]


class DockerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the `docker` backend; keys of `EnvironmentSettings.options`."""

    sandbox_dir: str
    """Where sandboxes keep their files: `<home>/sandboxes`."""
    hermes_home: str
    image: str
    binary: str = ""
    """`docker` or `podman`, or a path; empty for the first that is there."""
    network: bool = True
    """A network of its own with a way out. False: none at all."""
    volumes: tuple[str, ...] = ()
    """`SOURCE:TARGET[:OPTIONS]`, as for `-v`."""
    env: dict[str, str] = {}
    """Variables set inside."""
    forward_env: tuple[str, ...] = ()
    """Variables of Hermes handed inside by name."""
    extra_args: tuple[str, ...] = ()
    """Further arguments of `run`."""
    run_as_host_user: bool = False
    """Run with the user and group of Hermes instead of the image's user."""
    persistent: bool = True
    """Keep workspace and home on disk; otherwise they are RAM disks."""
    project: str = ""
    """Directory to mount as the workspace; empty for a private one."""
    cpus: float = 1.0
    memory_mb: int = 5120
    max_processes: int = 256
    kill_grace: float = 2.0
