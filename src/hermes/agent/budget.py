"""Budgets: how often, how much and for how much money a turn may call a model."""

from datetime import datetime

from hermes.domain.errors import BudgetExhausted
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import UsageStore
from hermes.domain.settings.live import LiveSettings

__all__ = ["IterationBudget", "SpendGuard"]

WRAP_UP_SHARE = 0.9


class IterationBudget:
    """Counts model calls of one turn and grants exactly one beyond the limit.

    The extra call is made without tools, so that a turn that runs out of calls
    ends with an answer instead of silence.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def spend(self) -> bool:
        """Count a call; return False once only the grace call is left."""
        self.used += 1
        return self.used <= self.limit

    @property
    def exhausted(self) -> bool:
        """True when the grace call has been made too."""
        return self.used > self.limit

    @property
    def note(self) -> str:
        """What to tell the model about its remaining calls, if anything."""
        if self.used > self.limit:
            return (
                "The call limit of this turn is reached and tools are switched off now. "
                "Answer with what you have: what is done, what is not, what comes next."
            )
        if self.used >= int(self.limit * WRAP_UP_SHARE) and self.limit > 5:
            left = self.limit - self.used
            return f"Only {left} more model calls are allowed in this turn. Start wrapping up."
        return ""


class SpendGuard:
    """Refuses a model call once a hard limit on tokens or money is reached."""

    def __init__(self, settings: LiveSettings, usage: UsageStore, clock: Clock) -> None:
        self._settings = settings
        self._usage = usage
        self._clock = clock

    async def check(self, agent_id: str, session_id: str) -> None:
        """Raise `BudgetExhausted` if the next call is not allowed."""
        limits = self._settings().budget
        if limits.session_tokens is not None or limits.session_usd is not None:
            spent = await self._usage.spent(session_id=session_id)
            self._compare("session", spent.tokens, limits.session_tokens, "tokens")
            self._compare("session", spent.cost_usd, limits.session_usd, "usd")
        if limits.day_tokens is not None or limits.day_usd is not None:
            spent = await self._usage.spent(agent_id=agent_id, since=self._midnight())
            self._compare("day", spent.tokens, limits.day_tokens, "tokens")
            self._compare("day", spent.cost_usd, limits.day_usd, "usd")

    def _midnight(self) -> float:
        now = datetime.fromtimestamp(self._clock.now()).astimezone()
        return now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()

    @staticmethod
    def _compare(period: str, spent: float, limit: float | None, unit: str) -> None:
        if limit is None or spent < limit:
            return
        amount = (
            f"${spent:.4f} of ${limit:.2f}" if unit == "usd" else f"{spent:,} of {limit:,} tokens"
        )
        whose = "This session has" if period == "session" else "Today this agent has"
        raise BudgetExhausted(
            f"{whose} used {amount}, its hard limit.",
            hint=f"Raise it with: hermes config set budget.{period}_{unit} VALUE"
            + (" (or start a new session)" if period == "session" else ""),
        )
