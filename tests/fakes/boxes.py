"""Environments of isolating backends, opened the way the gateway opens them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes.config.paths import HermesHome
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import CommandResult, ShellRun
from hermes.domain.settings.execution import Terminal
from hermes.execution.backend import EnvironmentSettings, PooledEnvironment
from hermes.execution.clock import SystemClock
from hermes.execution.pool import EnvironmentPool

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def settings_for(
    backend: str, home: Path, options: Mapping[str, Any], **more: Any
) -> EnvironmentSettings:
    """Return settings; `options` are keys of `terminal`, variables, or the backend's own."""
    known = {field.name for field in msgspec.structs.fields(Terminal)}
    variables = {name: value for name, value in options.items() if name.isupper()}
    own = {k: v for k, v in options.items() if k not in known | {"project"} | variables.keys()}
    return EnvironmentSettings(
        home=HermesHome(root=home),
        backend=backend,
        terminal=Terminal(
            **{
                "daemon_term_grace_seconds": 0.5,
                "backend_options": own,
                **{name: value for name, value in options.items() if name in known},
            }
        ),
        project=options.get("project", ""),
        variable=variables.get,
        **more,
    )


class Boxes:
    """A Hermes home and the environments of its sessions on one backend."""

    def __init__(
        self,
        backend: str,
        home: Path,
        *,
        base_env: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        self.backend = backend
        self.home = home
        self.sandboxes = home / "sandboxes"
        home.mkdir(mode=0o700, exist_ok=True)
        inherited = {"PATH": PATH, "HOME": str(home.parent), **(base_env or {})}
        self.settings = settings_for(
            backend, home, options, default_cwd=str(home.parent), base_env=inherited
        )
        self.pool = EnvironmentPool(lambda _: self.settings, clock or SystemClock())

    async def open(self, session_id: str = "s1", agent_id: str = "main") -> PooledEnvironment:
        """Return the environment of a session."""
        return await self.pool.get(agent_id, session_id, None)

    def directory(self, session_id: str = "s1", agent_id: str = "main") -> Path:
        """Return where the host keeps a session's files."""
        task = (
            f"{agent_id}.{session_id}" if self.backend == "docker" else f"{agent_id}/{session_id}"
        )
        return self.sandboxes / self.backend / task


async def sh(environment: PooledEnvironment, script: str, timeout: float = 30.0) -> CommandResult:
    """Run a script."""
    return await environment.run(ShellRun(script=script, timeout=timeout))


async def says(environment: PooledEnvironment, script: str) -> str:
    """Run a script and return what it prints."""
    return (await sh(environment, script)).output.strip()
