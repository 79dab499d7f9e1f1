"""The real `openai` npm package against a real gateway process."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.api_clients import MARK, OWN_CALLS, PIXEL, WEATHER, ClientWorld, CutLine, client_world
from fakes.api_gateway import KEY

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "clients" / "openai_client.mjs"
FOLDER = ROOT / ".venv" / "npm"
INSTALLED = (FOLDER / "node_modules" / "openai" / "package.json").exists()

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("openai_npm"),
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not INSTALLED, reason="scripts/test-services.sh did not install openai"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClientWorld]:
    async with client_world(tmp_path_factory.mktemp("npm")) as made:
        yield made


async def play(world: ClientWorld, scenario: str, **environ: str) -> None:
    """Run a scenario of the program to its end."""
    node = shutil.which("node")
    assert node is not None
    process = await asyncio.create_subprocess_exec(
        node,
        str(PROGRAM),
        scenario,
        env={
            "HERMES_URL": world.gateway.url,
            "HERMES_KEY": KEY,
            "CLIENT_FOLDER": str(FOLDER),
            "OWN_CALLS": str(OWN_CALLS),
            "WEATHER": json.dumps(WEATHER),
            "PIXEL": PIXEL,
            **environ,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(40):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()


@pytest.mark.parametrize(
    "scenario", ["models", "stream", "long", "responses", "responses_stream", "background", "shape"]
)
async def test_what_the_package_offers_works(world: ClientWorld, scenario: str) -> None:
    await play(world, scenario)


async def test_a_session_goes_on_under_its_id(world: ClientWorld) -> None:
    await play(world, "chat")
    [first] = [each for each in world.asked("echo chat") if b"echo go on" not in each.raw]
    [second] = world.asked("echo go on")
    assert b"Be brief." in first.raw
    assert b"echo chat" in second.raw


@pytest.mark.parametrize("scenario", ["tools", "runner", "responses_tools"])
async def test_tools_of_the_client_between_tools_of_the_agent(
    world: ClientWorld, scenario: str
) -> None:
    await play(world, scenario)
    last = world.asked("weather in Rome")[-1].raw
    assert last.count(MARK.encode()) >= 2, "the agent forgot its own call or its result"


async def test_the_model_sees_a_picture(world: ClientWorld) -> None:
    await play(world, "picture")
    assert PIXEL.encode() in world.asked("echo a picture")[0].raw


async def test_errors_are_the_classes_that_programs_expect(world: ClientWorld) -> None:
    await play(world, "errors", WATCHER_KEY=await world.new_key("watcher", "--action", "observe"))


async def test_leaving_a_stream_interrupts_the_turn(world: ClientWorld) -> None:
    world.model.disconnected.clear()
    await play(world, "leave")
    async with asyncio.timeout(10):
        await world.model.disconnected.wait()


async def test_a_retry_with_an_idempotency_key_does_not_run_the_turn_twice(
    world: ClientWorld,
) -> None:
    line = CutLine(world.gateway.port)
    async with line.laid() as address, asyncio.TaskGroup() as group:
        group.create_task(play(world, "once", CUT_LINE=address))
        await world.until_asked("once, by npm", times=2)
        line.cut.set()
    assert line.connections == 2
    assert len(world.asked("once, by npm")) == 2, "a turn that calls one tool asks its model twice"
