"""A busy bot in daily life: outages, refusals, slow files, floods, groups, hundreds of chats.

A real gateway process stands between a scripted model and a fake Telegram with Telegram's own
limits. People say uniquely marked things while trouble comes and goes. Whatever happens, every
mark is answered exactly once and in order in its chat, and no `…` stays behind. How late the
answers were is printed as a table. The short form, in the suite, asserts lateness only loosely,
because the machine may be busy; `make soak` asserts what we promise.
"""

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from fakes.gateway import GatewayProcess, running_gateway
from fakes.model import Rule, Script, Step
from fakes.model_remote import model_process
from fakes.telegram import REAL_LIMITS, FakeTelegram, FaultRates, RateLimits, Seen
from fakes.telegram_methods import SENDS

pytestmark = pytest.mark.xdist_group("load")

MARK = re.compile(r"mark-(\d+)-")
GROUP = -1001
PLACEHOLDER = "…"
UNKNOWN = ("reset_before", "reset_after", "504")
"""After these nobody knows whether a message was sent."""
BUSY = 6.0
"""How much later than promised the short form lets things be: other tests run beside it."""


class Figures(Struct, kw_only=True):
    """What one phase was like."""

    name: str
    late: list[float]
    """How long each answer took, in order; during trouble: after it was over."""
    calls: int
    refused: int
    dots: int
    """Placeholders that are left."""

    def percentile(self, percent: int) -> float:
        return self.late[math.ceil(len(self.late) * percent / 100) - 1] if self.late else math.inf

    @property
    def refused_percent(self) -> float:
        return 100 * self.refused / max(1, self.calls)

    def row(self) -> str:
        late = "".join(f"{self.percentile(each):>8.1f}" for each in (50, 95, 100))
        refused = f"{self.refused_percent:>9.1f} %"
        return f"{self.name:<28}{len(self.late):>9}{late}{self.calls:>7}{refused}{self.dots:>4}"


HEAD = " " * 28 + " messages   p50 s   p95 s   max s  calls    refused   …"


class Town:
    """People who say marked things, and what they see."""

    def __init__(self, telegram: FakeTelegram, gateway: GatewayProcess) -> None:
        self.telegram = telegram
        self.gateway = gateway
        self.figures: list[Figures] = []
        self.problems: list[str] = []
        """What may never happen, found after each phase."""
        self.said: dict[int, tuple[int, float]] = {}
        """Mark -> chat and time."""

    def say(self, chat: int, user: int | None = None, text: str = "") -> int:
        mark = len(self.said)
        self.said[mark] = (chat, time.time())
        self.telegram.say(chat, chat if user is None else user, f"{text}mark-{mark}-")
        return mark

    def shown(self, marks: Iterable[int]) -> dict[int, list[tuple[list[int], Seen]]]:
        """Return the messages of the bot in the chats of these marks, with the marks in them."""
        return {
            chat: [
                ([int(mark) for mark in MARK.findall(seen.text)], seen)
                for seen in self.telegram.replies(chat)
            ]
            for chat in {self.said[mark][0] for mark in marks}
        }

    async def answered(self, marks: Iterable[int], seconds: float) -> bool:
        """Wait until each mark stands in an answer."""
        left, end = set(marks), time.monotonic() + seconds
        while left and time.monotonic() < end:
            await asyncio.sleep(0.05)
            left -= {m for each in self.shown(left).values() for found, _ in each for m in found}
        return not left

    @asynccontextmanager
    async def phase(self, name: str, seconds: float = 60.0) -> AsyncIterator["Phase"]:
        """Wait for the answers to what is said in the body, look at them, note the figures."""
        phase, before, began = Phase(self), len(self.telegram.calls), time.time()
        yield phase
        await self.answered(phase.marks, seconds)
        calls = [call for call in self.telegram.calls[before:] if call.method in SENDS]
        shown = self.shown(phase.marks)
        self.problems += [f"{name}: {problem}" for problem in troubles(shown, phase.marks)]
        at = {mark: seen for each in shown.values() for found, seen in each for mark in found}
        late = [
            at[mark].shown_at - max(self.said[mark][1], phase.over)
            for mark in phase.marks
            if mark in at
        ]
        figures = Figures(
            name=name,
            late=sorted(late),
            calls=len(calls),
            refused=sum(call.refused for call in calls),
            dots=sum(
                seen.text == PLACEHOLDER and seen.at >= began
                for each in shown.values()
                for _, seen in each
            ),
        )
        self.figures.append(figures)
        if figures.dots and not name.startswith(UNKNOWN):
            self.problems.append(f"{name}: {figures.dots} placeholders are left")


