import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.ledgers import reply, result, say, session, turn
from hermes.domain.messages import AssistantMessage, ToolCall
from hermes.domain.ports.ledger import Ledger, SearchQuery
from hermes.domain.turn import TurnState
from hermes.state.sqlite import search


@pytest.fixture(autouse=True, params=["read", "indexed"])
def _how_messages_are_found(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found does not depend on whether the newest messages are in the index yet."""
    if request.param == "indexed":
        monkeypatch.setattr(search, "UNINDEXED", 0)


async def snippets(ledger: Ledger, text: str) -> list[str]:
    return [hit.snippet for hit in await ledger.search(SearchQuery(text=text))]


async def fill(ledger: Ledger, *lines: str) -> None:
    await ledger.create_session(session())
    for n, line in enumerate(lines):
        await say(ledger, line, turn_id=f"t{n}")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("fox", ["the quick [fox] jumps"]),
        ("FOX quick", ["the [quick] [fox] jumps"]),
        ('"quick fox"', ["the [quick fox] jumps"]),
        ('"fox quick"', []),
        ("cafe", ["ein [Café] in Zürich"]),
        ("ZÜRICH", ["ein Café in [Zürich]"]),
        ("jum*", ["the quick fox [jum]ps"]),
        ("ump", ["the quick fox j[ump]s"]),
        ("fox OR café", ["ein [Café] in Zürich", "the quick [fox] jumps"]),
        ("fox café", []),
        ("数据库", ["关于[数据库]的问题"]),
        ("数据", ["关于[数据]库的问题"]),
        ("题", ["关于数据库的问[题]"]),
        ("问题", ["关于数据库的[问题]"]),
        ("問題", []),
        ("a_b.c", ["see [a_b.c] for more"]),
        ('"b.c f"', ["see a_[b.c f]or more"]),
        ("->", []),
        ("", []),
        ('"', []),
        ("NOT", []),
        ("!!!", []),
    ],
)
async def test_words_and_substrings_are_found_in_any_language(
    ledger: Ledger, query: str, expected: list[str]
) -> None:
    await fill(
        ledger,
        "the quick fox jumps",
        "ein Café in Zürich",
        "关于数据库的问题",
        "see a_b.c for more",
    )
    assert sorted(await snippets(ledger, query)) == sorted(expected)


async def test_tool_names_arguments_and_results_are_searched(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.begin_turn(turn())
    call = ToolCall(id="c1", name="read_file", arguments='{"path": "plan.md"}')
    await ledger.record_reply("t1", AssistantMessage(tool_calls=(call,)), None, 3.0)
    await ledger.record_result("t1", result("c1", "budget is nine"), 4.0)
    hits = await ledger.search(SearchQuery(text="plan.md"))
    assert [(hit.role, hit.seq) for hit in hits] == [("assistant", 2)]
    assert [hit.role for hit in await ledger.search(SearchQuery(text="budget"))] == ["tool"]
    assert [hit.role for hit in await ledger.search(SearchQuery(text="tool_c1"))] == ["tool"]


async def test_undone_and_compacted_messages_are_still_found(ledger: Ledger) -> None:
    await fill(ledger, "needle one")
    await ledger.rewind("s1", 1)
    assert await snippets(ledger, "needle") == ["[needle] one"]


async def test_filters_restrict_what_is_found(ledger: Ledger) -> None:
    for name, source, agent in (("a", "cli", "main"), ("b", "tool", "main"), ("c", "cli", "work")):
        await ledger.create_session(session(name, source=source, agent_id=agent, title=name * 3))
        await ledger.begin_turn(turn(name, session_id=name, says=f"needle {name}"))
        await ledger.record_reply(name, reply(f"needle from {name}"), None, 3.0)
        await ledger.finish_turn(name, TurnState.DONE, None, 4.0)

    async def found(**filters: object) -> set[tuple[str, str]]:
        query = SearchQuery(text="needle", **filters)  # type: ignore[arg-type]
        return {(hit.session_id, hit.role) for hit in await ledger.search(query)}

    assert await found(session_id="b") == {("b", "user"), ("b", "assistant")}
    assert await found(agent_id="work", roles=("user",)) == {("c", "user")}
    assert await found(exclude_session_ids=("a", "c"), roles=("user",)) == {("b", "user")}
    assert await found(session_id="nobody") == set()
    hit = (await ledger.search(SearchQuery(text="needle", session_id="b", limit=1)))[0]
    assert (hit.title, hit.source) == ("bbb", "tool")


async def test_the_best_match_comes_first_unless_the_newest_is_wanted(ledger: Ledger) -> None:
    await fill(ledger, "rust rust rust", "rust once in a much longer line " + "of words " * 40)
    best = await ledger.search(SearchQuery(text="rust"))
    assert [hit.seq for hit in best] == [1, 3]
    newest = await ledger.search(SearchQuery(text="rust", newest_first=True))
    assert [hit.seq for hit in newest] == [3, 1]
    one = await ledger.search(SearchQuery(text="rust", limit=1))
    assert [hit.seq for hit in one] == [1]


async def test_a_snippet_shows_the_neighbourhood_of_the_match(ledger: Ledger) -> None:
    await fill(ledger, "x" * 500 + " needle\n\n  here " + "y" * 500)
    (shown,) = await snippets(ledger, "needle")
    assert shown.startswith("…x")
    assert "[needle] here yyy" in shown
    assert shown.endswith("…")
    assert len(shown) < 200


async def test_messages_are_found_at_once(ledger: Ledger) -> None:
    await fill(ledger, *(f"line {n}" for n in range(100)))
    assert await snippets(ledger, "line 57") == ["[line] [57]"]


@given(text=st.text(max_size=40))
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_no_text_is_a_syntax_error(ledger: Ledger, text: str) -> None:
    hits = await ledger.search(SearchQuery(text=text))
    assert hits == [], "the ledger is empty"


async def test_a_search_stays_within_a_door_and_a_person(ledger: Ledger) -> None:
    for name, source, user in (
        ("a", "telegram", "1"),
        ("b", "telegram", "2"),
        ("c", "discord", "1"),
    ):
        await ledger.create_session(session(name, source=source, user_id=user))
        await say(ledger, "the secret fox", session_id=name, turn_id=f"t-{name}")
    found = await ledger.search(SearchQuery(text="fox", source="telegram", user_id="1"))
    assert [hit.session_id for hit in found] == ["a"]


async def test_what_branches_have_in_common_is_found_once_in_the_newest(ledger: Ledger) -> None:
    await fill(ledger, "a walrus sings")
    await ledger.branch_session("s1", session("s2", at=9.0))
    await say(ledger, "the walrus again", session_id="s2", turn_id="t9")
    await ledger.branch_session("s2", session("s3", at=9.5))
    found = await ledger.search(SearchQuery(text="walrus"))
    assert sorted((hit.session_id, hit.snippet) for hit in found) == [
        ("s3", "a [walrus] sings"),
        ("s3", "the [walrus] again"),
    ]
    own = await ledger.search(SearchQuery(text="walrus", session_id="s1"))
    assert [hit.session_id for hit in own] == ["s1"]
