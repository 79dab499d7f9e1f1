"""`hermes approvals`: the permissions a person gave can be seen and withdrawn."""

from pathlib import Path

from fakes.command import Hermes
from fakes.ledgers import session, turn
from hermes.domain.approvals import (
    ApprovalKind,
    ApprovalRequest,
    ApprovalState,
    Choice,
    Decision,
)
from hermes.state.sqlite.ledger import SqliteLedger


async def a_grant(hermes: Hermes, choice: Choice = Choice.ALWAYS) -> None:
    ledger = await SqliteLedger.open(hermes.home / "state.db", backups=hermes.home)
    try:
        await ledger.create_session(session())
        await ledger.begin_turn(turn())
        await ledger.ask(
            ApprovalRequest(
                id="appr_1",
                kind=ApprovalKind.APPROVAL,
                agent_id="main",
                session_id="s1",
                turn_id="t1",
                call_id="c1",
                tool="terminal",
                arguments_hash="h",
                subject="rm -rf build",
                reason="it deletes a tree",
                pattern="rm -r",
                choices=tuple(c.value for c in Choice),
                created_at=1.0,
            )
        )
        await ledger.decide(
            "appr_1", Decision(state=ApprovalState.APPROVED, choice=choice, by="ann", at=2.0)
        )
    finally:
        await ledger.close()


async def test_a_standing_permission_is_listed_shown_and_withdrawn(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path)
    await a_grant(hermes)
    listed = await hermes.run("approvals", "list")
    assert "appr_1" in listed.out
    assert "always" in listed.out
    shown = await hermes.run("approvals", "show", "appr_1")
    assert "rm -rf build" in shown.out
    assert "by ann" in shown.out
    revoked = await hermes.run("approvals", "revoke", "appr_1")
    assert revoked.out == "Withdrawn: rm -r\n"
    assert "appr_1" not in (await hermes.run("approvals", "list")).out
    again = await hermes.run("approvals", "revoke", "appr_1")
    assert again.code == 4
    assert "approvals list" in again.err


async def test_a_permission_for_once_is_nothing_that_stands(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path)
    await a_grant(hermes, Choice.ONCE)
    assert "appr_1" not in (await hermes.run("approvals", "list")).out
    assert "appr_1" in (await hermes.run("approvals", "list", "--all")).out


async def test_an_unknown_id_is_explained(tmp_path: Path) -> None:
    outcome = await Hermes(tmp_path).run("approvals", "show", "nope")
    assert outcome.code == 4
    assert "approvals list" in outcome.err
