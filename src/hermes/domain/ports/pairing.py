"""Where pairing records are kept."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from hermes.domain.pairing import PairingRecords

__all__ = ["PairingStore"]

T = TypeVar("T")


class PairingStore(Protocol):
    """Pairing records; several processes read and change them."""

    async def platforms(self) -> list[str]:
        """Return the platforms there are records of, in alphabetical order."""
        ...

    async def read(self, platform: str) -> PairingRecords:
        """Return the records of a platform."""
        ...

    async def change(
        self, platform: str, edit: Callable[[PairingRecords], tuple[PairingRecords, T]]
    ) -> T:
        """Replace the records by what `edit` makes of them while nobody else can."""
        ...

    async def stamp(self) -> object:
        """Return a value that differs after any process has changed a record."""
        ...
