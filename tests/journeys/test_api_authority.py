"""Who may do what at the HTTP door: every endpoint, every kind of wrong key.

The matrix is made from the list of endpoints itself. Ann has one thing of each
kind behind the door; nobody else may see it, change it, learn that it is
there, or even make the ledger do other work than for a thing that is not.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from fakes.api_gateway import KEY, api_config, running_api
from fakes.authority import BODIES, ENDPOINTS, TITLE, WEATHER, WORDS, World, world
from fakes.http_door import bearer
from fakes.model import FakeModelServer
from hermes.domain.keys import Action
from hermes.domain.runs import RunQuery
from hermes.entry.http.access import OPEN_STATES
from hermes.entry.http.endpoint import Endpoint

GUARDED = [each for each in ENDPOINTS if not each.public]
WITH_THING = [each for each in GUARDED if "{" in each.path and each.tag != "Jobs"]
BY_NAME = {each.name: each for each in ENDPOINTS}
UNKNOWN = "never_seen_0123456789abcdef"
ALL = tuple(action for action in Action if action is not Action.ADMIN)
STARTING = ("createChatCompletion", "createResponse", "startRun")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("authority")) as made:
        yield made


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_every_endpoint_that_wants_a_body_has_one_to_be_tried_with() -> None:
    assert {each.name for each in ENDPOINTS if each.body is not None} == BODIES.keys()


def _nothing_of_ann(place: World, text: str, *, but: str = "") -> None:
    found = (re.search(rf"{re.escape(each)}(?![0-9a-f])", text) and each for each in place.secrets)
    shown = [each for each in found if each and each != but]
    assert not shown, f"{shown} in {text}"


async def test_all_bad_keys_get_the_same_401_for_the_same_work(place: World) -> None:
    before = await place.state()
    revoked = await place.key("revoked", *Action)
    await place.at.keys.revoke("revoked")
    _, expired = await place.at.new_key("expired", actions=tuple(Action), expires_in=0.01)
    await asyncio.sleep(0.02)
    presented: dict[str, dict[str, str]] = {
        "none": {},
        "wrong": bearer("wrong-key-0123456789"),
        "revoked": bearer(revoked),
        "expired": bearer(expired),
        "empty": {"authorization": "Bearer"},
        "basic": {"authorization": "Basic b3duZXI6b3duZXI="},
        "cut": bearer(revoked[:-1]),
        "hash": bearer("0" * 64),
        "long": bearer("x" * 8000),
        "other header": {"x-api-key": "wrong-key-0123456789"},
    }
    for endpoint in GUARDED:
        seen = {name: await place.send(endpoint, heads) for name, heads in presented.items()}
        unknown = await place.send(endpoint, {}, thing=UNKNOWN)
        first = seen["none"]
        assert first.status == 401, endpoint.name
        assert first.headers["www-authenticate"] == "Bearer"
        for name, one in {**seen, "unknown": unknown}.items():
            assert one.named("") == first.named(""), (endpoint.name, name)
        _nothing_of_ann(place, first.everything())
    assert await place.state() == before


async def test_what_needs_no_key_tells_nobody_anything(place: World) -> None:
    public = {each.name for each in ENDPOINTS if each.public}
    assert public == {"health", "healthV1", "ready", "getOpenApi", "getDocs", "getStart"}
    for name in public:
        seen = await place.send(BY_NAME[name], {})
        assert (seen.status, seen.asked) == (302 if name == "getStart" else 200, [])
        _nothing_of_ann(place, seen.everything())


async def test_a_key_without_the_action_is_refused_before_anything_is_looked_at(
    place: World,
) -> None:
    before = await place.state()
    without: dict[Action, str] = {
        action: await place.key(f"no-{action}", *(each for each in ALL if each is not action))
        for action in ALL
    }
    plain = await place.send(BY_NAME["listModels"], bearer(without[Action.RUN]))
    assert plain.status == 200
    for endpoint in GUARDED:
        if endpoint.action is None:
            continue
        heads = bearer(without[endpoint.action])
        seen = await place.send(endpoint, heads)
        unknown = await place.send(endpoint, heads, thing=UNKNOWN)
        assert seen.status == 403, endpoint.name
        assert f"`{endpoint.action}`" in seen.text
        assert seen.asked == plain.asked
        assert seen.named("") == unknown.named("")
        _nothing_of_ann(place, seen.everything())
    assert await place.state() == before


async def test_what_is_anothers_is_like_what_is_not_there(place: World) -> None:
    before = await place.state()
    key = await place.key("bob", *ALL)
    for endpoint in WITH_THING:
        if endpoint.name == "getModel":
            continue
        own = _thing(place, endpoint)
        foreign = await place.send(endpoint, bearer(key))
        unknown = await place.send(endpoint, bearer(key), thing=UNKNOWN)
        assert foreign.status == 404, (endpoint.name, foreign.text)
        assert foreign.named(own) == unknown.named(UNKNOWN), endpoint.name
        _nothing_of_ann(place, foreign.everything(), but=own)
    assert await place.state() == before


def _thing(place: World, endpoint: Endpoint) -> str:
    return next(value for name, value in place.things.items() if f"{{{name}}}" in endpoint.path)


async def test_a_key_for_another_agent_reaches_nothing_of_this_one(place: World) -> None:
    before = await place.state()
    for number, actions in enumerate((ALL, tuple(Action))):
        key = await place.key(f"elsewhere-{number}", *actions, agents=("other",))
        for endpoint in GUARDED:
            if "{" not in endpoint.path and endpoint.method == "GET":
                continue
            seen = await place.send(endpoint, bearer(key))
            unknown = await place.send(endpoint, bearer(key), thing=UNKNOWN)
            own = _thing(place, endpoint) if "{" in endpoint.path else UNKNOWN
            assert seen.status == 404, (endpoint.name, seen.text)
            assert seen.named(own) == unknown.named(UNKNOWN), endpoint.name
    assert await place.state() == before


@pytest.mark.parametrize("agents", [(), ("main",), ("other",)])
async def test_lists_and_searches_end_where_the_reach_of_a_key_ends(
    place: World, agents: tuple[str, ...]
) -> None:
    ordinary = (Action.RUN, Action.SESSIONS, Action.APPROVE)
    name = f"lists-{'-'.join(agents) or 'all'}"
    client = await place.at.with_key(await place.key(name, *ordinary, agents=agents))
    session_id = place.things["session_id"]
    for path, params in (
        ("/v1/runs", {}),
        ("/v1/runs", {"session_id": session_id}),
        ("/v1/runs", {"status": "waiting_for_approval"}),
        ("/v1/runs", {"offset": "1", "limit": "1"}),
        ("/v1/approvals", {}),
        ("/api/sessions", {}),
        ("/api/sessions", {"q": TITLE, "include_children": "true"}),
        ("/api/sessions", {"source": "api_server", "offset": "1"}),
        ("/api/sessions/search", {"q": WORDS}),
        ("/api/sessions/search", {"q": "Play", "newest_first": "true"}),
    ):
        answer = await client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        assert answer.json()["data"] == []
        assert not answer.json().get("has_more")
        _nothing_of_ann(place, answer.text + str(answer.headers), but=session_id)
    for path in ("/v1/models", "/v1/toolsets", "/v1/skills", "/v1/capabilities"):
        answer = await client.get(path)
        _nothing_of_ann(place, answer.text + str(answer.headers))
        if agents == ("other",):
            assert "scripted-1" not in answer.text


async def test_the_approvals_of_others_cost_a_key_no_work(place: World) -> None:
    endpoint = BY_NAME["listApprovals"]
    key = await place.key("approver")
    with_anns = await place.send(endpoint, bearer(key))
    owner = await place.send(endpoint, bearer())
    assert place.things["approval_id"] in owner.text
    assert with_anns.asked.count("session") == 0
    assert with_anns.asked.count("pending_approvals") == 0


def _selections(place: World) -> list[tuple[str, dict[str, str], dict[str, Any], str]]:
    """Ways to name a run or response of Ann's in a request that starts a turn."""
    response, run = place.things["response_id"], place.things["run_id"]
    return [
        ("startRun", {}, {"previous_response_id": run}, run),
        ("startRun", {}, {"previous_response_id": response}, response),
        ("createResponse", {}, {"previous_response_id": response}, response),
        ("createResponse", {}, {"previous_response_id": run}, run),
    ]


