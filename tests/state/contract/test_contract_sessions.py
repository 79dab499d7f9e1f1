import msgspec
import pytest

from fakes.ledgers import (
    arrival,
    new_run,
    outgoing,
    reply,
    request,
    result,
    say,
    session,
    texts,
    turn,
    usage,
)
from hermes.domain.approvals import ApprovalState, Choice, Decision
from hermes.domain.errors import Conflict, NotFound, SessionBusy, UsageError
from hermes.domain.inbound import InboxState
from hermes.domain.ports.ledger import Ledger, SearchQuery, SessionQuery
from hermes.domain.session import Lineage
from hermes.domain.turn import TurnState


async def test_a_created_session_is_found_by_its_id(ledger: Ledger) -> None:
    created = await ledger.create_session(session("s1", title="Plans"))
    assert await ledger.session("s1") == created
    assert created.title == "Plans"
    assert created.updated_at == 1.0
    assert created.system_prompt is None
    assert await ledger.session("s2") is None


async def test_an_id_or_a_title_is_given_once(ledger: Ledger) -> None:
    await ledger.create_session(session("s1", title="Plans"))
    with pytest.raises(Conflict):
        await ledger.create_session(session("s1"))
    with pytest.raises(Conflict, match="Plans"):
        await ledger.create_session(session("s2", title="Plans"))
    assert await ledger.session("s2") is None


async def test_an_unknown_parent_is_refused(ledger: Ledger) -> None:
    with pytest.raises(NotFound):
        await ledger.create_session(msgspec.structs.replace(session(), parent_id="nobody"))


async def test_titles_of_one_api_key_say_nothing_about_those_of_another(ledger: Ledger) -> None:
    await ledger.create_session(session("s1", source="api_server", user_id="key:a", title="Plans"))
    theirs = session("s2", source="api_server", user_id="key:b", title="Plans")
    assert (await ledger.create_session(theirs)).title == "Plans"
    await ledger.create_session(session("s3", source="api_server", user_id="key:c"))
    assert (await ledger.name_session("s3", "Plans")).title == "Plans"
    assert (await ledger.create_session(session("s4", title="Plans"))).title == "Plans"
    await ledger.create_session(session("s5", source="api_server", user_id="key:a"))
    with pytest.raises(Conflict, match="Plans"):
        await ledger.rename_session("s5", "Plans")
    assert (await ledger.name_session("s5", "Plans")).title == "Plans #2"


async def test_a_session_at_work_is_not_deleted_if_it_has_to_be_idle(ledger: Ledger) -> None:
    await ledger.create_session(session("s1"))
    await ledger.begin_turn(turn("t1", says="work"))
    with pytest.raises(SessionBusy):
        await ledger.delete_session("s1", idle=True)
    await ledger.create_session(session("s2"))
    await ledger.admit(arrival("n1", session_id="s2"))
    with pytest.raises(SessionBusy):
        await ledger.delete_session("s2", idle=True)
    await ledger.open_run(new_run())
    with pytest.raises(SessionBusy):
        await ledger.delete_session("s-r1", idle=True)
    assert await ledger.session("s1") is not None
    await ledger.create_session(session("s3"))
    assert await ledger.delete_session("s3", idle=True)
    assert not await ledger.delete_session("s3", idle=True)


async def test_titles_are_cleaned_and_cut(ledger: Ledger) -> None:
    created = await ledger.create_session(session("s1", title="  a\x1b[31m\n\u202e b  "))
    assert created.title == "a[31m b"
    renamed = await ledger.rename_session("s1", "x" * 300)
    assert renamed.title == "x" * 100


@pytest.mark.parametrize("empty", ["", "  \n", "\u200b\x00"])
async def test_a_title_of_nothing_is_refused(ledger: Ledger, empty: str) -> None:
    await ledger.create_session(session("s1"))
    with pytest.raises(UsageError):
        await ledger.rename_session("s1", empty)


