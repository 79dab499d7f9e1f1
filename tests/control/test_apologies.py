"""What people see when a message cannot be taken or answered."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec.structs import replace

from fakes.hand_clock import HandClock
from fakes.ledgers import inbound
from hermes.control.door import Door
from hermes.control.lanes.gateway import Gateway, GatewayParts
from hermes.domain.errors import HermesError, NotFound, StoreError
from hermes.domain.events import TurnFinished, TurnJob
from hermes.domain.inbound import Chat, ChatKind, InboxEntry, Sender
from hermes.domain.outbound import Target
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import AgentProfile
from hermes.domain.turn import TurnState
from hermes.domain.usage import Usage
from hermes.entry.chat.replies import Apologies
from hermes.execution.clock import SystemClock
from hermes.state.sqlite.ledger import SqliteLedger


async def test_each_chat_is_told_once_in_a_while() -> None:
    said: list[tuple[str, str]] = []

    async def send(target: Target, text: str) -> None:
        said.append((target.chat_id, text))

    clock, here = HandClock(), inbound("m1")
    apologies = Apologies(send, clock)
    full = StoreError("The ledger /secret/place/state.db could not be used (disk is full).")
    for _ in range(3):
        await apologies.say(here, full)
    assert [chat for chat, _ in said] == ["7"]
    assert "disk is full" in said[0][1]
    assert "/secret/place" not in said[0][1]
    await apologies.say(replace(here, chat=Chat(kind=ChatKind.PRIVATE, id="8")), full)
    # Another reason and another person are told at once, the same ones later.
    nobody = NotFound("There is no agent `x` here.")
    for _ in range(2):
        await apologies.say(here, nobody)
        await apologies.say(replace(here, sender=Sender(id="9")), nobody)
    assert [chat for chat, _ in said] == ["7", "8", "7", "7"]
    assert "tell the operator" in said[2][1]
    assert "agent `x`" not in said[2][1]
    await clock.pass_by(601)
    await apologies.say(here, nobody)
    await apologies.say(here, HermesError("inner workings"))
    assert len(said) == 6
    assert "inner workings" not in said[5][1]


class FailingOnce:
    """A core whose ledger fails under the first turn."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.runs: list[str] = []

    async def run(self, job: TurnJob) -> None:
        self.runs.append(job.turn.id)
        if len(self.runs) == 1:
            raise StoreError("The ledger could not be used.")
        await self.ledger.finish_turn(job.turn.id, TurnState.DONE, None, 1.0)
        job.stream.emit(
            TurnFinished(
                outcome=TurnState.DONE, text="", usage=Usage(), cost_usd=None, model_calls=1
            )
        )

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        return None


async def test_a_turn_whose_lane_fails_is_reported_and_goes_on_with_the_next_message(
    tmp_path: Path,
) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    runner = FailingOnce(ledger)
    profile = AgentProfile(
        id="main", home=tmp_path, workspace=tmp_path, provider="p", model="m", toolsets=()
    )
    gateway = Gateway(
        GatewayParts(
            ledger=ledger,
            runner=runner,
            clock=SystemClock(),
            profiles={"main": profile},
            owner="me",
            owner_alive=lambda _owner: True,
        )
    )
    troubles: list[tuple[str, HermesError]] = []

    class Troubled(Door):
        platforms = ("telegram",)

        def on_trouble(self, entry: InboxEntry, error: HermesError) -> None:
            troubles.append((entry.message.native_id, error))

    async with asyncio.timeout(10), gateway.running(), AsyncExitStack() as stack:
        stack.enter_context(gateway.doors.attached(Troubled()))
        ticket = await gateway.submit("main", inbound("m1"))
        finished = await (await ticket.stream()).wait()
        assert finished.error is not None
        assert finished.error.code == "shutdown", "nobody shows it as answered"
        await gateway.idle(ticket.session_id)
        ((native_id, error),) = troubles
        assert (native_id, type(error)) == ("m1", StoreError)
        ticket = await gateway.submit("main", inbound("m2"))
        assert (await (await ticket.stream()).wait()).outcome is TurnState.DONE
        first, again, second = runner.runs
        assert first == again != second
    await ledger.close()
