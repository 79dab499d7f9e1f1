"""The checks of the conformance suite: conversations, what breaks, calls of the adapter itself."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count, pairwise
from re import findall
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from hermes.domain.inbound import ChatKind, InboundMessage
from hermes.domain.outbound import Target
from hermes.domain.platforms import ChatPlatform
from hermes.domain.ports.platform import (
    AlbumSender,
    EarlierMessages,
    FileSource,
    HandoffThreads,
    NumberedMessages,
    Outgoing,
    PlatformFailure,
    SentHistory,
)
from hermes.streaming.units import length
from hermes.testing.driver import Place, PlatformDriver, SeenInChat, Trouble
from hermes.testing.gateway import GatewayRun, LoopbackModel

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(100)
_CURSOR = "▉"


class ConformanceRun:
    """What a check works with."""

    def __init__(self, driver: PlatformDriver, model: LoopbackModel, gateway: GatewayRun) -> None:
        self.driver, self.model, self.gateway = driver, model, gateway
        self.capabilities = driver.platform.capabilities
        self.folder = gateway.home.parent
        self.seconds = 30.0
        """So long anything is waited for."""
        self.adapter: Any = None
        """An `Adapter`, connected while checks call it directly."""
        self.heard: list[InboundMessage] = []
        """What this adapter took in."""
        self._people = iter(driver.people)
        self._marks = count(1)

    def person(self) -> str:
        """Return somebody who has not spoken yet."""
        return next(self._people)

    def private(self) -> Place:
        return self.driver.private(self.person())

    def mark(self) -> str:
        return f"m{next(self._marks)}x"

    async def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Wait for something that is true, and return it."""
        end = time.monotonic() + self.seconds
        while not (found := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"{what or 'it'} did not come.\n{self.gateway.log()[-3000:]}")
            await asyncio.sleep(0.02)
        return found

    def answers(self, place: Place, mark: str) -> list[SeenInChat]:
        """Return the finished messages that have a mark."""
        here = self.driver.shown(place)
        return [each for each in here if mark in each.text and _CURSOR not in each.text]

    async def answered(self, place: Place, mark: str) -> SeenInChat:
        def look() -> list[SeenInChat]:
            return self.answers(place, mark)

        found: list[SeenInChat] = await self.until(look, f"an answer with {mark} in {place}")
        return found[0]

    async def ask(
        self, place: Place, text: str = "hello", mark: str = "", **more: Any
    ) -> SeenInChat:
        """Say something and wait for its answer."""
        mark = mark or self.mark()
        await self.driver.say(place, f"{text} {mark}", **more)
        return await self.answered(place, mark)

    async def once(self, place: Place, mark: str) -> None:
        """Assert that something was answered once; all that came before the next answer counts."""
        await self.answered(place, mark)
        await self.ask(place, "and now")
        assert len(self.answers(place, mark)) == 1, self.driver.shown(place)
        assert sum(mark in each for each in self.model.asked) == 1, self.model.asked

    def outgoing(self, place: Place, text: str = "", **more: Any) -> Outgoing:
        target = Target(
            platform=self.driver.platform.name,
            account=self.adapter.account,
            chat_id=place.chat,
            thread_id=place.thread or None,
            chat_kind=ChatKind.GROUP if place.group else ChatKind.PRIVATE,
        )
        return Outgoing(target=target, text=text, plain=text, **more)


Act = Callable[[ConformanceRun], Awaitable[None]]


class Check(Struct, frozen=True, kw_only=True):
    name: str
    act: Act
    claims: frozenset[str]
    """What it proves, if anything of that is claimed; empty: it applies to everybody."""
    troubles: frozenset[Trouble]
    stage: str

    def reason_to_skip(self, driver: PlatformDriver, claimed: frozenset[str]) -> str:
        if self.claims and not self.claims & claimed:
            return f"{driver.platform.label} does not claim {' or '.join(sorted(self.claims))}"
        missing = sorted(self.troubles - driver.troubles)
        return f"{driver.platform.label} does not do this: {', '.join(missing)}" if missing else ""


