"""What Telegram knows: chats, messages, files, and updates not yet confirmed."""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from msgspec import Struct, field

from fakes.telegram_html import utf16_length

__all__ = ["ApiError", "Seen", "StoredFile", "TelegramChat", "World"]

_MARK = re.compile(r"(?<!\S)/\w+(?:@\w+)?|@\w+")


class ApiError(Exception):
    """An answer that says no."""

    def __init__(self, code: int, description: str, **parameters: float) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


class StoredFile(Struct, kw_only=True):
    """A file on Telegram's servers."""

    name: str
    content: bytes
    path: str


class Seen(Struct, kw_only=True):
    """A message as a person sees it, with what it looked like before."""

    message_id: int
    chat_id: int
    user_id: int
    from_bot: bool
    text: str
    """Without markup."""
    markup: str = ""
    """As it was sent."""
    history: list[str] = field(default_factory=list)
    """Earlier texts, oldest first."""
    buttons: list[list[tuple[str, str]]] = field(default_factory=list)
    thread_id: int | None = None
    reply_to: int | None = None
    method: str = ""
    """The call that sent it; empty for a person's message."""
    file_name: str = ""
    file_id: str = ""
    reactions: list[str] = field(default_factory=list)
    silent: bool = False
    deleted: bool = False
    at: float = 0.0
    shown_at: float = 0.0
    """Since when it has looked like this."""


class TelegramChat(Struct, kw_only=True):
    """A chat."""

    id: int
    type: str
    title: str = ""
    is_forum: bool = False
    topics: dict[int, str] = field(default_factory=dict)
    closed_topics: set[int] = field(default_factory=set)
    blocked: bool = False
    migrated_to: int | None = None
    messages: dict[int, Seen] = field(default_factory=dict)
    next_id: int = 1

    def wire(self) -> dict[str, Any]:
        if self.type == "private":
            return {"id": self.id, "type": "private", "first_name": f"User {self.id}"}
        body: dict[str, Any] = {"id": self.id, "type": self.type, "title": self.title}
        return body | ({"is_forum": True} if self.is_forum else {})


