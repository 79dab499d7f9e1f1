"""`/api/sessions` through the door: opened, listed, searched, changed, forked, deleted."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.core import ScriptedTools, returns
from fakes.http_runs import Door, door
from hermes.domain.keys import Action
from hermes.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from hermes.domain.session import Lineage, NewSession, StoredMessage
from hermes.entry.http.api.sessions import cut_after
from hermes.entry.http.errors import Problem
from hermes.testing.model import Reply, ScriptedModel, call, calls, say


async def opened(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/api/sessions", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["object"] == "hermes.session"
    session: dict[str, Any] = answer.json()["session"]
    return session


async def chat(client: httpx2.AsyncClient, session_id: str, text: str) -> dict[str, Any]:
    answer = await client.post(f"/api/sessions/{session_id}/chat", json={"message": text})
    assert answer.status_code == 200, answer.text
    value: dict[str, Any] = answer.json()
    return value


async def foreign(at: Door, session_id: str, **more: Any) -> None:
    """Open a session at another door."""
    await at.ledger.create_session(
        NewSession(id=session_id, agent_id="main", source="telegram", started_at=1.0, **more)
    )


async def test_a_session_is_opened_with_an_id_of_its_own_or_the_clients(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel([])) as at:
        made = await opened(at.owner)
        assert re.fullmatch(r"api_\d+_[0-9a-f]{8}", made["id"])
        assert (made["source"], made["model"]) == ("api_server", "hermes")
        chosen = await opened(at.owner, id="my-session", title="Plans", model="main")
        assert (chosen["id"], chosen["title"]) == ("my-session", "Plans")
        again = await at.owner.post("/api/sessions", json={"session_id": "my-session"})
        assert again.status_code == 409
        assert again.json()["error"]["code"] == "session_exists"
        titled = await at.owner.post("/api/sessions", json={"title": "Plans"})
        assert titled.status_code == 400
        assert titled.json()["error"]["code"] == "title_taken"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": "../etc"}, 400),
        ({"id": "a b"}, 400),
        ({"id": ""}, 400),
        ({"id": "a\n"}, 400),
        ({"id": "x" * 129}, 400),
        ({"id": "search"}, 400),
        ({"id": "a", "session_id": "b"}, 400),
        ({"title": "\u200b"}, 400),
        ({"model": "gpt-9"}, 404),
    ],
)
async def test_what_cannot_be_a_session_is_refused(
    tmp_path: Path, body: dict[str, Any], status: int
) -> None:
    async with door(tmp_path, ScriptedModel([])) as at:
        answer = await at.owner.post("/api/sessions", json=body)
        assert answer.status_code == status, answer.text
        listed = await at.owner.get("/api/sessions", params={"source": "api_server"})
        assert listed.json()["data"] == []


async def test_sessions_are_listed_in_pages_without_delegated_ones(tmp_path: Path) -> None:
    async with door(tmp_path, model=ScriptedModel([])) as at:
        ids = [(await opened(at.owner, title=f"Number {n}"))["id"] for n in range(3)]
        await foreign(at, "child", parent_id=ids[0], lineage=Lineage.DELEGATION)
        await foreign(at, "branch", parent_id=ids[0], lineage=Lineage.BRANCH)
        page = (await at.owner.get("/api/sessions", params={"limit": 2})).json()
        assert [each["id"] for each in page["data"]] == [ids[2], ids[1]]
        assert (page["limit"], page["offset"], page["has_more"]) == (2, 0, True)
        rest = (await at.owner.get("/api/sessions", params={"limit": 9, "offset": 2})).json()
        assert [each["id"] for each in rest["data"]] == [
            ids[0],
            at.behind.core.session.id,
            "branch",
        ]
        assert not rest["has_more"]
        for params, found in (
            ({"include_children": "true", "source": "telegram"}, {"child", "branch"}),
            ({"q": "number 1"}, {ids[1]}),
        ):
            data = (await at.owner.get("/api/sessions", params=params)).json()["data"]
            assert {each["id"] for each in data} == found
        for wrong in ({"limit": 0}, {"limit": 201}, {"offset": -1}, {"limit": "many"}):
            assert (await at.owner.get("/api/sessions", params=wrong)).status_code == 400


async def test_a_session_is_renamed_and_ended(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel([])) as at:
        first, second = await opened(at.owner), await opened(at.owner, title="Taken")
        path = f"/api/sessions/{first['id']}"
        changed = await at.owner.patch(path, json={"title": "Mine", "end_reason": "user_exit"})
        session = changed.json()["session"]
        assert (session["title"], session["end_reason"]) == ("Mine", "user_exit")
        assert session["ended_at"] is not None
        assert (await at.owner.get(path)).json()["session"]["title"] == "Mine"
        taken = await at.owner.patch(path, json={"title": second["title"]})
        assert (taken.status_code, taken.json()["error"]["code"]) == (400, "title_taken")
        assert (await at.owner.patch(path, json={})).status_code == 400


async def test_a_session_is_deleted_but_not_while_it_works(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with door(tmp_path, ScriptedModel([Reply(pieces=("ok",), before=go)])) as at:
        session = await opened(at.owner)
        path = f"/api/sessions/{session['id']}"
        run_id = await at.start(input="x", session_id=session["id"])
        await at.until(run_id, "run.started")
        busy = await at.owner.delete(path)
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "session_busy")
        go.set()
        await at.ended(run_id)
        assert (await at.owner.delete(path)).json()["deleted"] is True
        assert (await at.owner.get(path)).status_code == 404
        assert (await at.owner.delete(path)).status_code == 404


async def test_messages_are_shown_like_in_chat_completions_in_pages(tmp_path: Path) -> None:
    tools = ScriptedTools()
    tools.add("look", returns("seen"))
    model = ScriptedModel([calls(call("look", "c1"), text="Looking."), say("Done.")])
    async with door(tmp_path, model, tools=tools) as at:
        session = await opened(at.owner)
        await chat(at.owner, session["id"], "look around")
        path = f"/api/sessions/{session['id']}/messages"
        data = (await at.owner.get(path)).json()["data"]
        assert [message["role"] for message in data] == ["user", "assistant", "tool", "assistant"]
        assert data[0]["content"] == "look around"
        assert data[1]["tool_calls"][0]["function"]["name"] == "look"
        assert (data[2]["tool_call_id"], data[2]["content"]) == (
            data[1]["tool_calls"][0]["id"],
            "seen",
        )
        assert all(message["active"] for message in data)
        assert [m["seq"] for m in data] == sorted(m["seq"] for m in data)
        page = (await at.owner.get(path, params={"limit": 1, "offset": 1})).json()
        assert (page["data"], page["has_more"]) == ([data[1]], True)
        shown = (await at.owner.get(f"/api/sessions/{session['id']}")).json()["session"]
        assert (shown["message_count"], shown["tool_call_count"]) == (4, 1)
        assert (shown["input_tokens"], shown["preview"]) == (20, "look around")


async def test_a_fork_has_the_history_up_to_a_message_and_leaves_the_original(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([say("One."), say("Two."), say("Fork.")])
    async with door(tmp_path, model) as at:
        session = await opened(at.owner, system_prompt="Speak Latin.")
        for text in ("first", "second"):
            await chat(at.owner, session["id"], text)
        path = f"/api/sessions/{session['id']}"
        before = (await at.owner.get(f"{path}/messages")).json()["data"]
        answer = await at.owner.post(
            f"{path}/fork", json={"title": "Other way", "through": before[1]["seq"]}
        )
        assert answer.status_code == 201
        fork = answer.json()["session"]
        assert (fork["parent_session_id"], fork["title"]) == (session["id"], "Other way")
        params = {"active_only": True}
        kept = (await at.owner.get(f"/api/sessions/{fork['id']}/messages", params=params)).json()
        assert [message["content"] for message in kept["data"]] == ["first", "One."]
        await chat(at.owner, fork["id"], "third")
        assert len(model.requests[2].messages) == 3
        assert "Speak Latin." in str(model.requests[2])
        assert (await at.owner.get(f"{path}/messages")).json()["data"] == before
        whole = (await at.owner.post(f"{path}/fork", json={})).json()["session"]
        assert whole["message_count"] == 4


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 30))
def test_a_fork_never_parts_a_call_from_its_results(turns: list[int], through: int) -> None:
    messages: list[Message] = []
    for results in turns:
        messages += [UserMessage(content="x"), AssistantMessage(text="y")]
        messages += [ToolMessage(call_id=str(n), name="t", content="z") for n in range(results)]
    history = [
        StoredMessage(id=n, session_id="s", turn_id=None, seq=n, at=0.0, message=message)
        for n, message in enumerate(messages, 1)
    ]
    cut = cut_after(history, through)
    rest = [stored for stored in history if stored.seq > cut]
    assert not rest or not isinstance(rest[0].message, ToolMessage)
    assert cut >= min(through, len(history))


def test_a_fork_before_the_first_message_is_refused() -> None:
    message = UserMessage(content="x")
    stored = StoredMessage(id=1, session_id="s", turn_id=None, seq=5, at=0.0, message=message)
    with pytest.raises(Problem):
        cut_after([stored], 4)


async def test_sessions_of_others_do_not_exist_for_a_key(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel(default=say("ok"))) as at:
        mine, theirs = await at.key("mine"), await at.key("theirs")
        own = await opened(mine, title="Mine")
        await foreign(at, "telegram-1", user_id="7")
        await foreign(at, "telegram-2", user_id=f"key:{(await _key_id(at, 'theirs'))}")
        ids = (own["id"], "telegram-1", "telegram-2")
        for session_id in ids:
            for method, rest, body in (
                ("GET", "", None),
                ("PATCH", "", {"title": "x"}),
                ("DELETE", "", None),
                ("GET", "/messages", None),
                ("POST", "/fork", {}),
                ("POST", "/chat", {"message": "x"}),
                ("POST", "/chat/stream", {"message": "x"}),
            ):
                path = f"/api/sessions/{session_id}{rest}"
                answer = await theirs.request(method, path, json=body)
                missing = await theirs.request(method, f"/api/sessions/nope{rest}", json=body)
                assert answer.status_code == missing.status_code == 404, path
                assert answer.json() == missing.json()
            body = {"input": "x", "session_id": session_id}
            assert (await theirs.post("/v1/runs", json=body)).status_code == 404
        for params in ({}, {"source": "telegram"}, {"q": "Mine"}, {"include_children": True}):
            page = (await theirs.get("/api/sessions", params=params)).json()
            assert (page["data"], page["has_more"]) == ([], False)
        boss = await at.key("boss", Action.ADMIN)
        seen = {each["id"] for each in (await boss.get("/api/sessions")).json()["data"]}
        assert set(ids) <= seen


async def _key_id(at: Door, name: str) -> str:
    return next(key.id for key in await at.ledger.keys() if key.name == name)


async def test_search_finds_only_what_the_key_may_read(tmp_path: Path) -> None:
    async with door(tmp_path, model=ScriptedModel(default=say("Noted."))) as at:
        mine, theirs = await at.key("mine"), await at.key("theirs")
        own, other = await opened(mine), await opened(theirs)
        for number in range(5):
            await chat(theirs, other["id"], f"the walrus number {number}")
        await chat(mine, own["id"], "a walrus of mine")
        for limit in (1, 20):
            params = {"q": "walrus", "limit": str(limit)}
            hits = (await mine.get("/api/sessions/search", params=params)).json()["data"]
            assert [hit["session_id"] for hit in hits] == [own["id"]]
            assert "[walrus]" in hits[0]["snippet"]
        both = (await at.owner.get("/api/sessions/search", params={"q": "walrus"})).json()["data"]
        assert len(both) == 6
        assert (await at.owner.get("/api/sessions/search", params={"q": ""})).status_code == 400


async def test_system_prompts_and_places_are_for_administrators(tmp_path: Path) -> None:
    async with door(tmp_path, ScriptedModel([say("ok")])) as at:
        mine = await at.key("mine")
        session = await opened(mine, system_prompt="The password is swordfish.")
        await chat(mine, session["id"], "hi")
        path = f"/api/sessions/{session['id']}"
        for answer in (await mine.get(path), await mine.get("/api/sessions")):
            assert "swordfish" not in answer.text
            assert 'system_prompt":' not in answer.text.replace("has_system_prompt", "")
            assert "cwd" not in answer.text
        assert (await at.owner.get(path)).json()["session"]["system_prompt"]
