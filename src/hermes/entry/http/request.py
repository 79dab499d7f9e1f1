"""Requests, from bytes to typed values: headers, query, body, and the route of a path.

Whatever cannot be understood is a 400 that names the place: the path inside
the body, the query parameter or the header.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from types import NoneType
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct, inspect

from hermes.domain.nesting import MAX_VALUES, more_values_than, nested_too_deeply
from hermes.entry.http.endpoint import CallHeaders, Endpoint
from hermes.entry.http.errors import Problem
from hermes.entry.http.room import BodyRoom

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[bytes, bytes]
"""Names in lower case."""


MAX_ID_DIGITS = 18
_MAX_QUERY_FIELDS = 64
_MAX_NUMBER = 2**63 - 1
_ONLY_ONCE = frozenset({b"host", b"authorization", b"x-api-key", b"content-type", b"origin"})
HEADERS: tuple[tuple[str, str, int, str], ...] = (
    ("session_id", "X-Hermes-Session-Id", 128, "Continue this session."),
    ("session_key", "X-Hermes-Session-Key", 256, "Continue the session of this name, or open it."),
    ("idempotency_key", "Idempotency-Key", 256, "A repeat with the same key gets the same run."),
    ("task", "X-Hermes-Task", 64, "Says that this is a helper call, and which."),
    ("tools", "X-Hermes-Tools", 1024, "The agent's own tools or toolsets to use; `none` for none."),
    (
        "retry_count",
        "X-Stainless-Retry-Count",
        16,
        "Set by SDKs: a retry joins its run.",
    ),
    ("events", "X-Hermes-Events", 64, "`approvals`: questions come as events, not as text."),
    ("progress", "X-Hermes-Progress", 16, "Tool calls are told as `text` or as `reasoning`."),
    ("chat_id", "X-Hermes-Chat-Id", 256, "Without a named agent: the chat that routes ask for."),
    ("user_id", "X-Hermes-User-Id", 256, "The same for the person."),
    ("thread_id", "X-Hermes-Thread-Id", 256, "The same for the thread."),
    ("last_event_id", "Last-Event-ID", 64, "Continue after the event with this id."),
)
"""Field of `CallHeaders`, name, longest value and description."""
_MEANINGFUL = frozenset(name.lower().encode() for _, name, _, _ in HEADERS)
_NO_HEADERS = CallHeaders()
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_PLACE = re.compile(r"(?P<what>.*?) - at `(key in )?\$(?P<path>.*)`\Z", re.DOTALL)
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape itself, not a backslash followed by `u0000`."""
_HALF = re.compile(
    rb"(?<!\\)(?:\\\\)*"
    rb"(\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2})",
    re.IGNORECASE,
)
"""One of the two escapes that make a character, without the other."""
_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")


def accepted_back(json: bytes) -> bytes:
    """Return what goes out without what would be refused when a client sends it back.

    Models and tools may say a NUL; clients get the sign for what cannot be shown in its place.
    """
    return _NUL.sub(rb"\1\\ufffd", json) if b"\\u0000" in json else json


class ClientGone(Exception):
    """The client left before its request was complete; there is nobody to answer."""


# -- headers -------------------------------------------------------------------


def read_headers(scope: Scope) -> Headers:
    """Return the headers by name; a repeated one counts only the first time."""
    heads: Headers = {}
    for name, value in scope["headers"]:
        if heads.setdefault(name, value) is not value and name in _ONLY_ONCE:
            shown = name.decode("latin-1")
            raise Problem(
                400, f"The header {shown} is there twice.", code="invalid_header", param=shown
            )
    return heads


def call_headers(heads: Headers) -> CallHeaders:
    if _MEANINGFUL.isdisjoint(heads):
        return _NO_HEADERS
    values = {
        field: _header(value, name, limit)
        for field, name, limit, _ in HEADERS
        if (value := heads.get(name.lower().encode()))
    }
    return CallHeaders(**values)


def _header(value: bytes, name: str, limit: int) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise _bad_header(name, "is not valid UTF-8") from None
    if len(text) > limit:
        raise _bad_header(name, f"is longer than {limit} characters")
    if _CONTROL.search(text):
        raise _bad_header(name, "has control characters")
    return text


def _bad_header(name: str, why: str) -> Problem:
    return Problem(400, f"The header {name} {why}.", code="invalid_header", param=name)


