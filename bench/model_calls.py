"""What goes to the model: the fixed prompt, and calls nobody asked for."""

from bench.core import open_core
from bench.harness import Figure, Job
from bench.model_server import ANSWER, model_process, script
from fakes.model_script import Step
from hermes.app.prompt_size import measure_prompt
from hermes.domain.profile import DEFAULT_AGENT

__all__ = ["run"]

TURNS = 200


async def run(job: Job) -> list[Figure]:
    turns = job.pick(TURNS, 10)
    async with model_process(script(Step(text=ANSWER))) as model:
        async with open_core(job.folder, model.base_url) as core:
            size = await measure_prompt(core.app, core.app.agent(DEFAULT_AGENT))
            for _ in range(turns):
                await core.ask("main")
            await core.app.gateway.settled()
        calls = await model.count()
    return [
        Figure(key="prompt_tokens", measured=size.tokens, note=f"{len(size.tools)} tools"),
        Figure(key="unasked_calls", measured=calls - turns),
    ]
