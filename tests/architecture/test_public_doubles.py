"""The doubles people build tests on have a stable place and a stable list."""

import hermes.testing


def test_the_public_doubles_are_these() -> None:
    assert hermes.testing.__all__ == [
        "FakeBackend",
        "FakeClock",
        "FakeEnvironment",
        "ScriptedModel",
        "temporary_ledger",
    ]
    for name in hermes.testing.__all__:
        assert (getattr(hermes.testing, name).__doc__ or "").strip()