class World:
    """The state behind the Bot API."""

    def __init__(self, token: str, username: str) -> None:
        self.token = token
        self.bot_id = int(token.partition(":")[0])
        self.username = username
        self.chats: dict[int, TelegramChat] = {}
        self.files: dict[str, StoredFile] = {}
        self.updates: list[dict[str, Any]] = []
        """Not yet confirmed, in order."""
        self.delivered: list[int] = []
        self.confirmed = 0
        self.next_update = 1000
        self.allowed: list[str] = []
        self.queries: dict[str, str | None] = {}
        """Button presses: the answer, or None while the button still spins."""
        self.actions: list[dict[str, Any]] = []
        self.commands: list[dict[str, str]] = []
        self.webhook: dict[str, Any] = {}
        self.webhook_error = ""
        self._changed = asyncio.Event()

    # Waiting

    def touch(self) -> None:
        """Wake everybody who waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def change(self) -> Coroutine[Any, Any, Literal[True]]:
        """Wait for the next change; one that comes before the first await counts."""
        return self._changed.wait()

    async def until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        """Wait until `condition` holds, looking again after every change."""
        async with asyncio.timeout(seconds):
            while not condition():
                await self.change()

    # People

    def chat(self, chat_id: int, type: str = "", **more: Any) -> TelegramChat:  # noqa: A002
        """Return a chat, making it if it is new; positive ids are private chats."""
        found = self.chats.get(chat_id)
        if found is None:
            kind = type or ("private" if chat_id > 0 else "supergroup")
            title = "" if kind == "private" else more.pop("title", f"Chat {chat_id}")
            found = self.chats[chat_id] = TelegramChat(id=chat_id, type=kind, title=title, **more)
        return found

    def user(self, user_id: int) -> dict[str, Any]:
        if user_id == self.bot_id:
            return self.me()
        return {
            "id": user_id,
            "is_bot": False,
            "first_name": f"User {user_id}",
            "username": f"user{user_id}",
            "language_code": "en",
        }

    def me(self) -> dict[str, Any]:
        return {
            "id": self.bot_id,
            "is_bot": True,
            "first_name": "Hermes",
            "username": self.username,
        }

    def say(
        self,
        chat_id: int,
        user_id: int | None = None,
        text: str = "",
        *,
        thread: int | None = None,
        reply_to: int | None = None,
        **more: Any,
    ) -> int:
        """Have a person say something; return the number of the message."""
        chat = self.chat(chat_id)
        speaker = abs(chat_id) if user_id is None else user_id
        seen = self.add(chat, speaker, text=text, thread_id=thread, reply_to=reply_to)
        body = self.wire(seen) | more
        if text:
            body |= {"text": text, "entities": entities(text)}
        if thread is not None:
            body |= {"message_thread_id": thread, "is_topic_message": True}
        self.push("message", body)
        return seen.message_id

    def say_file(
        self, chat_id: int, user_id: int, kind: str, content: bytes, *, name: str = "", **more: Any
    ) -> int:
        """Have a person send a photo, voice, document, audio, video or sticker."""
        file_id = self.store(content, name or f"{kind}.bin")
        described: Any = {"file_id": file_id, "file_unique_id": file_id, "file_size": len(content)}
        if name:
            described["file_name"] = name
        if kind in {"voice", "audio", "video"}:
            described["duration"] = 3
        if kind == "photo":
            small = described | {"file_id": "too-small", "width": 90, "height": 90}
            described = [small, described | {"width": 1280, "height": 960}]
        return self.say(chat_id, user_id, **({kind: described} | more))

    def press(self, chat_id: int, user_id: int, message_id: int, data: str) -> str:
        """Have a person press a button; return the id of the press."""
        seen = self.chats[chat_id].messages[message_id]
        if data not in [value for row in seen.buttons for _, value in row]:
            raise LookupError(f"message {message_id} has no button {data!r}: {seen.buttons}")
        query_id = f"{len(self.queries) + 4_000_000_000}"
        self.queries[query_id] = None
        body = {
            "id": query_id,
            "from": self.user(user_id),
            "chat_instance": str(chat_id),
            "data": data,
            "message": self.wire(seen) | {"text": seen.text},
        }
        self.push("callback_query", body)
        return query_id

    def edit_as_person(self, chat_id: int, message_id: int, text: str) -> None:
        seen = self.chats[chat_id].messages[message_id]
        seen.history.append(seen.text)
        seen.text = text
        self.push("edited_message", self.wire(seen) | {"text": text, "edit_date": int(time.time())})

    def push(self, kind: str, body: dict[str, Any]) -> int:
        """Queue an update, unless the bot asked not to be told of its kind."""
        number = self.next_update
        self.next_update += 1
        if not self.allowed or kind in self.allowed:
            self.updates.append({"update_id": number, kind: body})
        self.touch()
        return number

    def redeliver(self, update: dict[str, Any]) -> int:
        """Deliver the content of an earlier update once more, under a new number."""
        (kind,) = update.keys() - {"update_id"}
        return self.push(kind, update[kind])

    # Messages

    def add(self, chat: TelegramChat, user_id: int, **fields: Any) -> Seen:
        message_id = chat.next_id
        chat.next_id += 1
        now = time.time()
        seen = Seen(
            message_id=message_id,
            chat_id=chat.id,
            user_id=user_id,
            from_bot=user_id == self.bot_id,
            at=now,
            shown_at=now,
            **fields,
        )
        chat.messages[message_id] = seen
        self.touch()
        return seen

    def wire(self, seen: Seen) -> dict[str, Any]:
        chat = self.chats[seen.chat_id]
        body: dict[str, Any] = {
            "message_id": seen.message_id,
            "date": int(seen.at),
            "chat": chat.wire(),
            "from": self.user(seen.user_id),
        }
        if seen.thread_id is not None:
            body |= {"message_thread_id": seen.thread_id, "is_topic_message": True}
        earlier = chat.messages.get(seen.reply_to or 0)
        if earlier is not None:
            body["reply_to_message"] = self.wire(earlier) | {"text": earlier.text}
        return body

    def store(self, content: bytes, name: str) -> str:
        file_id = f"file{len(self.files)}"
        path = f"documents/{file_id}_{name}"
        self.files[file_id] = StoredFile(name=name, content=content, path=path)
        return file_id

    def visible(self, chat_id: int) -> list[Seen]:
        """Return what a person sees in a chat, oldest first."""
        chat = self.chats.get(chat_id)
        return [] if chat is None else [m for m in chat.messages.values() if not m.deleted]

    def replies(self, chat_id: int) -> list[Seen]:
        """Return what the bot shows in a chat."""
        return [seen for seen in self.visible(chat_id) if seen.from_bot]


def entities(text: str) -> list[dict[str, Any]]:
    """Mark mentions and commands, in UTF-16 units."""
    return [
        {
            "type": "bot_command" if match.group().startswith("/") else "mention",
            "offset": utf16_length(text[: match.start()]),
            "length": utf16_length(match.group()),
        }
        for match in _MARK.finditer(text)
    ]
