"""Decides about writing a file: the same protected places, behind links and `..`."""

import os

from hermes.domain.approvals import Gate, Verdict
from hermes.execution.policy.calls import Ground
from hermes.execution.policy.places import Place, PlaceKind, absolute, place_of

__all__ = ["write_verdict"]

_NEVER = frozenset({PlaceKind.DEVICE, PlaceKind.LEDGER})


def write_verdict(path: str, ground: Ground) -> Verdict:
    """Decide about writing `path`; the path itself and what it links to must both be free."""
    if path == "~" or path.startswith("~/"):
        path = ground.user_home + path[1:]
    written = absolute(path, ground.cwd)
    for candidate in dict.fromkeys((written, _real(path, ground.cwd))):
        place = place_of(candidate, ground.cwd, ground)
        if place is not None:
            return _verdict(place, candidate)
    return Verdict(gate=Gate.ALLOW)


def _real(path: str, cwd: str | None) -> str:
    """Return where `path` leads through links; a link before `..` counts first."""
    full = path if path.startswith("/") or cwd is None else f"{cwd}/{path}"
    if "\x00" in full:
        return absolute(path, cwd)
    return os.path.realpath(full) if full.startswith("/") else absolute(path, cwd)


def _verdict(place: Place, path: str) -> Verdict:
    reason = f"It writes to {place.kind}: {path}"
    if place.kind in _NEVER:
        return Verdict(gate=Gate.BLOCK, reason=reason)
    return Verdict(gate=Gate.ASK, reason=reason, pattern=f"write {place.label}")