async def test_naming_what_is_anothers_in_a_request_is_naming_nothing(place: World) -> None:
    before = await place.state()
    key = await place.key("namer")
    for name, heads, more, own in _selections(place):
        seen = []
        for thing in (own, UNKNOWN):
            named = {k: v.replace(own, thing) for k, v in heads.items()}
            body = BODIES[name] | {k: v.replace(own, thing) for k, v in more.items()}
            seen.append(await place.send(BY_NAME[name], bearer(key) | named, body=body))
        foreign, unknown = seen
        assert foreign.status == 404, (name, heads, more, foreign.text)
        assert foreign.named(own) == unknown.named(UNKNOWN), (name, heads, more)
    assert await place.state() == before


async def test_the_session_of_another_key_is_out_of_reach(place: World) -> None:
    before = await place.state()
    key, own = await place.key("reacher"), place.things["session_id"]
    ways: list[tuple[str, dict[str, str], dict[str, Any]]] = [
        (name, {"X-Hermes-Session-Id": own}, {}) for name in STARTING
    ]
    for name, heads, more in [*ways, ("startRun", {}, {"session_id": own})]:
        seen = await place.send(BY_NAME[name], bearer(key) | heads, body=BODIES[name] | more)
        # Where an id that is new opens a session, this one does: for this key.
        expected = 404 if name == "startRun" else 200
        assert seen.status == expected, (name, heads, more, seen.text)
        _nothing_of_ann(place, seen.everything(), but=own)
    assert await place.state() == before