# -- query ---------------------------------------------------------------------


class QueryPlan:
    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._many: dict[str, bool] = {}
        """Parameter -> whether it may be repeated."""
        if kind is not None:
            info = inspect.type_info(kind)
            assert isinstance(info, inspect.StructType)
            self._many = {field.encode_name: _is_many(field.type) for field in info.fields}

    def decode(self, raw: bytes) -> Any:
        """Return the struct; parameters that it does not have are ignored."""
        if self._kind is None:
            return None
        found: dict[str, Any] = {}
        for name, value in self._pairs(raw):
            if "\x00" in value:
                raise _bad_query(f"`{name}` has a NUL character", name)
            if self._many.get(name):
                found.setdefault(name, []).append(value)
            elif name in self._many:
                found[name] = value
        try:
            query = msgspec.convert(found, self._kind, strict=False)
        except msgspec.ValidationError as error:
            message, param = _explain(str(error))
            raise _bad_query(message, param) from None
        for name in found:
            _check_number(getattr(query, name, None), name)
        return query

    @staticmethod
    def _pairs(raw: bytes) -> list[tuple[str, str]]:
        if not raw:
            return []
        try:
            text = raw.decode("latin-1")
            return parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError:
            raise _bad_query("there are too many parameters", None) from None


def _is_many(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(_is_many(part) for part in kind.types)
    return isinstance(kind, inspect.CollectionType)


def _check_number(value: Any, name: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise _bad_query(f"`{name}` is not a number", name)
    if isinstance(value, int) and abs(value) > _MAX_NUMBER:
        raise _bad_query(f"`{name}` is too large", name)


def _bad_query(why: str, param: str | None) -> Problem:
    return Problem(400, f"The query is wrong: {why}.", code="invalid_request", param=param)


# -- body ----------------------------------------------------------------------


class BodyPlan:
    def __init__(self, kind: Any) -> None:
        self.wanted = kind is not None
        self._raw = kind is bytes
        self._decoder = None if kind is None or self._raw else msgspec.json.Decoder(kind)
        self.optional = self._decoder is None or _takes_nothing(self._decoder)
        """An empty body stands for an empty object."""

    def check_type(self, heads: Headers) -> None:
        """Raise 415 for a body that does not call itself JSON."""
        if self._decoder is None:
            return
        kind, _, rest = heads.get(b"content-type", b"application/json").partition(b";")
        kind, rest = kind.strip().lower(), rest.strip().lower()
        json = kind == b"application/json" or (
            kind.startswith(b"application/") and kind.endswith(b"+json")
        )
        charset = rest.partition(b"charset=")[2].split(b";")[0].strip(b' "')
        if not json or charset not in {b"", b"utf-8", b"utf8", b"us-ascii"}:
            text = "The body has to be JSON in UTF-8: Content-Type: application/json."
            raise Problem(415, text, code="not_json")

    def decode(self, body: bytes) -> Any:
        """Return the value in a body; a 400 says where it is wrong."""
        if self._decoder is None:
            return body if self._raw else None
        if b"\\u0000" in body and _NUL.search(body):
            # Not every store can keep it, and no client means it.
            text = "The request is wrong: a text has a NUL character (\\u0000)."
            raise Problem(400, text, code="nul_character")
        if more_values_than(MAX_VALUES, body):
            text = f"The body has more than {MAX_VALUES:,} values."
            raise Problem(400, text, code="too_many_values")
        try:
            value = self._decoder.decode(body if body or not self.optional else b"{}")
        except msgspec.ValidationError as error:
            message, param = _explain(str(error))
            raise Problem(
                400, f"The request is wrong: {message}.", code="invalid_request", param=param
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = f"The body is not valid JSON: {_why(error, body) if body else 'it is empty'}."
            raise Problem(400, text, code="invalid_json") from None
        except RecursionError:
            raise _too_deep() from None
        if nested_too_deeply(body):
            raise _too_deep()
        return value


def _why(error: Exception, body: bytes) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    half = _HALF.search(body)
    if half is None:
        return str(error)
    return f"a text has half a character (`{half[1].decode()}`, a surrogate without its partner)"


async def read_body(receive: Receive, heads: Headers, room: BodyRoom, seconds: float) -> bytes:
    """Return the whole body; 413 as soon as it is known to be too large, 408 if it takes long."""
    limit, length = room.each, heads.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length[:20]) > limit):
        raise _too_large(limit)
    body, held = bytearray(), room.body()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part: bytes = message.get("body", b"")
                if len(body) + len(part) > limit:
                    raise _too_large(limit)
                held.grow(len(part))
                if not message.get("more_body"):
                    return bytes(body) + part
                body += part
    except TimeoutError:
        # What still comes would belong to a request that was answered.
        text = "The body did not come in time."
        raise Problem(408, text, code="request_timeout", headers={"connection": "close"}) from None
    finally:
        held.clear()


def _takes_nothing(decoder: "msgspec.json.Decoder[Any]") -> bool:
    try:
        decoder.decode(b"{}")
    except msgspec.ValidationError:
        return False
    return decoder.type is not NoneType


def _explain(text: str) -> tuple[str, str | None]:
    """Split what msgspec says into a sentence and the path of the field."""
    found = _PLACE.match(text)
    what, path = (found["what"], found["path"].lstrip(".")) if found else (text, "")
    missing = _MISSING.search(what)
    if missing:
        path = f"{path}.{missing['name']}" if path else missing["name"]
    said = what[:1].lower() + what[1:]
    return (f"{said} at `{path}`" if path else said), path or None


def _too_deep() -> Problem:
    return Problem(400, "The body is nested too deeply.", code="invalid_json")


def _too_large(limit: int) -> Problem:
    return Problem(413, f"The body is larger than {limit} bytes.", code="body_too_large")


# -- routes --------------------------------------------------------------------

_MAX_SEGMENT = 256


class EndpointRoute:
    __slots__ = ("body", "endpoint", "query")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.body = BodyPlan(endpoint.body)
        self.query = QueryPlan(endpoint.query)


class RouteMatch(Struct, frozen=True):
    methods: dict[str, EndpointRoute]
    parameters: Mapping[str, str]

    def allowed(self) -> list[str]:
        more = {"HEAD"} if "GET" in self.methods else set()
        return sorted({*self.methods, *more, "OPTIONS"})

    def route(self, method: str) -> EndpointRoute:
        route = self.methods.get("GET" if method == "HEAD" else method)
        if route is None:
            text, allow = "There is no such method here.", ", ".join(self.allowed())
            raise Problem(405, text, code="method_not_allowed", headers={"allow": allow})
        return route


class RouteTable:
    """All endpoints by their paths.

    Paths without parameters are one dictionary lookup; the others are compared segment by segment
    with those of the same length. Segments are decoded one by one, so an encoded slash stays inside
    its parameter.
    """

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._methods: dict[str, dict[str, EndpointRoute]] = {}
        self._templates: dict[int, list[tuple[str, ...]]] = {}
        for endpoint in endpoints:
            methods = self._methods.setdefault(endpoint.path, {})
            if endpoint.method in methods:
                raise ValueError(f"{endpoint.method} {endpoint.path} is there twice")
            methods[endpoint.method] = EndpointRoute(endpoint)
        # Fewer parameters win: `/v1/runs/active` before `/v1/runs/{run_id}`.
        for path in sorted(self._methods, key=lambda path: path.count("{")):
            if "{" in path:
                segments = tuple(path.split("/"))
                self._templates.setdefault(len(segments), []).append(segments)

    def find(self, raw_path: bytes) -> RouteMatch:
        segments = tuple(unquote(part) for part in raw_path.decode("latin-1").split("/"))
        path = "/".join(segments)
        if path in self._methods and "{" not in path:
            return RouteMatch(self._methods[path], {})
        for template in self._templates.get(len(segments), ()):
            pairs = tuple(zip(template, segments, strict=True))
            given = {name[1:-1]: value for name, value in pairs if name.startswith("{")}
            same = all(name == value or name.startswith("{") for name, value in pairs)
            if same and all(map(_is_plausible, given.values())):
                return RouteMatch(self._methods["/".join(template)], given)
        raise Problem(404, "There is nothing at this path.", code="not_found")


def _is_plausible(value: str) -> bool:
    """Tell whether anything could have this id; control characters and novels are none."""
    return 0 < len(value) <= _MAX_SEGMENT and not _CONTROL.search(value)
