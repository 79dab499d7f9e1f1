from typing import Any

from fakes.echo import echo_tool
from fakes.toolbox import Toolbox
from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.wrappers import Approved, Budgeted, Filtered
from hermes.domain.errors import ToolRefused
from hermes.domain.messages import ToolCall, ToolOutcome
from hermes.domain.ports.execution import CommandResult
from hermes.domain.tools import ToolContext, ToolRunner, ToolSpec
from hermes.testing.environment import FakeEnvironment


def registry() -> ToolRunner:
    return ToolRegistry(["extra", "todo"], extra=[echo_tool()])


class Gate:
    """Refuses what says `bad` and records what it is asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def admit(
        self, call: ToolCall, spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
    ) -> None:
        assert spec.name == call.name
        self.asked.append(arguments)
        if arguments.get("text") == "bad":
            raise ToolRefused("The person said no.", hint="Ask first.")


async def test_the_gate_is_asked_before_anything_happens() -> None:
    gate = Gate()
    tools = Toolbox(FakeEnvironment(), Approved(registry(), gate))
    assert await tools.text("echo", text="good") == "good"
    refused = await tools.do("echo", text="bad")
    assert (refused.outcome, refused.content) == (
        ToolOutcome.REFUSED,
        "The person said no. Ask first.",
    )
    assert gate.asked == [{"text": "good"}, {"text": "bad"}]


async def test_calls_that_cannot_run_are_not_put_to_the_gate() -> None:
    gate = Gate()
    tools = Toolbox(FakeEnvironment(), Approved(registry(), gate))
    assert (await tools.do("nothing", text="bad")).outcome is ToolOutcome.ERROR
    assert (await tools.call("echo", "{")).outcome is ToolOutcome.ERROR
    assert gate.asked == []


async def test_filtered_tools_are_neither_shown_nor_run() -> None:
    tools = Filtered(registry(), {"todo"})
    assert [spec.name for spec in tools.specs()] == ["todo"]
    assert tools.spec("echo") is None
    box = Toolbox(FakeEnvironment(), tools)
    assert (await box.do("echo", text="x")).outcome is ToolOutcome.REFUSED
    assert (await box.do("todo")).outcome is ToolOutcome.OK
    assert "There is no tool" in await box.text("nothing")


def test_the_name_of_a_tool_is_not_that_of_its_toolset() -> None:
    tools = ToolRegistry(("terminal", "file"))

    def names(*named: str) -> set[str]:
        return {spec.name for spec in Filtered(tools, named).specs()}

    assert names("terminal", "read_file") == {"terminal", "read_file"}
    assert names("file", "process") > {"process", "read_file", "patch"}


async def test_the_results_of_a_turn_have_a_budget_and_short_ones_always_pass() -> None:
    stored: list[bytes | None] = []

    def answer(command: Any) -> CommandResult:
        stored.append(command.stdin)
        return CommandResult(exit_code=0, output="/tmp/stored.txt", cwd="/work")

    tools = Toolbox(FakeEnvironment(answers=answer), Budgeted(registry(), 10_000))
    long = {"text": "x" * 6000}
    assert len(await tools.text("echo", **long)) == 6000
    cut = await tools.text("echo", **long)
    assert "/tmp/stored.txt" in cut
    assert stored == [b"x" * 6000]
    assert await tools.text("echo", text="short") == "short"
    tools.turn_id = "turn_2"
    assert len(await tools.text("echo", **long)) == 6000


async def test_wrappers_compose() -> None:
    tools = Approved(Budgeted(Filtered(registry(), {"echo"})), Gate())
    assert [spec.name for spec in tools.specs()] == ["echo"]
    assert tools.spec("todo") is None
    assert (
        await Toolbox(FakeEnvironment(), tools).do("echo", text="bad")
    ).outcome is ToolOutcome.REFUSED
