"""Surface: where one turn's reply becomes visible in one chat.

A reply occupies slots. Showing a slot for the first time sends a message;
showing it again edits that same message; the final text of a slot is always
an edit of its preview, never a second message. The implementation keeps an
outbox entry per slot, also across processes, leaves alone what is final, paces all
calls to the chat together and returns when the call is done, so a follower that
always shows the latest text adapts to the platform's speed by itself.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes.domain.platforms import Capabilities


class Shown(Struct, frozen=True, kw_only=True):
    text: str
    """In the platform's dialect, within its length limit."""
    plain: str
    """The same without markup."""
    final: bool = False
    """The slot will not change any more."""
    aside: bool = False
    """Progress beside the answer: it makes no sound and replies to nothing."""


class Surface(Protocol):
    @property
    def capabilities(self) -> Capabilities:
        """What the platform can do."""

    def look(self, slot: str) -> Shown | None:
        """Return how this process last wanted a slot to look."""

    def previews(self) -> Sequence[str]:
        """Return the slots that are not final, also those of another process."""

    async def show(self, slot: str, shown: Shown) -> None:
        """Make a slot look like this, sending or editing as needed.

        Slots appear in the order of their first showing: `reply:0`, `reply:1`,
        `progress`. Never raises for platform trouble: what cannot be shown now
        is retried, and what can never be shown is recorded.
        """

    async def remove(self, slot: str) -> None:
        """Take a preview away again; where that is impossible, leave nothing of its text."""

    async def attach(self, slot: str, path: str, kind: str) -> None:
        """Send a file: image, voice, audio, video or document."""

    async def attach_album(self, files: Sequence[tuple[str, str]], kind: str) -> None:
        """Send files, as (slot, path), together; at most `album_size` of them."""

    async def typing(self) -> bool:
        """Show that an answer is being made; cheap to call often. False: there was no room."""
