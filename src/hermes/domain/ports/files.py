"""Stores that are plain files of a home: jobs, pairing records, the agent's own texts."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct

from hermes.domain.jobs import Job
from hermes.domain.profile import AgentProfile


class PendingPairing(Struct, frozen=True, kw_only=True):
    user_id: str
    user_name: str = ""
    created_at: float = 0.0
    hash: str = ""
    """Hex SHA-256 of salt and code; empty in files of 0.5, whose key is the code itself."""
    salt: str = ""


class PairedUser(Struct, frozen=True, kw_only=True):
    user_name: str = ""
    approved_at: float = 0.0


class PairingRecords(Struct, frozen=True, kw_only=True):
    pending: Mapping[str, PendingPairing] = {}
    """Entry id -> who was shown a code."""
    approved: Mapping[str, PairedUser] = {}
    """User id -> who was let in."""
    asked_at: Mapping[str, float] = {}
    """User id -> when they were last shown a code."""
    failures: int = 0
    locked_until: float = 0.0


class JobStore(Protocol):
    """The jobs of one agent: its `cron/jobs.json`."""

    async def jobs(self) -> list[Job]:
        """Return all jobs in the order of the file."""

    async def job(self, job_id: str) -> Job | None: ...

    async def add_job(self, job: Job) -> Job:
        """Add a job; `Conflict` if the id is taken."""

    async def change_job(self, job_id: str, change: Callable[[Job], Job]) -> Job:
        """Replace a job by what `change` makes of it, in one step; `NotFound` if unknown."""

    async def remove_job(self, job_id: str) -> bool:
        """Remove a job; False if there is none."""


T = TypeVar("T")


class PairingStore(Protocol):
    """Pairing records; several processes read and change them."""

    async def platforms(self) -> list[str]:
        """Return the platforms there are records of, in alphabetical order."""

    async def read(self, platform: str) -> PairingRecords: ...

    async def change(
        self, platform: str, edit: Callable[[PairingRecords], tuple[PairingRecords, T]]
    ) -> T:
        """Replace the records by what `edit` makes of them while nobody else can."""

    async def stamp(self) -> object:
        """Return a value that differs after any process has changed a record."""


class IdentitySnapshot(Struct, frozen=True, kw_only=True):
    soul: str | None = None
    memory: str | None = None
    user: str | None = None
    skills: str | None = None
    """An index of the skills, one line each."""


class Identity(Protocol):
    async def snapshot(self, profile: AgentProfile) -> IdentitySnapshot:
        """Return what the prompt of a new session is made of."""
