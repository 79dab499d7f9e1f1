"""The interactive chat, put together from a running app."""

import getpass

from hermes import __version__
from hermes.app.build import App
from hermes.app.controls import AppControls
from hermes.app.fetch import PageFetcher
from hermes.app.options import AppOptions
from hermes.control.commands.context import ToolDetail
from hermes.control.lanes.busy_modes import BusyMode
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.entry.terminal.chat import ChatParts, ChatPaths, ChatSettings

__all__ = ["chat_parts", "user_name"]


def chat_parts(
    app: App, options: AppOptions, session: Session | None, notices: tuple[str, ...] = ()
) -> ChatParts:
    """Return what `run_chat` needs."""
    home = options.home
    return ChatParts(
        gateway=app.gateway,
        ledger=app.ledger,
        desk=app.desk,
        controls=AppControls(app),
        clock=app.clock,
        profile=app.profile,
        paths=ChatPaths(
            history_file=home.root / "history",
            cache_dir=home.cache_dir,
            skins_dir=home.root / "skins",
            saved_dir=home.sessions_dir / "saved",
        ),
        environ=options.environ,
        version=__version__,
        user=user_name(),
        model_label=app.profile.model or "no model",
        settings=_settings(app.loaded.config),
        session=session,
        notices=(*app.loaded.warnings, *notices),
        fetch_url=PageFetcher(),
    )


def _settings(config: Settings) -> ChatSettings:
    display = config.display
    progress = display.tool_progress
    return ChatSettings(
        busy_mode=BusyMode(display.busy_input_mode),
        markdown=display.final_response_markdown != "raw",
        show_reasoning=display.show_reasoning,
        inline_diffs=display.inline_diffs,
        show_cost=display.show_cost,
        skin=display.skin,
        tool_detail=ToolDetail(progress) if progress in set(ToolDetail) else ToolDetail.ALL,
        tool_preview_length=display.tool_preview_length,
        bell=display.bell_on_complete,
        banner=not display.compact,
        recap=display.resume_display != "minimal",
    )


def user_name() -> str:
    """Return who sits at the terminal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "user"
