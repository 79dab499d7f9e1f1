"""Notices about processes reach whom they are for."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from fakes.chat_kit import ChatKit
from fakes.scripted_turns import Play
from hermes.control.lanes.notices import pass_on_notices
from hermes.domain.events import Notice
from hermes.domain.ports.execution import ProcessNotice
from hermes.domain.session import CHILD_OF, Lineage
from hermes.entry.terminal.oneshot import inbound
from hermes.testing import FakeClock, temporary_ledger


class Told(asyncio.Queue[ProcessNotice]):
    next_notice = asyncio.Queue.get


async def test_what_a_child_turn_has_to_tell_is_shown_in_the_turn_that_waits_for_it(
    tmp_path: Path,
) -> None:
    told, admitted, clock = Told(), list[str](), FakeClock()

    async def wait(play: Play) -> None:
        while not any(isinstance(each, Notice) for each in play.stream.events):  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async with temporary_ledger(tmp_path) as ledger:
        kit = ChatKit(ledger, clock, tmp_path, {"wait": wait})
        async with kit.gateway.running(), asyncio.timeout(20):
            telling = asyncio.ensure_future(pass_on_notices(told, kit.gateway, clock))
            session = await kit.gateway.open_session("main", "cli", "ann")
            new = kit.gateway.new_session("main", "task", "ann")
            new = replace(new, parent_id=session.id, lineage=Lineage.DELEGATION)
            child = await ledger.create_session(new)
            await ledger.remember(child.id, CHILD_OF, session.id)
            ticket = await kit.gateway.submit(
                "main", inbound(session, "wait", "ann", 0.0), session_id=session.id
            )
            stream = await ticket.stream()
            for each in (child, session):
                told.put_nowait(
                    ProcessNotice(
                        agent_id="main",
                        session_id=each.id,
                        process_id="p1",
                        text=f"{each.source} ended\nfor the model",
                        admitted=lambda name=each.source: admitted.append(name),  # type: ignore[misc]
                    )
                )
            while not admitted:  # noqa: ASYNC110 (it has no event)
                await asyncio.sleep(0.005)
            await kit.gateway.idle(session.id)
            telling.cancel()
        notices = [each.text for each in stream.events if isinstance(each, Notice)]
        assert notices[0] == "task ended"
        assert admitted == ["cli"]
        assert kit.runner.turns == ["wait", "cli ended\nfor the model"]
