import asyncio
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.toolbox import Toolbox, local_environment
from hermes.domain.messages import ToolOutcome
from hermes.testing.environment import FakeEnvironment


def box(**files: bytes | str) -> Toolbox:
    return Toolbox(FakeEnvironment(files={name.replace("_", "."): d for name, d in files.items()}))


async def test_lines_are_numbered() -> None:
    assert await box(a_txt="one\ntwo\n").text("read_file", path="a.txt") == "1|one\n2|two"


async def test_the_last_line_needs_no_line_feed_and_crlf_does_not_show() -> None:
    assert await box(a="\ufeffx\r\ny").text("read_file", path="a") == "1|x\n2|y"


async def test_a_page_says_how_to_go_on() -> None:
    tools = box(a="".join(f"{n}\n" for n in range(1, 11)))
    text = await tools.text("read_file", path="a", offset=3, limit=2)
    assert text == "3|3\n4|4\n[Lines 3-4 of 10. Continue with offset=5.]"


async def test_an_offset_past_the_end_says_how_long_the_file_is() -> None:
    result = await box(a="1\n2\n").do("read_file", path="a", offset=9)
    assert result.outcome is ToolOutcome.ERROR
    assert "only 2 lines" in str(result.content)


async def test_an_empty_file_is_said_to_be_empty() -> None:
    assert await box(a="").text("read_file", path="a") == "a is empty."


async def test_binary_files_are_refused() -> None:
    result = await box(a=b"\x7fELF\0\0").do("read_file", path="a")
    assert result.outcome is ToolOutcome.ERROR
    assert "binary" in str(result.content)


async def test_a_text_that_is_not_utf8_is_said_to_be_none() -> None:
    tools = Toolbox(FakeEnvironment(files={"a": b"caf\xe9\n", "b": "café\n"}))
    assert "1|caf\ufffd\n[The file is not UTF-8" in await tools.text("read_file", path="a")
    assert await tools.text("read_file", path="b") == "1|café"


async def test_similar_names_are_suggested() -> None:
    tools = box(README_md="x", main_py="y")
    assert "README.md" in await tools.text("read_file", path="readme.md")
    assert "no directory" in await tools.text("read_file", path="nowhere/deep/x")


async def test_devices_and_directories_are_refused(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as env:
        for path in ("/dev/zero", "/dev/stdin", str(tmp_path)):
            assert (await Toolbox(env).do("read_file", path=path)).outcome is ToolOutcome.ERROR


async def test_an_unchanged_page_is_not_repeated_at_once_but_on_demand() -> None:
    tools = box(a="some line of text\n" * 40)
    first = await tools.text("read_file", path="a")
    assert "Unchanged" in await tools.text("read_file", path="./a")
    assert await tools.text("read_file", path="a") == first
    assert "Unchanged" in await tools.text("read_file", path="a")
    await tools.environment.write("a", b"changed line of text\n" * 40)
    assert "changed line" in await tools.text("read_file", path="a")
    tools.turn_id = "turn_2"
    assert "changed line" in await tools.text("read_file", path="a")
    tools.session_id = "another"
    assert "changed line" in await tools.text("read_file", path="a")


async def test_a_page_never_exceeds_the_cap() -> None:
    tools = box(a=("x" * 60_000 + "\n") * 3, b="y" * 300_000)
    text = await tools.text("read_file", path="a")
    assert len(text) <= 100_000
    assert text.endswith("[Lines 1-1 of 3. Continue with offset=2.]")
    long = await tools.text("read_file", path="b")
    assert len(long) <= 100_000
    assert "line cut: it has 300000 characters" in long


async def test_a_line_far_into_a_large_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("".join(f"line number {n}\n" for n in range(1, 600_001)))
    async with local_environment(tmp_path) as env:
        text = await Toolbox(env).text("read_file", path="big", offset=599_999, limit=1)
        assert text.startswith("599999|line number 599999\n[Lines 599999-599999 of 600000.")
        early = await Toolbox(env).text("read_file", path="big", offset=2, limit=1)
        assert early == "2|line number 2\n[Lines 2-2. Continue with offset=3.]"


@given(
    lines=st.lists(
        st.text(
            st.characters(exclude_characters="\n\r\0\ufeff", exclude_categories=["Cs"]), max_size=20
        ),
        max_size=60,
    ),
    limit=st.integers(1, 20),
    closed=st.booleans(),
)
def test_paging_covers_the_file_exactly(lines: list[str], limit: int, closed: bool) -> None:
    text = "\n".join(lines) + ("\n" if closed and lines else "")
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    tools = Toolbox(FakeEnvironment(files={"f": text}))

    async def read_all() -> list[str]:
        seen: list[str] = []
        while len(seen) < len(expected):
            page = await tools.text("read_file", path="f", offset=len(seen) + 1, limit=limit)
            for row in page.split("\n"):
                number, mark, line = row.partition("|")
                if mark and number == str(len(seen) + 1):
                    seen.append(line)
        return seen

    assert asyncio.run(read_all()) == expected


@pytest.mark.parametrize(
    "arguments", ['{"path":"a","offset":"2","limit":"1"}', '{"path":"a","offset":2,"limit":1,}']
)
async def test_numbers_in_quotes_are_understood_and_broken_json_is_not(arguments: str) -> None:
    result = await box(a="1\n2\n3\n").call("read_file", arguments)
    if arguments.endswith(",}"):
        assert result.outcome is ToolOutcome.ERROR
    else:
        assert str(result.content).startswith("2|2")


async def test_a_line_without_end_is_not_kept_whole(tmp_path: Path) -> None:
    """500 MB without a line feed cost as much memory as a page."""
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(500 << 20)
    async with local_environment(tmp_path) as env:
        tracemalloc.start()
        text = await Toolbox(env).text("read_file", path="sparse")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert "line cut: it has more than" in text
    assert peak < 20 << 20


async def test_names_are_compared_with_some_of_a_great_many() -> None:
    files = {f"number-{n}-of-a-great-many.txt": "" for n in range(20_000)}
    tools = Toolbox(FakeEnvironment(files={**files, "README.md": ""}))
    assert "README.md" in await tools.text("read_file", path="readme.txt")
