"""A tool of another package: one module, one entry point, and the capabilities it asks for."""

import asyncio
from pathlib import Path

from fakes.command import Hermes
from fakes.gateway import GatewayProcess, gateway_config
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.package import install
from fakes.telegram import FakeTelegram

TOOL = """
from msgspec import Struct
from hermes.agent.tools.define import tool
from hermes.domain.errors import HermesError
from hermes.domain.tools import Need, ToolResult, ToolSpec, WebRequest

class Args(Struct, frozen=True, kw_only=True):
    word: str

async def dig(args: Args, context) -> ToolResult:
    '''Look for a word in earlier conversations.'''
    hits = await context.search(args.word)
    try:
        await context.fetch(WebRequest(url="http://127.0.0.1:9/", limit=100))
    except HermesError as error:
        refused = error.message
    count = (await context.recall("digs") or 0) + 1
    await context.remember("digs", count)
    return ToolResult(content=f"dig {count}: {len(hits)} found; {refused}")

async def nag(args: Args, context) -> ToolResult:
    '''Ask somebody.'''
    return ToolResult(content=await context.ask(args.word))

async def help_(args: Args, context) -> ToolResult:
    '''Have a child turn look into it and report to the home channel.'''
    child = await context.spawn("main", args.word)
    await context.send("telegram", f"report: {child.text}")
    return ToolResult(content=f"{child.failed} {child.text}")

DIG = tool(dig, ToolSpec(name="dig", toolset="garden", needs=frozenset({Need.SEARCH, Need.FETCH})))
NAG = tool(nag, ToolSpec(name="nag", toolset="garden", needs=frozenset({Need.ASK})))
NEEDS = frozenset({Need.SPAWN, Need.SEND})
HELP = tool(help_, ToolSpec(name="help", toolset="garden", needs=NEEDS, replay_safe=True))
"""
POINTS = """[hermes.tools]
garden.dig = garden_tools:DIG
garden.nag = garden_tools:NAG
garden.help = garden_tools:HELP
garden.broken = no_such_module:TOOL
"""
ANN = 777


async def test_a_tool_of_another_package_is_found_and_given_what_it_needs(tmp_path: Path) -> None:
    script = Script(
        rules=[
            Rule(
                contains="dig for it",
                steps=[
                    Step(calls=[Call(name="dig", arguments={"word": "treasure"})]),
                    Step(text="done"),
                ],
            ),
        ],
        default=Step(text="I hid a treasure."),
    )
    async with FakeModelServer(script) as server:
        hermes = Hermes(tmp_path, server.base_url, {"toolsets": ["garden"]})
        hermes.environ["PYTHONPATH"] = install(tmp_path / "site", "garden_tools", TOOL, POINTS)
        await hermes.run("chat", "-Q", "-q", "where is the treasure")
        outcome = await hermes.run("chat", "-Q", "-q", "dig for it")
        asked = [request.body for request in server.requests if "tools" in request.body]
    assert outcome.out == "done\n"
    # One-shot answers have nobody to ask, so `nag` is not offered there.
    assert [tool["function"]["name"] for tool in asked[-1]["tools"]] == ["dig"]
    [result] = [m["content"] for m in asked[-1]["messages"] if m["role"] == "tool"]
    assert result.startswith("dig 1: 2 found; 127.0.0.1 is in a private network")


def offered(model: FakeModelServer, text: str) -> list[str]:
    """Return the tools that the model was offered in the turn with this text."""
    bodies = [r.body for r in model.requests if text in str(r.body["messages"])]
    return [tool["function"]["name"] for tool in bodies[0].get("tools", ())]


async def test_a_tool_in_a_chat_asks_spawns_and_sends(tmp_path: Path) -> None:
    call = Call(name="help", arguments={"word": "count the beds"})
    script = Script(
        rules=[
            Rule(contains="count the beds", steps=[Step(text="three beds")]),
            Rule(contains="please help", steps=[Step(calls=[call]), Step(text="helped")]),
            Rule(
                contains="nag me",
                steps=[
                    Step(calls=[Call(name="nag", arguments={"word": "Roses?"})]),
                    Step(text="nagged"),
                ],
            ),
        ],
        default=Step(echo=True),
    )
    home = {"platform_toolsets": {"telegram": ["garden"], "task": ["garden"]}}
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        hermes = Hermes(tmp_path, model.base_url, gateway_config(telegram.base_url, **home))
        hermes.environ["PYTHONPATH"] = install(tmp_path / "site", "garden_tools", TOOL, POINTS)
        gateway = GatewayProcess(hermes)
        await gateway.start()
        try:
            async with asyncio.timeout(50):
                telegram.say(ANN, ANN, "/sethome")
                await telegram.until(lambda: len(telegram.replies(ANN)) == 1)
                telegram.say(ANN, ANN, "please help")
                await telegram.until(lambda: "helped" in str(telegram.replies(ANN)))
                telegram.say(ANN, ANN, "nag me")
                await telegram.until(lambda: "Roses?" in str(telegram.replies(ANN)))
                telegram.say(ANN, ANN, "yes, red ones")
                await telegram.until(lambda: "nagged" in str(telegram.replies(ANN)))
        finally:
            await gateway.stop()
    shown = [seen.text for seen in telegram.replies(ANN)]
    assert [text for text in shown if text == "report: three beds"] == ["report: three beds"]
    assert offered(model, "please help") == ["dig", "help", "nag"]
    # Nobody can be asked in a child turn, and it has no children.
    assert offered(model, "count the beds") == ["dig"]
    results = [m["content"] for m in model.requests[-1].body["messages"] if m["role"] == "tool"]
    assert results == ["False three beds", "yes, red ones"]
