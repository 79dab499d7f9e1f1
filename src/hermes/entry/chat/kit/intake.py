"""The way of parsed updates to the inbox: mention rules, albums, observed context, order.

A platform turns its updates into `Heard` messages and button presses; a `HandOver` takes them in
batches. Within a chat the order is kept, chats do not wait for each other. When it returns,
everything is in the inbox or deliberately left out, and the platform may be told so.
"""

import asyncio
import logging
import re
from collections import OrderedDict, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hermes.control.admission.approval_replies import is_clear_answer
from hermes.domain.inbound import ChatKind, InboundMessage, Sender
from hermes.domain.patterns import any_found
from hermes.domain.ports.platform import (
    ButtonPress,
    FailureAction,
    InboundSink,
    MenuCommand,
    PlatformFailure,
)
from hermes.domain.wording import clean_text, one_line
from hermes.entry.chat.kit.settings import ChatSettings

_LOG = logging.getLogger(__name__)
_NOT_IN_MENUS = re.compile(r"[^a-z0-9_]+")
_OBSERVED_CHATS = 200
_OBSERVED_LINES = 30
_OBSERVED_LENGTH = 500
_NAME_SECONDS = 1.0


class Heard(Struct, frozen=True, kw_only=True):
    """A message, and how it speaks to us."""

    message: InboundMessage
    mentioned: bool = False
    """Named explicitly: `@bot`, a link to it, or `/command@bot`."""
    command: bool = False
    """A command that is not addressed to another bot."""
    joined: bool = False
    """In a thread that we take part in, where nobody has to name us again."""
    missed: bool = False
    """Said while nobody listened."""
    menu: bool = False
    """From the platform's own menu: whoever may not use it is told so, and nobody else."""


V = TypeVar("V")
NOT_MENTIONED = "not mentioned"
"""Not for us, but from a place where we may listen."""


def judge(item: Heard, settings: ChatSettings) -> str:
    """Return why the mention rules leave a message out; empty if it is for us."""
    chat, thread_id = item.message.chat, item.message.thread_id
    if _listed(settings.ignored_threads, thread_id, chat.id, thread_id):
        return "ignored thread"
    if chat.kind is ChatKind.PRIVATE:
        return ""
    if settings.allowed_chats and chat.id not in settings.allowed_chats:
        return "" if settings.guest_mode and item.mentioned else "chat is not allowed"
    if settings.allowed_topics and not _listed(
        settings.allowed_topics, thread_id, chat.id, thread_id
    ):
        return "topic is not allowed"
    return "" if _addressed(item, settings) else NOT_MENTIONED


def _addressed(item: Heard, settings: ChatSettings) -> bool:
    message = item.message
    if not settings.require_mention or item.mentioned or item.command or item.joined:
        return True
    if message.reply_to is not None and message.reply_to.own:
        return True
    if _listed(settings.free_response_chats, message.chat.id, message.chat.id, message.thread_id):
        return True
    return any_found(settings.mention_patterns, message.text)


def _listed(names: frozenset[str], alone: str | None, chat_id: str, thread_id: str | None) -> bool:
    return alone in names or (thread_id is not None and f"{chat_id}:{thread_id}" in names)


class _Overheard(Struct, frozen=True):
    """A bare yes or no that is not addressed to us: it counts if we are waiting for it."""

    message: InboundMessage


