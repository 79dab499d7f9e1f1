import os
from pathlib import Path

from hermes.domain.ports.files import IdentitySnapshot
from hermes.domain.profile import AgentProfile
from hermes.domain.settings import Settings
from hermes.domain.settings.agent import Memory
from hermes.domain.settings.live import LiveSettings
from hermes.state.agent_files import MAX_BYTES, FileIdentity, read_text


def test_a_missing_or_blank_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "blank.md").write_text(" \n", encoding="utf-8")
    assert read_text(tmp_path / "SOUL.md") is None
    assert read_text(tmp_path / "blank.md") is None
    assert read_text(tmp_path) is None


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "SOUL.md")
    assert read_text(tmp_path / "SOUL.md") is None


def test_text_is_read_without_marks_and_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_bytes("\ufeffI am\r\nHermes ☤\n".encode())
    assert read_text(tmp_path / "SOUL.md") == "I am\nHermes ☤"


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_bytes(b"a\xffb")
    assert read_text(tmp_path / "SOUL.md") == "a\ufffdb"


def test_reading_stops_at_the_bound_between_two_characters(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("ü" * MAX_BYTES, encoding="utf-8")
    assert read_text(tmp_path / "SOUL.md", 5) == "üü"
    assert read_text(tmp_path / "SOUL.md") == "ü" * (MAX_BYTES // 2)


async def test_a_new_session_is_told_the_soul_and_the_memories(tmp_path: Path) -> None:
    (tmp_path / "memories").mkdir()
    (tmp_path / "SOUL.md").write_text("I am Hermes.\n", encoding="utf-8")
    (tmp_path / "memories" / "MEMORY.md").write_text("likes tea\n§\nlives in Rome\n")
    profile = AgentProfile(
        id="main", home=tmp_path, workspace=tmp_path, provider="p", model="m", toolsets=()
    )
    limits = Settings(memory=Memory(memory_char_limit=9, user_char_limit=9))
    found = await FileIdentity(LiveSettings(limits)).snapshot(profile)
    assert found == IdentitySnapshot(soul="I am Hermes.", memory="likes tea")


async def test_a_session_that_begins_after_a_change_is_told_of_it(tmp_path: Path) -> None:
    profile = AgentProfile(
        id="main", home=tmp_path, workspace=tmp_path, provider="p", model="m", toolsets=()
    )
    identity, soul = FileIdentity(LiveSettings(Settings())), tmp_path / "SOUL.md"
    assert (await identity.snapshot(profile)).soul is None
    for told in ("I am Hermes.", "I am Apollo."):
        (tmp_path / "new").write_text(told, encoding="utf-8")
        (tmp_path / "new").replace(soul)
        assert (await identity.snapshot(profile)).soul == told
        assert (await identity.snapshot(profile)).soul == told
    soul.unlink()
    assert (await identity.snapshot(profile)).soul is None
