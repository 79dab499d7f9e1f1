"""Home channels: where a platform takes what nobody there has asked for.

`/sethome` keeps the choice in the ledger; until then the configuration decides.
"""

from typing import Any

import msgspec

from hermes.domain.outbound import Target
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import DEFAULT_AGENT, current_profile
from hermes.domain.settings import Settings


class HomeChannel(Target, frozen=True, kw_only=True):
    account: str = ""
    """Which of our accounts; empty: the only one."""
    name: str = ""

    @property
    def address(self) -> str:
        """The chat, and the thread if there is one, as `chat[:thread]`."""
        return self.chat_id if self.thread_id is None else f"{self.chat_id}:{self.thread_id}"


async def home_channel(ledger: Ledger, settings: Settings, platform: str) -> HomeChannel | None:
    """Return the home channel of a platform: as last chosen there, else as configured."""
    kept: Any = await ledger.kept(_place(platform))
    if kept is not None:
        return msgspec.convert(kept, HomeChannel)
    section = settings.platforms.get(platform)
    home = section.home_channel if section is not None else None
    if home is None or not home.chat_id:
        return None
    return HomeChannel(
        platform=platform, chat_id=home.chat_id, thread_id=home.thread_id, name=home.name
    )


async def set_home_channel(ledger: Ledger, home: HomeChannel) -> None:
    await ledger.keep(_place(home.platform), msgspec.to_builtins(home))


def _place(platform: str) -> str:
    """Return where the choice is kept: every agent has its own."""
    profile = current_profile()
    own = "" if profile is None or profile.id == DEFAULT_AGENT else f"{profile.id}:"
    return f"home:{own}{platform}"
