"""Pairing: how somebody unknown becomes somebody a person has let in.

Whoever writes to the agent in private is shown a code; a person who may use the
machine confirms it. Only a salted hash of the code is kept.
"""

from collections.abc import Mapping

from msgspec import Struct


class PendingPairing(Struct, frozen=True, kw_only=True):
    """Somebody who was shown a code."""

    user_id: str
    user_name: str = ""
    created_at: float = 0.0
    hash: str = ""
    """Hex SHA-256 of salt and code; empty in files of 0.5, whose key is the code itself."""
    salt: str = ""


class PairedUser(Struct, frozen=True, kw_only=True):
    """Somebody who was let in."""

    user_name: str = ""
    approved_at: float = 0.0


class PairingRecords(Struct, frozen=True, kw_only=True):
    """All that is known about pairing on one platform."""

    pending: Mapping[str, PendingPairing] = {}
    """Entry id -> who was shown a code."""
    approved: Mapping[str, PairedUser] = {}
    """User id -> who was let in."""
    asked_at: Mapping[str, float] = {}
    """User id -> when they were last shown a code."""
    failures: int = 0
    locked_until: float = 0.0
