"""Public test doubles: they keep the contracts of the real things.

`ScriptedModel` says what the test wrote down, `FakeClock` is time that tests
own, `FakeBackend` hands out environments without processes, and
`temporary_ledger` is the real ledger on a file of the test's own.
"""

from hermes.testing.clock import FakeClock
from hermes.testing.environment import FakeEnvironment
from hermes.testing.environment import FakeEnvironments as FakeBackend
from hermes.testing.ledger import temporary_ledger
from hermes.testing.model import ScriptedModel

__all__ = ["FakeBackend", "FakeClock", "FakeEnvironment", "ScriptedModel", "temporary_ledger"]
