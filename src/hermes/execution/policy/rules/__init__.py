"""The detectors: one module a family, each with a `check(call, ground)`."""

from collections.abc import Callable, Iterable

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.rules import (
    computed,
    delete,
    environment,
    exfiltration,
    git,
    permissions,
    privilege,
    remote_code,
    services,
    sql,
    system,
    writes,
)

__all__ = ["CHECKS"]

CHECKS: tuple[Callable[[Call, Ground], Iterable[Danger]], ...] = (
    computed.check,
    delete.check,
    environment.check,
    exfiltration.check,
    git.check,
    permissions.check,
    privilege.check,
    remote_code.check,
    services.check,
    sql.check,
    system.check,
    writes.check,
)
