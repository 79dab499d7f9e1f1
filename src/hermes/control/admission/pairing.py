"""Pairing codes: given to strangers in private, confirmed by a person.

A code has eight characters out of 32 that cannot be confused, lives an hour and
is kept as a salted hash. Requests, pending codes and wrong approvals are
limited. People are let in by another process (`hermes pairing approve`), so the
running gateway looks whether the records changed.
"""

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import asdict, replace

from hermes.domain.errors import Conflict, NotFound
from hermes.domain.inbound import Sender
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.files import PairedUser, PairingRecords, PairingStore, PendingPairing

log = logging.getLogger(__name__)

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH = 8
CODE_SECONDS = 3600.0
MAX_PENDING = 3
REQUEST_SECONDS = 600.0
MAX_FAILURES = 5
LOCKOUT_SECONDS = 3600.0


class PairingUser(Struct, frozen=True, kw_only=True):
    """Somebody who was let in, or was shown a code."""

    platform: str
    user_id: str
    user_name: str
    approved_at: float = 0.0
    minutes_left: int = 0
    """How long the code still counts."""


class Pairing:
    def __init__(self, store: PairingStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._approved: dict[str, Mapping[str, PairedUser]] = {}
        self._stamp: object = None

    # -- the gateway -------------------------------------------------------

    def is_paired(self, platform: str, sender: Sender) -> bool:
        """Tell whether somebody was let in, as of the last `refresh`."""
        approved = self._approved.get(platform, {})
        return sender.id in approved or (sender.alt_id or sender.id) in approved

    def people(self) -> list[tuple[str, str]]:
        """Return everybody who was let in, as (platform, user), as of the last `refresh`."""
        return [(platform, user) for platform, users in self._approved.items() for user in users]

    async def refresh(self) -> None:
        """Notice what other processes changed: who was revoked is not let in any more."""
        first, stamp = self._stamp is None, await self._store.stamp()
        if stamp == self._stamp:
            return
        names = await self._store.platforms()
        approved = {name: (await self._store.read(name)).approved for name in names}
        if not first:
            for name, users in approved.items():
                for user in users.keys() - self._approved.get(name, {}).keys():
                    log.info("paired: %s %s", name, user)
        self._approved, self._stamp = approved, stamp

    async def request(self, platform: str, sender: Sender) -> str | None:
        """Make a code for a stranger; None if they or too many others have one already."""
        now = self._clock.now()
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))

        def edit(records: PairingRecords) -> tuple[PairingRecords, str | None]:
            records = _without_expired(records, now)
            others = {k: p for k, p in records.pending.items() if p.user_id != sender.id}
            asked = sender.id in records.asked_at
            if records.locked_until or asked or len(others) >= MAX_PENDING:
                return records, None
            salt = secrets.token_bytes(16)
            entry = PendingPairing(
                user_id=sender.id,
                user_name=sender.name or "",
                created_at=now,
                hash=_hash(salt, code),
                salt=salt.hex(),
            )
            return replace(
                records,
                pending={**others, secrets.token_hex(8): entry},
                asked_at={**records.asked_at, sender.id: now},
            ), code

        return await self._store.change(platform, edit)

    # -- a person at the machine -------------------------------------------

    async def approve(self, platform: str, code: str) -> PairingUser:
        """Let in whoever was shown `code`, also at the bot of an agent on the platform."""
        now = self._clock.now()
        typed = "".join(character for character in code.upper() if character.isalnum())
        for name in await self._store.platforms():
            pending = (await self._store.read(name)).pending
            if name.startswith(f"{platform}:") and any(
                _matches(*p, typed) for p in pending.items()
            ):
                platform = name
                break

        def edit(records: PairingRecords) -> tuple[PairingRecords, PairingUser | None]:
            records = _without_expired(records, now)
            if records.locked_until:
                return records, None
            found = next((k for k, p in records.pending.items() if _matches(k, p, typed)), None)
            if found is None:
                return _with_failure(records, now), None
            pending = records.pending[found]
            user = PairedUser(user_name=pending.user_name, approved_at=now)
            return replace(
                records,
                pending={k: p for k, p in records.pending.items() if k != found},
                approved={**records.approved, pending.user_id: user},
                failures=0,
            ), _newcomer(platform, pending.user_id, user)

        newcomer = await self._store.change(platform, edit)
        if newcomer is None:
            raise await self._not_approved(platform, now)
        return newcomer

    async def _not_approved(self, platform: str, now: float) -> Conflict | NotFound:
        records = await self._store.read(platform)
        if records.locked_until > now:
            minutes = _minutes(records.locked_until - now)
            return Conflict(
                f"Too many wrong codes: pairing on {platform} is locked for {minutes} minutes.",
                hint="See who waits with: hermes pairing list",
            )
        return NotFound(
            f"No pending request on {platform} has this code.",
            hint="Codes are valid for one hour. See who waits with: hermes pairing list",
        )

    async def revoke(self, platform: str, user_id: str) -> bool:
        """Take back what `approve` gave; False if there is nothing to take back."""

        def edit(records: PairingRecords) -> tuple[PairingRecords, bool]:
            left = {k: user for k, user in records.approved.items() if k != user_id}
            return replace(records, approved=left), len(left) < len(records.approved)

        return await self._store.change(platform, edit)

    async def waiting(self) -> list[PairingUser]:
        """Return who was shown a code that still counts."""
        now = self._clock.now()
        found = []
        for platform in await self._store.platforms():
            records = _without_expired(await self._store.read(platform), now)
            found += [
                PairingUser(
                    platform=platform,
                    user_id=pending.user_id,
                    user_name=pending.user_name,
                    minutes_left=_minutes(pending.created_at + CODE_SECONDS - now),
                )
                for pending in records.pending.values()
            ]
        return found

    async def paired(self) -> list[PairingUser]:
        return [
            _newcomer(platform, user_id, user)
            for platform in await self._store.platforms()
            for user_id, user in (await self._store.read(platform)).approved.items()
        ]

    async def clear_pending(self, platform: str) -> int:
        """Make all codes of a platform worthless; return how many there were."""

        def edit(records: PairingRecords) -> tuple[PairingRecords, int]:
            return replace(records, pending={}, asked_at={}), len(records.pending)

        return await self._store.change(platform, edit)


