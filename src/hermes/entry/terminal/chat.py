"""`hermes chat`: the interactive terminal.

Decides what the terminal can show and opens the full screen or the chat line
by line. prompt_toolkit and rich are loaded from here on and nowhere else.
"""

import sys

from msgspec.structs import replace

from hermes.domain.errors import HermesError
from hermes.entry.terminal.capabilities import TerminalKind, terminal_kind
from hermes.entry.terminal.context import ChatParts, ChatPaths, ChatSettings
from hermes.entry.terminal.skins import Skin, SkinShelf

__all__ = ["ChatParts", "ChatPaths", "ChatSettings", "run_chat"]


async def run_chat(parts: ChatParts) -> int:
    """Chat until the person leaves; return the exit code (128 + signal when killed).

    When it returns more than 128 a turn may still run: leave `Gateway.running()`
    by an exception or a cancellation, and the turn goes on at the next start.
    """
    kind = terminal_kind(
        parts.environ,
        is_tty=sys.stdin.isatty() and sys.stdout.isatty(),
        encoding=sys.stdout.encoding,
    )
    skin, problem = _skin(parts)
    if problem:
        parts = _with_notice(parts, problem)
    return await _chat(parts, skin, kind)


async def _chat(parts: ChatParts, skin: Skin, kind: TerminalKind) -> int:
    # Heavy imports, and only one of the two is needed.
    if not kind.cursor:
        from hermes.entry.terminal.line_mode import LineChat  # noqa: PLC0415

        return await LineChat(parts, skin, kind).run()
    from hermes.entry.terminal.app import TerminalApp  # noqa: PLC0415

    return await TerminalApp(parts, skin, kind).run()


def _skin(parts: ChatParts) -> tuple[Skin, str]:
    shelf = SkinShelf(parts.paths.skins_dir)
    try:
        return shelf.load(parts.settings.skin), ""
    except HermesError as error:
        return SkinShelf(None).load("default"), f"{error.message} {error.hint}".rstrip()


def _with_notice(parts: ChatParts, notice: str) -> ChatParts:
    return replace(parts, notices=(*parts.notices, notice))
