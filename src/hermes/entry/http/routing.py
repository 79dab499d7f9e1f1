"""Which endpoint a path means.

Paths without parameters are one dictionary lookup; the others are compared
segment by segment with those of the same length. Segments are decoded one by
one, so an encoded slash stays inside its parameter.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from msgspec import Struct

from hermes.entry.http.decoding import BodyPlan, QueryPlan
from hermes.entry.http.endpoint import Endpoint
from hermes.entry.http.errors import Problem

__all__ = ["Found", "Route", "RouteTable"]

_PARAMETER = re.compile(r"\{(?P<name>[a-z_]+)\}\Z")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_MAX_SEGMENT = 256


class Route:
    """An endpoint with everything that its requests need, prepared."""

    __slots__ = ("body", "endpoint", "query")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.body = BodyPlan(endpoint.body)
        self.query = QueryPlan(endpoint.query)


Methods = dict[str, Route]
Pattern = tuple[str | None, ...]
"""Segments; None stands for a parameter."""


class Found(Struct, frozen=True):
    """What a path leads to."""

    methods: Methods
    parameters: Mapping[str, str]

    def allowed(self) -> list[str]:
        """Return the methods there are, in order."""
        more = {"HEAD"} if "GET" in self.methods else set()
        return sorted({*self.methods, *more, "OPTIONS"})

    def route(self, method: str) -> Route:
        """Return the route of a method; 405 if there is none."""
        route = self.methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise Problem(
                405,
                "There is no such method here.",
                code="method_not_allowed",
                headers={"allow": ", ".join(self.allowed())},
            )
        return route


class RouteTable:
    """All endpoints by their paths."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._exact: dict[str, Methods] = {}
        self._patterns: dict[int, dict[Pattern, Methods]] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        for endpoint in endpoints:
            methods = self._place(endpoint.path)
            if endpoint.method in methods:
                raise ValueError(f"{endpoint.method} {endpoint.path} is there twice")
            methods[endpoint.method] = Route(endpoint)

    def find(self, raw_path: bytes) -> Found:
        """Return what is at a path; 404 if nothing is."""
        text = raw_path.decode("latin-1")
        methods = self._exact.get(text)
        if methods is not None:
            return Found(methods, {})
        segments = tuple(unquote(part) for part in text.split("/"))
        methods = self._exact.get("/".join(segments)) if "%" in text else None
        if methods is not None:
            return Found(methods, {})
        found = self._match(segments)
        if found is None:
            raise Problem(404, "There is nothing at this path.", code="not_found")
        return found

    def _place(self, path: str) -> Methods:
        if "{" not in path:
            return self._exact.setdefault(path, {})
        matches = [(part, _PARAMETER.match(part)) for part in path.split("/")]
        pattern = tuple(None if match else part for part, match in matches)
        same_length = self._patterns.setdefault(len(pattern), {})
        methods = same_length.setdefault(pattern, {})
        self._names[id(methods)] = tuple(match["name"] for _, match in matches if match)
        # Fewer parameters win: `/v1/runs/active` before `/v1/runs/{run_id}`.
        ordered = sorted(same_length.items(), key=lambda item: item[0].count(None))
        self._patterns[len(pattern)] = dict(ordered)
        return methods

    def _match(self, segments: tuple[str, ...]) -> Found | None:
        for pattern, methods in self._patterns.get(len(segments), {}).items():
            if all(
                want is None or want == got for want, got in zip(pattern, segments, strict=True)
            ):
                values = [got for want, got in zip(pattern, segments, strict=True) if want is None]
                if all(_is_plausible(value) for value in values):
                    return Found(methods, dict(zip(self._names[id(methods)], values, strict=True)))
        return None


def _is_plausible(value: str) -> bool:
    """Tell whether anything could have this id; control characters and novels are none."""
    return 0 < len(value) <= _MAX_SEGMENT and not _CONTROL.search(value)
