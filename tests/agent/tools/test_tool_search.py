"""Tools that are found when they are needed, and loops that are noticed."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from fakes.toolbox import Toolbox, local_environment
from hermes.agent.tools.define import Tool, tool
from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.tool_search import searchable
from hermes.agent.tools.wrappers import Approved, Guarded
from hermes.domain.errors import ToolRefused, UsageError
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.settings.agent import LoopGuardrails, LoopLimits, ToolSearch
from hermes.domain.tools import Parallel, ToolContext, ToolResult, ToolSpec


class Args(Struct, frozen=True, kw_only=True):
    title: Annotated[str, Meta(description="What it is called " * 10)]


def far_tool(number: int, toolset: str = "mcp-forge") -> Tool:
    async def far(args: Args, _context: ToolContext) -> ToolResult:
        return ToolResult(content=f"{number}: {args.title}")

    words = ["issue", "label", "wiki", "release"][number % 4]
    far.__doc__ = f"Make a new {words} on the forge, number {number}."
    return tool(far, ToolSpec(name=f"forge_{words}_{number}", toolset=toolset))


FAR = [far_tool(number) for number in range(40)]


def names(tools: Any) -> set[str]:
    return {spec.name for spec in tools.specs()}


def registry() -> ToolRegistry:
    return ToolRegistry(["file", "mcp-forge"], extra=FAR)


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with local_environment(tmp_path) as environment:
        yield Toolbox(environment)


def test_only_tools_that_outgrow_the_window_are_looked_up() -> None:
    whole, search = registry(), ToolSearch()
    assert searchable(whole, search, 200_000) is whole
    shown = searchable(whole, search, 32_000)
    ours = {"read_file", "write_file", "patch", "search_files"}
    assert names(shown) == ours | {"tool_search", "tool_describe", "tool_call"}
    assert "40 further tools (mcp-forge)" in str(shown.specs())
    assert searchable(whole, ToolSearch(enabled="off"), 8_000) is whole
    assert names(searchable(whole, ToolSearch(enabled="on"), 1_000_000)) == names(shown)
    assert searchable(whole, ToolSearch(threshold_pct=90.0), 32_000) is whole
    few = ToolRegistry(["file"])
    assert searchable(few, search, 4_000) is few


async def test_a_tool_is_found_described_and_called(box: Toolbox) -> None:
    box.tools = searchable(registry(), ToolSearch(), 32_000)
    found = await box.text("tool_search", query="new wiki page")
    assert len(found.splitlines()) == 5
    assert all(line.startswith("forge_wiki_") for line in found.splitlines())
    assert len((await box.text("tool_search", query="forge", limit=99)).splitlines()) == 20
    fewer = ToolSearch(search_default_limit=2, max_search_limit=3)
    box.tools = searchable(registry(), fewer, 32_000)
    assert len((await box.text("tool_search", query="forge")).splitlines()) == 2
    assert len((await box.text("tool_search", query="forge", limit=99)).splitlines()) == 3
    assert "Toolsets: mcp-forge" in await box.text("tool_search", query="zebra")
    about = json.loads(await box.text("tool_describe", name="forge_wiki_2"))
    assert about["parameters"]["required"] == ["title"]
    called = await box.text("tool_call", name="forge_wiki_2", arguments={"title": "Home"})
    assert called == "2: Home"
    assert await box.text("forge_wiki_2", title="straight") == "2: straight"
    wrong = await box.do("tool_call", name="forge_wiki_2", arguments={"name": "x"})
    assert wrong.outcome is ToolOutcome.ERROR
    assert "`forge_wiki_2` has no argument `name`" in str(wrong.content)
    assert "no tool `nope`" in await box.text("tool_call", name="nope")


class Gate:
    async def admit(self, call: ToolCall, *_: Any) -> None:
        raise ToolRefused(f"{call.name} is not allowed.")


async def test_a_call_by_name_passes_the_gate_of_its_tool(box: Toolbox) -> None:
    box.tools = searchable(Approved(registry(), Gate()), ToolSearch(), 32_000)
    text = await box.text("tool_call", name="forge_wiki_2", arguments={"title": "x"})
    assert text == "forge_wiki_2 is not allowed."


class Word(Struct, frozen=True, kw_only=True):
    word: str = ""


async def look(args: Word, _context: ToolContext) -> ToolResult:
    """Look at something without changing it."""
    if args.word == "bad":
        raise UsageError("It is not there.")
    return ToolResult(content="the same")


LOOK = tool(look, ToolSpec(name="look", toolset="eyes", parallel=Parallel.ALWAYS))


async def test_calls_that_lead_nowhere_are_told_and_can_be_blocked(box: Toolbox) -> None:
    eyes = ToolRegistry(["eyes"], extra=[LOOK])
    box.tools = Guarded(eyes)
    texts = [await box.text("look") for _ in range(3)]
    assert texts[:2] == ["the same"] * 2
    assert texts[2].endswith("This call has given the same result 3 times. Use what you have.")
    assert "has now failed 2 times" in [await box.text("look", word="bad") for _ in range(2)][1]
    stop = LoopLimits(exact_failure=2, same_tool_failure=8, idempotent_no_progress=5)
    box.tools = Guarded(eyes, LoopGuardrails(hard_stop_enabled=True, hard_stop_after=stop))
    outcomes = [(await box.do("look", word="bad")).outcome for _ in range(3)]
    assert outcomes == [ToolOutcome.ERROR, ToolOutcome.ERROR, ToolOutcome.REFUSED]
    # A command that fails is one, although its tool has done what it should.
    box.tools = Guarded(ToolRegistry(["terminal"]))
    ended = [await box.text("terminal", command="false") for _ in range(2)]
    assert "has now failed 2 times" in ended[1]
    assert "failed" not in await box.text("terminal", command="true")
    box.tools = Guarded(eyes, LoopGuardrails(warnings_enabled=False))
    assert {await box.text("look", word="bad") for _ in range(4)} == {"It is not there."}
