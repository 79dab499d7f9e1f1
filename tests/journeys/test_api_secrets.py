"""Secrets in requests to the API: nothing of the home keeps them."""

from pathlib import Path

from fakes.api_gateway import running_api
from fakes.model import FakeModelServer, Script, Step

VALUE = "correct-horse-battery-staple-99"
SHAPE = "ghp_" + "a1B2" * 9


async def test_no_part_of_a_request_leaves_a_secret_behind(tmp_path: Path) -> None:
    script = Script(default=Step(text="Noted."))
    words = f"keys: {VALUE} and {SHAPE}"
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": words}}}
    function = {"name": "look", "description": words, "parameters": schema}
    call = {"id": "call_1", "type": "function"}
    before = [
        {"role": "system", "content": words},
        {"role": "user", "content": words},
        {
            "role": "assistant",
            "content": words,
            "tool_calls": [
                {**call, "function": {"name": "look", "arguments": f'{{"a": "{words}"}}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": words},
        {"role": "user", "content": [{"type": "text", "text": words}]},
    ]
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]},
        {
            "type": "function_call",
            "call_id": "c",
            "name": "look",
            "arguments": f'{{"a": "{words}"}}',
        },
        {"type": "function_call_output", "call_id": "c", "output": words},
        {"type": "message", "role": "user", "content": words},
    ]
    metadata = {"note": words, VALUE: "a key"}
    async with (
        FakeModelServer(script) as model,
        running_api(tmp_path, model.base_url, variables={"VAULT_TOKEN": VALUE}) as gateway,
        gateway.client() as client,
    ):
        requests: list[tuple[str, dict[str, object]]] = [
            (
                "/v1/responses",
                {
                    "input": items,
                    "instructions": words,
                    "metadata": metadata,
                    "user": VALUE,
                    "tools": [{"type": "function", **function}],
                },
            ),
            (
                "/v1/chat/completions",
                {
                    "messages": before,
                    "metadata": metadata,
                    "store": True,
                    "user": VALUE,
                    "tools": [{"type": "function", "function": function}],
                },
            ),
            ("/v1/runs", {"input": words, "instructions": words, "metadata": metadata}),
            ("/api/sessions", {"title": f"About {words}", "system_prompt": words}),
        ]
        answers = [await client.post(path, json=body) for path, body in requests]
        assert [answer.status_code for answer in answers] == [200, 200, 202, 201]
        opened = answers[-1].json()["session"]["id"]
        changes = {"title": f"Of {words}", "end_reason": words}
        assert (await client.patch(f"/api/sessions/{opened}", json=changes)).status_code == 200
        await gateway.stop()
        found = [
            str(path.relative_to(gateway.hermes.home))
            for path in gateway.hermes.home.rglob("*")
            if path.is_file()
            and any(secret.encode() in path.read_bytes() for secret in (VALUE, SHAPE))
        ]
        assert found == []
