"""Settings of the Slack door; where each is looked up is the kit's matter."""

from msgspec.structs import force_setattr

from hermes.entry.chat.kit.settings import ChatSettings, Seconds, server_root

_PUBLIC_ROOT = "https://slack.com/api/"


class SlackSettings(ChatSettings, frozen=True, kw_only=True):
    token: str
    """The bot's token; several workspaces that have the same app are separated by commas."""
    app_token: str
    base_url: str = _PUBLIC_ROOT
    proxy: str = ""
    strict_mention: bool = False
    """Name the bot in every message, also in threads that it takes part in."""
    reply_in_thread: bool = True
    """In channels, answer in a thread of the question, each a conversation of its own."""
    reply_broadcast: bool = False
    """Show the beginning of an answer in the channel as well as in its thread."""
    dm_top_level_threads_as_sessions: bool = False
    """In private, too, open a thread for each message that is not in one."""
    history_backfill: int = 0
    """So many messages of a thread are told along with a mention, back to our own last one."""
    rich_blocks: bool = False
    """Show answers as blocks: headings, dividers and code as such."""
    typing_status_text: str = "is thinking…"
    request_timeout: Seconds = 30.0
    download_timeout: Seconds = 60.0
    heartbeat: Seconds = 10.0
    """Seconds of silence after which the connection has to show that it works."""
    max_file_bytes: int = 1_000_000_000
    max_download_bytes: int = 134_217_728

    def __post_init__(self) -> None:
        root = server_root("slack", self.base_url, _PUBLIC_ROOT)
        force_setattr(self, "base_url", f"{root}/")

    def __repr__(self) -> str:
        return f"SlackSettings(base_url={self.base_url!r}, workspaces={len(self.tokens)})"

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(each.strip() for each in self.token.split(",") if each.strip())
