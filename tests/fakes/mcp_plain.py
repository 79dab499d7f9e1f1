"""An MCP server of the kind most people have: protocol 2025-11-25, JSON lines over pipes."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOLS = {
    "add": "Add two numbers.",
    "wipe": "Remove everything.",
    "surroundings": "Tell the variables of this process.",
    "leak": "Say something secret.",
    "die": "End this process.",
    "fail": "Fail.",
    "note": "Say what is to be done.",
    "order": "Ask the person.",
    "think": "Ask the model.",
    "grow": "Get one more tool.",
    "roots": "Ask for folders.",
    "sleep": "Take long.",
    "where": "Tell the directory.",
    "flood": "Say very much.",
}
HINTS = {"add": {"readOnlyHint": True}, "wipe": {"destructiveHint": True}}
NUMBER = {"type": "integer"}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(number: int, method: str, **params: Any) -> dict[str, Any]:
    send(id=f"s{number}", method=method, params=params)
    while True:
        message: dict[str, Any] = json.loads(sys.stdin.readline())
        if message.get("id") == f"s{number}":
            return message["result"] if "result" in message else {"error": message["error"]}


def call(number: int, tool: str, arguments: dict[str, Any]) -> str:
    if tool == "die":
        os._exit(1)
    if tool in PLAIN_ANSWERS:
        return str(PLAIN_ANSWERS[tool](arguments))
    if tool == "order":
        fields = {"size": {"type": "integer", "title": "Size"}, "gift": {"type": "boolean"}}
        schema = {"type": "object", "properties": fields}
        answer = ask(number, "elicitation/create", message="Which size?", requestedSchema=schema)
        return json.dumps([answer.get("action"), answer.get("content")])
    if tool == "think":
        message = {"role": "user", "content": {"type": "text", "text": "2+2?"}}
        answer = ask(number, "sampling/createMessage", messages=[message], maxTokens=9)
        return f"the model says {answer['content']['text']}" if "content" in answer else str(answer)
    if tool == "roots":
        return json.dumps(ask(number, "roots/list"))
    if tool == "sleep":
        time.sleep(30)
    if tool == "grow":
        TOOLS["shrink"] = "Get smaller."
        send(method="notifications/tools/list_changed")
    return f"{tool} done"


PLAIN_ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "add": lambda arguments: arguments["a"] + arguments["b"],
    "surroundings": lambda _: " ".join(os.environ),
    "leak": lambda _: "the key is topsecret-9f8e7d6c5b4a",
    "fail": lambda _: "not today",
    "where": lambda _: str(Path.cwd()),
    "note": lambda _: os.environ.get("PLANTED", "nothing"),
}


def flood(kind: str) -> dict[str, Any]:
    """Return an answer that nobody should decode."""
    part = {"type": "text", "text": "x"}
    match kind:
        case "parts":
            return {"content": [part] * 1001}
        case "values":
            return {"content": [part], "structuredContent": {"of": [1] * 60_000}}
        case "bytes":
            return {"content": [{"type": "text", "text": "x" * 9_000_000}]}
        case "deep":
            return {
                "content": [part],
                "structuredContent": {"of": json.loads("[" * 600 + "]" * 600)},
            }
        case "commas":
            return {"content": [{"type": "text", "text": "," * 100_000}]}
    return {"content": [part] * 300_000}


def answer_to(message: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
    if method == "tools/list":
        tools = []
        for name, description in TOOLS.items():
            fields: dict[str, Any] = {"a": NUMBER, "b": NUMBER} if name == "add" else {}
            if name == "flood":
                fields = {"kind": {"type": "string"}}
            schema = {"type": "object", "properties": fields}
            tool = {"name": name, "description": description, "inputSchema": schema}
            tools.append({**tool, **({"annotations": HINTS[name]} if name in HINTS else {})})
        return {"tools": tools}
    if method == "tools/call":
        if "HEARD" in os.environ:
            with Path(os.environ["HEARD"]).open("a") as heard_file:
                heard_file.write(json.dumps(params) + "\n")
        if params["name"] == "flood":
            return flood(params["arguments"]["kind"])
        text = call(message["id"], params["name"], params.get("arguments") or {})
        failed = params["name"] == "fail"
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    if method == "resources/list":
        return {"resources": [{"uri": "note://one", "name": "one"}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "remember the milk"}]}
    if method == "prompts/get":
        text = f"Say hello to {params['arguments']['name']}"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    return {} if method == "ping" else {"error": {"code": -32601, "message": "unknown method"}}


if len(sys.argv) > 1:
    Path(sys.argv[1]).write_text(str(os.getpid()))
for line in sys.stdin:
    heard = json.loads(line)
    if "id" not in heard or "method" not in heard:
        continue
    result = answer_to(heard)
    if "error" in result:
        send(id=heard["id"], error=result["error"])
    else:
        send(id=heard["id"], result=result)