class Recent(OrderedDict[str, V]):
    """The newest entries, so that nothing grows without end."""

    def __init__(self, most: int = 1000) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, name: str, value: V) -> None:
        super().__setitem__(name, value)
        if len(self) > self._most:
            self.popitem(last=False)


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """Run tasks for the length of the body; of their failures the first is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def named(
    items: Sequence[Heard | ButtonPress],
    names: Recent[str],
    ask: Callable[[InboundMessage], Awaitable[str]],
) -> list[Heard | ButtonPress]:
    """Give people without a name the one they have on the platform; nobody waits long for that."""

    async def learn(message: InboundMessage) -> None:
        try:
            names[message.sender.id] = await ask(message)
        except PlatformFailure as failure:
            if failure.action is FailureAction.GIVE_UP:
                names[message.sender.id] = ""

    messages = [each.message for each in items if isinstance(each, Heard)]
    new = {
        each.sender.id: each
        for each in messages
        if not (each.sender.name or each.sender.is_bot or each.sender.id in names)
    }
    with suppress(TimeoutError):
        async with asyncio.timeout(_NAME_SECONDS), asyncio.TaskGroup() as group:
            for message in new.values():
                group.create_task(learn(message))
    return [
        replace(each, message=replace(each.message, sender=_with_name(each.message.sender, names)))
        if isinstance(each, Heard)
        else each
        for each in items
    ]


def _with_name(sender: Sender, names: Recent[str]) -> Sender:
    name = names.get(sender.id)
    return sender if sender.name or not name else replace(sender, name=name)


async def batches(queue: asyncio.Queue[V]) -> AsyncIterator[list[V]]:
    """Yield all that waits, together, again and again."""
    while True:
        batch = [await queue.get()]
        while not queue.empty():
            batch.append(queue.get_nowait())
        yield batch


HandOver = Callable[[Sequence[Heard | ButtonPress]], Awaitable[bool]]
"""Takes a batch; when it returns, all of it is in the inbox or deliberately left out. False: all
of its messages were left out."""
_REFUSED = "You cannot use this here."


def names_between(earlier: Sequence[str], later: str | None) -> Iterator[str]:
    """Yield the names `<chat>:<number>` after all of `earlier` and before `later`."""
    chat = (later or max(earlier, default="")).rpartition(":")[0]
    numbers = [name.rpartition(":")[2] for name in earlier if name.startswith(f"{chat}:")]
    known = [int(number) for number in numbers if number.isdigit()]
    if not known:
        return
    end = (later or "").rpartition(":")[2]
    for number in count(max(known) + 1):
        if later is not None and (not end.isdigit() or number >= int(end)):
            return
        yield f"{chat}:{number}"


class MessageIntake:
    def __init__(
        self,
        settings: Callable[[], ChatSettings],
        answer: Callable[[ButtonPress | InboundMessage, str], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._answer = answer
        """Shows a short text to whoever pressed a button or used a menu, and to nobody else."""
        self._observed = _Observed()
        self._albums: Recent[None] = Recent(200)
        self._seen: Recent[None] = Recent(20_000)
        """The messages of others that came in, also those that are not for us; the newest ones."""

    def seen(self, native_id: str) -> None:
        self._seen[native_id] = None

    def has_seen(self, native_id: str) -> bool:
        return native_id in self._seen

    @asynccontextmanager
    async def into(self, sink: InboundSink) -> AsyncIterator[HandOver]:
        """Yield what takes batches; presses are answered behind it, for the length of the body."""
        async with together() as answers:
            yield lambda items: self._take(items, sink, answers)

    async def _take(
        self, items: Sequence[Heard | ButtonPress], sink: InboundSink, answers: asyncio.TaskGroup
    ) -> bool:
        chats: dict[str, list[InboundMessage | ButtonPress | _Overheard]] = {}
        for item in self._heard(items):
            chat = item.message.chat if isinstance(item, _Overheard) else item.chat
            chats.setdefault(chat.id, []).append(item)
        # One failure is enough: the batch is not confirmed and will come again.
        async with together() as group:
            taken = [
                group.create_task(self._hand_over(each, sink, answers)) for each in chats.values()
            ]
        names = {name for task in taken for name in task.result()}
        for message in [each.message for each in items if isinstance(each, Heard) and each.menu]:
            if message.native_id not in names:
                answers.create_task(self._answered(message, _REFUSED))
        return bool(names)

    async def _hand_over(
        self,
        items: Sequence[InboundMessage | ButtonPress | _Overheard],
        sink: InboundSink,
        answers: asyncio.TaskGroup,
    ) -> list[str]:
        taken = list[str]()
        for item in items:
            if isinstance(item, InboundMessage):
                taken += [item.native_id] if await sink.message(item) else []
            elif isinstance(item, _Overheard):
                await sink.overheard(item.message)
            else:
                answers.create_task(self._answered(item, await sink.press(item)))
        return taken

    async def _answered(self, asked: ButtonPress | InboundMessage, text: str) -> None:
        try:
            await self._answer(asked, text)
        except PlatformFailure as failure:
            if failure.action is not FailureAction.WAIT:
                _LOG.warning("%s could not be answered: %s", asked.native_id, failure)

    def _heard(
        self, items: Sequence[Heard | ButtonPress]
    ) -> Iterator[InboundMessage | ButtonPress | _Overheard]:
        """Keep what is for us; of an album, every part if one of them is."""
        settings = self._settings()
        observing = settings.observe_unmentioned_group_messages
        reasons = [judge(item, settings) if isinstance(item, Heard) else "" for item in items]
        for item, reason in zip(items, reasons, strict=True):
            if isinstance(item, Heard) and not reason and item.message.group_id:
                self._albums[item.message.group_id] = None
        for item, reason in zip(items, reasons, strict=True):
            if isinstance(item, ButtonPress):
                yield item
                continue
            message, may_listen = item.message, reason == NOT_MENTIONED
            if not reason or (may_listen and message.group_id in self._albums):
                said = self._observed.take(message) if observing else ""
                yield replace(message, context=said, mentioned=item.mentioned, missed=item.missed)
            else:
                _LOG.debug("Ignored message %s: %s", message.native_id, reason)
                if may_listen and observing:
                    self._observed.add(message)
                if may_listen and is_clear_answer(message.text):
                    yield _Overheard(message)


def file_kind(media_type: str, *, voice: bool) -> str:
    """Return what kind of attachment a file is."""
    kind = media_type.partition("/")[0]
    return "voice" if voice else kind if kind in ("image", "audio", "video") else "document"


def spoken(who: str, text: str) -> str:
    """Return a line of a conversation as the model reads it."""
    return f"{who}: {text[:_OBSERVED_LENGTH]}"


class SaidBefore(Struct, frozen=True):
    """A message of a history, as far as it is told to the model."""

    who: str
    text: str
    own: bool
    to_us: bool


def thread_title(title: str) -> str:
    return one_line(clean_text(title), 100) or "Hermes"


def surroundings(history: Iterable[SaidBefore]) -> list[str]:
    """Return what others said after our last word; what was said to us has its own answer."""
    told = list[str]()
    for each in history:
        if each.own:
            told.clear()
        elif each.text and not each.to_us:
            told.append(spoken(each.who, each.text))
    return told


class _Observed:
    """What was said in groups without speaking to the bot, kept as context for when it is.

    Bounded and only in memory: it is a courtesy, not a record.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[tuple[str, str | None], deque[str]] = OrderedDict()

    def add(self, message: InboundMessage) -> None:
        if not message.text:
            return
        place = (message.chat.id, message.thread_id)
        lines = self._places.setdefault(place, deque(maxlen=_OBSERVED_LINES))
        self._places.move_to_end(place)
        if len(self._places) > _OBSERVED_CHATS:
            self._places.popitem(last=False)
        lines.append(spoken(message.sender.name or message.sender.id, message.text))

    def take(self, message: InboundMessage) -> str:
        """Return and forget what was said before `message` in its place."""
        lines = self._places.pop((message.chat.id, message.thread_id), None)
        return "\n".join(lines) if lines else ""