class Phase:
    def __init__(self, town: Town) -> None:
        self._town = town
        self.marks: list[int] = []
        self.over = 0.0
        """When the trouble ended."""

    def say(self, chat: int, user: int | None = None, text: str = "") -> int:
        self.marks.append(self._town.say(chat, user, text))
        return self.marks[-1]

    async def chatter(self, chats: Sequence[int], seconds: float, pause: float = 0.1) -> None:
        """Have people speak one after the other for a while."""
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            self.say(chats[number % len(chats)])
            number += 1
            await asyncio.sleep(pause)

    async def trouble(self, kind: str, chats: Sequence[int], seconds: float) -> None:
        """Speak before, during and after an outage."""
        await self.chatter(chats, 1.0)
        async with self._town.telegram.outage(kind):
            await self.chatter(chats, seconds, pause=max(0.1, seconds / 40))
        self.over = time.time()
        await self.chatter(chats, 1.0)


def troubles(shown: dict[int, list[tuple[list[int], Seen]]], marks: Sequence[int]) -> Iterator[str]:
    """Name what was not answered once and in order."""
    counted = Counter(mark for each in shown.values() for found, _ in each for mark in found)
    if lost := [mark for mark in marks if not counted[mark]]:
        yield f"not answered: {lost}"
    if doubled := [mark for mark in marks if counted[mark] > 1]:
        yield f"answered twice: {doubled}"
    for chat, each in shown.items():
        order = [mark for found, _ in each for mark in found]
        if order != sorted(order):
            yield f"out of order in chat {chat}: {order}"


@asynccontextmanager
async def town(
    folder: Path, report: Callable[[str], None], limits: RateLimits | None = REAL_LIMITS
) -> AsyncIterator[Town]:
    quick = Step(echo=True, piece_chars=8)
    slow = Rule(contains="slowly", steps=[Step(echo=True, piece_chars=2, interval=0.5)])
    script = Script(rules=[slow], default=quick, strict=False)
    settings = {"display": {"busy_input_mode": "queue"}, "terminal": {"backend": "local"}}
    async with model_process(folder, script) as model, FakeTelegram(limits=limits) as telegram:
        async with running_gateway(
            folder, model.base_url, telegram.base_url, **settings
        ) as gateway:
            place = Town(telegram, gateway)
            assert await place.answered([place.say(1)], 60)
            try:
                yield place
                assert not place.problems
                assert await gateway.stop() == 0
                assert "Traceback" not in gateway.log()
            finally:
                rows = [each.row() for each in place.figures]
                report("\n".join(["", HEAD, *rows, *place.problems]))


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    def show(text: str) -> None:
        with capsys.disabled():
            print(text)  # noqa: T201 - the figures are what it is for

    return show


# -- phases ------------------------------------------------------------------------------------


async def steady(town: Town, chats: Sequence[int], seconds: float, rate: float) -> Figures:
    async with town.phase(f"steady, {len(chats)} chats") as phase:
        await phase.chatter(chats, seconds, 1 / rate)
    return town.figures[-1]


async def refusals(town: Town, chats: Sequence[int], seconds: float) -> Figures:
    """Three of ten calls are refused for two seconds."""
    faults = town.telegram.faults
    async with town.phase("30 % refused", 120) as phase:
        faults.draw(FaultRates(seed=3, rates={"429": 0.3}, methods=sorted(SENDS), seconds=2))
        await phase.chatter(chats, seconds)
        await town.answered(phase.marks, 120)
        faults.draw(None)
    return town.figures[-1]


