"""A tool of another package: one module, one entry point, and the capabilities it asks for."""

from pathlib import Path

from fakes.command import Hermes
from fakes.model import Call, FakeModelServer, Rule, Script, Step

TOOL = """
from msgspec import Struct
from hermes.agent.tools.define import tool
from hermes.domain.errors import HermesError
from hermes.domain.tools import Need, ToolResult

class Args(Struct, frozen=True, kw_only=True):
    word: str

async def dig(args: Args, context) -> ToolResult:
    '''Look for a word in earlier conversations.'''
    hits = await context.search(args.word)
    try:
        await context.fetch("http://127.0.0.1:9/", 100)
    except HermesError as error:
        refused = error.message
    count = (await context.recall("digs") or 0) + 1
    await context.remember("digs", count)
    return ToolResult(content=f"dig {count}: {len(hits)} found; {refused}")

async def nag(args: Args, context) -> ToolResult:
    '''Ask somebody.'''
    return ToolResult(content=await context.ask(args.word))

DIG = tool(name="dig", toolset="garden", needs=[Need.SEARCH, Need.FETCH])(dig)
NAG = tool(name="nag", toolset="garden", needs=[Need.ASK])(nag)
"""
POINTS = "[hermes.tools]\ngarden.dig = garden_tools:DIG\ngarden.nag = garden_tools:NAG\n"


async def test_a_tool_of_another_package_is_found_and_given_what_it_needs(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "garden-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "garden_tools.py").write_text(TOOL, encoding="utf-8")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    (info / "METADATA").write_text("Name: garden\nVersion: 1.0\n", encoding="utf-8")
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
        hermes.environ["PYTHONPATH"] = str(site)
        await hermes.run("chat", "-Q", "-q", "where is the treasure")
        outcome = await hermes.run("chat", "-Q", "-q", "dig for it")
        asked = [request.body for request in server.requests if "tools" in request.body]
    assert outcome.out == "done\n"
    # One-shot answers have nobody to ask, so `nag` is not offered there.
    assert [tool["function"]["name"] for tool in asked[-1]["tools"]] == ["dig"]
    [result] = [m["content"] for m in asked[-1]["messages"] if m["role"] == "tool"]
    assert result.startswith("dig 1: 2 found; 127.0.0.1 is in a private network")
