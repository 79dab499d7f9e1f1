"""Files that come with messages: on disk first, or a note in the text."""

from pathlib import Path

import pytest

from fakes.telegram import FakeTelegram
from fakes.telegram_kit import RememberingSink, adapter_for, receiving
from hermes.testing.clock import FakeClock


async def test_pictures_and_voice_are_on_disk_before_the_message_is_admitted(
    tmp_path: Path,
) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        telegram.world.say_file(5, 5, "photo", b"JPEG", caption="look")
        telegram.world.say_file(5, 5, "voice", b"OGG")
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        photo, voice = sink.messages.values()
        assert (photo.text, photo.attachments[0].kind) == ("look", "image")
        assert (tmp_path / "media" / "5_1_0_photo.jpg").read_bytes() == b"JPEG"
        assert photo.attachments[0].path.endswith("5_1_0_photo.jpg")
        assert (voice.attachments[0].kind, voice.attachments[0].size) == ("voice", 3)


async def test_a_file_that_cannot_be_fetched_becomes_a_note(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        telegram.world.say_file(5, 5, "document", b"x" * 20_000_001, name="big.bin")
        telegram.world.say(5, 5, document={"file_id": "gone", "file_name": "gone.txt"})
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        assert all("could not be fetched" in text for text in sink.texts)
        assert "big.bin" in sink.texts[0]
        assert "20 MB" in sink.texts[0]


async def test_files_that_do_not_come_hold_their_messages_up_only_for_a_while(
    tmp_path: Path,
) -> None:
    async with FakeTelegram() as telegram:
        telegram.fault("hang", "getFile", times=9)
        for number in range(3):
            telegram.world.say_file(5, 5, "document", b"x", name=f"{number}.txt")
        async with adapter_for(telegram, tmp_path, download_timeout=0.2) as adapter:
            sink = RememberingSink()
            async with receiving(adapter, sink):
                await telegram.until(lambda: not telegram.world.updates, seconds=5)
        assert len(telegram.called("getFile")) == 1
        assert all("took too long" in text for text in sink.texts)
        assert len(sink.texts) == 3


async def test_a_download_that_breaks_is_tried_again(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        clock = FakeClock()
        async with adapter_for(telegram, tmp_path, clock) as adapter:
            sink = RememberingSink()
            telegram.fault("reset_before", "file")
            telegram.world.say_file(5, 5, "document", b"content", name="a.txt")
            async with receiving(adapter, sink):
                await clock.until_sleeping()
                clock.advance(10)
                await sink.until(lambda: sink.messages)
            (message,) = sink.messages.values()
            assert message.attachments[0].size == 7


@pytest.mark.parametrize("name", ["../../evil.sh", "..\\evil", "/etc/passwd", "a" * 500, "\0", ""])
async def test_names_of_files_stay_inside_their_directory(tmp_path: Path, name: str) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        sink = RememberingSink()
        file_id = telegram.world.store(b"x", "f")
        telegram.say(5, 5, document={"file_id": file_id, "file_name": name})
        async with receiving(adapter, sink):
            await telegram.until(lambda: not telegram.world.updates)
        (path,) = (tmp_path / "media").iterdir()
        assert path.read_bytes() == b"x"
        assert len(path.name) < 120


async def test_files_of_a_local_server_are_copied_from_disk(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        source = tmp_path / "on-server.bin"
        source.write_bytes(b"local")
        file_id = telegram.world.store(b"", "f")
        telegram.world.files[file_id].path = str(source)
        async with adapter_for(telegram, tmp_path, local_mode=True) as adapter:
            sink = RememberingSink()
            telegram.say(5, 5, document={"file_id": file_id, "file_name": "f.bin"})
            async with receiving(adapter, sink):
                await telegram.until(lambda: not telegram.world.updates)
            (message,) = sink.messages.values()
            assert message.attachments[0].size == 5
