"""The chat platforms that installed packages bring, ours included.

A distribution declares one by

    [project.entry-points."hermes.platforms"]
    telegram = "hermes.entry.chat.telegram:PLATFORM"

Listing them imports only what says what they are, never an adapter.
"""

from collections.abc import Iterator, Mapping
from functools import cache

from hermes.domain.entry_points import entry_points, load_entry_point
from hermes.domain.ports.platform import ChatPlatform, Credential

GROUP = "hermes.platforms"


@cache
def platforms() -> Mapping[str, ChatPlatform]:
    """Return the platforms by name."""
    loaded = [load_entry_point(target) for target in entry_points(GROUP).values()]
    return {each.name: each for each in loaded}


def credentials() -> Iterator[tuple[ChatPlatform, Credential]]:
    """Yield every credential of every platform."""
    for platform in platforms().values():
        for each in platform.credentials:
            yield platform, each
