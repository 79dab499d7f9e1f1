"""How the fake model server says a step in each of the three wire protocols."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from fakes.model_script import Call, Counts, Step

__all__ = ["document", "error_body", "frames"]

_ids = itertools.count(1)


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _call_id(call: Call) -> str:
    return f"call_{next(_ids)}" if call.id is None else call.id


def _sse(data: dict[str, Any], event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def frames(protocol: str, step: Step, model: str) -> Iterator[bytes]:
    """Yield the events of a streamed answer; the last one ends it."""
    match protocol:
        case "chat":
            yield from _chat_frames(step, model)
        case "responses":
            yield from _responses_frames(step, model)
        case _:
            yield from _anthropic_frames(step, model)


def document(protocol: str, step: Step, model: str) -> dict[str, Any]:
    """Return the answer to a request that does not stream."""
    match protocol:
        case "chat":
            return _chat_document(step, model)
        case "responses":
            return _response(step, model, _response_items(step), "completed")
        case _:
            return _anthropic_document(step, model)


def error_body(protocol: str, status: int, message: str, code: str = "") -> dict[str, Any]:
    if protocol == "anthropic":
        usual = {400: "invalid_request_error", 401: "authentication_error"}
        kind = code or usual.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": code or "error", "code": code or status}}


# chat completions


def _chat_usage(counts: Counts) -> dict[str, Any]:
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        "prompt_tokens_details": {
            "cached_tokens": counts.cache_read,
            "cache_write_tokens": counts.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


def _finish(step: Step) -> str:
    return step.finish or ("tool_calls" if step.calls else "stop")


def _chat_chunk(model: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _sse(
        {
            "id": "chatcmpl-fake",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
    )


def _chat_frames(step: Step, model: str) -> Iterator[bytes]:
    yield _chat_chunk(model, {"role": "assistant", "content": ""})
    for piece in _pieces(step.reasoning, step.piece_chars):
        yield _chat_chunk(model, {"reasoning_content": piece})
    for piece in _pieces(step.text, step.piece_chars):
        yield _chat_chunk(model, {"content": piece})
    for index, call in enumerate(step.calls):
        head: dict[str, Any] = {
            "index": index,
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        if call_id := _call_id(call):
            head["id"] = call_id
        yield _chat_chunk(model, {"tool_calls": [head]})
        for piece in _pieces(_arguments(call), 16):
            part = {"index": index, "function": {"arguments": piece}}
            yield _chat_chunk(model, {"tool_calls": [part]})
    yield _chat_chunk(model, {}, _finish(step))
    if step.usage is not None:
        yield _sse({"model": model, "choices": [], "usage": _chat_usage(step.usage)})
    yield b"data: [DONE]\n\n"


def _chat_document(step: Step, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if step.reasoning:
        message["reasoning_content"] = step.reasoning
    if step.calls:
        message["tool_calls"] = [
            {
                "id": _call_id(call),
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in step.calls
        ]
    answer: dict[str, Any] = {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(step)}],
    }
    if step.usage is not None:
        answer["usage"] = _chat_usage(step.usage)
    return answer


# responses


def _response_items(step: Step) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if step.reasoning:
        items.append(
            {
                "id": "rs_1",
                "type": "reasoning",
                "encrypted_content": "gAAAAfake",
                "summary": [{"type": "summary_text", "text": step.reasoning}],
            }
        )
    if step.text:
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        items.append(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    for call in step.calls:
        items.append(
            {
                "id": f"fc_{next(_ids)}",
                "type": "function_call",
                "call_id": _call_id(call),
                "name": call.name,
                "arguments": _arguments(call),
                "status": "completed",
            }
        )
    return items


def _response(step: Step, model: str, items: list[dict[str, Any]], status: str) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "id": "resp_fake",
        "object": "response",
        "status": status,
        "model": model,
        "output": items,
        "incomplete_details": None,
    }
    cut_off = {"length": "max_output_tokens", "content_filter": "content_filter"}
    if step.finish in cut_off:
        answer["status"] = "incomplete"
        answer["incomplete_details"] = {"reason": cut_off[step.finish]}
    if step.usage is not None:
        answer["usage"] = {
            "input_tokens": step.usage.input,
            "input_tokens_details": {"cached_tokens": step.usage.cache_read},
            "output_tokens": step.usage.output,
            "output_tokens_details": {"reasoning_tokens": step.usage.reasoning},
        }
    return answer


def _responses_frames(step: Step, model: str) -> Iterator[bytes]:
    numbers = itertools.count()

    def event(kind: str, **fields: Any) -> bytes:
        return _sse({"type": kind, "sequence_number": next(numbers), **fields}, kind)

    items = _response_items(step)
    yield event("response.created", response=_response(step, model, [], "in_progress"))
    for index, item in enumerate(items):
        begun = {**item, "content": []} if item["type"] == "message" else item
        yield event("response.output_item.added", output_index=index, item=begun)
        kind, text = {
            "reasoning": ("response.reasoning_summary_text.delta", step.reasoning),
            "message": ("response.output_text.delta", step.text),
            "function_call": (
                "response.function_call_arguments.delta",
                item.get("arguments", ""),
            ),
        }[item["type"]]
        for piece in _pieces(text, step.piece_chars):
            yield event(kind, output_index=index, item_id=item["id"], delta=piece)
        yield event("response.output_item.done", output_index=index, item=item)
    final = _response(step, model, items, "completed")
    yield event(f"response.{final['status']}", response=final)


# anthropic


def _anthropic_stop(step: Step) -> str:
    words = {"length": "max_tokens", "content_filter": "refusal"}
    return words.get(step.finish, step.finish) or ("tool_use" if step.calls else "end_turn")


def _anthropic_usage(counts: Counts) -> dict[str, Any]:
    return {
        "input_tokens": counts.input - counts.cache_read - counts.cache_write,
        "cache_read_input_tokens": counts.cache_read,
        "cache_creation_input_tokens": counts.cache_write,
        "output_tokens": 1,
    }


def _anthropic_blocks(step: Step) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if step.reasoning:
        blocks.append({"type": "thinking", "thinking": step.reasoning, "signature": "c2ln"})
    if step.text:
        blocks.append({"type": "text", "text": step.text})
    for call in step.calls:
        blocks.append(
            {
                "type": "tool_use",
                "id": _call_id(call),
                "name": call.name,
                "input": call.arguments,
            }
        )
    return blocks


def _anthropic_document(step: Step, model: str) -> dict[str, Any]:
    usage = (
        {**_anthropic_usage(step.usage), "output_tokens": step.usage.output} if step.usage else {}
    )
    return {
        "id": "msg_fake",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _anthropic_blocks(step),
        "stop_reason": _anthropic_stop(step),
        "usage": usage,
    }


def _anthropic_frames(step: Step, model: str) -> Iterator[bytes]:
    usage = _anthropic_usage(step.usage) if step.usage else {}
    start = {"id": "msg_fake", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield _sse({"type": "message_start", "message": start}, "message_start")
    yield _sse({"type": "ping"}, "ping")
    for index, block in enumerate(_anthropic_blocks(step)):
        yield from _anthropic_block(index, block, step.piece_chars)
    output = {"output_tokens": step.usage.output} if step.usage else {}
    delta = {"stop_reason": _anthropic_stop(step), "stop_sequence": None}
    yield _sse({"type": "message_delta", "delta": delta, "usage": output}, "message_delta")
    yield _sse({"type": "message_stop"}, "message_stop")


def _anthropic_block(index: int, block: dict[str, Any], size: int) -> Iterator[bytes]:
    deltas: list[dict[str, Any]]
    match block["type"]:
        case "text":
            begun: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": p} for p in _pieces(block["text"], size)]
        case "thinking":
            begun = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": p} for p in _pieces(block["thinking"], size)
            ]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case _:
            begun = {**block, "input": {}}
            text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in _pieces(text, 16)]
    yield _sse(
        {"type": "content_block_start", "index": index, "content_block": begun},
        "content_block_start",
    )
    for delta in deltas:
        yield _sse(
            {"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta"
        )
    yield _sse({"type": "content_block_stop", "index": index}, "content_block_stop")
