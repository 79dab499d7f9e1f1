"""Public test doubles: they keep the contracts of the real things.

`ScriptedModel` says what the test wrote down, `FakeClock` is time that tests
own, `MemoryStore` is the ledger without files, and `FakeBackend` hands out
environments without processes.
"""

from hermes.state.memory.ledger import MemoryLedger as MemoryStore
from hermes.testing.clock import FakeClock
from hermes.testing.environment import FakeEnvironment
from hermes.testing.environment import FakeEnvironments as FakeBackend
from hermes.testing.model import ScriptedModel

__all__ = ["FakeBackend", "FakeClock", "FakeEnvironment", "MemoryStore", "ScriptedModel"]
