"""Environments: where the tools of a session run commands and reach files.

One `Environment` per agent and session: commands, background processes and
files of one session are invisible to every other. Backends differ in where
they run things, not in this interface.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class ShellRun(Struct, frozen=True, kw_only=True):
    script: str
    """Interpreted by bash."""
    cwd: str | None = None
    """None: where the session's last command left off."""
    env: Mapping[str, str] = {}
    stdin: bytes | None = None
    timeout: float = 180.0
    max_output: int = 50_000
    """Bytes kept of the output; the middle is cut out beyond that."""
    pty: bool = False
    """Run it on a terminal of its own. Backends without one refuse."""
    outside: bool = False
    """Run it outside the walls, on the host; only after a person has allowed that."""
    notify_on_complete: bool = False
    """For `spawn`: give notice when it ends."""
    watch_patterns: tuple[str, ...] = ()
    """For `spawn`: give notice when a line of output matches."""
    listed: bool = True
    """For `spawn`: one of the session's background processes, which are listed and kept."""


class CommandResult(Struct, frozen=True, kw_only=True):
    exit_code: int
    """As the shell reports it; 124 after a timeout, 130 after a cancel."""
    output: str
    """stdout and stderr as they came, decoded, ANSI stripped."""
    cwd: str
    """Where the session is now."""
    timed_out: bool = False
    truncated_bytes: int = 0
    walled: str = ""
    """What the walls around it kept it from, if its failure shows that."""
    evidence: str = ""
    """The line of its output that shows that."""
    repeatable: bool = False
    """It is one command: to run it once more as a whole repeats nothing that has worked."""


class ProcessInfo(Struct, frozen=True, kw_only=True):
    id: str
    command: str
    started_at: float
    running: bool
    cwd: str = ""
    """Where it was started; empty if that is not known."""
    exit_code: int | None = None
    outside: bool = False
    """It runs outside the walls, because a person has allowed that."""


class ProcessNotice(Struct, frozen=True, kw_only=True):
    """Something a session asked to be told about a background process."""

    agent_id: str
    session_id: str
    process_id: str
    text: str
    """What to tell the session; empty if it only is to be known. People see its first line."""
    exit_code: int | None = None
    """How the process ended, if that is what happened."""
    aside: bool = False
    """Only people are told: the model learns of it in another way."""
    admitted: Callable[[], None] = lambda: None
    """Called once it is certain that the session will be told."""


class FileStat(Struct, frozen=True, kw_only=True):
    path: str
    is_dir: bool
    is_file: bool
    """Regular files only: devices, sockets and pipes are neither."""
    size: int
    modified_at: float


NOTHING = "nothing"
"""Stands for the digest of a file that is not there."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class DirEntry(Struct, frozen=True, kw_only=True):
    name: str
    is_dir: bool
    size: int


class Environment(Protocol):
    @property
    def exposed(self) -> tuple[str, ...]:
        """What of the person's commands can change: () is nothing, ("/",) the whole machine."""

    @property
    def can_leave(self) -> bool:
        """True when there is a host to run `ShellRun.outside` on."""

    @property
    def own(self) -> tuple[str, ...]:
        """Folders whose files are the session's, to be sent if it says so; () on this machine."""

    @property
    def about(self) -> str:
        """What the model is told about the place: where it may write, what is not there."""

    @property
    def cwd(self) -> str:
        """Where relative paths and the next command start."""

    async def run(
        self, command: ShellRun, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        """Run a command to its end; cancelling the task kills its process group."""

    async def spawn(
        self, command: ShellRun, on_output: Callable[[str], None] | None = None
    ) -> ProcessInfo:
        """Start a background process and return at once."""

    async def processes(self) -> list[ProcessInfo]: ...

    async def process_output(self, process_id: str, offset: int = 0) -> tuple[str, int]:
        """Return output from `offset` on, and the offset to ask for next."""

    async def write_stdin(self, process_id: str, data: str) -> None:
        """Send text to a background process."""

    async def close_stdin(self, process_id: str) -> None:
        """Let a background process read the end of its input."""

    async def wait(self, process_id: str, timeout: float) -> ProcessInfo:
        """Wait until the process ends or `timeout` passes."""

    async def kill(self, process_id: str) -> ProcessInfo:
        """End a background process and its children."""

    def resolve(self, path: str) -> str:
        """Return `path` absolute, with `~` and the working directory applied."""

    def hides(self, path: str) -> bool:
        """Tell whether a path is in a place that walls hide, whatever the machine has there."""

    def received(self, path: str, name: str) -> str:
        """Return where commands look for a file of this machine that came with a message.

        The same path if they see it there; else one that a copy has to be written to.
        """

    async def stat(self, path: str) -> FileStat | None:
        """Describe a path; None if there is nothing."""

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        """Return those of `paths` where there is something; what cannot be seen is not there."""

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Read bytes of a regular file; without `limit` it is refused if that is a great many."""

    async def write(self, path: str, data: bytes, was: str = "") -> None:
        """Replace a file atomically, making parent directories.

        `was` is the `digest` of what it is to replace: `Conflict` if that has changed.
        """

    async def remove(self, path: str) -> None: ...

    async def list_dir(self, path: str) -> list[DirEntry]:
        """List a directory, sorted by name; of a very full one perhaps not all."""

    async def close(self) -> None:
        """Stop everything that still runs and release all resources."""


class Environments(Protocol):
    """One environment per agent and session, made on first use."""

    async def get(self, agent_id: str, session_id: str, cwd: str | None) -> Environment:
        """Return the session's environment, starting it if needed."""

    async def release(self, session_id: str) -> list[ProcessInfo]:
        """Close the session's environment if it has one; return the processes that ended."""

    async def running(self) -> list[ProcessInfo]:
        """Return the background processes of all sessions, which end with this process."""

    async def close(self) -> None:
        """Close them all."""


class ProcessNotices(Protocol):
    """Where notices of background processes come out."""

    async def next_notice(self) -> ProcessNotice:
        """Wait for the next notice. Each is handed out once."""
