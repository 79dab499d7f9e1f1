"""The baseline: a client that streams an answer and does nothing else."""

import asyncio
import json
import time

import httpx2
import msgspec
from msgspec import Struct

__all__ = ["BareClient", "Times", "request_body"]


class Times(Struct, frozen=True, kw_only=True):
    """When things came, in milliseconds after the request."""

    first_token: float
    end: float
    tokens: int


def request_body(text: str = "hello", model: str = "fake-1") -> bytes:
    """Return a minimal streaming request."""
    message = {"role": "user", "content": text}
    return json.dumps({"model": model, "messages": [message], "stream": True}).encode()


class BareClient:
    """Chat completions with nothing around them: split events, decode, take the text."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url}/chat/completions"
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx2.AsyncClient(timeout=None, limits=limits)

    async def ask(self, body: bytes) -> Times:
        """Send `body` and read the answer to its end."""
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        start = time.perf_counter()
        first = 0.0
        tokens = 0
        rest = b""
        async with self._http.stream("POST", self._url, content=body, headers=headers) as answer:
            async for chunk in answer.aiter_raw():
                *events, rest = (rest + chunk).split(b"\n\n")
                count = sum(map(_has_text, events))
                if count and not tokens:
                    first = time.perf_counter() - start
                tokens += count
        end = time.perf_counter() - start
        return Times(first_token=first * 1000, end=end * 1000, tokens=tokens)

    async def ask_all(self, bodies: list[bytes]) -> float:
        """Send one after the other; return how many milliseconds that took."""
        start = time.perf_counter()
        for body in bodies:
            await self.ask(body)
        return (time.perf_counter() - start) * 1000

    async def close(self) -> None:
        await self._http.aclose()


def _has_text(event: bytes) -> bool:
    data = event.removeprefix(b"data: ")
    if not data.startswith(b"{"):
        return False
    choices = msgspec.json.decode(data).get("choices")
    return bool(choices and choices[0].get("delta", {}).get("content"))


async def _main(base_url: str) -> None:
    client = BareClient(base_url)
    await client.ask(request_body())
    await client.close()


if __name__ == "__main__":
    import sys

    asyncio.run(_main(sys.argv[1]))
