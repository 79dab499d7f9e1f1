"""Checks histories like a strict provider, and finds the last user text.

Returns a complaint, which the fake server sends as HTTP 400, so that a history
that a real provider would refuse fails in tests too.
"""

from typing import Any

__all__ = ["complaint", "conversation"]

Turn = tuple[str, str]
_CONTEXT = "[Context for this reply"
"""What the client adds for one call only is not what the user said."""
_IMAGES = "[Images from the tool results"


def complaint(protocol: str, body: dict[str, Any]) -> str:
    """Return what is wrong with a request; empty if nothing is."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        return "you must provide a model parameter"
    match protocol:
        case "chat":
            return _chat(body)
        case "responses":
            return _responses(body)
        case _:
            return _anthropic(body)


def conversation(protocol: str, body: dict[str, Any]) -> tuple[str, int]:
    """Return the last user text and how many assistant messages follow it."""
    text, after = "", 0
    for role, said in _turns(protocol, body):
        if role == "user":
            text, after = said, 0
        elif role == "assistant":
            after += 1
    return text, after


def _turns(protocol: str, body: dict[str, Any]) -> list[Turn]:
    if protocol == "responses":
        return _responses_turns(body)
    turns: list[Turn] = []
    for message in body.get("messages", []):
        content = message.get("content")
        if message["role"] != "user":
            turns.append((message["role"], ""))
        elif said := _user_text(content):
            turns.append(("user", said))
    return turns


def _user_text(content: Any) -> str:
    if isinstance(content, str):
        return content.partition(_CONTEXT)[0].rstrip("\n")
    texts = [part.get("text", "") for part in content or [] if "text" in part]
    return "\n".join(text for text in texts if not text.startswith((_CONTEXT, _IMAGES)))


def _responses_turns(body: dict[str, Any]) -> list[Turn]:
    turns: list[Turn] = []
    for item in body.get("input", []):
        if item.get("role") == "user":
            if said := _user_text(item["content"]):
                turns.append(("user", said))
        elif item.get("role") == "assistant" or item.get("type") == "function_call":
            if not turns or turns[-1][0] != "assistant":
                turns.append(("assistant", ""))
        elif item.get("type") == "function_call_output":
            turns.append(("tool", ""))
    return turns


def _chat(body: dict[str, Any]) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages: must be a non-empty array"
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in {"system", "developer", "user", "assistant", "tool"}:
            return f"messages[{number}].role: {role!r} is not a role"
        if wrong := _chat_message(number, message):
            return wrong
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in open_calls:
                return (
                    f"messages[{number}]: messages with role 'tool' must be a response to a "
                    "preceding message with 'tool_calls'"
                )
            open_calls.remove(call_id)
            continue
        if open_calls:
            return (
                f"messages[{number}]: an assistant message with 'tool_calls' must be followed by "
                f"tool messages responding to each 'tool_call_id': {', '.join(open_calls)}"
            )
        open_calls = [call["id"] for call in message.get("tool_calls") or []]
        if len(set(open_calls)) != len(open_calls):
            return f"messages[{number}]: duplicate tool call ids"
    if open_calls:
        return f"tool calls without a result: {', '.join(open_calls)}"
    return ""


def _chat_message(number: int, message: dict[str, Any]) -> str:
    content = message.get("content")
    if message["role"] in {"user", "tool"} and not isinstance(content, str | list):
        return f"messages[{number}].content: must be a string or parts"
    if message["role"] == "user" and not content:
        return f"messages[{number}].content: must not be empty"
    if message["role"] == "assistant" and content is None and not message.get("tool_calls"):
        return f"messages[{number}]: content or tool_calls is required"
    for call in message.get("tool_calls") or []:
        if not isinstance(call.get("function", {}).get("arguments"), str):
            return f"messages[{number}]: arguments must be a string"
        if not call.get("id") or not call["function"].get("name"):
            return f"messages[{number}]: a tool call needs an id and a name"
    return ""


def _responses(body: dict[str, Any]) -> str:
    items = body.get("input")
    if not isinstance(items, list) or not items:
        return "input: must be a non-empty array"
    called: set[str] = set()
    answered: set[str] = set()
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            called.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in called:
                return f"input[{number}]: No tool call found for call_id {item['call_id']}"
            answered.add(item["call_id"])
        elif kind == "message" and item.get("role") not in {
            "user",
            "assistant",
            "system",
            "developer",
        }:
            return f"input[{number}].role: not a role"
    if missing := called - answered:
        return f"No tool output found for function call {', '.join(sorted(missing))}"
    return ""


def _anthropic(body: dict[str, Any]) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages: at least one message is required"
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    if messages[0].get("role") != "user":
        return "messages: first message must use the user role"
    if _breakpoints(body) > 4:
        return "A maximum of 4 blocks with cache_control may be provided"
    open_calls: list[str] = []
    previous = ""
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in {"user", "assistant"}:
            return f"messages.{number}.role: not a role"
        if role == previous:
            return f"messages.{number}: roles must alternate"
        previous = role
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        wrong, open_calls = _anthropic_message(number, role, blocks, open_calls)
        if wrong:
            return wrong
    return f"tool_use without tool_result: {open_calls}" if open_calls else ""


def _anthropic_message(
    number: int, role: str, blocks: list[dict[str, Any]], open_calls: list[str]
) -> tuple[str, list[str]]:
    if not blocks:
        return f"messages.{number}.content: must not be empty", []
    if any(b["type"] == "text" and not b["text"].strip() for b in blocks):
        return f"messages.{number}: text content blocks must contain non-whitespace text", []
    results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
    if sorted(results) != sorted(open_calls):
        return (
            f"messages.{number}: `tool_use` ids were found without `tool_result` blocks "
            f"immediately after: expected {open_calls}, got {results}"
        ), []
    kinds = [b["type"] == "tool_result" for b in blocks]
    if kinds != sorted(kinds, reverse=True):
        return f"messages.{number}: tool_result blocks must come first", []
    calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
    if calls and role != "assistant":
        return f"messages.{number}: tool_use blocks belong to the assistant", []
    return "", calls


def _breakpoints(body: dict[str, Any]) -> int:
    blocks: list[Any] = [*body.get("tools", [])]
    if isinstance(body.get("system"), list):
        blocks += body["system"]
    for message in body["messages"]:
        if isinstance(message["content"], list):
            blocks += message["content"]
    return sum("cache_control" in block for block in blocks)
