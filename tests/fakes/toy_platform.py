"""A platform, its people, a bot and a model in one object, for the checks of the conformance suite.

It does everything right, unless it is `broken` in a named way: each check must notice one.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.outbound import Target
from hermes.domain.platforms import Capabilities, ChatPlatform
from hermes.domain.ports.platform import FailureAction, Outgoing, PlatformFailure, Sent
from hermes.testing.driver import Place, SeenInChat, Trouble

__all__ = ["MUTATIONS", "ToyPlatform"]

MUTATIONS = {
    "drops a message": "receives_in_private",
    "listens to what is not for it": "receives_in_groups_when_spoken_to",
    "answers beside the thread": "answers_in_the_thread",
    "sends what is too long": "splits_what_is_too_long",
    "drops the middle of a long answer": "splits_what_is_too_long",
    "shows markup as it is": "formats",
    "shows an answer only at the end": "shows_an_answer_while_it_grows",
    "sends twice": "shows_an_answer_while_it_grows",
    "lets a stranger press": "takes_a_button_from_whoever_may_press_it",
    "tells a stranger nothing": "takes_a_button_from_whoever_may_press_it",
    "leaves buttons that were pressed": "takes_a_button_from_whoever_may_press_it",
    "loses a file that it sends": "sends_a_file",
    "loses a file that came": "fetches_a_file",
    "lets strangers in": "leaves_strangers_alone",
    "answers what comes twice twice": "answers_once_what_comes_twice_at_once",
    "answers what comes again": "answers_once_what_comes_again_later",
    "hears itself": "does_not_answer_itself",
    "does not say that it is connected": "says_that_it_is_connected",
    "ignores a limit": "waits_when_there_is_too_much",
    "repeats a lost send": "repeats_no_send_whose_answer_is_lost",
    "gives refused markup up": "falls_back_to_plain_text",
    "stays away": "connects_again",
    "hides an outage": "outlives_an_outage_and_says_so",
    "loses what came in an outage": "outlives_an_outage_and_says_so",
    "forgets what it was doing": "finishes_after_a_crash_in_the_middle_of_an_answer",
    "shows less after a crash": "finishes_after_a_crash_in_the_middle_of_an_answer",
    "answers the last first": "finishes_after_a_crash_in_the_middle_of_an_answer",
    "edits nothing": "changes_and_takes_away_what_it_sent",
    "deletes nothing": "changes_and_takes_away_what_it_sent",
    "does not type": "shows_that_it_works",
    "keeps old reactions": "reacts",
    "sends no voice": "sends_every_kind_of_file_it_claims",
    "sends half an album": "sends_pictures_together",
    "ignores keys": "sends_once_under_one_key",
    "finds nothing": "finds_what_it_sent",
    "tells nothing": "tells_what_was_said_before",
    "counts wrong": "counts_its_messages",
    "opens no thread": "opens_a_thread_for_a_conversation",
    "says that it has sent": "says_what_a_failed_call_means",
    "fails with anything": "says_what_a_failed_call_means",
}
"""What goes wrong -> the check that must notice."""
_ORDER = re.compile(r"\[(bold|long|slow|halt|file|ask)(?: ([^\]]*))?\]")
_CURSOR = " ▉"


class Said(Struct, frozen=True, kw_only=True):
    place: Place
    text: str
    mention: bool
    file: bytes


class ToyPlatform:
    """Implements `PlatformDriver`, and what checks use of a model, a gateway and an adapter."""

    platform = ChatPlatform(
        name="toy",
        label="Toy",
        adapter="",
        capabilities=Capabilities(
            max_length=200,
            dialect="toy",
            edits=True,
            deletes=True,
            threads=True,
            buttons=True,
            typing=True,
            reactions=True,
            idempotent_sends=True,
            media=frozenset({"image", "voice"}),
            album_size=10,
        ),
    )
    people = tuple(f"person{number}" for number in range(20))
    stranger = "stranger"
    troubles = frozenset(Trouble)
    bold = "<b>bold</b>"
    python_path = ""
    account = "toy"

    def __init__(self, folder: Path, broken: str = "") -> None:
        self.home = folder / "home"
        self.broken = broken
        self.asked: list[str] = []
        self.halted: set[str] = set()
        self.heard: list[InboundMessage] = []
        self._numbers = count(1)
        self._said: dict[str, Said] = {}
        self._taken: set[str] = set()
        self._kept: list[str] = []
        self._cut_off: list[tuple[Place, str]] = []
        self._shown: dict[str, list[SeenInChat]] = defaultdict(list)
        self._keys: dict[str, Sent] = {}
        self._typed: list[str] = []
        self._reactions: dict[str, list[str]] = defaultdict(list)
        self._trouble: dict[str, Trouble] = {}
        self._away = self._down = False

    # -- people ------------------------------------------------------------------------------

    def private(self, person: str) -> Place:
        return Place(person=person, chat=person)

    def group(self, person: str) -> Place:
        return Place(person=person, chat=f"group{next(self._numbers)}", group=True)

    def thread(self, person: str) -> Place:
        return replace(self.group(person), thread=f"thread{next(self._numbers)}")

    async def listening(self) -> None: ...

    async def say(self, place: Place, text: str, *, mention: bool = True, file: bytes = b"") -> str:
        name = f"{place.chat}:{next(self._numbers)}"
        self._said[name] = Said(place=place, text=text, mention=mention, file=file)
        if self._away or self._down:
            self._kept.append(name)
        else:
            self._hear(name)
        return name

    def shown(self, place: Place) -> list[SeenInChat]:
        return list(self._shown[place.chat])

    async def again(self, place: Place, message_id: str) -> None:
        if message_id in self._said:
            self._hear(message_id)
        elif self.broken == "hears itself":
            (post,) = [each for each in self._shown[place.chat] if each.id == message_id]
            self._answer(place, post.text)

    async def press(self, place: Place, shown: SeenInChat, label: str) -> Callable[[], str]:
        assert label == "Allow once"
        if place.person == self.stranger and self.broken != "lets a stranger press":
            return lambda: "" if self.broken == "tells a stranger nothing" else "Not you."
        if self.broken != "leaves buttons that were pressed":
            self._change(shown.id, buttons=())
        self._send(place, f"Finished, {_mark(shown.text)}.")
        return lambda: "Noted."

    def typing_in(self, place: Place) -> int:
        return self._typed.count(place.thread or place.chat)

    def reactions(self, place: Place, message_id: str) -> list[str]:
        return self._reactions[message_id]

    def trouble(self, trouble: Trouble, place: Place) -> None:
        self._trouble[place.chat] = trouble

    async def drop(self) -> None:
        self._away = self.broken == "stays away"

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self._down = True
        yield
        self._down = False
        self._catch_up()

    # -- the bot -----------------------------------------------------------------------------

    def _hear(self, name: str) -> None:
        said = self._said[name]
        place = said.place
        self.heard.append(
            InboundMessage(
                platform="toy",
                account="toy",
                native_id=name,
                chat=Chat(kind=ChatKind.GROUP, id=place.chat),
                sender=Sender(id=place.person),
                text=said.text,
                sent_at=0.0,
                thread_id=place.thread,
            )
        )
        twice = self.broken in ("answers what comes twice twice", "answers what comes again")
        unwanted = place.person == self.stranger and self.broken != "lets strangers in"
        overheard = place.group and not said.mention
        if (
            unwanted
            or (overheard and self.broken != "listens to what is not for it")
            or (name in self._taken and not twice)
            or self.broken == "drops a message"
        ):
            return
        self._taken.add(name)
        lost = self.broken == "loses a file that came"
        self._answer(place, said.text + ("" if lost else said.file.decode()))

    def _answer(self, place: Place, text: str) -> None:
        self.asked.append(text)
        order, mark = _ORDER.search(text), _mark(text)
        match order[1] if order else "":
            case "bold":
                formatted = "**bold**" if self.broken == "shows markup as it is" else self.bold
                self._send(place, f"This is {formatted}, {mark}.", plain=f"This is bold, {mark}.")
            case "long":
                assert order is not None
                self._send_long(place, mark, int(order[2]))
            case "slow":
                post = self._send(place, f"Slowly, {mark}{_CURSOR}")
                if self.broken == "shows an answer only at the end":
                    self._shown[place.chat].remove(post)
                    self._send(place, f"Slowly, {mark}, done.")
                else:
                    self._change(post.id, text=f"Slowly, {mark}, done.", edits=1)
                if self.broken == "sends twice":
                    self._send(place, f"Slowly, {mark}, done.")
            case "halt":
                self.halted.add(mark)
                self._send(place, f"Slowly, {mark}, word number 0{_CURSOR}")
                self._cut_off.append((place, mark))
            case "file":
                assert order is not None
                lost = self.broken == "loses a file that it sends"
                self._send(place, mark, files=() if lost else (_content(order[2]),))
            case "ask":
                self._send(place, f"May I? {mark}", buttons=("Allow once", "Deny"))
            case _:
                self._send(place, f"You said: {text}")

    def _send_long(self, place: Place, mark: str, size: int) -> None:
        words = [mark, *(f"w{number}" for number in range(size // 3)), "end"]
        if self.broken == "sends what is too long":
            self._send(place, " ".join(words))
            return
        pieces = [" ".join(words[at : at + 30]) for at in range(0, len(words), 30)]
        if self.broken == "drops the middle of a long answer":
            del pieces[1]
        for piece in pieces:
            self._send(place, piece)

    def _send(self, place: Place, text: str, plain: str = "", **more: Any) -> SeenInChat:
        trouble, times = self._trouble.pop(place.chat, None), 1
        if trouble is Trouble.LIMIT and self.broken == "ignores a limit":
            times = 0
        elif trouble is Trouble.LOST and self.broken == "repeats a lost send":
            times = 2
        elif trouble is Trouble.MARKUP:
            text, times = plain, int(self.broken != "gives refused markup up")
        thread = "" if self.broken == "answers beside the thread" else place.thread
        name = f"{place.chat}:{next(self._numbers)}"
        post = SeenInChat(id=name, text=text, thread=thread, **more)
        self._shown[place.chat] += [post] * times
        return post

    def _change(self, name: str, **more: Any) -> None:
        posts = self._shown[name.rpartition(":")[0]]
        posts[:] = [replace(each, **more) if each.id == name else each for each in posts]

    def _catch_up(self) -> None:
        kept, self._kept = self._kept, []
        if self.broken == "answers the last first":
            kept.reverse()
        for name in kept if self.broken != "loses what came in an outage" else ():
            self._hear(name)

    # -- the process -------------------------------------------------------------------------

    def log(self) -> str:
        return ""

    def platform_state(self, _name: str) -> dict[str, str]:
        if self.broken == "does not say that it is connected":
            return {}
        hidden = self.broken == "hides an outage"
        return {"state": "retrying" if self._down and not hidden else "connected"}

    async def kill(self) -> None:
        self._down = True

    async def start(self) -> None:
        self._down = False
        for place, mark in self._cut_off:
            (post,) = [each for each in self.shown(place) if mark in each.text]
            if self.broken == "shows less after a crash":
                self._change(post.id, text=f"{mark}{_CURSOR}")
            elif self.broken != "forgets what it was doing":
                self._change(post.id, text=f"Slowly, {mark}, word number 0, done.")
        self._catch_up()

    # -- the adapter -------------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> Sent:
        if self._down and self.broken == "fails with anything":
            raise ValueError("no connection")
        if self._down and self.broken != "says that it has sent":
            raise PlatformFailure(FailureAction.RETRY, "no connection")
        if outgoing.key in self._keys and self.broken != "ignores keys":
            return self._keys[outgoing.key]
        target, path = outgoing.target, outgoing.attachment
        place = Place(person="", chat=target.chat_id, thread=target.thread_id or "")
        silent = outgoing.attachment_kind == "voice" and self.broken == "sends no voice"
        files = (_content(path),) if path and not silent else ()
        sent = Sent(native_id=self._send(place, outgoing.text, files=files).id)
        if outgoing.key:
            self._keys[outgoing.key] = sent
        return sent

    async def edit(self, native_id: str, outgoing: Outgoing) -> None:
        if self.broken != "edits nothing":
            self._change(native_id, text=outgoing.text)

    async def delete(self, target: Target, native_id: str) -> None:
        if self.broken != "deletes nothing":
            posts = self._shown[target.chat_id]
            posts[:] = [each for each in posts if each.id != native_id]

    def typing(self, at: Any) -> Any:
        """Count for a driver's `Place`; show for an adapter's `Target`."""
        return self.typing_in(at) if isinstance(at, Place) else self._type(at)

    async def _type(self, target: Target) -> None:
        if self.broken != "does not type":
            self._typed.append(target.thread_id or target.chat_id)

    async def react(self, _target: Target, native_id: str, emoji: str) -> None:
        if self.broken != "keeps old reactions":
            self._reactions[native_id].clear()
        self._reactions[native_id] += [emoji] if emoji else []

    async def send_album(self, pieces: list[Outgoing]) -> list[Sent]:
        half = pieces[:1] if self.broken == "sends half an album" else pieces
        sent = [await self.send(each) for each in half]
        return (sent * 2)[: len(pieces)]

    async def find_sent(self, outgoing: Outgoing, _since: float) -> Sent | None:
        return None if self.broken == "finds nothing" else self._keys.get(outgoing.key)

    async def said_before(self, message: InboundMessage) -> list[str]:
        if self.broken == "tells nothing":
            return []
        names = [each.native_id for each in self.heard if each.thread_id == message.thread_id]
        earlier = names[: names.index(message.native_id)]
        return [f"{self._said[name].place.person}: {self._said[name].text}" for name in earlier]

    def between(self, earlier: Sequence[str], later: str | None) -> Iterator[str]:
        chat, _, last = (later or "").rpartition(":")
        first = max(int(name.rpartition(":")[2]) for name in earlier)
        wrong = self.broken == "counts wrong"
        return (f"{chat}:{number}" for number in range(first + 1, int(last) + wrong))

    def foreign(self, native_id: str) -> bool:
        return native_id in self._said

    async def create_handoff_thread(self, target: Target, _title: str) -> Target:
        opened = self.broken != "opens no thread"
        return replace(target, thread_id=f"thread{next(self._numbers)}") if opened else target

    async def fetch(self, remote: str, target: Path) -> int:
        raise NotImplementedError


def _content(path: str) -> bytes:
    return Path(path).read_bytes()


def _mark(text: str) -> str:
    found = re.findall(r"m\d+x", text)
    return str(found[-1]) if found else ""
