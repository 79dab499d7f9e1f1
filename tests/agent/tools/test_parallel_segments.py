import json
import posixpath

from hypothesis import given
from hypothesis import strategies as st

from fakes.cpu import least_cpu
from hermes.agent.executor import segments
from hermes.agent.tools.registry import ToolRegistry
from hermes.domain.messages import ToolCall
from hermes.domain.tools import Parallel

TOOLS = ToolRegistry(["file", "terminal", "todo"])
WRITERS = {"write_file", "patch"}


def call(name: str, path: str | None = None, number: int = 0) -> ToolCall:
    arguments = {} if path is None else {"path": path}
    return ToolCall(id=f"c{number}", name=name, arguments=json.dumps(arguments))


def absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join("/work", path))


def names(*calls: ToolCall) -> list[list[str]]:
    return [[c.name for c in part] for part in segments(calls, TOOLS.spec, absolute)]


CALLS = st.lists(
    st.builds(
        call,
        st.sampled_from(
            ["read_file", "write_file", "patch", "search_files", "terminal", "todo", "no_such"]
        ),
        st.sampled_from(["a", "a/b", "./a/b", "/work/a", "c", "../work/c", ".", "", None]),
    ),
    max_size=12,
)


@given(CALLS)
def test_nothing_is_lost_and_order_is_kept(calls: list[ToolCall]) -> None:
    parts = segments(calls, TOOLS.spec, absolute)
    assert [c for part in parts for c in part] == calls
    assert all(parts)


@given(CALLS)
def test_calls_that_must_be_alone_are_alone_and_writes_to_one_path_never_overlap(
    calls: list[ToolCall],
) -> None:
    for resolve in (absolute, posixpath.normpath):
        for part in segments(calls, TOOLS.spec, resolve):
            specs = [TOOLS.spec(c.name) for c in part]
            if any(s is not None and s.parallel is Parallel.NEVER for s in specs):
                assert len(part) == 1
            written = [
                absolute(json.loads(c.arguments)["path"])
                for c in part
                if c.name in WRITERS and len(part) > 1
            ]
            assert len(written) == len(set(written))


def test_reads_overlap_with_each_other() -> None:
    assert names(call("read_file", "a"), call("read_file", "a"), call("search_files")) == [
        ["read_file", "read_file", "search_files"]
    ]


def test_a_read_waits_for_the_write_before_it() -> None:
    assert names(call("write_file", "a"), call("read_file", "./a")) == [
        ["write_file"],
        ["read_file"],
    ]
    assert names(call("write_file", "d/a"), call("search_files", "d")) == [
        ["write_file"],
        ["search_files"],
    ]
    assert names(call("write_file", "a"), call("read_file", "b")) == [["write_file", "read_file"]]


def test_writes_to_different_paths_overlap() -> None:
    assert names(call("write_file", "a"), call("patch", "b"), call("write_file", "/work/b")) == [
        ["write_file", "patch"],
        ["write_file"],
    ]


def test_a_patch_over_several_files_is_judged_by_the_files_in_it() -> None:
    text = "*** Update File: x\n-a\n+b\n"
    multi = ToolCall(
        id="p",
        name="patch",
        arguments=json.dumps({"mode": "patch", "path": "decoy", "patch": text}),
    )
    assert names(multi, call("write_file", "x")) == [["patch"], ["write_file"]]
    assert names(multi, call("write_file", "y")) == [["patch", "write_file"]]


def test_paths_that_cannot_be_compared_count_as_the_same() -> None:
    for other in ("/work/a", "~/a", "../x/a"):
        parts = segments([call("write_file", "a"), call("write_file", other)], TOOLS.spec)
        assert len(parts) == 2


def test_a_call_is_compared_with_all_before_it_at_once() -> None:
    def cut(size: int) -> None:
        parts = segments([call("write_file", f"d{n}/f") for n in range(size)], TOOLS.spec, absolute)
        assert len(parts) == 1

    assert least_cpu(lambda: cut(2400)) < 24 * least_cpu(lambda: cut(300))


def test_a_patch_of_very_many_files_is_alone() -> None:
    text = "".join(f"*** Delete File: f{n}\n" for n in range(300))
    many = ToolCall(id="p", name="patch", arguments=json.dumps({"mode": "patch", "patch": text}))
    assert names(call("write_file", "a"), many, call("write_file", "b")) == [
        ["write_file"],
        ["patch"],
        ["write_file"],
    ]
