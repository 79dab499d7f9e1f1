"""What holds for every tool that is installed, looked at without knowing what it does."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fakes.toolbox import Toolbox, local_environment
from hermes.agent.executor import call_started
from hermes.agent.tools.ask_agent import ASK_AGENT
from hermes.agent.tools.media.image_generate import IMAGE_SERVICE
from hermes.agent.tools.registry import ToolRegistry
from hermes.domain.messages import ToolCall, ToolOutcome, content_text
from hermes.domain.tools import Need, ToolSpec
from hermes.testing import FakeEnvironment

REGISTRY = ToolRegistry(
    ["all"], secret_names=frozenset({IMAGE_SERVICE, ASK_AGENT}), granted=frozenset(Need)
)
SPECS = REGISTRY.specs()
every_tool = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)

REPEATED = {
    *("ask_agent", "clarify", "delegate_task", "read_file", "search_files", "send_message"),
    *("text_to_speech", "todo", "vision_analyze", "web_extract", "web_search", "write_file"),
}
"""Run again after a crash: twice is as good as once."""
JUDGED = {
    *("execute_code", "patch", "process", "read_file", "search_files", "terminal"),
    *("image_generate", "text_to_speech", "vision_analyze", "write_file"),
}
"""Touch files or processes, so the policy looks at what they would do."""


def test_which_tools_are_repeated_judged_and_destructive_is_declared() -> None:
    assert {spec.name for spec in SPECS if spec.replay_safe} == REPEATED
    assert {spec.name for spec in SPECS if spec.intent} == JUDGED
    assert {spec.name for spec in SPECS if spec.destructive} == set()
    assert REGISTRY.unavailable == {}


@every_tool
def test_it_is_described_in_a_sentence_with_typed_arguments(spec: ToolSpec) -> None:
    assert spec.description.strip()
    assert "\n" not in spec.description.strip()
    assert spec.verb
    fields = spec.parameters["properties"]
    assert set(spec.parameters.get("required", ())) <= set(fields)
    assert not spec.label_field or spec.label_field in fields
    assert all("type" in field or "enum" in field or "anyOf" in field for field in fields.values())


@every_tool
async def test_wrong_arguments_are_answered_with_what_it_takes(spec: ToolSpec) -> None:
    box = Toolbox(FakeEnvironment(), REGISTRY)
    fields, required = spec.parameters["properties"], spec.parameters.get("required", [])
    wrong = ["[1, 2]", "{not json", json.dumps({"nonsense": 1})]
    wrong += [json.dumps({name: {"a": {}} for name in fields})] if fields else []
    wrong += ["{}"] if required else []
    for arguments in wrong:
        result = await box.call(spec.name, arguments)
        assert result.outcome is ToolOutcome.ERROR, arguments
        text = content_text(result.content)
        assert spec.name in text
        assert all(name in text for name in required)
    for name, field in fields.items():
        if "enum" in field:
            text = await box.text(spec.name, **{name: "nonsense"})
            assert all(str(choice) in text for choice in field["enum"])


def sample(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "array":
            return [sample(schema["items"])] * 3
        case "object":
            return {name: sample(each) for name, each in schema.get("properties", {}).items()}
        case "integer" | "number":
            return 3
        case "boolean":
            return True
        case _:
            return "a line\nand \x1b[31manother " + "x" * 300


@every_tool
def test_its_preview_is_one_line_for_people(spec: ToolSpec) -> None:
    fields: dict[str, Any] = spec.parameters["properties"]
    for chosen in (fields, *([name] for name in fields)):
        arguments = json.dumps({name: sample(fields[name]) for name in chosen})
        call = ToolCall(id="c", name=spec.name, arguments=arguments)
        label = call_started(call, spec, str).label
        assert label.splitlines() in ([label], [])
        assert len(label) <= 120
        assert not label.startswith(("[", "{")), label


PATCH = (
    "*** Begin Patch\n*** Delete File: old.txt\n*** Update File: b.py\n@@\n-a\n+b\n*** End Patch"
)


@pytest.mark.parametrize(
    ("name", "arguments", "label"),
    [
        ("patch", {"mode": "patch", "patch": PATCH}, "old.txt and 1 more"),
        ("patch", {"mode": "replace", "path": "a.py", "old_string": "x"}, "a.py"),
        ("delegate_task", {"tasks": [{"goal": "one"}, {"goal": "two"}]}, "one and 1 more"),
        ("web_extract", {"urls": ["https://a.example"]}, "https://a.example"),
    ],
)
def test_a_preview_names_what_the_call_is_about(
    name: str, arguments: dict[str, Any], label: str
) -> None:
    call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
    assert call_started(call, REGISTRY.spec(name), str).label == label


async def test_what_a_call_gives_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("word " * 20 + "\n")
    with (tmp_path / "big.txt").open("a") as file:
        file.writelines(f"line {number} word\n" for number in range(60_000))
    calls: dict[str, dict[str, Any]] = {
        "terminal": {"command": "cat big.txt big.txt"},
        "read_file": {"path": "big.txt", "limit": 2000},
        "search_files": {"pattern": "word", "limit": 1000, "context": 20},
        "execute_code": {"code": "print(open('big.txt').read())"},
    }
    async with local_environment(tmp_path) as environment:
        box = Toolbox(environment)
        for name, arguments in calls.items():
            assert 500 < len(await box.text(name, **arguments)) <= 100_000, name


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("terminal", {"command": "sleep 98761 & sleep 98761"}),
        ("terminal", {"command": "sleep 98762", "pty": True}),
        ("execute_code", {"code": "import os; os.system('sleep 98763')"}),
    ],
)
async def test_a_call_that_is_cancelled_leaves_no_process(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    def running() -> bool:
        texts = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                texts.append(file.read_bytes())
            except OSError:
                continue
        number = str(arguments).split("sleep ")[1][:5].encode()
        return any(text.startswith(b"sleep\0" + number) for text in texts)

    async with local_environment(tmp_path) as environment, asyncio.timeout(30):
        call = asyncio.ensure_future(Toolbox(environment).do(name, **arguments))
        while not await asyncio.to_thread(running):  # noqa: ASYNC110 - others make it so
            await asyncio.sleep(0.02)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        while await asyncio.to_thread(running):  # noqa: ASYNC110 - others make it so
            await asyncio.sleep(0.02)
