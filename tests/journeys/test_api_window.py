"""One gateway process: aliases of models, files in both directions, counting, a WebSocket."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from fakes.api_gateway import KEY, running_api
from fakes.model import Call, FakeModelServer, Rule, Script, Step

MAKE = "printf '\\x89PNG\\r\\n\\x1a\\n' > chart.png && echo $PWD/chart.png"


async def test_what_clients_can_use_of_a_gateway(tmp_path: Path) -> None:
    made = Step(calls=[Call(name="terminal", arguments={"command": MAKE})])
    script = Script(
        rules=[
            Rule(contains="draw", steps=[made, Step(text="Here:\nMEDIA:chart.png\n")]),
            Rule(contains="Remember slate", steps=[Step(text="Goal: slate.")]),
        ],
        default=Step(text="Ok."),
    )
    async with FakeModelServer(script) as model, FakeModelServer(script) as other:
        alias = {"model": "tiny-1", "base_url": other.base_url, "api_key": "sk-of-the-alias"}
        extra = {"key": KEY, "port": 0, "model_routes": {"fast": alias, "same": {"model": "m-2"}}}
        api = {"api_server": {"enabled": True, "extra": extra}}
        config: Any = {"platforms": api, "approvals": {"mode": "off"}}
        async with (
            asyncio.timeout(60),
            running_api(tmp_path, model.base_url, **config) as gateway,
            gateway.client() as client,
        ):
            names = [each["id"] for each in (await client.get("/v1/models")).json()["data"]]
            assert {"fast", "same"} < set(names)
            body = {"model": "fast", "messages": [{"role": "user", "content": "Hi"}]}
            answer = (await client.post("/v1/chat/completions", json=body)).json()
            assert answer["model"] == "fast"
            assert [each.body["model"] for each in other.requests] == ["tiny-1"]
            assert other.requests[0].key == "sk-of-the-alias"
            await client.post("/v1/responses", json={"model": "same", "input": "Hi"})
            assert model.requests[-1].body["model"] == "m-2"

            body = {"model": "hermes", "messages": [{"role": "user", "content": "draw"}]}
            drawn = (await client.post("/v1/chat/completions", json=body)).json()
            picture = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
            text = drawn["choices"][0]["message"]["content"]
            assert text == f"Here:\n\n\n![chart.png](data:image/png;base64,{picture})"

            file = {"filename": "plan.txt", "file_data": base64.b64encode(b"step one").decode()}
            part = {"type": "input_file", **file}
            await client.post(
                "/v1/responses", json={"input": [{"role": "user", "content": [part]}]}
            )
            told = json.dumps(model.requests[-1].body["messages"][-1])
            assert "step one" in told
            assert "plan" in told.split("step one")[0]

            counted = await client.post("/v1/responses/input_tokens", json={"input": "Hi"})
            assert counted.json()["input_tokens"] > 500
            packed = {"model": "hermes", "input": "Remember slate."}
            window = (await client.post("/v1/responses/compact", json=packed)).json()
            address = f"ws://127.0.0.1:{gateway.port}/v1/responses"
            headers = {"authorization": f"Bearer {KEY}"}
            async with connect(address, additional_headers=headers) as socket:
                asked = [*window["output"], {"role": "user", "content": "What?"}]
                await socket.send(json.dumps({"type": "response.create", "input": asked}))
                events: list[dict[str, Any]] = []
                while not events or events[-1]["type"] != "response.completed":
                    events.append(json.loads(await socket.recv()))
            assert "slate" in json.dumps(model.requests[-1].body["messages"])
