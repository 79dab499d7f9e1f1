"""A tool that blocks the event loop: the gateway ends itself, comes back, and has learnt."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from fakes.api_gateway import running_api
from fakes.command import Hermes
from fakes.gateway import GatewayProcess, gateway_config
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.package import install
from fakes.telegram import FakeTelegram

TOOL = """
import asyncio
import re
from msgspec import Struct
from hermes.agent.tools.define import tool
from hermes.app import watchdog
from hermes.domain.tools import ToolResult, ToolSpec
from hermes.streaming.chat import media

watchdog.LIMIT, watchdog.CPU_SECONDS = 2, 4.0
_feed = media.MediaStream.feed

def feed(stream: media.MediaStream, text: str) -> str:
    '''Block the door at a word of the model.'''
    if "ice age" in text:
        search()
    return _feed(stream, text)

media.MediaStream.feed = feed

class Args(Struct, frozen=True, kw_only=True):
    way: str

def search() -> None:
    re.search("(a+)+$", "a" * 50 + "b")

async def freeze(args: Args, context) -> ToolResult:
    '''Block everything.'''
    if args.way == "loop":
        search()
    else:
        await asyncio.to_thread(search)
    return ToolResult(content="thawed")

FREEZE = tool(freeze, ToolSpec(name="freeze", toolset="ice", replay_safe=True))
"""
POINTS = "[hermes.tools]\nice.freeze = ice_tools:FREEZE\n"
ANN, BOB = 777, 888


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("way", "others_go_on"), [("loop", True), ("thread", False)])
async def test_a_blocked_gateway_ends_and_does_not_resume_the_culprit(
    tmp_path: Path, way: str, others_go_on: bool
) -> None:
    freeze = Step(calls=[Call(name="freeze", arguments={"way": way})])
    script = Script(
        rules=[
            Rule(contains="hello again", steps=[Step(text="warm welcome")]),
            Rule(contains="cool it", steps=[freeze] * 9),
        ],
        steps=[Step(stall="before")],
        default=Step(text="done"),
    )
    home = {"platform_toolsets": {"telegram": ["ice"]}}
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        hermes = Hermes(tmp_path, model.base_url, gateway_config(telegram.base_url, **home))
        hermes.environ["PYTHONPATH"] = install(tmp_path / "site", "ice_tools", TOOL, POINTS)
        gateway = GatewayProcess(hermes)
        await gateway.start()
        try:
            telegram.say(BOB, BOB, "patience")
            await telegram.until(lambda: model.requests, 30)
            telegram.say(ANN, ANN, "cool it")
            assert gateway.process is not None
            code = await asyncio.wait_for(gateway.process.wait(), 60)
            assert code != 0
            await gateway.start()
            await telegram.until(lambda: "blocked Hermes" in str(telegram.replies(ANN)), 30)
            bob_is_told = "done" if others_go_on else "blocked Hermes"
            await telegram.until(lambda: bob_is_told in str(telegram.replies(BOB)), 30)
            telegram.say(ANN, ANN, "hello again")
            await telegram.until(lambda: "warm welcome" in str(telegram.replies(ANN)), 30)
        finally:
            await gateway.kill()
    log = (hermes.home / "logs" / "errors.log").read_text(encoding="utf-8")
    assert "was blocked and ended itself" in log
    assert "in search" in log, "the stack names the culprit"


@pytest.mark.timeout(150)
async def test_a_turn_that_blocks_its_door_is_not_resumed(tmp_path: Path) -> None:
    """The request over HTTP blocks while it is told what the model says, not the turn itself."""
    script = Script(default=Step(text="an ice age comes", piece_chars=100))
    tools = {"platform_toolsets": {"api_server": ["ice"]}}
    site = {"PYTHONPATH": install(tmp_path / "site", "ice_tools", TOOL, POINTS)}
    async with (
        FakeModelServer(script) as model,
        running_api(tmp_path, model.base_url, variables=site, **tools) as gateway,
    ):
        body = {"messages": [{"role": "user", "content": "Tell me"}], "stream": True}
        async with gateway.client() as client:
            with pytest.raises(httpx2.HTTPError):
                await client.post("/v1/chat/completions", json=body)
        assert gateway.process is not None
        await asyncio.wait_for(gateway.process.wait(), 60)
        await gateway.start()
        assert "resumed" not in gateway.log()
        assert len(model.requests) == 1
