"""Compaction, counting, references and files in `/v1/responses`, with the `openai` package."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from fakes.http_door import KEY, HttpDoor
from fakes.http_responses import create, responses_door, user
from hermes.domain.messages import FilePart, InputKind, UserMessage, content_text
from hermes.domain.ports.model import ModelRequest
from hermes.testing.model import ScriptedModel, say


@asynccontextmanager
async def openai_at(
    folder: Path, model: ScriptedModel
) -> AsyncIterator[tuple[HttpDoor, AsyncOpenAI]]:
    async with responses_door(folder, model) as door:
        client = AsyncOpenAI(api_key=KEY, base_url=f"{door.base_url}/v1", max_retries=0)
        async with client, asyncio.timeout(20):
            yield door, client


def inputs(request: ModelRequest) -> list[str]:
    said = [each for each in request.messages if isinstance(each, UserMessage)]
    return [content_text(each.content) for each in said]


async def test_a_compacted_conversation_begins_the_next_input(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Ok."))
    async with openai_at(tmp_path, model) as (door, client):
        first = await client.responses.create(model="hermes", input="Launch on Tuesday.")
        door.side_calls.text = "Goal: launch on Tuesday."
        window = await client.responses.compact(
            model="hermes", previous_response_id=first.id, input="Support first."
        )
        assert window.object == "response.compaction"
        assert window.usage.total_tokens == 10
        said = door.side_calls.asked[0][2]
        assert [content_text(each.content) for each in said if isinstance(each, UserMessage)] == [
            "Launch on Tuesday.",
            "Support first.",
        ]
        kept: Any = [*(item.to_dict() for item in window.output), user("When?")]
        assert kept[0]["type"] == "compaction"
        await client.responses.create(model="hermes", input=kept)
        summary, asked = model.requests[-1].messages
        assert isinstance(summary, UserMessage)
        assert summary.kind is InputKind.SUMMARY
        assert "launch on Tuesday" in content_text(summary.content)
        assert isinstance(asked, UserMessage)
        assert asked.content == "When?"
        forged = [{"type": "compaction", "encrypted_content": "????"}, user("x")]
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="hermes", input=forged)  # type: ignore[arg-type]
        assert refused.value.param == "input[0].encrypted_content"
        for path in ("compact", "input_tokens"):
            body = {"model": "hermes", "input": "x", "previous_response_id": ""}
            answer = await door.client.post(f"/v1/responses/{path}", json=body)
            assert answer.status_code == 404
        answer = await door.client.post("/v1/responses/compact", json={"input": "x"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")


async def test_the_tokens_of_a_request_are_counted(tmp_path: Path) -> None:
    async with openai_at(tmp_path, ScriptedModel(default=say("Ok."))) as (_, client):
        short = await client.responses.input_tokens.count(model="hermes", input="Hi")
        long = await client.responses.input_tokens.count(
            model="hermes", input="word " * 400, instructions="Be brief."
        )
        assert 1000 < short.input_tokens < 1020
        assert 1500 < long.input_tokens < 1530
        made = await client.responses.create(model="hermes", input="word " * 400)
        later = await client.responses.input_tokens.count(
            model="hermes", input="Hi", previous_response_id=made.id
        )
        assert later.input_tokens > 1500


async def test_items_are_referred_to_by_their_ids(tmp_path: Path) -> None:
    model = ScriptedModel([say("Four."), say("Ok."), say("Ok.")])
    async with openai_at(tmp_path, model) as (door, client):
        first = await client.responses.create(model="hermes", input="2 + 2?")
        [asked] = [item async for item in client.responses.input_items.list(first.id)]
        references: Any = [
            {"type": "item_reference", "id": asked.id},
            {"id": first.output[0].id},
            user("Sure?"),
        ]
        await client.responses.create(model="hermes", input=references)
        assert inputs(model.requests[-1]) == ["2 + 2?", "Sure?"]
        assert "Four." in str(model.requests[-1].messages)
        with pytest.raises(openai.NotFoundError) as refused:
            await client.responses.create(
                model="hermes", input=[{"type": "item_reference", "id": "msg_nowhere_0"}]
            )
        assert refused.value.code == "item_not_found"
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        answer = await other.post("/v1/responses", json={"input": references})
        assert answer.status_code == 404


async def test_files_are_stored_and_named_by_their_path(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Ok."))
    async with openai_at(tmp_path, model) as (door, client):
        door.media.remote["https://example.org/a/plan.csv"] = (b"1,2", "text/csv")
        data = base64.b64encode(b"%PDF-1.7").decode()
        parts: Any = [
            {"type": "input_text", "text": "Read these"},
            {"type": "input_file", "filename": "a.pdf", "file_data": data},
            {"type": "input_file", "file_url": "https://example.org/a/plan.csv"},
        ]
        asked: Any = [user(parts)]
        made = await client.responses.create(model="hermes", input=asked)
        content = model.requests[-1].messages[-1].content  # type: ignore[union-attr]
        files = [part for part in content if isinstance(part, FilePart)]
        assert [part.name for part in files] == ["a.pdf", "plan.csv"]
        assert [data for data, _ in door.media.kept] == [b"%PDF-1.7", b"1,2"]
        assert [Path(part.path).parent for part in files] == [tmp_path / "media"] * 2
        [listed] = [item async for item in client.responses.input_items.list(made.id)]
        shown = [part["type"] for part in listed.to_dict()["content"]]  # type: ignore[attr-defined]
        assert shown == ["input_text", "input_file", "input_file"]
        uploaded: Any = [user([{"type": "input_file", "file_id": "file-1"}])]
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="hermes", input=uploaded)
        assert refused.value.param == "input[0].content[0].file_data"


async def test_the_agent_goes_on_from_its_own_words_and_from_instructions(tmp_path: Path) -> None:
    model = ScriptedModel(default=say(" four."))
    async with responses_door(tmp_path, model) as door:
        begun = {"type": "message", "role": "assistant", "content": "The answer is"}
        await create(door.client, input=[user("2 + 2?"), begun])
        assert str(model.requests[-1].messages[-1]).startswith("AssistantMessage(text='The answer")
        system = {"type": "message", "role": "system", "content": "Greet."}
        await create(door.client, input=[system])
        assert "Greet." in model.requests[-1].system
        assert inputs(model.requests[-1]) == [
            "The user has not said anything yet. Begin as your instructions say."
        ]
