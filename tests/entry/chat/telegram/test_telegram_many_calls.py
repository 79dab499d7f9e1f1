"""Many answers at once: they share few connections, and typing gives way to them."""

import asyncio
from pathlib import Path

from fakes.telegram import FakeTelegram
from fakes.telegram_kit import RememberingSink, adapter_for, outgoing, receiving

AT_ONCE = 32
CHATS = range(1, 101)


async def test_calls_beyond_a_limit_wait_while_messages_still_come_in(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, adapter_for(telegram, tmp_path) as adapter:
        telegram.fault("slow", "sendMessage", times=AT_ONCE, seconds=1.0)
        sink = RememberingSink()
        async with receiving(adapter, sink), asyncio.TaskGroup() as group:
            for chat in CHATS:
                telegram.chat(chat)
                group.create_task(adapter.send(outgoing(chat, "hello")))
            await telegram.until(lambda: len(telegram.called("sendMessage")) >= AT_ONCE)
            telegram.say(500, 500, "and I?")
            await sink.until(lambda: sink.texts == ["and I?"])
            await adapter.typing(outgoing(500).target)
            assert len(telegram.called("sendMessage")) == AT_ONCE
            assert not telegram.called("sendChatAction")
        assert all(len(telegram.replies(chat)) == 1 for chat in CHATS)
        await adapter.typing(outgoing(500).target)
        assert len(telegram.called("sendChatAction")) == 1