@pytest.mark.parametrize(
    ("name", "heads", "more"),
    [
        *((name, {"X-Hermes-Session-Key": "kitchen"}, {}) for name in STARTING),
        *((name, {"Idempotency-Key": "once"}, {}) for name in STARTING),
        ("createResponse", {}, {"conversation": "kitchen"}),
    ],
)
async def test_the_names_that_clients_choose_are_those_of_their_key(
    place: World, name: str, heads: dict[str, str], more: dict[str, Any]
) -> None:
    keys = [
        await place.key(
            f"names-{which}-{name}-{len(heads)}-{len(more)}-{list(heads)}"[:60].translate(
                {ord(c): "" for c in "[]' "}
            )
        )
        for which in "ab"
    ]
    mine = {each: set[str]() for each in keys}
    for _ in range(2):
        for key in keys:
            heads_now = {k: f"{v}-{name}" for k, v in heads.items()}
            seen = await place.send(
                BY_NAME[name], bearer(key) | heads_now, body=BODIES[name] | more
            )
            assert seen.status in {200, 202}, seen.text
            client = await place.at.with_key(key)
            runs = (await client.get("/v1/runs")).json()["data"]
            mine[key] = {run["session_id"] for run in runs}
    assert all(len(sessions) == 1 for sessions in mine.values())
    assert len(set().union(*mine.values())) == 2


