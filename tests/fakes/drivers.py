"""Telegram, Discord and Slack as the conformance suite drives them, over their fakes."""

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Self

from fakes.discord import BOT as DISCORD_BOT
from fakes.discord import GUILD, FakeDiscord
from fakes.slack import BOT as SLACK_BOT
from fakes.slack import FakeSlack
from fakes.slack_kit import slack_platform
from fakes.telegram import TOKEN, FakeTelegram
from hermes.entry.chat.discord.manifest import PLATFORM as DISCORD
from hermes.entry.chat.slack.manifest import PLATFORM as SLACK
from hermes.entry.chat.telegram.manifest import PLATFORM as TELEGRAM
from hermes.testing.driver import Place, SeenInChat, Trouble

__all__ = ["DiscordDriver", "SlackDriver", "TelegramDriver"]


class TelegramDriver:
    platform = TELEGRAM
    people = tuple(str(number) for number in range(701, 741))
    stranger = "799"
    troubles = frozenset(Trouble)
    bold = "<b>bold</b>"
    python_path = ""

    def __init__(self) -> None:
        self._fake = FakeTelegram()
        self._groups = count(-1001, -1)

    async def __aenter__(self) -> Self:
        await self._fake.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._fake.stop()

    def section(self) -> dict[str, Any]:
        return {"token": TOKEN, "extra": {"base_url": self._fake.base_url, "poll_timeout": 2}}

    def private(self, person: str) -> Place:
        self._fake.chat(int(person))
        return Place(person=person, chat=person)

    def group(self, person: str) -> Place:
        return Place(person=person, chat=str(next(self._groups)), group=True)

    def thread(self, person: str) -> Place:
        chat = next(self._groups)
        self._fake.chat(chat, is_forum=True, topics={5: "Garden"})
        return Place(person=person, chat=str(chat), thread="5", group=True)

    async def listening(self) -> None:
        await self._fake.until(lambda: self._fake.called("getUpdates"), 30)

    async def say(self, place: Place, text: str, *, mention: bool = True, file: bytes = b"") -> str:
        chat, person = int(place.chat), int(place.person)
        said = f"@hermes_bot {text}" if mention and place.group else text
        thread = int(place.thread) if place.thread else None
        if file:
            more: dict[str, Any] = {"name": "note.txt", "caption": said, "thread": thread}
            return str(self._fake.world.say_file(chat, person, "document", file, **more))
        return str(self._fake.say(chat, person, said, thread=thread))

    def shown(self, place: Place) -> list[SeenInChat]:
        files = self._fake.world.files
        return [
            SeenInChat(
                id=str(seen.message_id),
                text=seen.markup or seen.text,
                thread=str(seen.thread_id or ""),
                edits=len(seen.history),
                buttons=tuple(label for row in seen.buttons for label, _ in row),
                files=(files[seen.file_id].content,) if seen.file_id else (),
            )
            for seen in self._fake.replies(int(place.chat))
        ]

    async def again(self, place: Place, message_id: str) -> None:
        world = self._fake.world
        seen = world.chats[int(place.chat)].messages[int(message_id)]
        world.push("message", world.wire(seen) | {"text": seen.text})

    async def press(self, place: Place, shown: SeenInChat, label: str) -> Callable[[], str]:
        seen = self._fake.world.chats[int(place.chat)].messages[int(shown.id)]
        data = next(data for row in seen.buttons for name, data in row if name == label)
        query = self._fake.press(int(place.chat), int(place.person), seen.message_id, data)
        return lambda: self._fake.world.queries[query] or ""

    def typing(self, place: Place) -> int:
        return sum(str(each["chat_id"]) == place.chat for each in self._fake.world.actions)

    def reactions(self, place: Place, message_id: str) -> list[str]:
        return self._fake.world.chats[int(place.chat)].messages[int(message_id)].reactions

    def trouble(self, trouble: Trouble, place: Place) -> None:
        words = "Bad Request: can't parse entities: Unexpected end tag at byte offset 4"
        kinds: dict[Trouble, dict[str, Any]] = {
            Trouble.LIMIT: {"kind": "429", "seconds": 1},
            Trouble.LOST: {"kind": "reset_after"},
            Trouble.MARKUP: {"kind": "error", "description": words},
        }
        self._fake.fault(method="sendMessage", chat_id=int(place.chat), **kinds[trouble])

    async def drop(self) -> None:
        async with self.outage():
            pass

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        async with self._fake.outage("refused"):
            yield


