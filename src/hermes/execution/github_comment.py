"""Comments on pull requests, written with the `gh` program and its login."""

import asyncio
import shutil
from collections.abc import Collection, Mapping

from hermes.domain.errors import HermesError
from hermes.execution.environ import child_environment
from hermes.execution.process import Launch, run

__all__ = ["GhComments"]

TIMEOUT_SECONDS = 60.0
MAX_OUTPUT = 4000
LOGIN_VARIABLES = (
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
)


class GhComments:
    """Implements `GitHubComments` of the webhooks."""

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
            max_output=MAX_OUTPUT,
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