async def test_a_person_may_keep_the_own_title_but_not_take_anothers(ledger: Ledger) -> None:
    await ledger.create_session(session("s1", title="Plans"))
    await ledger.create_session(session("s2"))
    assert (await ledger.rename_session("s1", "Plans")).title == "Plans"
    with pytest.raises(Conflict):
        await ledger.rename_session("s2", "Plans")
    with pytest.raises(NotFound):
        await ledger.rename_session("s3", "Other")


async def test_naming_numbers_a_taken_title_and_respects_an_existing_one(ledger: Ledger) -> None:
    for n in range(1, 5):
        await ledger.create_session(session(f"s{n}"))
    names = [(await ledger.name_session(f"s{n}", "Trip")).title for n in range(1, 4)]
    assert names == ["Trip", "Trip #2", "Trip #3"]
    assert (await ledger.name_session("s3", "Other")).title == "Trip #3"
    long = "y" * 100
    await ledger.rename_session("s1", long)
    assert (await ledger.name_session("s4", long)).title == "y" * 97 + " #2"


async def test_a_reference_is_an_id_a_title_or_the_beginning_of_an_id(ledger: Ledger) -> None:
    await ledger.create_session(session("20260101_aa", title="Trip", at=1.0))
    await ledger.create_session(session("20260101_bb", title="Trip #2", at=5.0))
    await ledger.create_session(session("20260102_cc", title="Trip #x", at=9.0))

    async def found(reference: str) -> str | None:
        hit = await ledger.find_session(reference)
        return None if hit is None else hit.id

    assert await found("20260101_aa") == "20260101_aa"
    assert await found("20260102") == "20260102_cc"
    assert await found("Trip") == "20260101_bb", "the most recently used continuation"
    assert await found("Trip #x") == "20260102_cc"
    assert await found("rip") is None
    assert await found("") is None
    assert await found("%") is None
    with pytest.raises(Conflict):
        await found("20260101")


async def test_sessions_are_listed_most_recently_used_first(ledger: Ledger) -> None:
    for n in range(3):
        await ledger.create_session(session(f"s{n}", at=float(n)))
    await ledger.begin_turn(turn("t1", session_id="s0", at=10.0))
    listed = await ledger.sessions(SessionQuery())
    assert [found.id for found in listed] == ["s0", "s2", "s1"]
    page = await ledger.sessions(SessionQuery(limit=1, offset=1))
    assert [found.id for found in page] == ["s2"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (SessionQuery(source="cli"), {"a"}),
        (SessionQuery(exclude_sources=("cli", "cron")), {"b"}),
        (SessionQuery(agent_id="work"), {"c"}),
        (SessionQuery(title="ÜBER"), {"b"}),
        (SessionQuery(title="%"), set()),
        (SessionQuery(started_before=2.0), {"a"}),
        (SessionQuery(started_after=2.0), {"c"}),
        (SessionQuery(updated_before=3.0), {"a", "b"}),
        (SessionQuery(min_messages=1), {"c"}),
        (SessionQuery(max_messages=0), {"a", "b"}),
        (SessionQuery(ended=True), {"b"}),
        (SessionQuery(ended=False), {"a", "c"}),
        (SessionQuery(model="m", limit=None), {"a", "b", "c"}),
        (SessionQuery(model="n"), set()),
        (SessionQuery(cwd="/x"), set()),
        (SessionQuery(user_id="u"), set()),
    ],
)
async def test_filters_restrict_the_list(
    ledger: Ledger, query: SessionQuery, expected: set[str]
) -> None:
    await ledger.create_session(session("a", at=1.0))
    await ledger.create_session(session("b", at=2.0, source="telegram", title="Alles über"))
    await ledger.create_session(session("c", at=3.0, source="cron", agent_id="work"))
    await ledger.end_session("b", "cli_close", 2.5)
    await ledger.begin_turn(turn(session_id="c", at=4.0))
    assert {found.id for found in await ledger.sessions(query)} == expected


async def test_the_prompt_is_frozen_by_whoever_comes_first(ledger: Ledger) -> None:
    await ledger.create_session(session())
    assert await ledger.freeze_prompt("s1", "one") == "one"
    assert await ledger.freeze_prompt("s1", "two") == "one"
    found = await ledger.session("s1")
    assert found is not None
    assert found.system_prompt == "one"
    with pytest.raises(NotFound):
        await ledger.freeze_prompt("s2", "x")


