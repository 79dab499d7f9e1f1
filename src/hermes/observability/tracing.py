"""Spans around what takes time; nothing at all unless OpenTelemetry is installed.

`span` is cheap enough to leave in place everywhere: without the package it
yields one shared object whose methods do nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

Attribute = str | int | float | bool


class Span(Protocol):
    """A stretch of time with a name."""

    def set(self, name: str, value: Attribute) -> None:
        """Note something about it."""


class _NoSpan:
    __slots__ = ()

    def set(self, name: str, value: Attribute) -> None:
        """Do nothing."""


class _RealSpan:
    __slots__ = ("_span",)

    def __init__(self, real: Any) -> None:
        self._span = real

    def set(self, name: str, value: Attribute) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)


_NO_SPAN = _NoSpan()


@contextmanager
def span(name: str, **attributes: Attribute) -> Iterator[Span]:
    """Measure the body under `name`; an exception is recorded and goes on."""
    tracer = _tracer()
    if tracer is None:
        yield _NO_SPAN
        return
    with tracer.start_as_current_span(name, attributes=attributes) as real:
        yield _RealSpan(real)


@cache
def _tracer() -> Any:
    if find_spec("opentelemetry") is None:
        return None
    return import_module("opentelemetry.trace").get_tracer("hermes")
