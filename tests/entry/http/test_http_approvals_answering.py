"""Approvals and questions through the door: by run, by id, once."""

from pathlib import Path

import pytest

from fakes.asking import Asking, asks
from fakes.http_runs import door
from fakes.runs_on import asked
from hermes.domain.approvals import ApprovalState
from hermes.entry.http.api.consent import ANSWER, hand_in_left


async def test_an_approval_is_shown_with_the_run_and_answered_there(tmp_path: Path) -> None:
    asking = Asking()
    async with door(tmp_path, asks("danger"), tools=asking.tools) as at:
        asking.at = at
        run_id = await at.start(input="x")
        approval_id = await asking.next()
        shown = (await at.owner.get(f"/v1/runs/{run_id}")).json()["pending_approvals"]
        assert [each["id"] for each in shown] == [approval_id]
        assert shown[0]["choices"] == ["once", "session", "deny"]
        assert shown[0]["command"] == "rm -r / --token ***"
        path = f"/v1/runs/{run_id}/approval"
        refused = await at.owner.post(path, json={"choice": "always"})
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "choice_not_offered"
        answer = await at.owner.post(path, json={"choice": "once"})
        assert answer.json() == {
            "object": "hermes.run.approval_response",
            "run_id": run_id,
            "choice": "once",
            "resolved": 1,
        }
        assert (await at.ended(run_id))["output"] == "Done."
        late = await at.owner.post(path, json={"choice": "once"})
        assert late.status_code == 409
        assert late.json()["error"]["code"] == "no_pending_approval"
        named = {"choice": "once", "approval_id": approval_id}
        again = await at.owner.post(path, json=named)
        assert again.json()["error"]["code"] == "already_answered"


async def test_all_pending_approvals_are_answered_alike(tmp_path: Path) -> None:
    asking = Asking()
    async with door(tmp_path, asks("danger", "danger"), tools=asking.tools) as at:
        asking.at = at
        run_id = await at.start(input="x")
        ids = {await asking.next(), await asking.next()}
        body = {"choice": "deny", "all": True, "text": "no"}
        answer = await at.owner.post(f"/v1/runs/{run_id}/approval", json=body)
        assert answer.json()["resolved"] == 2
        await at.ended(run_id)
        for approval_id in ids:
            approval = await at.ledger.approval(approval_id)
            assert approval is not None
            assert approval.state is ApprovalState.DENIED
            assert approval.decision is not None
            assert (approval.decision.by, approval.decision.text) == ("owner", "no")


@pytest.mark.parametrize("body", [{"text": "blue"}, {"choice": "blue"}])
async def test_a_question_is_answered_in_words(tmp_path: Path, body: dict[str, str]) -> None:
    asking = Asking()
    async with door(tmp_path, asks("clarify"), tools=asking.tools) as at:
        asking.at = at
        run_id = await at.start(input="x")
        approval_id = await asking.next()
        path = f"/v1/approvals/{approval_id}"
        assert (await at.owner.post(path, json={})).status_code == 400
        answer = (await at.owner.post(path, json=body)).json()
        assert (answer["state"], answer["decision"]["text"]) == ("answered", "blue")
        await at.ended(run_id)


async def test_an_approval_is_listed_answered_once_and_still_readable(tmp_path: Path) -> None:
    asking = Asking()
    async with door(tmp_path, asks("danger"), tools=asking.tools) as at:
        asking.at = at
        run_id = await at.start(input="x")
        approval_id = await asking.next()
        path = f"/v1/approvals/{approval_id}"
        listed = (await at.owner.get("/v1/approvals")).json()["data"]
        assert [each["id"] for each in listed] == [approval_id]
        answers = [await at.owner.post(path, json={"choice": "once"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 409]
        assert answers[0].json()["decision"]["by"] == "owner"
        assert answers[1].json()["error"]["code"] == "already_answered"
        await at.ended(run_id)
        assert (await at.owner.get("/v1/approvals")).json()["data"] == []
        assert (await at.owner.get(path)).json()["state"] == "approved"


async def test_an_answer_that_a_crash_kept_back_is_handed_in_at_the_start(tmp_path: Path) -> None:
    asking = Asking()
    async with door(tmp_path, asks("danger"), tools=asking.tools) as at:
        asking.at = at
        given = {"approval_id": "appr_c0", "choice": "once", "by": "chat", "text": ""}
        opened = await at.behind.runs.start(asked("x", request={ANSWER: given}))
        assert await asking.next() == "appr_c0"
        await hand_in_left(at.ledger, at.behind.context.answers)
        ended = await at.behind.runs.wait(opened.run)
        assert ended.outcome is not None
        assert ended.outcome.text == "Done."
        approval = await at.ledger.approval("appr_c0")
        assert approval is not None
        assert approval.decision is not None
        assert (approval.decision.choice, approval.decision.by) == ("once", "chat")