async def outage(town: Town, kind: str, chats: Sequence[int], seconds: float) -> Figures:
    async with town.phase(f"{kind} for {seconds:g} s", 150) as phase:
        await phase.trouble(kind, chats, seconds)
    return town.figures[-1]


async def crowd(town: Town, size: int) -> Figures:
    """Everybody speaks in the same moment."""
    async with town.phase(f"{size} chats at once") as phase:
        for chat in range(20_000, 20_000 + size):
            phase.say(chat)
    return town.figures[-1]


async def growing(town: Town, size: int) -> Figures:
    """Answers that grow for four seconds, and previews of them."""
    async with town.phase(f"{size} growing answers") as phase:
        for chat in range(40_000, 40_000 + size):
            phase.say(chat, None, "slowly ")
    return town.figures[-1]


async def six_in_a_group(town: Town, group: int) -> Figures:
    async with town.phase("six in a group") as phase:
        for user in range(6):
            phase.say(group, 700 + user, "@hermes_bot ")
    return town.figures[-1]


async def beside(town: Town, name: str, trouble: Callable[[], Awaitable[None]]) -> Figures:
    """Another person speaks while somebody keeps the bot busy."""
    async with town.phase(name) as phase:
        await trouble()
        for _ in range(5):
            await asyncio.sleep(0.3)
            phase.say(30_000 + len(town.said))
    return town.figures[-1]


async def slow_file(town: Town, seconds: float) -> Figures:
    async def send_file() -> None:
        town.telegram.fault("slow", "file", seconds=seconds)
        town.telegram.world.say_file(8, 8, "document", b"slow", name="notes.txt", caption="read")
        await town.telegram.until(lambda: town.telegram.called("getFile"), 20)

    return await beside(town, f"beside a file of {seconds:g} s", send_file)


async def flood(town: Town) -> Figures:
    async def send_commands() -> None:
        for _ in range(20):
            town.telegram.say(9, 9, "/help")

    return await beside(town, "beside twenty /help", send_commands)


# -- the two forms -----------------------------------------------------------------------------


@pytest.mark.timeout(180)
async def test_a_busy_bot_loses_doubles_and_leaves_nothing(
    tmp_path: Path, report: Callable[[str], None]
) -> None:
    chats = range(100, 120)
    async with town(tmp_path, report) as place:
        usual = await steady(place, chats, 2.0, 10)
        await six_in_a_group(place, GROUP)
        await slow_file(place, 4.0)
        await flood(place)
        refused = await refusals(place, chats, 3.0)
        for kind in ("refused", "504", "reset_after"):
            await outage(place, kind, chats, 2.0)
        again = await steady(place, chats, 2.0, 10)
    assert usual.refused == again.refused == 0
    assert refused.percentile(95) < 20 * BUSY


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_outages_of_every_kind_and_length(
    tmp_path: Path, report: Callable[[str], None]
) -> None:
    chats = range(100, 160)
    async with town(tmp_path, report) as place:
        for kind in ("refused", "504", "reset_before", "reset_after"):
            for seconds in (5, 30):
                assert (await outage(place, kind, chats, seconds)).percentile(95) < 20
        for kind in ("refused", "reset_before"):
            assert (await outage(place, kind, chats, 120)).percentile(95) < 20


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_hundreds_of_chats_within_the_limits(
    tmp_path: Path, report: Callable[[str], None]
) -> None:
    async with town(tmp_path, report) as place:
        assert (await steady(place, range(100, 400), 30.0, 15)).refused_percent <= 1
        assert (await crowd(place, 300)).refused_percent <= 1
        assert (await growing(place, 100)).refused_percent <= 1
        assert (await refusals(place, range(100, 160), 30.0)).percentile(95) < 20
        assert (await steady(place, range(100, 400), 20.0, 15)).refused_percent <= 1


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_nobody_waits_for_anybody(tmp_path: Path, report: Callable[[str], None]) -> None:
    async with town(tmp_path, report) as place:
        for group in (GROUP, GROUP - 1, GROUP - 2):
            together = await six_in_a_group(place, group)
            assert together.late[-1] < 2
            assert together.refused == 0
        assert (await slow_file(place, 20.0)).late[-1] < 1
        assert (await flood(place)).late[-1] < 1
