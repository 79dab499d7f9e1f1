"""API keys: who may come in over HTTP, and for what.

The key itself is shown once and never kept: the ledger has its SHA-256. A
session id, a header or a model name selects; only a key authorises.
"""

from enum import StrEnum

from msgspec import Struct

OWNER = "owner"
"""The id of the key in the configuration, which may do everything."""


class Action(StrEnum):
    RUN = "run"
    """Talk to agents: chat completions, responses, runs; read, stop and steer its own."""
    SESSIONS = "sessions"
    """List, read, change and delete its own sessions."""
    APPROVE = "approve"
    """Answer approvals and questions of its own runs."""
    JOBS = "jobs"
    """Manage scheduled jobs."""
    OBSERVE = "observe"
    """Read metrics and detailed health."""
    ADMIN = "admin"
    """Reach runs, sessions and approvals of every key and every door."""


class ApiKey(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    hash: str
    """SHA-256 of the key, in hexadecimal."""
    hint: str
    """The last four characters, to tell keys apart."""
    agents: tuple[str, ...] = ()
    """Agents it may reach; empty for all."""
    actions: tuple[Action, ...] = (Action.RUN, Action.SESSIONS, Action.APPROVE)
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None


class Caller(Struct, frozen=True, kw_only=True):
    key_id: str
    name: str
    agents: tuple[str, ...] = ()
    actions: frozenset[Action] = frozenset()

    def may(self, action: Action) -> bool:
        return action in self.actions or Action.ADMIN in self.actions

    def may_reach(self, agent_id: str) -> bool:
        return not self.agents or agent_id in self.agents

    def owns(self, key_id: str, agent_id: str) -> bool:
        """Tell whether something that `key_id` made with an agent may be seen and changed."""
        return self.may_reach(agent_id) and (key_id == self.key_id or Action.ADMIN in self.actions)