CHECKS: dict[str, Check] = {}
PARAMETERS = frozenset(
    {"edit_length", "edit_seconds", "unit", "command_mark", "signs_apart"}
    | {"idempotent_seconds", "typing_seconds", "limits"}
)
"""Fields of `Capabilities` that say how, not what."""
PORTS = (AlbumSender, EarlierMessages, FileSource, HandoffThreads, NumberedMessages, SentHistory)
TALK, BREAK, CALL = "talk", "break", "call"


def check(
    *claims: str, troubles: Sequence[Trouble] = (), stage: str = TALK
) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        name = getattr(act, "__name__", "")
        CHECKS[name] = Check(
            name=name,
            act=act,
            claims=frozenset(claims),
            troubles=frozenset(troubles),
            stage=stage,
        )
        return act

    return add


def claims(platform: ChatPlatform, adapter: object = None) -> frozenset[str]:
    """Return what a manifest claims, and the optional ports that an adapter implements."""
    known = platform.capabilities
    can = {each.name for each in fields(known) if getattr(known, each.name)} - PARAMETERS
    if known.dialect == "plain":
        can.remove("dialect")
    return frozenset(can | {port.__name__ for port in PORTS if isinstance(adapter, port)})


def unproven(claimed: frozenset[str]) -> list[str]:
    """Return the claims that no check proves."""
    return sorted(claimed - {claim for each in CHECKS.values() for claim in each.claims})


# -- conversations -------------------------------------------------------------------------


@check()
async def receives_in_private(run: ConformanceRun) -> None:
    place = run.private()
    assert "hello" in (await run.ask(place)).text


@check()
async def receives_in_groups_when_spoken_to(run: ConformanceRun) -> None:
    place, mark = run.driver.group(run.person()), run.mark()
    await run.driver.say(place, f"among ourselves {mark}", mention=False)
    await run.ask(place)
    assert not any(mark in each for each in run.model.asked)


@check("threads")
async def answers_in_the_thread(run: ConformanceRun) -> None:
    place = run.driver.thread(run.person())
    assert (await run.ask(place)).thread == place.thread


@check("max_length")
async def splits_what_is_too_long(run: ConformanceRun) -> None:
    known, place, mark = run.capabilities, run.private(), run.mark()
    limit = (known.edit_length if known.live else 0) or known.max_length
    before = len(run.driver.shown(place))
    await run.driver.say(place, f"[long {limit + limit // 4}] {mark}")

    def pieces() -> list[SeenInChat]:
        here = run.driver.shown(place)[before:]
        return here if here and "end" in here[-1].text and _CURSOR not in here[-1].text else []

    texts = [each.text for each in await run.until(pieces, "the end of a long answer")]
    assert len(texts) > 1
    assert all(length(each, known.unit) <= known.max_length for each in texts)
    numbers = [int(word) for word in findall(r"\bw(\d+)", " ".join(texts))]
    assert numbers == list(range(len(numbers)))


@check("dialect")
async def formats(run: ConformanceRun) -> None:
    assert run.driver.bold in (await run.ask(run.private(), "[bold]")).text


@check("edits", "streams")
async def shows_an_answer_while_it_grows(run: ConformanceRun) -> None:
    place = run.private()
    shown = await run.ask(place, "[slow]")
    assert shown.edits > 0
    assert "done." in shown.text
    assert len(run.answers(place, findall(r"m\d+x", shown.text)[0])) == 1


@check("buttons")
async def takes_a_button_from_whoever_may_press_it(run: ConformanceRun) -> None:
    place, mark = run.driver.group(run.person()), run.mark()
    await run.driver.say(place, f"[ask] {mark}")

    def prompts() -> list[SeenInChat]:
        return [each for each in run.driver.shown(place) if each.buttons and mark in each.text]

    prompt = (await run.until(prompts, "an approval"))[0]
    label = next(each for each in prompt.buttons if "Allow" in each)
    stranger = Place(person=run.driver.stranger, chat=place.chat, thread=place.thread, group=True)
    told = await run.driver.press(stranger, prompt, label)
    await run.until(told, "a word to a stranger who presses")
    assert prompts(), "the stranger's press counted"
    assert not any("Finished" in each.text for each in run.answers(place, mark))
    await run.driver.press(place, prompt, label)
    await run.until(
        lambda: any("Finished" in each.text for each in run.answers(place, mark)), "an answer"
    )
    await run.until(lambda: not prompts(), "the end of the buttons")


