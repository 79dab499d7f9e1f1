"""Writes to places that are not the agent's to change."""

from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.places import PlaceKind, absolute, place_of
from hermes.execution.policy.targets import written_paths

__all__ = ["check"]

_HARMLESS = frozenset({PlaceKind.PROJECT})
_LIGHT = frozenset({"touch", "mkdir", "git", "chmod"})


def check(call: Call, ground: Ground) -> Iterator[Danger]:
    """Yield a danger for every protected place that is written."""
    seen: set[str] = set()
    for path in written_paths(call):
        place = place_of(path, call.cwd, ground)
        if place is None or place.label in seen:
            continue
        if call.name in _LIGHT and place.kind in _HARMLESS:
            continue
        seen.add(place.label)
        yield Danger(
            "write",
            f"it writes to {place.kind}: {absolute(path, call.cwd)}",
            f"write {place.label}",
        )
