"""The interactive chat, put together from a running app."""

import getpass

from hermes import __version__
from hermes.agent.fetch import PageFetcher
from hermes.app.build import App
from hermes.app.options import AppOptions
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.entry.terminal.chat import ChatParts, ChatPaths


def chat_parts(
    app: App,
    options: AppOptions,
    profile: AgentProfile,
    session: Session | None,
    notices: tuple[str, ...] = (),
) -> ChatParts:
    """Return what `run_chat` needs."""
    home = options.home
    return ChatParts(
        gateway=app.gateway,
        ledger=app.ledger,
        desk=app.desk,
        controls=app.controls(),
        clock=app.clock,
        profile=profile,
        paths=ChatPaths(
            history_file=home.root / "history",
            cache_dir=home.cache_dir,
            skins_dir=home.root / "skins",
            saved_dir=home.sessions_dir / "saved",
        ),
        environ=options.environ,
        version=__version__,
        user=user_name(),
        model_label=profile.model or "no model",
        settings=app.settings,
        session=session,
        notices=(*app.loaded.warnings, *notices),
        fetch_url=PageFetcher(),
    )


def user_name() -> str:
    """Return who sits at the terminal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "user"