@check("media")
async def sends_a_file(run: ConformanceRun) -> None:
    place, path = run.private(), run.folder / "sent.txt"
    path.write_bytes(b"from the agent")
    await run.driver.say(place, f"[file {path}] {run.mark()}")
    await run.until(
        lambda: any(b"from the agent" in each.files for each in run.driver.shown(place)), "a file"
    )


@check("FileSource")
async def fetches_a_file(run: ConformanceRun) -> None:
    assert "plum" in (await run.ask(run.private(), "read this", file=b"the word is plum")).text


@check()
async def leaves_strangers_alone(run: ConformanceRun) -> None:
    place, mark, other = run.driver.group(run.person()), run.mark(), run.mark()
    stranger = Place(person=run.driver.stranger, chat=place.chat, group=True)
    await run.driver.say(stranger, f"let me in {mark}")
    await run.driver.say(run.driver.private(run.driver.stranger), f"let me in {other}")
    await run.ask(place)
    assert not any(mark in each or other in each for each in run.model.asked)


@check(troubles=[Trouble.AGAIN])
async def answers_once_what_comes_twice_at_once(run: ConformanceRun) -> None:
    place, mark = run.private(), run.mark()
    await run.driver.again(place, await run.driver.say(place, f"hello {mark}"))
    await run.once(place, mark)


@check(troubles=[Trouble.AGAIN])
async def answers_once_what_comes_again_later(run: ConformanceRun) -> None:
    place, mark = run.private(), run.mark()
    message = await run.driver.say(place, f"hello {mark}")
    await run.answered(place, mark)
    await run.driver.again(place, message)
    await run.once(place, mark)


@check(troubles=[Trouble.OWN])
async def does_not_answer_itself(run: ConformanceRun) -> None:
    place, mark = run.private(), run.mark()
    await run.driver.say(place, f"hello {mark}")
    await run.driver.again(place, (await run.answered(place, mark)).id)
    await run.once(place, mark)


@check()
async def says_that_it_is_connected(run: ConformanceRun) -> None:
    name = run.driver.platform.name
    await run.until(
        lambda: run.gateway.platform_state(name).get("state") == "connected", "a connection"
    )


# -- when something breaks ------------------------------------------------------------------


async def _despite(run: ConformanceRun, trouble: Trouble, text: str = "hello") -> SeenInChat:
    place, mark = run.private(), run.mark()
    run.driver.trouble(trouble, place)
    await run.driver.say(place, f"{text} {mark}")
    await run.once(place, mark)
    return await run.answered(place, mark)


@check(stage=BREAK, troubles=[Trouble.LIMIT])
async def waits_when_there_is_too_much(run: ConformanceRun) -> None:
    await _despite(run, Trouble.LIMIT)


@check(stage=BREAK, troubles=[Trouble.LOST])
async def repeats_no_send_whose_answer_is_lost(run: ConformanceRun) -> None:
    await _despite(run, Trouble.LOST)


@check("dialect", stage=BREAK, troubles=[Trouble.MARKUP])
async def falls_back_to_plain_text(run: ConformanceRun) -> None:
    assert "bold" in (await _despite(run, Trouble.MARKUP, "[bold]")).text


@check(stage=BREAK)
async def connects_again(run: ConformanceRun) -> None:
    place, mark, driver = run.private(), run.mark(), run.driver
    await driver.drop()
    if Trouble.KEEPS not in driver.troubles:
        await driver.listening()
    await driver.say(place, f"hello {mark}")
    await run.once(place, mark)


