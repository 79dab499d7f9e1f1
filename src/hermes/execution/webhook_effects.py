"""Effects of webhook routes: their scripts, and comments on pull requests.

A script is a file below the scripts directory, and nothing else. No shell is
asked to read a command line: `.sh` and `.bash` files are given to bash, other
files that are not executable to Python. The payload comes on standard input;
secrets are left out of the environment; a script that takes too long is ended
together with everything that it has started. Comments are written with the
`gh` program and its login.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.webhooks import ScriptEnd
from hermes.execution.backend import child_environment
from hermes.execution.host.pipes import OutputPipe
from hermes.execution.host.process import Launch, run

MAX_OUTPUT = 1024 * 1024
MAX_ERRORS = 2000
GRACE_SECONDS = 1.0


class HookScripts:
    def __init__(
        self, folder: Path, base_env: Mapping[str, str], secret_names: Collection[str] = ()
    ) -> None:
        self._folder = folder
        self._env = child_environment(base_env, secret_names)

    def check(self, script: str) -> None:
        """Raise `ConfigError` if a route may not run this."""
        self._path(script)

    async def run(self, script: str, stdin: bytes, timeout: float) -> ScriptEnd:
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


TIMEOUT_SECONDS = 60.0
MAX_GH_OUTPUT = 4000
LOGIN_VARIABLES = (
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
)


class GhComments:
    """Comments on pull requests, made with `gh`."""

    def __init__(
        self,
        base_env: Mapping[str, str],
        secret_names: Collection[str] = (),
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._env = {
            **child_environment(base_env, secret_names, LOGIN_VARIABLES),
            "GH_PROMPT_DISABLED": "1",
            "NO_COLOR": "1",
        }
        self._timeout = timeout

    async def comment(self, repo: str, number: str, text: str) -> None:
        """Post a comment; the arguments are handed over as they are, without a shell."""
        program = await asyncio.to_thread(shutil.which, "gh", path=self._env.get("PATH"))
        if program is None:
            raise HermesError(
                "A GitHub comment needs the program `gh`, which is not installed.",
                hint="Install the GitHub CLI and log in with: gh auth login",
            )
        argv = (program, "pr", "comment", number, "--repo", repo, "--body-file", "-")
        finished = await run(
            Launch(argv=argv, env=self._env, stdin=text.encode()),
            timeout=self._timeout,
            max_output=MAX_GH_OUTPUT,
        )
        if finished.timed_out:
            raise HermesError(
                "`gh` did not end in time; the comment may or may not be there.",
                hint=f"Look at pull request {number} of {repo}.",
            )
        if finished.exit_code != 0:
            said = " ".join(finished.output.split())[:300]
            raise HermesError(
                f"`gh` could not comment on {repo}#{number}: {said}",
                hint="Check `gh auth status` for the user that runs the gateway.",
            )
