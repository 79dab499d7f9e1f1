"""Whether a long conversation gets slower: turn 500 against turn 10."""

from bench.bare import BareClient
from bench.core import Core, open_core
from bench.harness import Figure, Job, alternate, median
from bench.model_server import ANSWER, ModelProcess, model_process, script
from fakes.model_script import Step
from hermes.domain.ids import new_id
from hermes.domain.messages import AssistantMessage, UserMessage
from hermes.domain.turn import NewTurn, TurnState

__all__ = ["run"]

SHORT, LONG = 10, 500
ROUNDS = 40


async def run(job: Job) -> list[Figure]:
    long = job.pick(LONG, 50)
    added: dict[int, list[float]] = {SHORT: [], long: []}
    async with (
        model_process(script(Step(text=ANSWER))) as model,
        open_core(job.folder, model.base_url) as core,
    ):
        bodies = {turns: await _grown(core, model, turns) for turns in added}
        bare = BareClient(model.base_url)

        async def sample(turns: int) -> float:
            passed = (await bare.ask(bodies[turns])).end
            served = (await core.ask(f"grown-{turns}")).end
            added[turns].append(served - passed)
            return served

        # Both in turn, so that whatever else the machine does hits both alike.
        await alternate(job.pick(ROUNDS, 3), lambda: sample(long), lambda: sample(SHORT))
        await bare.close()
    first, last = median(added[SHORT][1:]), median(added[long][1:])
    return [
        Figure(key="growth_turn_10", measured=first),
        Figure(key="growth_turn_500", measured=last, baseline=first),
        Figure(key="growth", measured=last / first),
    ]


async def _grown(core: Core, model: ModelProcess, turns: int) -> bytes:
    """Bring a chat to `turns` turns; return the request of the last one."""
    chat = f"grown-{turns}"
    await core.ask(chat)
    await core.app.gateway.settled()
    ledger = core.app.ledger
    session = await ledger.session_for_key(f"agent:main:bench:dm:{chat}")
    assert session is not None
    for _ in range(turns - 3):
        turn = NewTurn(
            id=new_id("turn"),
            session_id=session.id,
            owner="bench",
            inputs=(UserMessage(content="hello"),),
            at=0.0,
        )
        await ledger.begin_turn(turn)
        await ledger.record_reply(turn.id, AssistantMessage(text=ANSWER), None, 0.0)
        await ledger.finish_turn(turn.id, TurnState.DONE, None, 0.0)
    await core.ask(chat)
    return (await model.requests())[-1]
