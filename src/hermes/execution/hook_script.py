"""Scripts of webhook routes: files below the scripts directory, and nothing else.

No shell is asked to read a command line: `.sh` and `.bash` files are given to
bash, other files that are not executable to Python. The payload comes on
standard input; secrets are left out of the environment; a script that takes
too long is ended together with everything that it has started.
"""

import asyncio
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec import Struct

from hermes.domain.errors import ConfigError
from hermes.execution.environ import child_environment
from hermes.execution.pipes import OutputPipe
from hermes.execution.process import Launch, run

__all__ = ["HookScripts", "ScriptEnd"]

MAX_OUTPUT = 1024 * 1024
MAX_ERRORS = 2000
GRACE_SECONDS = 1.0


class ScriptEnd(Struct, frozen=True, kw_only=True):
    """How a script ended."""

    exit_code: int
    output: str
    errors: str
    timed_out: bool
    cut: bool


class HookScripts:
    """Implements `ScriptRunner` of the webhooks."""

    def __init__(
        self, folder: Path, base_env: Mapping[str, str], secret_names: Collection[str] = ()
    ) -> None:
        self._folder = folder
        self._env = child_environment(base_env, secret_names)

    def check(self, script: str) -> None:
        """Raise `ConfigError` if a route may not run this."""
        self._path(script)

    async def run(self, script: str, stdin: bytes, timeout: float) -> ScriptEnd:
        """Run a script to its end."""
        path = await asyncio.to_thread(self._path, script)
        argv = await asyncio.to_thread(_argv, path)
        errors = bytearray()
        reading, writing = os.pipe()
        pipe = OutputPipe(reading, lambda data: errors.extend(data[: MAX_ERRORS - len(errors)]))
        try:
            finished = await run(
                Launch(argv=argv, env=self._env, cwd=str(path.parent), stdin=stdin, errors=writing),
                timeout=timeout,
                max_output=MAX_OUTPUT,
                grace=GRACE_SECONDS,
            )
            pipe.drain()
        finally:
            os.close(writing)
            pipe.close()
        return ScriptEnd(
            exit_code=finished.exit_code,
            output=finished.output,
            errors=errors.decode("utf-8", "replace").strip(),
            timed_out=finished.timed_out,
            cut=finished.truncated_bytes > 0,
        )

    def _path(self, script: str) -> Path:
        folder = self._folder.resolve()
        try:
            path = (folder / script).resolve()
        except (OSError, ValueError):
            path = folder
        if not path.is_relative_to(folder) or not path.is_file():
            raise ConfigError(
                f"There is no script `{script}` in {self._folder}.",
                hint="Put it there; scripts of webhooks cannot be anywhere else.",
            )
        return path


def _argv(path: Path) -> tuple[str, ...]:
    if path.suffix in {".sh", ".bash"}:
        return ("bash", str(path))
    if path.suffix != ".py" and os.access(path, os.X_OK):
        return (str(path),)
    return (sys.executable, str(path))
