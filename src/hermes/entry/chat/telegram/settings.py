"""Settings of the Telegram door; where each is looked up is the kit's matter."""

from msgspec.structs import force_setattr

from hermes.entry.chat.kit.settings import ChatSettings, Seconds, WebhookAddress, server_root

_PUBLIC_ROOT = "https://api.telegram.org"


class TelegramSettings(ChatSettings, frozen=True, kw_only=True):
    token: str
    base_url: str = _PUBLIC_ROOT
    """The root of the server, without `/bot`."""
    base_file_url: str = ""
    local_mode: bool = False
    """The server runs on this machine with `--local` and names files by path."""
    proxy: str = ""
    proxy_url: str = ""
    disable_link_previews: bool = False
    webhook: WebhookAddress | None = None
    poll_timeout: Seconds = 30.0
    """How long Telegram holds a poll that has nothing to say."""
    poll_grace: Seconds = 15.0
    """How much longer we wait for its answer before giving the connection up."""
    request_timeout: Seconds = 30.0
    download_timeout: Seconds = 60.0

    def __post_init__(self) -> None:
        force_setattr(self, "base_url", _root(self.base_url))
        force_setattr(self, "base_file_url", _root(self.base_file_url or f"{self.base_url}/file"))

    def __repr__(self) -> str:
        return f"TelegramSettings(base_url={self.base_url!r}, bot={self.bot_id!r})"

    @property
    def bot_id(self) -> str:
        """The public half of the token."""
        return self.token.partition(":")[0]

    @property
    def max_download_bytes(self) -> int:
        return 134_217_728 if self.local_mode else 20_000_000

    @property
    def max_file_bytes(self) -> int:
        return 2_000_000_000 if self.local_mode else 50_000_000


def _root(url: str) -> str:
    """Accept a server's root with or without the `/bot` that libraries want after it."""
    return server_root("telegram", url, "http://127.0.0.1:8081").removesuffix("/bot")
