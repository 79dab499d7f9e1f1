"""Having a session's prefix read before the first question.

The engine keeps what it has read. Sending the system prompt with nothing to
answer makes the first real request start from there.
"""

from collections.abc import Sequence

import msgspec

from hermes.domain.tools import ToolSpec
from hermes.execution.local_model.supervisor import Endpoint
from hermes.execution.local_model.wire import BadMessage, exchange

__all__ = ["warm"]

_TIMEOUT = 120.0


async def warm(endpoint: Endpoint, system: str, tools: Sequence[ToolSpec] = ()) -> bool:
    """Have the prefix of a session read; tell whether that worked."""
    body = {
        "model": endpoint.model,
        "messages": [{"role": "system", "content": system}],
        "max_tokens": 1,
        "cache_prompt": True,
    }
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": spec.parameters,
                },
            }
            for spec in tools
        ]
    try:
        status, _ = await exchange(
            f"{endpoint.base_url}/chat/completions",
            method="POST",
            api_key=endpoint.api_key,
            body=msgspec.json.encode(body),
            timeout=_TIMEOUT,
        )
    except (OSError, BadMessage):
        return False
    return status == 200