def welcome_name(platform: str, user_id: str) -> str:
    """Return the name under which the ledger keeps where a stranger is to be welcomed."""
    return f"welcome:{platform}:{user_id}"


def offer_text(platform: str, code: str) -> str:
    return (
        "I don't know you yet. Ask whoever runs me to confirm this code within an hour:\n\n"
        f"{code}\n\n"
        f"They can do it with: hermes pairing approve {platform} {code}"
    )


def _without_expired(records: PairingRecords, now: float) -> PairingRecords:
    return replace(
        records,
        pending={
            k: each for k, each in records.pending.items() if now - each.created_at < CODE_SECONDS
        },
        asked_at={u: at for u, at in records.asked_at.items() if now - at < REQUEST_SECONDS},
        locked_until=records.locked_until if records.locked_until > now else 0.0,
    )


def _with_failure(records: PairingRecords, now: float) -> PairingRecords:
    failures = records.failures + 1
    if failures < MAX_FAILURES:
        return replace(records, failures=failures)
    return replace(records, failures=0, locked_until=now + LOCKOUT_SECONDS)


def _matches(entry_id: str, pending: PendingPairing, code: str) -> bool:
    if not pending.hash:
        return hmac.compare_digest(entry_id.encode(), code.encode())
    try:
        salt = bytes.fromhex(pending.salt)
    except ValueError:
        return False
    return hmac.compare_digest(pending.hash, _hash(salt, code))


def _hash(salt: bytes, code: str) -> str:
    return hashlib.sha256(salt + code.encode()).hexdigest()


def _minutes(seconds: float) -> int:
    return max(1, round(seconds / 60))


def _newcomer(platform: str, user_id: str, user: PairedUser) -> PairingUser:
    return PairingUser(platform=platform, user_id=user_id, **asdict(user))
