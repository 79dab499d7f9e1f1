"""Policy on actions, before anybody is asked."""

from collections.abc import Collection
from typing import Protocol

from hermes.domain.approvals import Verdict
from hermes.domain.ports.execution import Environment
from hermes.domain.tools import Intent

__all__ = ["ActionPolicy"]


class ActionPolicy(Protocol):
    """Judges what a tool call is about to do. Runs nothing."""

    def judge(
        self, intent: Intent, environment: Environment, *, grants: Collection[str], trusted: bool
    ) -> Verdict:
        """Say allow, ask or block.

        `grants` are patterns a person has allowed; `trusted` means that
        nothing is to be asked (yolo). Neither lifts what is never approvable.
        """
        ...
