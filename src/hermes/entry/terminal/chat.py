"""`hermes chat`: the interactive terminal.

Decides what the terminal can show and opens the full screen or the chat line
by line. prompt_toolkit and rich are loaded from here on and nowhere else.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hermes.config.paths import HermesHome
from hermes.control.commands.context import CommandHost
from hermes.domain.errors import HermesError
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session


class ChatParts(Struct, frozen=True, kw_only=True):
    host: CommandHost
    profile: AgentProfile
    home: HermesHome
    environ: Mapping[str, str]
    user: str
    """Who sits at the terminal."""
    session: Session | None = None
    """The conversation to go on with; None: the first message opens one."""
    notices: tuple[str, ...] = ()
    """Said below the banner."""
    let_go: Callable[[], None] | None = None
    """Gives the terminal back to the shell while the process goes on; None: it cannot."""
    fetch_url: Callable[[str], Awaitable[str]] | None = None
    """Follows `@url:`; None: pages cannot be fetched."""


async def run_chat(parts: ChatParts) -> int:
    """Chat until the person leaves; return the exit code (128 + signal when killed).

    When it returns more than 128 a turn may still run: leave `Gateway.running()`
    by an exception or a cancellation, and the turn goes on at the next start.
    """
    # Loaded here: a one-shot answer needs none of it, and a chat only one of the two screens.
    from hermes.entry.terminal.paint import terminal_kind  # noqa: PLC0415
    from hermes.entry.terminal.skins import load_skin  # noqa: PLC0415

    kind = terminal_kind(
        parts.environ,
        is_tty=sys.stdin.isatty() and sys.stdout.isatty(),
        encoding=sys.stdout.encoding,
    )
    try:
        skin = load_skin(parts.host.settings().display.skin, parts.home.skins_dir)
    except HermesError as error:
        skin = load_skin("default")
        parts = replace(parts, notices=(*parts.notices, f"{error.message} {error.hint}".rstrip()))
    async with asyncio.TaskGroup() as group:
        if kind.cursor:
            from hermes.entry.terminal.app import TerminalApp  # noqa: PLC0415

            return await TerminalApp(parts, skin, kind, group).run()
        from hermes.entry.terminal.line_mode import LineChat  # noqa: PLC0415

        return await LineChat(parts, skin, kind, group).run()
