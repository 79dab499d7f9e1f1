"""What a backend on another machine has to provide: a `Link`.

A link starts a program there and carries bytes to and from it. It need not
tell reliably when or how the program ended, nor be able to kill it: both are
done with bash on the other side (`remote_supervisor`), in the same way for
every link. Scripts and data travel on standard input, so nothing secret is
ever part of a command line and no length limit applies.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes.execution.process import ChildProcess

__all__ = ["Link", "RemoteCall"]


class RemoteCall(Struct, frozen=True, kw_only=True):
    """A program to start over a link."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    interactive: bool = False
    """Keep standard input open after `stdin`."""
    pty: bool = False
    """Give it a terminal there."""


class Link(Protocol):
    """The way to one machine, for one session."""

    name: str
    """For messages, as in "the connection to {name} was lost"."""
    isolated: bool
    """True when commands there cannot reach the host's files."""
    has_terminal: bool
    """True when `RemoteCall.pty` is understood."""
    text_only: bool
    """True when output is carried by lines of text instead of byte for byte."""

    async def open(self) -> int:
        """Make the machine reachable; the number changes when it is a new or restarted one."""
        ...

    async def start(self, call: RemoteCall, sink: Callable[[bytes], None]) -> ChildProcess:
        """Start a program there; its output goes to `sink`."""
        ...

    def explain(self, exit_code: int | None, output: str) -> str:
        """Say why a program ended without a word; called only then."""
        ...

    async def close(self) -> None:
        """Let the machine go; `open` may be called again."""
        ...
