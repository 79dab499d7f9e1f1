import json
from pathlib import Path

import pytest

from fakes.echo import EchoArgs, echo_tool
from fakes.toolbox import Toolbox, local_environment
from hermes.agent.tools.define import (
    MAX_ARGUMENT_VALUES,
    MAX_ARGUMENTS,
    Tool,
    simplified_schema,
    tool,
)
from hermes.agent.tools.registry import ToolRegistry
from hermes.agent.tools.toolsets import ToolsetChoice, installed_tools, resolve_toolsets
from hermes.domain.entry_points import load_entry_point
from hermes.domain.messages import ToolOutcome
from hermes.domain.tools import Need, ToolContext, ToolResult, ToolSpec
from hermes.testing.environment import FakeEnvironment


def box(made: Tool | None = None) -> Toolbox:
    return Toolbox(FakeEnvironment(), ToolRegistry(["extra"], extra=[made or echo_tool()]))


def test_schemas_are_plain() -> None:
    assert simplified_schema(EchoArgs) == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say"},
            "times": {"type": "integer"},
            "loud": {"type": "boolean"},
            "inner": {"type": "object", "properties": {"size": {"type": "integer"}}},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["text"],
    }


SECRETS = frozenset({"OPENAI_API_KEY", "ask_agent"})


def test_the_built_in_tools_are_described_in_few_words() -> None:
    specs = ToolRegistry(["all"], secret_names=SECRETS, granted=frozenset(Need)).specs()
    assert [spec.name for spec in specs] == sorted(installed_tools())
    shown = [
        {"name": s.name, "description": s.description, "parameters": s.parameters} for s in specs
    ]
    text = json.dumps(shown)
    assert len(text) / 4 < 3500  # the whole fixed prompt has 5000
    for word in ("$ref", "$defs", "title", "anyOf", 'default":'):
        assert word not in text
    for spec in specs:
        assert 20 < len(spec.description) < 200
        assert set(spec.path_fields) <= set(spec.parameters["properties"])
        assert spec.label_field == "" or spec.label_field in spec.parameters["properties"]
    assert text == json.dumps(
        [
            {"name": s.name, "description": s.description, "parameters": s.parameters}
            for s in ToolRegistry(["all"], secret_names=SECRETS, granted=frozenset(Need)).specs()
        ]
    )


@pytest.mark.parametrize("name", sorted(installed_tools()))
def test_every_entry_point_leads_to_the_tool_it_names(name: str) -> None:
    found = installed_tools()[name]
    spec = load_entry_point(found.target).spec
    assert (spec.name, spec.toolset) == (name, found.toolset)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"text":"a"}', "a"),
        ('{"text":"a","times":"2"}', "a a"),
        ('{"text":"a","loud":"true"}', "A"),
        ('{"text":5}', "5"),
        ('{"text":"a","inner":null,"times":null}', "a"),
        ('{"text":"a","inner":"{\\"size\\":3}"}', "a 3"),
        ('{"text":"a","tags":"[\\"x\\",\\"y\\"]"}', "axy"),
        ('{"text":"a","tags":"x"}', "ax"),
        ('{"text":"a","tags":[1]}', "a1"),
    ],
)
async def test_small_mistakes_in_arguments_are_put_right(arguments: str, expected: str) -> None:
    result = await box().call("echo", arguments)
    assert (result.content, result.outcome) == (expected, ToolOutcome.OK)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{}", ["missing required field `text`", "text (required), times"]),
        ("", ["missing required field `text`"]),
        ('{"txt":"a"}', ["no argument `txt`", "did you mean `text`?"]),
        ('{"text":"a","times":"many"}', ["Expected `int`", "times"]),
        ('{"text":["a"]}', ["Expected `str`, got `array`", "$.text"]),
        ('{"text":', ["not a JSON object"]),
        ("[1]", ["not a JSON object"]),
    ],
)
async def test_wrong_arguments_are_explained(arguments: str, words: list[str]) -> None:
    result = await box().call("echo", arguments)
    assert result.outcome is ToolOutcome.ERROR
    for word in words:
        assert word in str(result.content)


async def test_failures_are_results_and_only_bugs_raise() -> None:
    refused = await box().do("echo", text="refuse")
    assert (refused.outcome, refused.content) == (
        ToolOutcome.REFUSED,
        "Not that. Say something else.",
    )
    failed = await box().do("echo", text="fail")
    assert (failed.outcome, failed.content) == (ToolOutcome.ERROR, "It failed. Try again.")
    with pytest.raises(ZeroDivisionError):
        await box().do("echo", text="bug")


async def test_an_unknown_tool_is_answered_with_a_suggestion() -> None:
    tools = Toolbox(FakeEnvironment())
    assert "Did you mean `read_file`?" in await tools.text("readfile")
    assert (await tools.do("frobnicate")).outcome is ToolOutcome.ERROR


async def test_what_is_not_installed_is_not_offered_and_misspellings_are_named() -> None:
    registry = ToolRegistry(["hermes-telegram", "mcp-github", "typo"])
    assert registry.spec("terminal") is not None
    assert registry.choice.unknown == ("mcp-github", "typo")
    text = await Toolbox(FakeEnvironment(), registry).text("frob_search", query="x")
    assert "There is no tool `frob_search`" in text


async def test_a_tool_is_offered_only_where_its_needs_are_granted() -> None:
    async def nag(args: EchoArgs, context: ToolContext) -> ToolResult:
        """Ask until somebody answers."""
        return ToolResult(content=await context.ask(args.text))

    made = tool(nag, ToolSpec(name="nag", toolset="extra", needs=frozenset({Need.ASK})))
    alone = ToolRegistry(["extra"], extra=[made], granted=frozenset({Need.SEARCH}))
    assert alone.specs() == ()
    assert "may not ask here" in await Toolbox(FakeEnvironment(), alone).text("nag", text="?")
    # Offered, but the context of this call cannot ask after all.
    result = await Toolbox(FakeEnvironment(), ToolRegistry(["extra"], extra=[made])).do(
        "nag", text="?"
    )
    assert (result.outcome, result.content) == (
        ToolOutcome.REFUSED,
        "This tool may not ask here.",
    )


