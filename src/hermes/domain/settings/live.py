"""LiveSettings: the settings in force, through one handle.

Code that uses a live setting calls the handle at the moment of use and keeps no copy, so a changed
file takes effect by construction. `update` applies the live part of new settings only: what is
marked `AtStart` stays as it was when the process started, and the keys that differ are returned.
For the code of a turn (`use_profile`) they are those of its agent.
"""

from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from hermes.domain.profile import current_profile
from hermes.domain.settings.root import Settings
from hermes.domain.settings.section import RESTART, Section


class LiveSettings:
    """A call returns the settings in force."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._now = settings or Settings()

    def __call__(self) -> Settings:
        profile = current_profile()
        scope = profile.scope if profile is not None else None
        return self._now if scope is None else scope.settings(self._now)

    def general(self) -> Settings:
        """Return the settings of the process, whichever agent it works for."""
        return self._now

    def update(self, new: Settings) -> frozenset[str]:
        """Use the live part of `new`; return the keys that need a restart."""
        waiting: set[str] = set()
        self._now = _merged(self._now, new, "", waiting)
        return frozenset(waiting)


def needs_restart(kind: Any) -> bool:
    """Tell whether a setting of this type is read when the gateway starts."""
    return RESTART in getattr(kind, "__metadata__", ())


def _merged(old: Any, new: Any, path: str, waiting: set[str]) -> Any:
    taken: dict[str, Any] = {}
    for field in msgspec.structs.fields(new):
        name, key = field.name, f"{path}{field.encode_name}"
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if needs_restart(field.type):
            waiting |= set(_differences(before, after, key))
            taken[name] = before
        elif isinstance(after, Section):
            taken[name] = _merged(before or type(after)(), after, f"{key}.", waiting)
        elif section := _section_of_entries(field.type):
            taken[name] = {
                entry: _merged(
                    before.get(entry, section()),
                    after.get(entry, section()),
                    f"{key}.{entry}.",
                    waiting,
                )
                for entry in {**before, **after}
            }
    return msgspec.structs.replace(new, **taken)


def _section_of_entries(kind: Any) -> type[Section] | None:
    """Return the section in `dict[str, Section]`."""
    inner = get_args(kind)[1] if get_origin(kind) is dict else None
    return inner if isinstance(inner, type) and issubclass(inner, Section) else None


def _differences(before: Any, after: Any, key: str) -> list[str]:
    """Name the settings below `key` that differ."""
    old, new = _entries(before), _entries(after)
    if old is None or new is None:
        return [key]
    return [
        found
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
        for found in _differences(old.get(name), new.get(name), f"{key}.{name}")
    ]


def _entries(value: Any) -> dict[str, Any] | None:
    if isinstance(value, Struct):
        return {
            field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)
        }
    return value if isinstance(value, dict) else None
