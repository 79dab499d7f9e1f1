"""Routing: order, conditions, and that it fails closed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.control.admission.routing import (
    RouteDecision,
    Router,
    decide,
    explained,
    facts_of,
    refused_routes,
    route_facts,
)
from hermes.domain.errors import NotFound
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, RouteTerms, Sender
from hermes.domain.settings import Settings

HERE = InboundMessage(
    platform="discord",
    account="bot-1",
    native_id="1",
    chat=Chat(kind=ChatKind.THREAD, id="t9", parent_id="c5", scope_id="g1"),
    sender=Sender(id="ann", alt_id="@ann"),
    text="hello",
    sent_at=0.0,
    thread_id="t9",
)
FACTS = facts_of(HERE, "work")


def config(*routes: Any, **more: Any) -> Settings:
    return Settings(routes=routes, **more)


async def routed(chosen: Settings, *served: str, owner: str = "", pick: Any = None) -> Any:
    router = Router(lambda: chosen, lambda: {"main", "a", "b", *served}, pick)
    return (await router.route(FACTS, owner=owner, text="hello")).agent


@pytest.mark.parametrize(
    "match",
    [
        {"platform": "discord"},
        {"platform": ["telegram", "discord"], "user_id": "ann"},
        {"user_id": "@a*"},
        {"account": "work"},
        {"account": "bot-?"},
        {"guild_id": "g1", "chat_id": "c5"},
        {"thread_id": "t9", "chat_type": "thread"},
        {"chat_id": "*"},
        {},
    ],
)
async def test_a_condition_is_a_value_a_list_or_a_pattern(match: dict[str, Any]) -> None:
    assert await routed(config({"match": match, "agent": "a"})) == "a"
    assert await routed(config({**match, "agent": "a"})) == "a"


@pytest.mark.parametrize(
    "match", [{"platform": "disc"}, {"user_id": []}, {"chat_id": "c"}, {"guild_id": "G1"}]
)
async def test_what_does_not_hold_does_not_match(match: dict[str, Any]) -> None:
    assert await routed(config({"match": match, "agent": "a"})) == "main"


async def test_the_first_route_decides_then_the_hook_then_the_default() -> None:
    routes = ({"match": {"user_id": "ben"}, "agent": "b"}, {"agent": "a"}, {"agent": "main"})

    async def pick(context: Any) -> str | None:
        assert context["chat_id"] == "t9"
        return "b" if context["text"] == "hello" else None

    async def passes(_context: Any) -> str | None:
        return None

    assert await routed(config(*routes), pick=pick) == "a"
    assert await routed(config(routes[0]), pick=pick) == "b"
    assert await routed(config(default_agent="a"), pick=passes) == "a"
    assert await routed(config(*routes), owner="b") == "b"
    older = ({"guild_id": "g1", "profile": "a"}, {"chat_id": "c5", "profile": "b"})
    assert await routed(config(profile_routes=older)) == "b"
    assert await routed(config({**routes[1], "enabled": False})) == "main"


@pytest.mark.parametrize(
    ("chosen", "owner"),
    [
        (config({"agent": "nobody"}), ""),
        (config(default_agent="nobody"), ""),
        (config({"match": {"chatid": "5"}, "agent": "a"}), ""),
        (config({"match": "discord", "agent": "a"}), ""),
        (config({"match": {"platform": "discord"}}), ""),
        (config("not a route"), ""),
        (config(), "nobody"),
    ],
)
async def test_it_is_refused_rather_than_answered_by_another(chosen: Settings, owner: str) -> None:
    with pytest.raises(NotFound):
        await routed(chosen, owner=owner)


async def test_a_hook_that_names_nobody_who_is_served_refuses() -> None:
    async def pick(_context: Any) -> str | None:
        return "nobody"

    with pytest.raises(NotFound):
        await routed(config(), pick=pick)


def test_a_route_may_change_the_model_the_prompt_and_the_tools() -> None:
    more = {"model": "m", "provider": "p", "prompt": "Be brief.", "toolsets": ["web"]}
    found = decide(config({"agent": "a", **more}), FACTS)
    assert isinstance(found, RouteDecision)
    assert found.terms == RouteTerms(model="m", provider="p", prompt="Be brief.", toolsets=("web",))


@pytest.mark.parametrize("empty", ["", None])
def test_a_condition_without_a_value_opens_no_agent_to_everybody(empty: object) -> None:
    chosen = config({"match": {"user_id": empty}, "agent": "a"})
    with pytest.raises(NotFound, match="`user_id` is empty"):
        decide(chosen, FACTS)


@pytest.mark.parametrize(
    ("match", "said"),
    [
        ({"platform": "discrod"}, "there is no platform `discrod`, perhaps `discord`"),
        ({"platform": ["telegram", "discrod"]}, "perhaps `discord`"),
        ({"platform": "discord", "chat_type": "chanel"}, "perhaps `channel`"),
        ({"chat_type": "everywhere"}, "there is no chat_type `everywhere`"),
        ({"user_id": True}, "`user_id` is neither a text nor a number"),
        ({"user_id": {"is": "ann"}}, "`user_id` is neither a text nor a number"),
    ],
)
def test_a_misspelled_value_refuses_what_it_may_have_been_meant_for(
    match: dict[str, Any], said: str
) -> None:
    chosen = config({"match": {**match, "chat_id": FACTS["chat_id"][0]}, "agent": "a"})
    (told,) = refused_routes(chosen, {"main", "a"})
    assert said in told
    facts = {**FACTS, "chat_type": ("channel",)}
    if "user_id" not in match:
        with pytest.raises(NotFound, match="cannot be understood"):
            decide(chosen, facts)
    assert decide(chosen, {**facts, "chat_id": ("elsewhere",)}) is None


def test_a_platform_that_no_package_brings_is_told_and_matches_nothing() -> None:
    chosen = config({"match": {"platform": "matrix"}, "agent": "a"})
    assert decide(chosen, FACTS) is None
    (told,) = refused_routes(chosen, {"main", "a"})
    assert "routes[0] has no effect: there is no platform `matrix` (api_server" in told
    written = config({"match": {"platform": "Discord", "chat_type": "DM"}, "agent": "a"})
    assert refused_routes(written, {"main", "a"}) == []


def test_the_steps_are_explained_and_wrong_routes_are_told() -> None:
    wrong = {"match": {"chatid": "5"}, "agent": "a"}
    chosen = config({"match": {"user_id": "ben"}, "agent": "b"}, {"agent": "gone"}, wrong)
    assert explained(chosen, FACTS) == [
        "routes[0] -> b: no: user_id is ann or @ann, not ben",
        "routes[1] -> gone: yes: it has no condition",
    ]
    assert refused_routes(chosen, {"main", "b", "a"}) == [
        "routes[2] cannot be understood and refuses messages: there is no condition `chatid`",
        "routes: there is no agent `gone`; messages for it are refused",
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.text(max_size=3),
            st.dictionaries(
                st.sampled_from(["platform", "chat_id", "match", "agent", "user_id", "x"]),
                st.one_of(st.sampled_from(["a", "b", "1", "*"]), st.lists(st.just("1")), st.none()),
            ),
        ),
        max_size=4,
    ),
    st.sampled_from(["1", "2"]),
)
def test_whatever_is_written_the_first_fitting_route_decides_or_nobody_does(
    routes: list[Any], chat: str
) -> None:
    facts = route_facts(platform=("a",), chat_id=(chat,))
    try:
        found = decide(config(*routes), facts)
    except NotFound:
        return
    if found is not None:
        at = int(found.rule.removeprefix("routes[").removesuffix("]"))
        assert found == decide(config(*routes[: at + 1]), facts)
        assert at == 0 or decide(config(*routes[:at]), facts) is None
