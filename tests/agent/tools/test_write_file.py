from pathlib import Path

from fakes.toolbox import Toolbox, local_environment
from hermes.domain.messages import ToolOutcome


async def test_a_file_is_made_with_its_directories_and_then_replaced(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as env:
        tools = Toolbox(env)
        first = await tools.do("write_file", path="new/a.txt", content="one\ntwo")
        assert first.content == f"Wrote {tmp_path}/new/a.txt: 7 bytes, 2 lines."
        assert first.diff == "--- /dev/null\n+++ b/new/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two"
        second = await tools.do("write_file", path="new/a.txt", content="one\n2\n")
        assert str(second.content).startswith("Replaced")
        assert second.diff is not None
        assert "-two\n+2" in second.diff
    assert (tmp_path / "new/a.txt").read_text() == "one\n2\n"


async def test_a_binary_file_may_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\0\0")
    async with local_environment(tmp_path) as env:
        assert (
            await Toolbox(env).do("write_file", path="a", content="x")
        ).outcome is ToolOutcome.OK
    assert (tmp_path / "a").read_text() == "x"


async def test_directories_and_devices_are_not_written_to(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as env:
        for path in (str(tmp_path), "/dev/null"):
            result = await Toolbox(env).do("write_file", path=path, content="x")
            assert result.outcome is ToolOutcome.ERROR


async def test_text_that_does_not_parse_is_written_and_remarked(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as env:
        text = await Toolbox(env).text("write_file", path="a.json", content="{")
        assert "does not parse" in text
        assert "not parse" not in await Toolbox(env).text(
            "write_file", path="a.toml", content="x = 1"
        )
    assert (tmp_path / "a.json").read_text() == "{"


async def test_more_than_the_loop_can_carry_is_not_written_in_one_call(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as env:
        result = await Toolbox(env).do("write_file", path="big", content="a" * (10 * 2**20 + 1))
        assert "too large" in str(result.content)
    assert not (tmp_path / "big").exists()


async def test_yaml_that_does_not_parse_is_told(tmp_path: Path) -> None:
    async with local_environment(tmp_path) as env:
        tools = Toolbox(env)
        bad = await tools.text("write_file", path="a.yaml", content="a: [1\nb: 2\n")
        assert "It does not parse: line 2: " in bad
        good = "a: !special {b: 1}\n---\nc: 2\n"
        assert "does not parse" not in await tools.text("write_file", path="b.yml", content=good)
