"""Side tasks: their own model if one is named, their own patience always."""

import asyncio

import pytest

from fakes.model import FakeModelServer, Script, Step
from fakes.model_client import InstantClock, ask, route_to
from hermes.domain.errors import ConfigError
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.settings import Settings
from hermes.domain.settings.models import Auxiliary, AuxiliaryTask, TitleGeneration
from hermes.models.registry import AuxiliaryModels
from hermes.models.routes import ModelRoute, ModelSources
from hermes.models.transport import Transport
from hermes.testing.model import Reply, ScriptedModel, say


def auxiliary(
    main: ScriptedModel,
    settings: Auxiliary | None = None,
    clock: InstantClock | None = None,
    transport: Transport | None = None,
    main_routes: tuple[ModelRoute, ...] = (),
) -> AuxiliaryModels:
    return AuxiliaryModels(
        main,
        ModelSources(
            secret=lambda name: None, settings=Settings(auxiliary=settings or Auxiliary())
        ),
        clock=clock or InstantClock(),
        transport=transport or Transport(),
        main_routes=main_routes,
    )


async def test_a_task_uses_the_main_model_unless_told_otherwise() -> None:
    main = ScriptedModel([say("A title")])
    reply = await auxiliary(main).model("title_generation").complete(ask())
    assert reply.message.text == "A title"
    assert main.requests[0].task == "title_generation"


async def test_a_task_with_its_own_model_uses_that() -> None:
    main = ScriptedModel()
    async with FakeModelServer([Step(text="small and fast")]) as server:
        task = AuxiliaryTask(model="tiny", base_url=server.base_url, reasoning_effort="none")
        transport = Transport()
        models = auxiliary(main, Auxiliary(compression=task), transport=transport)
        reply = await models.model("compression").complete(ask())
        await transport.close()
    assert (reply.message.text, reply.model) == ("small and fast", "tiny")
    assert main.requests == []


async def test_the_effort_set_for_a_task_wins_over_what_the_call_asks_for() -> None:
    main = ScriptedModel([say("A title")])
    settings = Auxiliary(title_generation=TitleGeneration(reasoning_effort="low"))
    await auxiliary(main, settings).model("title_generation").complete(ask(reasoning_effort="none"))
    assert main.requests[0].reasoning_effort == "low"


async def test_a_failing_task_model_falls_back_to_the_main_routes_after_two_retries() -> None:
    clock = InstantClock()
    async with (
        FakeModelServer(Script(default=Step(status=500))) as broken,
        FakeModelServer([Step(text="from main")]) as main,
    ):
        transport = Transport()
        task = AuxiliaryTask(model="tiny", base_url=broken.base_url)
        models = auxiliary(
            ScriptedModel(), Auxiliary(approval=task), clock, transport, (route_to(main),)
        )
        reply = await models.model("approval").complete(ask())
        await transport.close()
    assert reply.message.text == "from main"
    assert len(broken.requests) == 3
    assert len(clock.slept) == 2


async def test_a_task_gives_up_after_its_own_time() -> None:
    never = asyncio.Event()
    main = ScriptedModel([Reply(pieces=("late",), before=never)])
    settings = Auxiliary(approval=AuxiliaryTask(timeout=0.05))
    with pytest.raises(ModelFailure) as failure:
        await auxiliary(main, settings).model("approval").complete(ask())
    assert failure.value.kind is FailureKind.TIMEOUT
    assert "auxiliary.approval.timeout" in failure.value.hint
    assert main.cancelled == 1


async def test_an_override_that_cannot_work_is_a_config_error() -> None:
    settings = Auxiliary(approval=AuxiliaryTask(provider="nowhere", model="m"))
    with pytest.raises(ConfigError):
        auxiliary(ScriptedModel(), settings).model("approval")