async def test_updates_change_only_what_is_given(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.update_session("s1", model="big", cwd="/tmp")
    changed = await ledger.update_session("s1", provider="p")
    assert (changed.model, changed.provider, changed.cwd) == ("big", "p", "/tmp")
    with pytest.raises(NotFound):
        await ledger.update_session("s2", model="x")


async def test_an_ended_session_is_reopened_by_its_next_turn(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.end_session("s1", "cli_close", 5.0)
    ended = await ledger.session("s1")
    assert ended is not None
    assert (ended.ended_at, ended.end_reason, ended.updated_at) == (5.0, "cli_close", 5.0)
    await ledger.begin_turn(turn(at=6.0))
    going = await ledger.session("s1")
    assert going is not None
    assert (going.ended_at, going.end_reason) == (None, None)
    with pytest.raises(NotFound):
        await ledger.end_session("s2", "x", 1.0)


async def test_a_branch_has_the_history_and_prompt_of_its_origin(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.freeze_prompt("s1", "prompt")
    await ledger.begin_turn(turn("t1", says="question"))
    await ledger.record_reply("t1", reply("", "c1"), usage(), 3.0)
    await ledger.record_result("t1", result("c1"), 3.5)
    await ledger.record_reply("t1", reply("answer"), None, 3.6)
    await ledger.finish_turn("t1", TurnState.DONE, None, 4.0)
    await ledger.begin_turn(turn("t2", says="still going"))
    branch = await ledger.branch_session("s1", session("s2", at=9.0))
    assert (branch.parent_id, branch.lineage) == ("s1", Lineage.BRANCH)
    assert branch.system_prompt == "prompt"
    assert branch.preview == "question"
    assert (branch.message_count, branch.tool_call_count) == (4, 1)
    assert branch.usage.input_tokens == 0, "the branch has not spent anything"
    copied = await ledger.history("s2")
    assert texts(copied) == ["question", "", "done", "answer"]
    await say(ledger, "other way", session_id="s2", turn_id="t3")
    assert texts(await ledger.history("s2"))[-2:] == ["other way", "ok"]
    assert "other way" not in texts(await ledger.history("s1"))
    with pytest.raises(NotFound):
        await ledger.branch_session("nobody", session("s4"))


async def test_deleting_takes_everything_but_what_must_outlive_it(ledger: Ledger) -> None:
    await ledger.create_session(session("s1"))
    await ledger.create_session(msgspec.structs.replace(session("s2"), parent_id="s1"))
    await ledger.bind_key("key", "s1", 1.0)
    await ledger.remember("s1", "todo", [1])
    first = arrival("n1", "secret words")
    private = msgspec.structs.replace(first.message, reply_context="subject of a mail")
    taken = await ledger.admit(msgspec.structs.replace(first, message=private))
    await ledger.admit(arrival("n2", "more"))
    await ledger.begin_turn(turn(says="needle", inbox_ids=(taken.entry.id,)))
    await ledger.record_reply("t1", reply("", "c1", "c2"), usage(), 3.0)
    await ledger.enqueue(outgoing(session_id="s1"))
    await ledger.ask(request("a1", call_id="c1"))
    await ledger.ask(request("a2", call_id="c2"))
    always = Decision(state=ApprovalState.APPROVED, choice=Choice.ALWAYS)
    await ledger.decide("a2", always)

    assert await ledger.delete_session("s1")
    assert not await ledger.delete_session("s1")

    assert await ledger.session("s1") is None
    assert await ledger.session_for_key("key") is None
    assert await ledger.transcript("s1") == []
    assert await ledger.turn("t1") is None
    assert await ledger.search(SearchQuery(text="needle")) == []
    assert await ledger.outbox_entry("o1") is None
    assert await ledger.approval("a1") is None
    assert await ledger.waiting("s1") == []
    orphan = await ledger.session("s2")
    assert orphan is not None
    assert orphan.parent_id is None
    assert [grant.request.id for grant in await ledger.grants("main", "s9")] == ["a2"]
    assert (await ledger.spent(agent_id="main")).calls == 1
    assert (await ledger.spent(session_id="s1")).calls == 0
    again = await ledger.admit(arrival("n1", "secret words"))
    assert again.duplicate, "a redelivery must not be answered a second time"
    assert (again.entry.message.text, again.entry.message.reply_context) == ("", "")
    unanswered = await ledger.admit(arrival("n2"))
    assert unanswered.entry.state is InboxState.DROPPED
    assert unanswered.entry.drop_reason == "session deleted"


async def test_pruning_spares_sessions_with_an_open_turn(ledger: Ledger) -> None:
    for n in range(3):
        await ledger.create_session(session(f"s{n}", at=float(n)))
    await ledger.begin_turn(turn(session_id="s0", at=0.5))
    assert await ledger.prune_sessions(SessionQuery(started_before=2.0, limit=None)) == 1
    assert {s.id for s in await ledger.sessions(SessionQuery())} == {"s0", "s2"}


async def test_facts_are_remembered_replaced_and_removed(ledger: Ledger) -> None:
    await ledger.create_session(session())
    await ledger.remember("s1", "todo", {"items": [1, "ü", None]})
    await ledger.remember("s1", "mode", "fast")
    assert await ledger.recall("s1", "todo") == {"items": [1, "ü", None]}
    assert await ledger.facts("todo") == {"s1": {"items": [1, "ü", None]}}
    await ledger.remember("s1", "todo", None)
    assert await ledger.recall("s1", "todo") is None
    found = await ledger.session("s1")
    assert found is not None
    assert found.state == {"mode": "fast"}
    assert await ledger.recall("s2", "todo") is None
    with pytest.raises(NotFound):
        await ledger.remember("s2", "x", 1)


async def test_a_key_points_at_the_session_it_was_bound_to_last(ledger: Ledger) -> None:
    await ledger.create_session(session("s1"))
    await ledger.create_session(session("s2"))
    await ledger.bind_key("key", "s1", 1.0)
    await ledger.bind_key("key", "s2", 2.0)
    found = await ledger.session_for_key("key")
    assert found is not None
    assert found.id == "s2"
    assert await ledger.session_for_key("other") is None
    with pytest.raises(NotFound):
        await ledger.bind_key("key", "s3", 3.0)


async def test_stats_count_what_is_there(ledger: Ledger) -> None:
    await ledger.create_session(session("s1"))
    await ledger.create_session(session("s2", source="telegram"))
    await ledger.admit(arrival("n1"))
    await ledger.begin_turn(turn())
    await ledger.enqueue(outgoing())
    await ledger.ask(request())
    stats = await ledger.stats()
    assert (stats.sessions, stats.messages, stats.turns, stats.open_turns) == (2, 1, 1, 1)
    assert (stats.inbox_waiting, stats.outbox_pending, stats.approvals_pending) == (1, 1, 1)
    assert stats.by_source == {"cli": 1, "telegram": 1}


async def test_a_session_is_found_by_its_owner_and_by_whoever_its_key_names(ledger: Ledger) -> None:
    for name, source, user in (("a", "telegram", "1"), ("b", "telegram", "2"), ("c", "cli", "1")):
        await ledger.create_session(session(name, source=source, user_id=user))
    await ledger.bind_key("topic", "b", 1.0)
    found = SessionQuery(source="telegram", user_id="1", key="topic")
    assert {each.id for each in await ledger.sessions(found)} == {"a", "b"}
    # What was said there stays visible when the key leads to another session.
    await ledger.admit(arrival("m1", session_id="c"))
    own = SessionQuery(source="telegram", user_id="1", key="agent:main:telegram:dm:7")
    assert {each.id for each in await ledger.sessions(own)} == {"a", "c"}
    nobody = SessionQuery(source="telegram", user_id="9", key="elsewhere")
    assert await ledger.sessions(nobody) == []
