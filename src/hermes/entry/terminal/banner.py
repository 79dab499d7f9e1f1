"""The banner: which model, how many tools, which session, one tip."""

from msgspec import Struct

from hermes.entry.terminal.chat_session import Talk
from hermes.entry.terminal.paint import cut, wrap
from hermes.entry.terminal.skins import Skin
from hermes.streaming.units import width


class BannerFacts(Struct, frozen=True, kw_only=True):
    version: str
    model: str
    tools: int
    session: str = ""
    cwd: str = ""
    notices: tuple[str, ...] = ()


def banner_lines(
    facts: BannerFacts, skin: Skin, cells: int, *, tip: int = 0
) -> list[tuple[str, str]]:
    """Return (style, text) lines; styles are names of palette colours."""
    name = skin.branding.agent_name
    title = f"⚕ {name} {facts.version}"
    details = [facts.model, f"{facts.tools} tools"]
    if facts.session:
        details.append(facts.session)
    one_line = f"{title}  {' · '.join(details)}"
    lines: list[tuple[str, str]] = []
    if width(one_line) <= cells:
        lines.append(("banner_title", one_line))
    else:
        lines.append(("banner_title", cut(title, cells)))
        lines += [("banner_dim", cut(f"  {detail}", cells)) for detail in details]
    if facts.cwd:
        lines.append(("banner_dim", cut(f"  {facts.cwd}", cells)))
    for notice in facts.notices:
        lines += [("ui_warn", line) for line in wrap(f"  {notice}", cells)]
    if skin.branding.welcome:
        lines += [("banner_dim", f"  {line}") for line in wrap(skin.branding.welcome, cells - 2)]
    if skin.tips:
        text = f"Tip: {skin.tips[tip % len(skin.tips)]}"
        lines += [("banner_dim", f"  {line}") for line in wrap(text, cells - 2)]
    return lines


async def opening_lines(talk: Talk) -> list[str]:
    parts = talk.parts
    if parts.settings().display.compact:
        return [talk.paint(f"· {notice}", "ui_warn") for notice in parts.notices]
    tools = parts.controls.tools(parts.profile.id, talk.session)
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
