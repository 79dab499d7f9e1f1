"""Which calls of one batch may overlap.

The batch is cut, in order, into segments; the calls of a segment may run at
the same time, and a segment starts when the one before has ended. Two calls
stay in order when either must run alone, or when their paths overlap and at
least one of them writes.
"""

import posixpath
from collections.abc import Callable, Sequence

from msgspec import Struct

from hermes.agent.tools.arguments import parse_object
from hermes.domain.messages import ToolCall
from hermes.domain.tools import Parallel, ToolSpec

__all__ = ["segments"]


_ELSEWHERE = frozenset({"..", "~", "~/"})


class _Footprint(Struct, frozen=True):
    alone: bool
    writes: bool = False
    paths: tuple[str, ...] = ()


def segments(
    calls: Sequence[ToolCall],
    spec: Callable[[str], ToolSpec | None],
    resolve: Callable[[str], str] = posixpath.normpath,
) -> list[list[ToolCall]]:
    """Cut `calls` into runs that may overlap, keeping their order.

    `resolve` makes paths absolute. Without it, paths that cannot be compared
    as text (absolute with relative, `~`, `..`) count as overlapping.
    """
    result: list[list[ToolCall]] = []
    current: list[_Footprint] = []
    for call in calls:
        footprint = _footprint(call, spec(call.name), resolve)
        if not current or any(_ordered(earlier, footprint) for earlier in current):
            result.append([])
            current = []
        result[-1].append(call)
        current.append(footprint)
    return result


def _footprint(call: ToolCall, spec: ToolSpec | None, resolve: Callable[[str], str]) -> _Footprint:
    if spec is None:
        return _Footprint(alone=False)  # answered with an error, touches nothing
    if spec.parallel is Parallel.NEVER:
        return _Footprint(alone=True)
    arguments = parse_object(call.arguments) or {}
    if spec.parallel is Parallel.BY_PATH and spec.intent is not None:
        written = tuple(resolve(path) for path in spec.intent(arguments).writes if path)
        return _Footprint(alone=not written, writes=True, paths=written)
    given = [arguments.get(field) for field in spec.path_fields]
    paths = tuple(resolve(path) for path in given if isinstance(path, str) and path)
    if spec.parallel is Parallel.ALWAYS:
        # A read without a path starts from the working directory.
        return _Footprint(alone=False, paths=paths or tuple(resolve(".") for _ in given[:1]))
    return _Footprint(alone=len(paths) < len(given) or not paths, writes=True, paths=paths)


def _ordered(first: _Footprint, second: _Footprint) -> bool:
    if first.alone or second.alone:
        return True
    if not (first.writes or second.writes):
        return False
    return any(_overlap(a, b) for a in first.paths for b in second.paths)


def _overlap(a: str, b: str) -> bool:
    if a.startswith("/") != b.startswith("/") or a[:2] in _ELSEWHERE or b[:2] in _ELSEWHERE:
        return True
    if "." in (a, b):
        return True
    a, b = a.rstrip("/"), b.rstrip("/")
    return a == b or a.startswith(b + "/") or b.startswith(a + "/")
