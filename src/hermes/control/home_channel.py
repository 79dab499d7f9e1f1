"""Home channels: where a platform takes what nobody there has asked for.

`/sethome` keeps the choice in the ledger; until then the configuration decides.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from hermes.domain.outbound import Target
from hermes.domain.ports.state import Ledger

__all__ = ["HomeChannel", "home_channel", "set_home_channel"]


class HomeChannel(Struct, frozen=True, kw_only=True):
    """A chat, or a topic in it."""

    platform: str
    chat_id: str
    account: str = ""
    """Which of our accounts; empty: the only one."""
    thread_id: str | None = None
    name: str = ""

    @property
    def target(self) -> Target:
        """The address for sending there."""
        return Target(
            platform=self.platform,
            account=self.account,
            chat_id=self.chat_id,
            thread_id=self.thread_id,
        )


async def home_channel(
    ledger: Ledger, platform: str, defaults: Mapping[str, HomeChannel]
) -> HomeChannel | None:
    """Return the home channel of a platform: as last chosen there, else as configured."""
    kept: Any = await ledger.kept(_name(platform))
    if kept is not None:
        return msgspec.convert(kept, HomeChannel)
    return defaults.get(platform)


async def set_home_channel(ledger: Ledger, home: HomeChannel) -> None:
    """Choose the home channel of a platform."""
    await ledger.keep(_name(home.platform), msgspec.to_builtins(home))


def _name(platform: str) -> str:
    return f"home:{platform}"
