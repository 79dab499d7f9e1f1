"""Obligations are met once: while a turn runs, after a crash, and after a failure."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fakes.core import Core, message, running_core
from hermes.control.door import Door
from hermes.control.follow import Follower, Outcome
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnJob
from hermes.domain.inbound import InboxEntry
from hermes.domain.ports.ledger import Ledger
from hermes.domain.turn import TurnState
from hermes.testing.model import Reply, ScriptedModel, say


class Letters(Follower):
    """A kind of obligation as a scheduler might have it: post what was said."""

    def __init__(self, ledger: Ledger, group: asyncio.TaskGroup) -> None:
        super().__init__(ledger, group)
        self.posted: list[Outcome] = []
        self.fails = False

    async def unfinished(self) -> Sequence[InboxEntry]:
        return await self._ledger.unanswered(("cli",))

    async def ended(self, entry: InboxEntry, outcome: Outcome) -> None:
        if self.fails:
            raise HermesError("The letter box is full.")
        self.posted.append(outcome)
        if outcome.turn_id is not None:
            await self._ledger.mark_answered(outcome.turn_id)


class LetterDoor(Door):
    platforms = ("cli",)

    def __init__(self, core: Core, group: asyncio.TaskGroup) -> None:
        self.letters = Letters(core.ledger, group)

    def on_turn(self, job: TurnJob) -> None:
        self.letters.begin(job)

    async def recover(self) -> None:
        await self.letters.recover()


@asynccontextmanager
async def letters(core: Core) -> AsyncIterator[LetterDoor]:
    async with asyncio.TaskGroup() as group:
        door = LetterDoor(core, group)
        with core.gateway.doors.attached(door):
            yield door
            await door.letters.close(5.0)


async def test_what_is_owed_is_done_when_the_turn_has_ended(tmp_path: Path) -> None:
    async with running_core(tmp_path, ScriptedModel([say("Dear Ann,")])) as core:
        async with letters(core) as door:
            await core.ask("write")
            await door.letters.idle()
            await door.recover()
            await door.letters.idle()
            assert [each.text for each in door.letters.posted] == ["Dear Ann,"]
            assert await core.ledger.unanswered(("cli",)) == []


async def test_a_turn_that_ended_unseen_is_found_by_the_recovery_pass(tmp_path: Path) -> None:
    async with running_core(tmp_path, ScriptedModel([say("Dear Ann,")])) as core:
        finished = await core.ask("write")
        assert finished.outcome is TurnState.DONE
        async with letters(core) as door:
            for _ in range(2):
                await door.recover()
                await door.letters.idle()
            (posted,) = door.letters.posted
            assert (posted.state, posted.text) == (TurnState.DONE, "Dear Ann,")


async def test_what_could_not_be_done_is_done_by_a_later_pass(tmp_path: Path) -> None:
    async with running_core(tmp_path, ScriptedModel([say("Dear Ann,")])) as core:
        async with letters(core) as door:
            door.letters.fails = True
            await core.ask("write")
            await door.letters.idle()
            assert door.letters.posted == []
            door.letters.fails = False
            await door.recover()
            await door.letters.idle()
            assert [each.text for each in door.letters.posted] == ["Dear Ann,"]


async def test_a_pass_leaves_turns_alone_that_run_and_a_stop_leaves_them_open(
    tmp_path: Path,
) -> None:
    never = asyncio.Event()
    model = ScriptedModel([Reply(before=never)])
    async with running_core(tmp_path, model) as core:
        async with letters(core) as door:
            stream = await core.say("write")
            await model.called(1)
            await core.gateway.submit(
                "main", message("and more", core.session.id), session_id=core.session.id
            )
            await door.recover()
            await core.gateway.suspend()
            await stream.wait()
        assert door.letters.posted == []
        session_id = core.session.id
    model = ScriptedModel([say("One."), say("Two.")])
    async with running_core(tmp_path, model, session_id=session_id, owner="owner-b") as core:
        async with letters(core) as door:
            await door.recover()
            await core.gateway.recover(platforms=("cli",))
            await door.recover()
            await core.idle()
            await door.letters.idle()
            assert [each.text for each in door.letters.posted] == ["One.", "Two."]


async def test_a_message_that_was_dropped_is_not_waited_for(tmp_path: Path) -> None:
    class All(Letters):
        async def unfinished(self) -> Sequence[InboxEntry]:
            return [entry]

    async with running_core(tmp_path, ScriptedModel()) as core, asyncio.TaskGroup() as group:
        core.gateway.hold(core.session.id)
        kind = All(core.ledger, group)
        ticket = await core.gateway.submit(
            "main", message("write", core.session.id), session_id=core.session.id
        )
        core.gateway.hold(core.session.id)
        entry = ticket.entry
        await core.ledger.drop([entry.id], "withdrawn")
        await kind.recover()
        await kind.idle()
        (posted,) = kind.posted
        assert (posted.turn_id, posted.reason) == (None, "The message was withdrawn.")
