"""Requests that are wrong in as many ways as there are, from one seed."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from fakes.authority import BODIES, ENDPOINTS, PARAMS
from fakes.raw_http import request

__all__ = ["TEXTS", "Odd", "Things", "odd_requests"]

CHAT = "/v1/chat/completions"
TEXTS = (
    "",
    " ",
    "\x00",
    "\u202e",
    "😀" * 50,
    "a" * 70_000,
    "\ufeff",
    "\x1b[31m",
    "../../etc/passwd",
    "%00%0a%0d",
    "' OR 1=1 --",
    "{{7*7}}",
    "data:image/png;base64,AAAA",
    "data:image/png;base64,@@@",
    "http://127.0.0.1:1/x.png",
    "file:///etc/passwd",
    "NaN",
    "\r\nSet-Cookie: a=b",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**30,
    1.5,
    -0.0,
    1e308,
    5e-324,
    [],
    {},
    [None],
    [[]],
    {"": ""},
    {"type": "text", "text": "x"},
    [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
    [{"role": "user", "content": "x"}],
    [{"role": "tool", "tool_call_id": "x", "content": "y"}],
    [{"type": "function_call_output", "call_id": "x", "output": "y"}],
    [{"type": "function", "function": {"name": "read_file"}}],
    [{"type": "function", "function": {"name": "f", "parameters": {"type": "nonsense"}}}],
    *TEXTS,
)
FIELDS = (
    "model",
    "messages",
    "input",
    "stream",
    "tools",
    "tool_choice",
    "max_tokens",
    "metadata",
    "user",
    "n",
    "temperature",
    "response_format",
    "previous_response_id",
    "conversation",
    "background",
    "store",
    "truncation",
    "instructions",
    "include",
    "text",
    "reasoning",
    "session_id",
    "conversation_history",
    "title",
    "through",
    "repeat",
    "schedule",
    "deliver",
    "skills",
    "enabled",
    "choice",
    "all",
)
RAW = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"nul",
    b'"x"',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"{}{}",
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b'{"a":1e999}',
    b'{"a":' + b"9" * 5000 + b"}",
    b'{"a":"\\ud800"}',
    b'{"input":"\\udfff\\ud800","messages":[{"role":"user","content":"\\ud83d"}]}',
    b'{"input":"a\\u0000b"}',
    b'{"input":"a\x00b"}',
    b'{"input":"\xc3\x28"}',
    b'{"input":"x","input":"y"}',
    b'{"input":"x","metadata":{"a":' + b"[" * 90 + b"]" * 90 + b"}}",
    b'{"input":"x","metadata":{"a":' + b"[" * 960 + b"]" * 960 + b"}}",
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
    b"[" * 100_000,
)
HEADS: tuple[bytes, ...] = (
    b"X-A: " + b"a" * 70_000,
    b"X-A: \x01\x02",
    b"X-A: \xc3\xa9\xff",
    b"X-A: \x00",
    b"\xff: a",
    b": a",
    b"no colon",
    b"X A: b",
    b"X-A : b",
    b" folded: yes",
    b"X-A:",
    b"Host: 127.0.0.1",
    b"Host: evil.example",
    b"Host:",
    b"Authorization: Bearer x",
    b"Authorization: \xff",
    b"Content-Type: text/plain",
    b"Content-Type: application/json; charset=utf-16",
    b"Content-Type: \xff",
    b"Idempotency-Key: " + b"k" * 300,
    b"Idempotency-Key: \xff",
    b"X-Hermes-Session-Id: " + b"s" * 129,
    b"X-Hermes-Session-Id: a\tb",
    b"X-Hermes-Session-Key: \xe2\x80\xae",
    b"X-Hermes-Task: \x7f",
    b"Last-Event-ID: -1",
    b"Last-Event-ID: " + b"9" * 60,
    b"Origin: null",
    b"Origin: http://evil.example",
    b"Expect: 100-continue",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAAA",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nX-A: b",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Range: bytes=0-1",
    b"Content-Encoding: gzip",
    b"Accept-Encoding: " + b"gzip," * 500,
    b"Cookie: " + b"a=b;" * 4000,
    *(b"\r\n".join(b"X-%d: y" % n for n in range(count)) for count in (50, 300)),
)
FRAMES: tuple[bytes, ...] = (
    b"Content-Length: 999999\r\n\r\n{}",
    b"Content-Length: 0\r\n\r\n{}",
    b"Content-Length: -1\r\n\r\n{}",
    b"Content-Length: +2\r\n\r\n{}",
    b"Content-Length: 2, 2\r\n\r\n{}",
    b"Content-Length: 0x2\r\n\r\n{}",
    b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nX-T: 1\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n7FFFFFFFFFFFFFFF\r\n{}",
    b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: identity\r\n\r\n{}",
    b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: \x0bchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"\r\n{}",
    b"\n\n{}",
)
STRANGERS: tuple[bytes, ...] = (
    b"",
    b"\r\n" * 100,
    b"\x00" * 200,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xab" * 100,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"GET /health\r\n\r\n",
    b"GET /health HTTP/0.9\r\n\r\n",
    b"GET /health HTTP/1.0\r\n\r\n",
    b"GET /health HTTP/9.9\r\nHost: a\r\n\r\n",
    b"GET  /health  HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET http://127.0.0.1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x80" * 70_000,
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
)
PATHS = (
    "/%00",
    "/%ff",
    "/v1/runs/%2e%2e",
    "/v1/runs/%2f",
    "//v1/runs",
    "/v1/runs/",
    "/v1//runs",
    "/v1/runs/%",
    "/v1/runs/%zz",
    "/v1/runs/a;b=c",
    "/v1/runs/%c3%28",
    "/v1/runs/" + "a" * 300,
    "/v1/runs?limit=1&limit=2",
    "/v1/runs?limit=" + "9" * 50,
    "/v1/runs?limit=%00",
    "/v1/runs?status=%ff",
    "/v1/runs?" + "&".join(f"a{n}=1" for n in range(80)),
    "/v1/runs?offset=1e3",
    "/v1/runs?offset=NaN",
    "/api/sessions/search?q=%22%20OR%20*",
    "/api/sessions/search?q=%00",
    "/api/sessions/search?q=" + quote('"()*^:{}-+ NEAR AND NOT'),
    "/api/sessions/search?q=" + quote("’´ß\u202e"),
    "/v1/models/%2e%2e%2fsecret",
    "/.env",
    "/../../etc/passwd",
    "/v1/chat/completions/../../health",
    "\\v1\\runs",
    "/\udcff\udcfe",
    "/?",
    "?",
)
METHODS = (
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "FOO",
    "get",
    "P@ST",
)


Things = Mapping[str, Sequence[str]]


class Odd(Struct, frozen=True, kw_only=True):
    """One thing to do to a server."""

    kind: str
    pieces: tuple[bytes, ...]
    abort: bool = False
    half_close: bool = False
    stop_after: int | None = None


class _Maker:
    def __init__(self, seed: int, key: str, things: Things) -> None:
        self.dice = random.Random(seed)
        self.things = things
        self.key = key
        self.closing = True

    def request(self, method: str, target: str, *lines: str | bytes, body: bytes = b"") -> bytes:
        ways = ("Connection: close",) if self.closing else ()
        return request(method, target, *ways, *lines, body=body, key=self.key)

    def full(self, method: str, target: str, body: bytes, *lines: str | bytes) -> bytes:
        own = (f"Content-Length: {len(body)}", "Content-Type: application/json", *lines)
        return self.request(method, target, *own, body=body)

    def call(self) -> bytes:
        """Return a call of some endpoint with a body that is nearly right."""
        dice = self.dice
        endpoint = dice.choice(ENDPOINTS)
        path = endpoint.path
        for name in PARAMS:
            known = self.things.get(name, ("hermes",))
            text = dice.choice(known if dice.random() < 0.6 else TEXTS)[:260]
            path = path.replace(f"{{{name}}}", quote(text, safe="") or "x")
        if endpoint.body is None:
            return self.request(endpoint.method, path)
        body: dict[str, Any] = json.loads(json.dumps(BODIES[endpoint.name]))
        for _ in range(dice.randrange(4)):
            body[dice.choice(FIELDS)] = dice.choice(VALUES)
        if body and dice.random() < 0.3:
            body[dice.choice(list(body))] = dice.choice(VALUES)
        raw = json.dumps(body, ensure_ascii=dice.random() < 0.7).encode("utf-8", "surrogatepass")
        return self.full(endpoint.method, path, self._spoilt(raw))

    def _spoilt(self, raw: bytes) -> bytes:
        dice = self.dice
        match dice.randrange(12):
            case 0:
                return raw[: dice.randrange(len(raw) + 1)]
            case 1:
                at = dice.randrange(len(raw) + 1)
                return raw[:at] + bytes([dice.randrange(256)]) + raw[at:]
            case 2:
                return dice.choice(RAW)
            case _:
                return raw

    # -- kinds ---------------------------------------------------------------------

    def calls(self) -> Odd:
        return Odd(kind="call", pieces=(self.call(),), half_close=self.dice.random() < 0.1)

    def headers(self) -> Odd:
        lines = self.dice.sample(HEADS, self.dice.randrange(1, 4))
        body = b'{"input":"x"}'
        path = self.dice.choice(("/v1/runs", "/v1/responses"))
        made = self.request("POST", path, f"Content-Length: {len(body)}", *lines, body=body)
        return Odd(kind="headers", pieces=(made,))

    def frames(self) -> Odd:
        head = self.request("POST", self.dice.choice((CHAT, "/v1/runs", "/api/sessions")))
        frame = self.dice.choice(FRAMES)
        whole = head[:-2] + frame
        cuts = sorted(self.dice.sample(range(len(whole)), 3))
        pieces = (whole[: cuts[0]], whole[cuts[0] : cuts[1]], whole[cuts[1] :])
        return Odd(kind="frame", pieces=pieces)

    def strangers(self) -> Odd:
        return Odd(kind="stranger", pieces=(self.dice.choice(STRANGERS),))

    def paths(self) -> Odd:
        made = self.request(self.dice.choice(METHODS), self.dice.choice(PATHS))
        return Odd(kind="path", pieces=(made,))

    def pipelines(self) -> Odd:
        self.closing = False
        many = [self.call() for _ in range(self.dice.randrange(1, 20))]
        self.closing = True
        return Odd(kind="pipeline", pieces=(b"".join([*many, self.call()]),))

    def aborts(self) -> Odd:
        whole = self.call()
        cut = self.dice.randrange(1, len(whole) + 1)
        return Odd(kind="abort", pieces=(whole[:cut],), abort=True)

    def streams(self) -> Odd:
        """Leave in the middle of a stream, politely or not."""
        messages = [{"role": "user", "content": "slowly"}]
        bodies = {
            CHAT: {"messages": messages, "stream": True},
            "/v1/responses": {"input": "slowly", "stream": True},
        }
        path = self.dice.choice(tuple(bodies))
        made = self.full("POST", path, json.dumps(bodies[path]).encode())
        return Odd(
            kind="stream",
            pieces=(made,),
            abort=self.dice.random() < 0.5,
            stop_after=self.dice.randrange(1, 3000),
        )


def odd_requests(seed: int, count: int, key: str, things: Things) -> Iterator[Odd]:
    """Yield so many odd requests, always the same for the same seed.

    Many of them are about `things`: path parameter -> ids of what there is.
    """
    maker = _Maker(seed, key, things)
    kinds: tuple[Callable[[], Odd], ...] = (
        *(maker.calls,) * 6,
        *(maker.headers, maker.frames) * 2,
        maker.strangers,
        maker.paths,
        maker.pipelines,
        maker.aborts,
        maker.streams,
    )
    for _ in range(count):
        yield maker.dice.choice(kinds)()
