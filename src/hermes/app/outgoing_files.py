"""Which files may be sent out to chats: allowed places only."""

from collections.abc import Callable
from pathlib import Path

from hermes.app.options import AppOptions
from hermes.domain.settings.live import LiveSettings

__all__ = ["allowed_files"]


def allowed_files(settings: LiveSettings, options: AppOptions) -> Callable[[str], bool]:
    """Return what says whether the file at a path may be sent.

    Allowed are the agent's workspace, the caches and the sandboxes' workspaces,
    and what `gateway.media_delivery_allow_dirs` names. Links are followed first.
    """
    home = options.home
    roots = [home.workspace, home.cache_dir, home.sandboxes_dir, options.cwd]
    always = [root.resolve() for root in roots if root != home.root]

    def may_send(path: str) -> bool:
        try:
            real = Path(path).resolve(strict=True)
        except (OSError, RuntimeError):
            return False
        if not real.is_file() or real.name.startswith(".env"):
            return False
        named = settings().gateway.media_delivery_allow_dirs
        allowed = [*always, *(Path(folder).expanduser().resolve() for folder in named)]
        return any(real.is_relative_to(root) for root in allowed if root != home.root)

    return may_send