@check(stage=BREAK)
async def outlives_an_outage_and_says_so(run: ConformanceRun) -> None:
    place, mark, driver = run.private(), run.mark(), run.driver
    name = driver.platform.name

    def troubled() -> bool:
        state = run.gateway.platform_state(name)
        return state.get("state") != "connected" or bool(state.get("error_message"))

    async with driver.outage():
        if Trouble.KEEPS in driver.troubles:
            await driver.say(place, f"hello {mark}")
        await run.until(troubled, "a word about the outage")
    if Trouble.KEEPS not in driver.troubles:
        await driver.listening()
        await driver.say(place, f"hello {mark}")
    await run.once(place, mark)
    await run.until(lambda: not troubled(), "the end of the outage")


@check(stage=BREAK)
async def finishes_after_a_crash_in_the_middle_of_an_answer(run: ConformanceRun) -> None:
    place, mark, driver = run.private(), run.mark(), run.driver
    await driver.say(place, f"[halt] {mark}")
    await run.until(lambda: mark in run.model.halted, "half of an answer")
    if run.capabilities.live:
        await run.until(
            lambda: any(mark in each.text for each in driver.shown(place)), "a preview of it"
        )
    await run.gateway.kill()
    missed = [run.mark(), run.mark()]
    if Trouble.KEEPS in driver.troubles:
        for each in missed:
            await driver.say(place, f"are you there? {each}")
    await run.gateway.start()
    lengths = [0]

    def finished() -> bool:
        texts = [each.text for each in driver.shown(place) if mark in each.text]
        lengths.append(sum(map(len, texts)))
        return any("done." in text and _CURSOR not in text for text in texts)

    await run.until(finished, "the end of the answer")
    assert all(later >= earlier - 2 for earlier, later in pairwise(lengths)), "it showed less"
    await driver.listening()
    if Trouble.KEEPS not in driver.troubles:
        for each in missed:
            await run.ask(place, "are you there?", each)
    for each in missed:
        await run.once(place, each)
    order = [each for shown in driver.shown(place) for each in findall(r"m\d+x", shown.text)]
    assert order[:3] == [mark, *missed], driver.shown(place)


# -- the adapter itself ----------------------------------------------------------------------


async def _appears(run: ConformanceRun, place: Place, text: str) -> list[SeenInChat]:
    def look() -> list[SeenInChat]:
        return [each for each in run.driver.shown(place) if text in each.text]

    found: list[SeenInChat] = await run.until(look, text)
    return found


@check("edits", "deletes", stage=CALL)
async def changes_and_takes_away_what_it_sent(run: ConformanceRun) -> None:
    place, first, second = run.private(), run.mark(), run.mark()
    sent = await run.adapter.send(run.outgoing(place, f"draft {first}"))
    await _appears(run, place, first)
    if run.capabilities.edits:
        for _ in range(2):  # unchanged text is fine
            await run.adapter.edit(sent.native_id, run.outgoing(place, f"final {second}"))
        await _appears(run, place, second)
        assert not any(first in each.text for each in run.driver.shown(place))
    if run.capabilities.deletes:
        await run.adapter.delete(run.outgoing(place).target, sent.native_id)
        await run.until(
            lambda: (
                not any(
                    first in each.text or second in each.text for each in run.driver.shown(place)
                )
            ),
            "the end of a message",
        )


@check("typing", stage=CALL)
async def shows_that_it_works(run: ConformanceRun) -> None:
    # In a thread where there are threads: some services show it only there.
    place = run.driver.thread(run.person()) if run.capabilities.threads else run.private()
    await run.adapter.typing(run.outgoing(place).target)
    await run.until(lambda: run.driver.typing(place), "typing")


@check("reactions", stage=CALL)
async def reacts(run: ConformanceRun) -> None:
    place, mark = run.private(), run.mark()
    sent = await run.adapter.send(run.outgoing(place, f"hello {mark}"))
    (shown,) = await _appears(run, place, mark)
    target = run.outgoing(place).target
    for emoji in ("👀", "✅"):
        await run.adapter.react(target, sent.native_id, emoji)
    await run.until(lambda: len(run.driver.reactions(place, shown.id)) == 1, "one reaction")
    await run.adapter.react(target, sent.native_id, "")
    await run.until(lambda: not run.driver.reactions(place, shown.id), "no reaction")


