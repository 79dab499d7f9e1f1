"""What webhooks need from the outside."""

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["Deliver", "GitHubComments", "RouteSource", "ScriptOutcome", "ScriptRunner"]


class ScriptOutcome(Protocol):
    """How a script ended."""

    @property
    def exit_code(self) -> int:
        """As a shell reports it."""
        ...

    @property
    def output(self) -> str:
        """What it wrote to standard output."""
        ...

    @property
    def errors(self) -> str:
        """The beginning of what it wrote to standard error."""
        ...

    @property
    def timed_out(self) -> bool:
        """Whether it was ended because it took too long."""
        ...

    @property
    def cut(self) -> bool:
        """Whether it wrote more than is kept."""
        ...


class ScriptRunner(Protocol):
    """Runs the scripts of routes."""

    def check(self, script: str) -> None:
        """Raise `ConfigError` if a route may not run this."""
        ...

    async def run(self, script: str, stdin: bytes, timeout: float) -> ScriptOutcome:
        """Run a script to its end; `HermesError` if it cannot be started."""
        ...


class GitHubComments(Protocol):
    """Writes comments on pull requests."""

    async def comment(self, repo: str, number: str, text: str) -> None:
        """Post a comment; `HermesError` if that fails."""
        ...


class Deliver(Protocol):
    """Sends results to chats."""

    async def deliver(
        self,
        platform: str,
        chat_id: str | None,
        thread_id: str | None,
        text: str,
        *,
        entry_id: str,
    ) -> None:
        """Send a text and return when it is there; `HermesError` if it cannot be sent.

        Without a chat it goes to the platform's home channel. `entry_id` is the
        id of the outbox entry: what was sent under it is not sent again.
        """
        ...


class RouteSource(Protocol):
    """Routes that were added at run time."""

    async def stamp(self) -> object:
        """Return a value that differs after a change."""
        ...

    async def load(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the routes as they are written; `HermesError` if they cannot be read."""
        ...