@pytest.mark.parametrize("name", STARTING)
async def test_the_result_of_anothers_tool_call_goes_nowhere(place: World, name: str) -> None:
    before = await place.state()
    key = await place.key(f"results-{name}")
    own_keys = {run.key_id for run in await place.at.ledger.runs(RunQuery(states=OPEN_STATES))}
    seen = []
    for call_id in (place.call_id, "call_nobody_made"):
        call = {"id": call_id, "type": "function", "function": {"name": "weather"}}
        chat = [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "hail"},
        ]
        items = [
            {"type": "message", "role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": call_id, "output": "hail"},
        ]
        body = {"messages": chat, "tools": [WEATHER]} if "Chat" in name else {"input": items}
        answer = await place.send(BY_NAME[name], bearer(key), body=body)
        assert answer.status in {200, 202}, answer.text
        _nothing_of_ann(place, answer.everything(), but=place.call_id)
        seen.append(answer)
        for run in await place.at.ledger.runs(RunQuery(states=OPEN_STATES)):
            # Its turn must not be at work any more when the next request is watched.
            if run.key_id not in own_keys:
                async with asyncio.timeout(10):
                    await place.at.runs.wait(run)
    # The turn runs on beside the request; what is asked before it begins is the same.
    assert seen[0].asked[:4] == seen[1].asked[:4]
    assert await place.state() == before


async def test_an_approval_cannot_be_answered_by_way_of_an_own_run(place: World) -> None:
    client = await place.at.with_key(await place.key("sly"))
    own = (await client.post("/v1/runs", json={"input": "Hi"})).json()["run_id"]
    answers = [
        await client.post(f"/v1/runs/{own}/approval", json={"choice": "once", "approval_id": each})
        for each in (place.things["approval_id"], UNKNOWN)
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].text == answers[1].text
    approval = await place.at.ledger.approval(place.things["approval_id"])
    assert approval is not None
    assert approval.decision is None


async def test_a_title_of_another_key_may_be_used_and_its_id_says_only_that(
    place: World,
) -> None:
    client = await place.at.with_key(await place.key("titles"))
    made = await client.post("/api/sessions", json={"title": TITLE})
    assert made.status_code == 201
    assert made.json()["session"]["title"] == TITLE
    again = await client.post("/api/sessions", json={"title": TITLE})
    assert again.json()["error"]["code"] == "title_taken"
    taken = await client.post("/api/sessions", json={"id": place.things["session_id"]})
    own = await client.post("/api/sessions", json={"id": made.json()["session"]["id"]})
    assert taken.status_code == own.status_code == 409
    blotted = taken.text.replace(place.things["session_id"], "<id>")
    assert blotted == own.text.replace(made.json()["session"]["id"], "<id>")


async def test_a_revoked_key_is_refused_with_the_next_request(place: World) -> None:
    key = await place.key("leaver")
    client = await place.at.with_key(key)
    run_id = (await client.post("/v1/runs", json={"input": "Hi"})).json()["run_id"]
    assert (await client.get(f"/v1/runs/{run_id}")).status_code == 200
    await place.at.keys.revoke("leaver")
    for endpoint in GUARDED:
        assert (await place.send(endpoint, bearer(key))).status == 401


async def test_a_changed_owner_key_counts_without_a_restart(tmp_path: Path) -> None:
    new = "another-key-long-enough-9876"
    async with (
        FakeModelServer() as model,
        running_api(tmp_path, model.base_url, platforms=_api(KEY)) as gateway,
    ):
        async with gateway.client(KEY) as old, gateway.client(new) as fresh:
            assert (await old.get("/v1/models")).status_code == 200
            for key, good in ((new, True), ("changeme", False)):
                _configure(tmp_path / "home" / "config.yaml", model.base_url, key)
                wanted = 200 if good else 401
                async with asyncio.timeout(15):
                    while (await fresh.get("/v1/models")).status_code != wanted:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                assert (await old.get("/v1/models")).status_code == 401
                async with gateway.client(key) as presented:
                    assert (await presented.get("/v1/models")).status_code == wanted


def _api(key: str) -> dict[str, Any]:
    extra = {"key": key, "port": 0, "max_auth_failures": 1_000_000}
    return {"api_server": {"enabled": True, "extra": extra}}


def _configure(file: Path, model_url: str, key: str) -> None:
    model = {"provider": "custom", "default": "fake-1", "base_url": model_url}
    document = {"model": model, **api_config(platforms=_api(key))}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
