"""`/v1/conversations`, with the `openai` package."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from fakes.core import ScriptedTools, returns
from fakes.http_door import KEY, HttpDoor
from fakes.http_responses import responses_door, user
from hermes.domain.ports.model import Model
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


@asynccontextmanager
async def openai_at(
    folder: Path, model: Model, **more: Any
) -> AsyncIterator[tuple[HttpDoor, AsyncOpenAI]]:
    async with responses_door(folder, model, **more) as door:
        client = AsyncOpenAI(api_key=KEY, base_url=f"{door.base_url}/v1", max_retries=0)
        async with client, asyncio.timeout(20):
            yield door, client


async def test_a_conversation_is_created_continued_listed_and_deleted(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Blue."))
    async with openai_at(tmp_path, model) as (door, client):
        system: Any = {"type": "message", "role": "system", "content": "Be brief."}
        before: Any = [system, user("I like blue."), {"role": "assistant", "content": "Noted."}]
        made = await client.conversations.create(items=before, metadata={"topic": "colours"})
        assert made.id.startswith("conv_")
        assert made.metadata == {"topic": "colours"}
        answer = await client.responses.create(model="hermes", input="Which?", conversation=made.id)
        assert answer.conversation is not None
        assert answer.conversation.id == made.id
        assert [str(each).count("blue") for each in model.requests[0].messages] == [1, 0, 0]
        assert "Be brief." in model.requests[0].system
        listed = [item async for item in client.conversations.items.list(made.id, order="asc")]
        said: list[Any] = [item.to_dict()["content"] for item in listed]
        texts = [content[0]["text"] for content in said]
        assert texts == ["Be brief.", "I like blue.", "Noted.", "Which?", "Blue."]
        changed = await client.conversations.update(made.id, metadata={"topic": "art"})
        assert changed.metadata == {"topic": "art"}
        assert (await client.conversations.retrieve(made.id)).metadata == {"topic": "art"}
        added: Any = [user("And red.")]
        [new] = (await client.conversations.items.create(made.id, items=added)).data
        seen = await client.conversations.items.retrieve(new.id or "", conversation_id=made.id)
        assert seen.to_dict() == new.to_dict()
        await client.conversations.items.delete(listed[1].id or "", conversation_id=made.id)
        await client.responses.create(model="hermes", input="Now?", conversation=made.id)
        assert "I like blue." not in str(model.requests[-1].messages)
        assert "And red." in str(model.requests[-1].messages)
        _, secret = await door.new_key("other")
        other = await door.with_key(secret)
        assert (await other.get(f"/v1/conversations/{made.id}")).status_code == 404
        assert (await client.conversations.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError) as gone:
            await client.responses.create(model="hermes", input="x", conversation=made.id)
        assert gone.value.code == "conversation_not_found"


async def test_system_messages_are_items_too(tmp_path: Path) -> None:
    model = ScriptedModel(default=say("Ay."))
    async with openai_at(tmp_path, model) as (_, client):
        made = await client.conversations.create(items=[user("Hi")])  # type: ignore[list-item]
        brief: Any = {"role": "developer", "content": "Be brief."}
        rude: Any = {"type": "message", "role": "system", "content": "Be rude."}
        [first] = (await client.conversations.items.create(made.id, items=[brief])).data
        both = await client.conversations.items.create(made.id, items=[rude, user("Well?")])  # type: ignore[list-item]
        listed = [item async for item in client.conversations.items.list(made.id, order="asc")]
        shown: list[Any] = [item.to_dict() for item in listed]
        assert [(each["role"], each["content"][0]["text"]) for each in shown] == [
            ("user", "Hi"),
            ("developer", "Be brief."),
            ("system", "Be rude."),
            ("user", "Well?"),
        ]
        assert shown[1] == first.to_dict()
        assert shown[2:] == [item.to_dict() for item in both.data]
        one = await client.conversations.items.retrieve(first.id or "", conversation_id=made.id)
        assert one.to_dict() == first.to_dict()
        await client.responses.create(model="hermes", input="So?", conversation=made.id)
        assert "Be brief.\n\nBe rude." in model.requests[-1].system
        await client.conversations.items.delete(listed[2].id or "", conversation_id=made.id)
        await client.responses.create(model="hermes", input="Now?", conversation=made.id)
        assert "Be brief." in model.requests[-1].system
        assert "Be rude." not in model.requests[-1].system
        left = [item async for item in client.conversations.items.list(made.id)]
        assert listed[2].id not in [item.id for item in left]


async def test_calls_are_items_and_go_with_their_results(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("read_file", returns("a file"))
    model = ScriptedModel([calls(call("read_file", path="a"), text="Looking."), say("Found.")])
    async with openai_at(tmp_path, model, tools=tools) as (_, client):
        # A name of the client's own choice is a conversation, too.
        await client.responses.create(model="hermes", input="Look", conversation="mine")
        listed = [item async for item in client.conversations.items.list("mine", order="asc")]
        kinds = [item.type for item in listed]
        assert kinds == ["message", "message", "mcp_call", "message"]
        done = listed[2].to_dict()
        assert (done["server_label"], done["output"]) == ("hermes", "a file")
        await client.conversations.items.delete(listed[2].id or "", conversation_id="mine")
        kept = [item async for item in client.conversations.items.list("mine", order="asc")]
        assert [item.type for item in kept] == ["message", "message"]
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.conversations.items.retrieve("msg_0", conversation_id="mine")
        assert unknown.value.code == "item_not_found"


async def test_a_conversation_at_work_is_not_changed(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([Reply(pieces=("Done.",), before=go)])
    async with openai_at(tmp_path, model) as (_, client):
        made = await client.conversations.create()
        async with asyncio.TaskGroup() as group:
            asked = client.responses.create(model="hermes", input="Hi", conversation=made.id)
            group.create_task(asked)
            await model.called(1)
            for change in (
                client.conversations.items.create(made.id, items=[user("x")]),  # type: ignore[list-item]
                client.conversations.delete(made.id),
            ):
                with pytest.raises(openai.ConflictError):
                    await change
            go.set()