@check("media", stage=CALL)
async def sends_every_kind_of_file_it_claims(run: ConformanceRun) -> None:
    place = run.private()
    for kind in sorted(run.capabilities.media):
        path = run.folder / f"{kind}.{'png' if kind == 'image' else 'ogg'}"
        content = PICTURE + kind.encode()
        path.write_bytes(content)
        piece = run.outgoing(place, attachment=str(path), attachment_kind=kind)
        await run.adapter.send(piece)
        await run.until(
            lambda: any(content in each.files for each in run.driver.shown(place)),  # noqa: B023
            f"a file as {kind}",
        )


@check("album_size", "AlbumSender", stage=CALL)
async def sends_pictures_together(run: ConformanceRun) -> None:
    assert isinstance(run.adapter, AlbumSender), "album_size without AlbumSender"
    place, pieces = run.private(), list[Outgoing]()
    for number in range(2):
        path = run.folder / f"album{number}.png"
        path.write_bytes(PICTURE + b"album %d" % number)
        pieces.append(run.outgoing(place, attachment=str(path), attachment_kind="image"))
    assert len(await run.adapter.send_album(pieces)) == 2
    await run.until(
        lambda: sum(len(each.files) for each in run.driver.shown(place)) == 2, "two pictures"
    )


@check("idempotent_sends", stage=CALL)
async def sends_once_under_one_key(run: ConformanceRun) -> None:
    place, mark = run.private(), run.mark()
    piece = run.outgoing(place, f"hello {mark}", key=f"conformance-{mark}")
    first = await run.adapter.send(piece)
    assert first == await run.adapter.send(piece)
    assert len(await _appears(run, place, mark)) == 1


@check("SentHistory", stage=CALL)
async def finds_what_it_sent(run: ConformanceRun) -> None:
    place, mark, since = run.private(), run.mark(), time.time() - 5
    piece = run.outgoing(place, f"hello {mark}", key=f"found-{mark}")
    assert await run.adapter.find_sent(piece, since) is None
    sent = await run.adapter.send(piece)
    assert await run.adapter.find_sent(piece, since) == sent


@check("EarlierMessages", stage=CALL)
async def tells_what_was_said_before(run: ConformanceRun) -> None:
    place, before, asked = run.driver.thread(run.person()), run.mark(), run.mark()
    await run.driver.say(place, f"the word is plum {before}", mention=False)
    await run.driver.say(place, f"what is the word? {asked}")

    def heard() -> list[InboundMessage]:
        return [each for each in run.heard if asked in each.text]

    (message, *_) = await run.until(heard, "a mention")
    said = await run.adapter.said_before(message)
    assert [before in each for each in said].count(True) == 1, said
    assert not any(asked in each for each in said)


@check("NumberedMessages", stage=CALL)
async def counts_its_messages(run: ConformanceRun) -> None:
    place, mark = run.private(), run.mark()
    sent = [await run.adapter.send(run.outgoing(place, f"{mark} {each}")) for each in range(3)]
    names = [each.native_id for each in sent]
    assert list(run.adapter.between(names[:1], names[2])) == names[1:2]
    assert not run.adapter.foreign(names[0])


@check("HandoffThreads", stage=CALL)
async def opens_a_thread_for_a_conversation(run: ConformanceRun) -> None:
    target = run.outgoing(run.driver.group(run.person())).target
    opened = await run.adapter.create_handoff_thread(target, "A conversation")
    assert opened.thread_id not in (None, target.thread_id)
    place = Place(person="", chat=opened.chat_id, thread=opened.thread_id or "", group=True)
    mark = run.mark()
    await run.adapter.send(run.outgoing(place, f"hello {mark}"))
    assert (await _appears(run, place, mark))[0].thread == opened.thread_id


@check(stage=CALL)
async def says_what_a_failed_call_means(run: ConformanceRun) -> None:
    async with run.driver.outage():
        try:
            await run.adapter.send(run.outgoing(run.private(), f"hello {run.mark()}"))
        except PlatformFailure:
            return
    raise AssertionError("nothing failed")
