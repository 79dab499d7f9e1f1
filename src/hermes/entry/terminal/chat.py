"""`hermes chat`: the interactive terminal.

Decides what the terminal can show and opens the full screen or the chat line
by line. prompt_toolkit and rich are loaded from here on and nowhere else.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.approvals import ApprovalAnswers
from hermes.control.commands.controls import CoreControls
from hermes.control.commands.registry import CommandRegistry
from hermes.control.lanes.gateway import Gateway
from hermes.domain.errors import HermesError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.settings.live import LiveSettings


class ChatPaths(Struct, frozen=True, kw_only=True):
    """Places in the home that the chat uses; made when first needed."""

    history_file: Path
    cache_dir: Path
    skins_dir: Path
    saved_dir: Path


class ChatParts(Struct, frozen=True, kw_only=True):
    """What the interactive chat is made of."""

    gateway: Gateway
    ledger: Ledger
    desk: ApprovalAnswers
    controls: CoreControls
    clock: Clock
    profile: AgentProfile
    paths: ChatPaths
    environ: Mapping[str, str]
    version: str
    user: str
    """Who sits at the terminal."""
    model_label: str
    """How the model is called before a session has one."""
    settings: LiveSettings
    session: Session | None = None
    """The conversation to go on with; None: the first message opens one."""
    notices: tuple[str, ...] = ()
    """Said below the banner."""
    registry: CommandRegistry | None = None
    """None: the built-in commands."""
    fetch_url: Callable[[str], Awaitable[str]] | None = None
    """Follows `@url:`; None: pages cannot be fetched."""
    first_message: str = ""
    """Sent as if it had been typed, once the chat is open."""


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
        skin = load_skin(parts.settings().display.skin, parts.paths.skins_dir)
    except HermesError as error:
        skin = load_skin("default")
        problem = f"{error.message} {error.hint}".rstrip()
        parts = replace(parts, notices=(*parts.notices, problem))
    if not kind.cursor:
        from hermes.entry.terminal.line_mode import LineChat  # noqa: PLC0415

        return await LineChat(parts, skin, kind).run()
    from hermes.entry.terminal.app import TerminalApp  # noqa: PLC0415

    return await TerminalApp(parts, skin, kind).run()
