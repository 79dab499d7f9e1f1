"""Whatever a model writes: multi-file patches, arguments of odd types, results of any length."""

import asyncio
import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.toolbox import Toolbox
from hermes.agent.tools.define import HEAD_CHARS, TAIL_CHARS, decode_arguments, spill
from hermes.agent.tools.process import TOOL as PROCESS
from hermes.agent.tools.process import ProcessArgs
from hermes.agent.tools.search import TOOL as SEARCH
from hermes.agent.tools.terminal import TOOL as TERMINAL
from hermes.agent.tools.terminal import TerminalArgs
from hermes.agent.tools.todo import TOOL as TODO
from hermes.domain.errors import UsageError
from hermes.domain.messages import ToolOutcome
from hermes.domain.ports.execution import CommandResult, ShellRun
from hermes.domain.tools import ToolResult
from hermes.testing import FakeEnvironment

FILES = ("a.txt", "b.txt", "deep/c.txt", "new.txt")
LINES = st.lists(
    st.integers(0, 999).map(lambda n: f"line {n}"), min_size=1, max_size=6, unique=True
)
CHANGE = st.sampled_from(("add", "update", "delete", "move"))


def written(kind: str, path: str, old: list[str], new: list[str]) -> str:
    if kind == "add":
        return "\n".join([f"*** Add File: {path}", *(f"+{line}" for line in new)])
    if kind == "delete":
        return f"*** Delete File: {path}"
    moved = [f"*** Move to: {path}.moved"] if kind == "move" else []
    changed = [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    return "\n".join([f"*** Update File: {path}", *moved, "@@", *changed])


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), LINES), st.data())
def test_a_patch_of_several_files_is_carried_out_whole_or_not_at_all(
    before: dict[str, list[str]], data: st.DataObject
) -> None:
    environment = FakeEnvironment()
    for path, lines in before.items():
        asyncio.run(environment.write(path, "".join(f"{line}\n" for line in lines).encode()))
    chosen = data.draw(st.lists(st.sampled_from(FILES), min_size=1, unique=True))
    after, possible, parts = dict(before), True, []
    for path in chosen:
        kind, new = data.draw(CHANGE), data.draw(LINES)
        possible = possible and (kind == "add") == (path not in before)
        parts.append(written(kind, path, before.get(path, ["nothing"]), new))
        after.pop(path, None)
        if kind in ("add", "update", "move"):
            after[f"{path}.moved" if kind == "move" else path] = new
    text = "\n".join(["*** Begin Patch", *parts, "*** End Patch"])
    result = asyncio.run(Toolbox(environment).do("patch", mode="patch", patch=text))
    wanted = after if result.outcome is ToolOutcome.OK else before
    if possible:
        unchanged = any(before.get(path) == after.get(path) for path in chosen)
        assert result.outcome is ToolOutcome.OK or unchanged, result.content
    for path in {*before, *after, *(f"{name}.moved" for name in FILES)}:
        there = asyncio.run(environment.stat(path))
        expected = wanted.get(path)
        assert (there is None) == (expected is None), (path, result.content)
        if expected is not None:
            said = asyncio.run(environment.read(path)).decode()
            assert said == "".join(f"{line}\n" for line in expected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(
    (
        "command",
        "timeout",
        "background",
        "watch_patterns",
        "action",
        "todos",
        "pattern",
        "limit",
        "x",
    )
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NAMES, JSON, max_size=4) | JSON)
def test_any_arguments_are_understood_or_explained(value: Any) -> None:
    for tool in (TERMINAL, PROCESS, SEARCH, TODO):
        try:
            understood: Any = decode_arguments(tool, json.dumps(value))
        except UsageError as error:
            understood = error
        explained = isinstance(understood, UsageError) and tool.spec.name in understood.message
        assert explained or isinstance(understood, tool.arguments)


@settings(max_examples=50, deadline=None)
@given(
    st.text(max_size=30), st.booleans(), st.integers(1, 600), st.lists(st.text('ab[]"', max_size=9))
)
def test_values_written_as_text_count_as_what_they_say(
    command: str, background: bool, timeout: int, patterns: list[str]
) -> None:
    plain = {"command": command, "background": background, "timeout": timeout}
    odd = {"command": command, "background": str(background).lower(), "timeout": str(timeout)}
    wanted = decode_arguments(TERMINAL, json.dumps({**plain, "watch_patterns": patterns}))
    given_ = {**odd, "watch_patterns": json.dumps(patterns), "workdir": None}
    assert decode_arguments(TERMINAL, json.dumps(given_)) == wanted
    assert isinstance(wanted, TerminalArgs)
    assert wanted.watch_patterns == patterns
    fed = decode_arguments(PROCESS, json.dumps({"action": "write", "data": timeout}))
    assert isinstance(fed, ProcessArgs)
    assert fed.data == str(timeout)


class Storing(FakeEnvironment):
    """Keeps what a command is given to store."""

    kept = b""

    async def run(self, command: ShellRun, *_: Any) -> CommandResult:
        self.kept = command.stdin or b""
        return CommandResult(exit_code=0, output="/tmp/kept.txt", cwd="/")


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=300), st.integers(1, 40), st.integers(1, 5000))
def test_a_result_is_bounded_and_nothing_of_it_is_lost(piece: str, times: int, limit: int) -> None:
    environment, text = Storing(), piece * times
    context = Toolbox(environment).context()
    result = asyncio.run(spill(ToolResult(content=text), limit, context))
    if len(text) <= limit:
        assert result.content == text
        return
    assert isinstance(result.content, str)
    assert len(result.content) <= HEAD_CHARS + TAIL_CHARS + 400
    assert result.content.startswith(text[:HEAD_CHARS])
    assert result.content.endswith(text[-TAIL_CHARS:])
    assert environment.kept == text.encode("utf-8", "replace")
    msgspec.json.encode(result.content)
