"""The first lines of a chat: the banner."""

from hermes.entry.terminal.banner import BannerFacts, banner_lines
from hermes.entry.terminal.talk import Talk

__all__ = ["opening_lines"]


async def opening_lines(talk: Talk) -> list[str]:
    """Return the banner in the colours of the skin."""
    parts = talk.parts
    if not parts.settings.banner:
        return [talk.paint(f"· {notice}", "ui_warn") for notice in parts.notices]
    tools = await parts.controls.list_tools(talk.session)
    session = talk.session
    facts = BannerFacts(
        version=parts.version,
        model=(session.model if session else "") or parts.model_label,
        tools=len(tools),
        session=(session.title or session.id) if session else "new session",
        cwd=str(parts.profile.workspace),
        notices=parts.notices,
    )
    lines = banner_lines(facts, talk.skin, talk.display.cells, tip=int(parts.clock.now()) // 60)
    return [talk.paint(text, style) for style, text in lines]
