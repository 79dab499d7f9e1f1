import os
from pathlib import Path

from hermes.state.soul import MAX_SOUL_BYTES, read_memories, read_soul, read_text


async def test_a_missing_or_blank_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "blank.md").write_text(" \n", encoding="utf-8")
    assert await read_soul(tmp_path / "SOUL.md") is None
    assert await read_soul(tmp_path / "blank.md") is None
    assert await read_soul(tmp_path) is None


async def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "SOUL.md")
    assert await read_soul(tmp_path / "SOUL.md") is None


async def test_text_is_read_without_marks_and_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_bytes("\ufeffI am\r\nHermes ☤\n".encode())
    assert await read_soul(tmp_path / "SOUL.md") == "I am\nHermes ☤"


async def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_bytes(b"a\xffb")
    assert await read_soul(tmp_path / "SOUL.md") == "a\ufffdb"


async def test_reading_stops_at_the_bound_between_two_characters(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("ü" * MAX_SOUL_BYTES, encoding="utf-8")
    assert await read_text(tmp_path / "SOUL.md", 5) == "üü"
    whole = await read_soul(tmp_path / "SOUL.md")
    assert whole == "ü" * (MAX_SOUL_BYTES // 2)


async def test_memories_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("likes tea\n§\nlives in Rome\n", encoding="utf-8")
    assert await read_memories(tmp_path) == {"MEMORY.md": "likes tea\n§\nlives in Rome"}
    assert await read_memories(tmp_path / "nowhere") == {}
