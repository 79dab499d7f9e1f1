"""The fake Discord as discord.py itself sees it: the fake must not be kinder than the platform."""

import asyncio
import io
from typing import Any

import discord as sdk
import pytest
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from fakes.discord import BOT, GENERAL, FakeDiscord

ANN = "701"


async def test_discord_py_talks_to_the_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeDiscord() as server:
        monkeypatch.setattr(Route, "BASE", server.base_url)
        gateway = yarl.URL(f"ws://127.0.0.1:{server.port}/gateway")
        monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", gateway)
        intents = sdk.Intents.default()
        intents.message_content = True
        client = sdk.Client(intents=intents)
        heard: asyncio.Queue[Any] = asyncio.Queue()

        @client.event
        async def on_message(message: sdk.Message) -> None:
            heard.put_nowait(message)

        @client.event
        async def on_interaction(interaction: sdk.Interaction[Any]) -> None:
            await interaction.response.defer(thinking=True)
            await interaction.edit_original_response(content="done")
            heard.put_nowait(interaction)

        async with asyncio.timeout(20), client, asyncio.TaskGroup() as group:
            running = group.create_task(client.start(server.token))
            await server.until(lambda: server.connected)
            await asyncio.sleep(0.1)
            server.say(GENERAL, ANN, f"<@{BOT}> hello")
            message = await heard.get()
            assert message.mentions[0].id == int(BOT)
            assert isinstance(message.channel, sdk.TextChannel)
            await message.add_reaction("👀")
            reply = await message.reply("hi", nonce="n1")
            again = await message.reply("hi", nonce="n1")
            assert reply.id == again.id
            await reply.edit(content="hi!")
            thread = await message.create_thread(name="trip")
            assert thread.id == message.id
            await thread.send(file=sdk.File(io.BytesIO(b"x"), "a.txt"))
            history = [each async for each in message.channel.history(after=message)]
            assert [each.content for each in history] == ["hi!"]
            with pytest.raises(sdk.HTTPException):
                await thread.send("x" * 2001)
            server.fault("/messages", "429")
            await thread.send("after a 429")
            await (await client.fetch_channel(int(GENERAL))).fetch_message(reply.id)  # type: ignore[union-attr]
            number = server.slash(GENERAL, ANN, "status")
            while not isinstance(await heard.get(), sdk.Interaction):
                pass
            assert server.interactions[number]["message"]["content"] == "done"
            server.say(server.private(ANN), ANN, "in private")
            while (private := await heard.get()).guild is not None:
                pass
            assert isinstance(private.channel, sdk.DMChannel)
            await server.order(7)
            await server.until(lambda: server.resumed)
            running.cancel()
