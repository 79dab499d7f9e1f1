"""Webhook deliveries: events that services sent, and their state.

    received -> running -> done | failed        ignored

A delivery is known by its route and the sender's id. It is done only when its
result was delivered: a sender that repeats a delivery which failed gets
another attempt, one that repeats a delivery which is under way or done does
not.
"""

from enum import StrEnum

from msgspec import Struct


class HookState(StrEnum):
    RECEIVED = "received"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    IGNORED = "ignored"

    @property
    def over(self) -> bool:
        return self in (HookState.DONE, HookState.FAILED, HookState.IGNORED)


class HookDelivery(Struct, frozen=True, kw_only=True):
    route: str
    delivery_id: str
    event: str
    state: HookState = HookState.RECEIVED
    attempt: int = 1
    received_at: float
    updated_at: float
    session_id: str | None = None
    prompt: str = ""
    """What the agent is asked, or what is sent on where no agent is asked."""
    target: str = "log"
    """The rendered `deliver`."""
    target_extra: dict[str, str] = {}
    """The rendered `deliver_extra`."""
    deliver_only: bool = False
    error: str | None = None


class ScriptEnd(Struct, frozen=True, kw_only=True):
    exit_code: int
    output: str
    errors: str
    """The beginning of what it wrote to standard error."""
    timed_out: bool
    cut: bool
    """Whether it wrote more than is kept."""
