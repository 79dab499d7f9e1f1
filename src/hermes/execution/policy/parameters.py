"""The operators of `${name…}` on values that are known."""

import fnmatch
import re
from collections.abc import Callable

from hermes.execution.policy.scope import is_unknown

__all__ = ["apply_operator"]

_MAX_LENGTH = 2048


def apply_operator(value: str | None, op: str, argument: str) -> str | None:
    """Return the value of `${name<op><argument>}`, or None if it cannot be known."""
    if op in {"-", ":-", "=", ":="}:
        missing = value is None or (op[0] == ":" and value == "")
        return argument if missing else value
    if op in {"+", ":+"}:
        return argument
    if op in {"?", ":?", ""} or value is None:
        return value
    if op in _OPERATORS and not is_unknown(value) and len(value) <= _MAX_LENGTH:
        return _OPERATORS[op](value, argument)
    return None


def _substring(value: str, argument: str) -> str | None:
    pieces = [piece.strip() for piece in argument.split(":", 1)]
    try:
        start = int(pieces[0] or 0)
        length = int(pieces[1]) if len(pieces) > 1 else None
    except ValueError:
        return None
    rest = value[start:] if start >= 0 else value[max(0, len(value) + start) :]
    if length is None:
        return rest
    return rest[:length]


def _case(change: Callable[[str], str], *, everywhere: bool) -> Callable[[str, str], str]:
    def apply(value: str, _argument: str) -> str:
        return change(value) if everywhere else change(value[:1]) + value[1:]

    return apply


def _pattern(text: str) -> str:
    return fnmatch.translate(text).removesuffix(r"\Z").removesuffix(r"\z")


def _strip(*, front: bool, greedy: bool) -> Callable[[str, str], str]:
    def apply(value: str, argument: str) -> str:
        ends = range(len(value) + 1)
        order = reversed(ends) if greedy == front else ends
        whole = re.compile(fnmatch.translate(argument))
        for cut in order:
            head, tail = value[:cut], value[cut:]
            if whole.match(head if front else tail):
                return tail if front else head
        return value

    return apply


def _replace(*, every: bool) -> Callable[[str, str], str]:
    def apply(value: str, argument: str) -> str:
        wanted, _, replacement = argument.partition("/")
        if not wanted:
            return value
        pattern = re.compile(_pattern(wanted))
        return pattern.sub(lambda _: replacement, value, count=0 if every else 1)

    return apply


_OPERATORS: dict[str, Callable[[str, str], str | None]] = {
    ":": _substring,
    "^": _case(str.upper, everywhere=False),
    "^^": _case(str.upper, everywhere=True),
    ",": _case(str.lower, everywhere=False),
    ",,": _case(str.lower, everywhere=True),
    "#": _strip(front=True, greedy=False),
    "##": _strip(front=True, greedy=True),
    "%": _strip(front=False, greedy=False),
    "%%": _strip(front=False, greedy=True),
    "/": _replace(every=False),
    "//": _replace(every=True),
}
