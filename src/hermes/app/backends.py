"""Which backend an agent's commands run on, and how it is set up."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from hermes.app.options import AppOptions
from hermes.config.loader import LoadedConfig
from hermes.execution.backends.sandbox.backend import available

__all__ = ["backend_name", "backend_options", "has_private_workspace"]

log = logging.getLogger(__name__)

UNATTENDED = frozenset({"gateway", "webhook", "cron"})
"""Doors where nobody watches what commands do."""


def backend_name(loaded: LoadedConfig, options: AppOptions) -> str:
    """Return the backend: what is configured, or the sandbox where nobody watches."""
    configured = loaded.config.terminal.backend
    chosen = loaded.origin("terminal.backend") != "default"
    if chosen or options.platform not in UNATTENDED:
        return configured
    missing = available()
    if missing:
        log.warning("commands of chats run on `%s` without a sandbox: %s", configured, missing)
        return configured
    return "sandbox"


def has_private_workspace(loaded: LoadedConfig, options: AppOptions) -> bool:
    """Return whether each session starts in an empty place of its own."""
    boxed = backend_name(loaded, options) in {"sandbox", "docker"}
    return boxed and options.platform in UNATTENDED


def backend_options(backend: str, loaded: LoadedConfig, options: AppOptions) -> Mapping[str, Any]:
    """Return what the chosen backend wants to know."""
    make = _OPTIONS.get(backend)
    return make(loaded, options) if make else {}


def _places(loaded: LoadedConfig, options: AppOptions) -> dict[str, Any]:
    folder = loaded.config.terminal.sandbox_dir or str(options.home.sandboxes_dir)
    return {"sandbox_dir": folder, "hermes_home": str(options.home.root)}


def _sandbox(loaded: LoadedConfig, options: AppOptions) -> dict[str, Any]:
    terminal = loaded.config.terminal
    attended = options.platform not in UNATTENDED
    return {
        **_places(loaded, options),
        "project": str(options.cwd) if attended else "",
        "network": terminal.sandbox_network,
        "read_only_paths": terminal.sandbox_read_only_paths,
        "max_memory_mb": terminal.container_memory,
        "kill_grace": terminal.daemon_term_grace_seconds,
    }


def _docker(loaded: LoadedConfig, options: AppOptions) -> dict[str, Any]:
    terminal = loaded.config.terminal
    mounted = terminal.docker_mount_cwd_to_workspace and options.platform not in UNATTENDED
    return {
        **_places(loaded, options),
        "image": terminal.docker_image,
        "network": terminal.docker_network,
        "volumes": terminal.docker_volumes,
        "env": dict(terminal.docker_env),
        "forward_env": terminal.docker_forward_env,
        "extra_args": terminal.docker_extra_args,
        "run_as_host_user": terminal.docker_run_as_host_user,
        "persistent": terminal.container_persistent,
        "project": str(options.cwd) if mounted else "",
        "cpus": terminal.container_cpu,
        "memory_mb": terminal.container_memory,
        "kill_grace": terminal.daemon_term_grace_seconds,
    }


def _ssh(loaded: LoadedConfig, options: AppOptions) -> dict[str, Any]:
    terminal = loaded.config.terminal
    return {
        "host": terminal.ssh_host,
        "user": terminal.ssh_user,
        "port": terminal.ssh_port,
        "key": terminal.ssh_key,
        "sync": _synced(options),
        "kill_grace": terminal.daemon_term_grace_seconds,
    }


def _singularity(loaded: LoadedConfig, options: AppOptions) -> dict[str, Any]:
    terminal = loaded.config.terminal
    return {
        "image": terminal.singularity_image,
        "sandbox_dir": _places(loaded, options)["sandbox_dir"],
        "persistent": terminal.container_persistent,
        "cpu": terminal.container_cpu,
        "memory": terminal.container_memory,
        "network": terminal.docker_network,
        "kill_grace": terminal.daemon_term_grace_seconds,
    }


def _modal(loaded: LoadedConfig, options: AppOptions) -> dict[str, Any]:
    terminal = loaded.config.terminal
    return {
        "image": terminal.modal_image,
        "cpu": terminal.container_cpu,
        "memory": terminal.container_memory,
        "persistent": terminal.container_persistent,
        "snapshots_file": str(options.home.root / "modal_snapshots.json"),
        "token_id": loaded.variable("MODAL_TOKEN_ID") or "",
        "token_secret": loaded.secrets.get("MODAL_TOKEN_SECRET") or "",
        "sync": _synced(options),
        "kill_grace": terminal.daemon_term_grace_seconds,
    }


def _daytona(loaded: LoadedConfig, options: AppOptions) -> dict[str, Any]:
    terminal = loaded.config.terminal
    return {
        "image": terminal.daytona_image,
        "api_key": loaded.secrets.get("DAYTONA_API_KEY") or "",
        "api_url": loaded.variable("DAYTONA_API_URL") or "",
        "organization": loaded.variable("DAYTONA_ORGANIZATION_ID") or "",
        "target": loaded.variable("DAYTONA_TARGET") or "",
        "cpu": terminal.container_cpu,
        "memory": terminal.container_memory,
        "disk": min(terminal.container_disk, 10_240),
        "persistent": terminal.container_persistent,
        "sync": _synced(options),
        "kill_grace": terminal.daemon_term_grace_seconds,
    }


def _synced(options: AppOptions) -> list[dict[str, Any]]:
    """Return the folders that remote machines get a copy of: the skills, if there are any."""
    skills = options.home.skills_dir
    return [{"local": str(skills), "remote": ".hermes/skills"}] if skills.is_dir() else []


_OPTIONS: Mapping[str, Callable[[LoadedConfig, AppOptions], dict[str, Any]]] = {
    "sandbox": _sandbox,
    "docker": _docker,
    "ssh": _ssh,
    "singularity": _singularity,
    "apptainer": _singularity,
    "modal": _modal,
    "daytona": _daytona,
}