class DiscordDriver:
    platform = DISCORD
    people = tuple(str(number) for number in range(701, 741))
    stranger = "799"
    troubles = frozenset(Trouble) - {Trouble.MARKUP}
    bold = "**bold**"
    python_path = ""

    def __init__(self) -> None:
        self._fake = FakeDiscord()
        # A guild tells its channels when the bot connects.
        names = [str(number) for number in range(601, 611)]
        for name in names:
            place = {"id": name, "type": 0, "name": f"c{name}", "guild_id": GUILD, "position": 1}
            self._fake.channels[name] = place
            self._fake.messages[name] = []
        self._groups = iter(names)

    async def __aenter__(self) -> Self:
        await self._fake.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._fake.stop()

    def section(self) -> dict[str, Any]:
        return {"token": self._fake.token, "extra": {"base_url": self._fake.base_url}}

    def private(self, person: str) -> Place:
        return Place(person=person, chat=self._fake.private(person))

    def group(self, person: str) -> Place:
        return Place(person=person, chat=next(self._groups), group=True)

    def thread(self, person: str) -> Place:
        chat = next(self._groups)
        made = self._fake.thread(self._fake.snowflake(), chat, person)
        return Place(person=person, chat=chat, thread=made["id"], group=True)

    async def listening(self) -> None:
        await self._fake.until(lambda: self._fake.connected, 30)

    async def say(self, place: Place, text: str, *, mention: bool = True, file: bytes = b"") -> str:
        said = f"<@{DISCORD_BOT}> {text}" if mention and place.group else text
        more = {"attachments": [self._fake.attach("note.txt", file, "text/plain")]} if file else {}
        return self._fake.say(place.thread or place.chat, place.person, said, **more)

    def _channels(self, place: Place) -> Iterator[str]:
        for name, channel in self._fake.channels.items():
            if place.chat in (name, channel.get("parent_id")):
                yield name

    def shown(self, place: Place) -> list[SeenInChat]:
        return [
            SeenInChat(
                id=each["id"],
                text=each["content"],
                thread=channel if channel != place.chat else "",
                edits=len(each.get("history", ())),
                buttons=tuple(
                    button["label"] for row in each["components"] for button in row["components"]
                ),
                files=tuple(self._fake.files[file["id"]] for file in each["attachments"]),
            )
            for channel in self._channels(place)
            for each in self._fake.replies(channel)
        ]

    def _where(self, place: Place, message_id: str) -> str:
        said = self._fake.messages
        return next(
            channel
            for channel in self._channels(place)
            if any(each["id"] == message_id for each in said[channel])
        )

    async def again(self, place: Place, message_id: str) -> None:
        self._fake.redeliver(self._where(place, message_id), message_id)

    async def press(self, place: Place, shown: SeenInChat, label: str) -> Callable[[], str]:
        channel = self._where(place, shown.id)
        rows = self._fake.find(channel, shown.id)["components"]
        buttons = {each["label"]: each["custom_id"] for row in rows for each in row["components"]}
        number = self._fake.press(channel, place.person, shown.id, buttons[label])

        def told() -> str:
            answer = self._fake.interactions[number]["answer"] or {}
            return str((answer.get("data") or {}).get("content") or "")

        return told

    def typing(self, place: Place) -> int:
        return len(self._fake.called(f"POST /channels/{place.thread or place.chat}/typing"))

    def reactions(self, place: Place, message_id: str) -> list[str]:
        return self._fake.reactions.get(message_id, [])

    def trouble(self, trouble: Trouble, place: Place) -> None:
        kind = {Trouble.LIMIT: "429", Trouble.LOST: "reset after"}[trouble]
        self._fake.fault(f"POST /channels/{place.chat}/messages", kind)

    async def drop(self) -> None:
        await self._fake.hang_up(4000)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self._fake.down = True
        if self._fake.connected:
            await self._fake.hang_up(1001)
        try:
            yield
        finally:
            self._fake.down = False