Span = tuple[int, int]
"""Where a mention begins and ends in a text."""


class Addressing(Struct, frozen=True, kw_only=True):
    text: str
    """Without the mention at its beginning or end and without `@bot` after a command."""
    mentioned: bool = False
    command: bool = False
    for_another_bot: bool = False


def read_addressing(
    text: str, mentions: Sequence[Span], *, username: str, commands: Mapping[str, str]
) -> Addressing:
    """Read a text that names us at `mentions`; `commands` maps names in the menu to ours."""
    body = _without_names(text, mentions)
    name, addressee, rest = _split_command(body)
    if not name:
        return Addressing(text=body, mentioned=bool(mentions))
    ours = bool(addressee) and addressee.lower() == username.lower()
    return Addressing(
        text=f"/{commands.get(name.lower(), name)}{rest}",
        mentioned=bool(mentions) or ours,
        command=True,
        for_another_bot=bool(addressee) and not ours,
    )


def menu_names(commands: Sequence[MenuCommand]) -> dict[str, MenuCommand]:
    """Give commands the names that menus take: 32 small letters, digits and underscores."""
    named = {_NOT_IN_MENUS.sub("_", each.name.lower())[:32]: each for each in commands}
    return {name: each for name, each in named.items() if name.strip("_")}


def _without_names(text: str, mentions: Sequence[Span]) -> str:
    """Take our name away where the text begins or ends with it."""
    rest = text
    for start, end in sorted(mentions, reverse=True):
        before, after = rest[:start], rest[end:]
        if not before.strip():
            rest = after.lstrip(" \t\n,:")
        elif not after.strip(" \t\n.!?"):
            rest = f"{before.rstrip()}{after}"
    return rest.strip() or text.strip()


def _split_command(text: str) -> tuple[str, str, str]:
    """Split `/name@bot rest` into name, bot and rest with its leading space; empty: no command."""
    if not text.startswith("/"):
        return "", "", ""
    head = text.split(maxsplit=1)[0]
    name, _, addressee = head[1:].partition("@")
    # A path such as /etc/hosts is not a command.
    if not name or not name.replace("_", "a").replace("-", "a").isalnum() or "@" in addressee:
        return "", "", ""
    return name, addressee, text[len(head) :]