async def test_a_tool_whose_check_finds_something_missing_is_not_offered() -> None:
    def check(secrets: frozenset[str]) -> str:
        return "" if "ECHO_KEY" in secrets else "ECHO_KEY is not set"

    made = echo_tool(check=check)
    without = ToolRegistry(["extra"], extra=[made])
    assert without.specs() == ()
    assert without.unavailable == {"echo": "ECHO_KEY is not set"}
    with_key = ToolRegistry(["extra"], extra=[made], secret_names=frozenset({"ECHO_KEY"}))
    assert with_key.spec("echo") is not None


def chosen(names: list[str], disabled: list[str] | None = None) -> ToolsetChoice:
    toolset_of = {name: found.toolset for name, found in installed_tools().items()}
    return resolve_toolsets(names, disabled or [], toolset_of | {"web_search": "web", "x": "mine"})


def test_toolsets_add_up_and_can_be_switched_off() -> None:
    assert chosen(["file"]).tools == {"patch", "read_file", "search_files", "write_file"}
    assert chosen(["debugging"]).tools >= {"terminal", "process", "web_search", "patch"}
    assert chosen(["safe"]).tools.isdisjoint({"terminal", "write_file", "patch"})
    assert chosen(["hermes-cli"]).tools == chosen(["hermes-telegram"]).tools
    assert "terminal" not in chosen(["hermes-webhook"]).tools
    assert "terminal" not in chosen(["all"], ["terminal"]).tools
    assert "process" in chosen(["*"], ["clarify"]).tools
    assert chosen(["read_file"]).tools == {"read_file"}
    assert chosen(["homeassistant", "bogus"]) == ToolsetChoice(
        tools=frozenset(), unknown=("bogus",)
    )
    assert chosen(["mine"]).tools == {"x"}


async def test_a_result_that_is_too_long_goes_into_a_private_file(tmp_path: Path) -> None:
    made = echo_tool(max_result_chars=5000)
    async with local_environment(tmp_path) as env:
        tools = Toolbox(
            env, ToolRegistry(["extra", "terminal"], extra=[made]), session_id="s/../x y"
        )
        text = await tools.text("echo", text="long", times=4000)
        assert text.startswith("long long")
        assert len(text) < 2000
        path = text.split(" and is in ")[1].split(". Page")[0]
        assert path.endswith("/s____x_y/call_1.txt")
        assert await env.read(path) == b" ".join([b"long"] * 4000)
        command = f"stat -c %a {path} $(dirname {path}); rm -r $(dirname {path})"
        assert await tools.text("terminal", command=command) == "600\n700"
        assert env.cwd == str(tmp_path)


async def test_long_output_of_a_command_is_filed_whole_and_its_end_is_shown(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as env:
        tools = Toolbox(env, ToolRegistry(["terminal"]))
        text = await tools.text("terminal", command="seq 40000; echo LAST; exit 3")
        assert text.startswith("1\n2\n")
        assert text.endswith("LAST\n[exit code 3]")
        path = text.split(" and is in ")[1].split(". Page")[0]
        kept = (await env.read(path)).decode().splitlines()
        assert kept[:40000] == [str(number) for number in range(1, 40001)]
        await tools.text("terminal", command=f"rm {path}")


async def test_a_long_result_is_cut_even_where_it_cannot_be_stored() -> None:
    tools = box(echo_tool(max_result_chars=5000))
    text = await tools.text("echo", text="long", times=4000)
    assert "could not be stored" in text
    assert len(text) < 2000


@pytest.mark.parametrize(
    "arguments", ["[" * 200_000, '{"command":"ls","x":' + "[" * 20_000 + "]" * 20_000 + "}"]
)
async def test_arguments_that_are_nested_too_deeply_are_an_error_result(arguments: str) -> None:
    result = await Toolbox(FakeEnvironment()).call("terminal", arguments)
    assert result.outcome is ToolOutcome.ERROR


@pytest.mark.parametrize(
    "arguments",
    [
        '{"text":"a","tags":[' + "[]," * MAX_ARGUMENT_VALUES + "1]}",
        '{"text":"a",' + '"x":1,' * MAX_ARGUMENT_VALUES + '"tags":[]}',
    ],
)
async def test_arguments_of_very_many_values_are_an_error_result(arguments: str) -> None:
    result = await box().call("echo", arguments)
    assert result.outcome is ToolOutcome.ERROR
    assert "at most 50,000 values" in str(result.content)


async def test_a_text_that_holds_very_many_values_stays_a_text() -> None:
    tags = "[" + "1," * MAX_ARGUMENT_VALUES + "1]"
    result = await box().call("echo", json.dumps({"text": "a", "tags": tags}))
    assert result.outcome is ToolOutcome.OK
    wrong = await box().call("echo", json.dumps({"text": "a", "times": tags}))
    assert "Expected `int`" in str(wrong.content)


async def test_a_long_name_that_the_model_made_up_is_shown_in_part() -> None:
    result = await box().call("echo", json.dumps({"x" * 1_000_000: 1}))
    assert "has no argument `xxx" in str(result.content)
    assert len(str(result.content)) < 500


async def test_arguments_that_are_far_too_long_are_not_even_decoded() -> None:
    result = await Toolbox(FakeEnvironment()).call("terminal", " " * (MAX_ARGUMENTS + 1) + "{}")
    assert "too long" in str(result.content)