class SlackDriver:
    platform = SLACK
    people = tuple(f"U{number}" for number in range(1, 41))
    stranger = "U99"
    troubles = frozenset(Trouble)
    bold = "*bold*"
    python_path = ""

    def __init__(self) -> None:
        self._fake = FakeSlack()
        self._fake.names |= {person: f"Person {person}" for person in (*self.people, "U99")}
        self._groups = count(1)
        self._events: dict[str, dict[str, Any]] = {}

    async def __aenter__(self) -> Self:
        await self._fake.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._fake.__aexit__()

    def section(self) -> dict[str, Any]:
        return slack_platform(self._fake) | {"allow_all_users": False}

    def private(self, person: str) -> Place:
        return Place(person=person, chat=f"D{person}")

    def group(self, person: str) -> Place:
        return Place(person=person, chat=f"C{next(self._groups)}", group=True)

    def thread(self, person: str) -> Place:
        chat = f"C{next(self._groups)}"
        ts = self._fake.say(chat, person, "a topic")
        return Place(person=person, chat=chat, thread=ts, group=True)

    async def listening(self) -> None:
        await self._fake.until(lambda: self._fake.sockets, 30)

    async def say(self, place: Place, text: str, *, mention: bool = True, file: bytes = b"") -> str:
        said = f"<@{SLACK_BOT}> {text}" if mention and place.group else text
        more: dict[str, Any] = {"thread_ts": place.thread} if place.thread else {}
        if file:
            shared = self._fake.share("note.txt", file, "text/plain")
            more |= {"subtype": "file_share", "files": [shared]}
        ts = self._fake.say(place.chat, place.person, said, **more)
        self._events[ts] = copy.deepcopy(list(self._fake.unacked.values())[-1])
        return ts

    def shown(self, place: Place) -> list[SeenInChat]:
        return [
            SeenInChat(
                id=each.ts,
                text=each.text,
                thread=each.thread_ts,
                edits=each.edits,
                buttons=tuple(button["text"]["text"] for button in each.buttons),
                files=tuple(self._fake.contents[file["id"]] for file in each.files),
            )
            for each in self._fake.replies(place.chat)
        ]

    async def again(self, place: Place, message_id: str) -> None:
        event = self._events.get(message_id)
        if event is not None:
            self._fake.redeliver(event["envelope_id"], copy.deepcopy(event))
            return
        posted = next(each for each in self._fake.replies(place.chat) if each.ts == message_id)
        self._fake.event(posted.wire() | {"channel": place.chat})

    async def press(self, place: Place, shown: SeenInChat, label: str) -> Callable[[], str]:
        posted = next(each for each in self._fake.replies(place.chat) if each.ts == shown.id)
        self._fake.press(posted, label, place.person)

        def told() -> str:
            to = [each for each in self._fake.ephemerals if each["user"] == place.person]
            return str(to[-1]["text"]) if to else ""

        return told

    def typing(self, place: Place) -> int:
        return sum(each["channel_id"] == place.chat for each in self._fake.statuses)

    def reactions(self, place: Place, message_id: str) -> list[str]:
        return self._fake.reactions[message_id]

    def trouble(self, trouble: Trouble, place: Place) -> None:
        kinds = {"limit": "429", "lost": "reset_after", "markup": "invalid_blocks"}
        self._fake.fault(kinds[trouble], "chat.postMessage")

    async def drop(self) -> None:
        self._fake.cut()

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self._fake.down = True
        self._fake.cut()
        try:
            yield
        finally:
            self._fake.down = False
