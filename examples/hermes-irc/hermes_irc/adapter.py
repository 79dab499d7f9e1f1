"""IRC's side of the `Adapter` port: one connection, private messages and channels.

A server does not say that it took a message. It does answer a PING, and in order: so each
message is followed by one, and counts as sent when the PONG comes.
"""

import asyncio
import re
import uuid
from collections.abc import Callable, Sequence
from itertools import count

from msgspec import Struct

from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.outbound import Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.platform import (
    AdapterRequest,
    ButtonPress,
    FailureAction,
    InboundSink,
    MenuCommand,
    Outgoing,
    PlatformFailure,
    Sent,
)
from hermes.entry.chat.kit.intake import Heard, MessageIntake, read_addressing
from hermes.entry.chat.kit.settings import ChatSettings, live_settings
from hermes_irc.manifest import PLATFORM

_ANSWER = 20.0  # seconds in which a server answers
_QUIET = 60.0  # seconds of silence after which it is asked whether it is there
_REFUSED = {"401", "403", "404", "442"}


class IrcSettings(ChatSettings, frozen=True, kw_only=True):
    server: str
    port: int = 6697
    tls: bool = True
    nick: str = "hermes"
    password: str = ""
    channels: tuple[str, ...] = ()


class Line(Struct, frozen=True):
    source: str
    command: str
    params: list[str]


def read_line(text: str) -> Line:
    """Read `:source COMMAND param param :the rest`."""
    head, colon, rest = text.rstrip("\r\n").partition(" :")
    words = head.split()
    source = words.pop(0)[1:] if head.startswith(":") else ""
    return Line(source, (words or [""])[0].upper(), words[1:] + ([rest] if colon else []))


class IrcAdapter:
    def __init__(self, rules: Callable[[], IrcSettings], clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._intake = MessageIntake(rules, self._no_buttons)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._one = asyncio.Lock()
        self._confirmed: asyncio.Future[None] | None = None
        """Of the message that is being sent."""

    @classmethod
    def configured(cls, request: AdapterRequest) -> "IrcAdapter":
        return cls(live_settings(PLATFORM, IrcSettings, request.places), request.clock)

    @property
    def account(self) -> str:
        return f"{self._rules().nick}@{self._rules().server}"

    async def connect(self) -> None:
        rules = self._rules()
        try:
            async with asyncio.timeout(_ANSWER):
                self._reader, self._writer = await asyncio.open_connection(
                    rules.server, rules.port, ssl=rules.tls or None
                )
                if rules.password:
                    self._put(f"PASS {rules.password}")
                self._put(f"NICK {rules.nick}", f"USER {rules.nick} 0 * :Hermes")
                while (line := await self._line()).command != "001":
                    if line.command in {"432", "433", "464", "465", "ERROR"}:
                        wrong = line.command in {"432", "464", "465"}
                        action = FailureAction.FATAL if wrong else FailureAction.RETRY
                        raise PlatformFailure(action, f"IRC says: {' '.join(line.params)}")
        except (OSError, TimeoutError) as error:
            raise _unreachable(error) from None
        self._put(*(f"JOIN {channel}" for channel in rules.channels))

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    # -- receiving -------------------------------------------------------------------------

    async def receive(self, sink: InboundSink) -> None:
        try:
            async with self._intake.into(sink) as hand_over:
                while True:
                    line = await self._next_line()
                    sink.alive()
                    if line.command == "PRIVMSG" and (heard := self._heard(line)):
                        await hand_over([heard])
                    elif line.command == "PONG" or line.command in _REFUSED:
                        self._settle(line)
        except (OSError, TimeoutError) as error:
            raise _unreachable(error) from None
        finally:
            if self._confirmed is not None:
                self._confirmed.cancel()

    async def _next_line(self) -> Line:
        try:
            async with asyncio.timeout(_QUIET):
                return await self._line()
        except TimeoutError:
            self._put("PING :quiet")
            async with asyncio.timeout(_ANSWER):
                return await self._line()

    def _heard(self, line: Line) -> Heard | None:
        nick, (to, text) = line.source.partition("!")[0], line.params[:2]
        own = self._rules().nick
        if nick.lower() == own.lower() or text.startswith("\x01"):
            return None
        private = to.lower() == own.lower()
        names = re.finditer(rf"(?<![\w-]){re.escape(own)}(?![\w-])", text, re.IGNORECASE)
        said = read_addressing(text, [each.span() for each in names], username=own, commands={})
        message = InboundMessage(
            platform=PLATFORM.name,
            account=self.account,
            native_id=uuid.uuid4().hex,  # IRC has no names for messages, and repeats none
            chat=Chat(
                kind=ChatKind.PRIVATE if private else ChatKind.GROUP, id=nick if private else to
            ),
            sender=Sender(id=nick, name=nick, alt_id=line.source.partition("!")[2] or None),
            text=said.text,
            sent_at=self._clock.now(),
        )
        return Heard(message=message, mentioned=said.mentioned, command=said.command)

    def _settle(self, line: Line) -> None:
        waiting = self._confirmed
        if waiting is None or waiting.done():
            return
        if line.command != "PONG":
            reason = " ".join(line.params[1:])
            waiting.set_exception(PlatformFailure(FailureAction.GIVE_UP, f"IRC says: {reason}"))
        elif line.params[-1].startswith("sent-"):
            waiting.set_result(None)

    # -- sending ----------------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> Sent:
        lines = [each for each in outgoing.text.splitlines() if each.strip()]
        async with self._one:
            if self._writer is None or self._writer.is_closing():
                raise _unreachable("there is no connection")
            number = next(self._numbers)
            self._confirmed = asyncio.get_running_loop().create_future()
            self._put(*(f"PRIVMSG {outgoing.target.chat_id} :{each}" for each in lines))
            self._put(f"PING :sent-{number}")
            try:
                await asyncio.wait_for(asyncio.wait([self._confirmed]), _ANSWER)
                if not self._confirmed.cancelled():
                    self._confirmed.result()
                    return Sent(native_id=f"{outgoing.target.chat_id}:{number}")
            except TimeoutError:
                pass
        message = "The connection broke; it may have been sent."
        raise PlatformFailure(FailureAction.UNKNOWN, message)

    async def edit(self, native_id: str, outgoing: Outgoing) -> None: ...

    async def delete(self, target: Target, native_id: str) -> None: ...

    async def typing(self, target: Target) -> None: ...

    async def react(self, target: Target, native_id: str, emoji: str) -> None: ...

    async def publish_commands(self, commands: Sequence[MenuCommand]) -> None: ...

    async def _no_buttons(self, press: ButtonPress, text: str) -> None: ...

    # -- the connection ---------------------------------------------------------------------

    def _put(self, *lines: str) -> None:
        assert self._writer is not None
        self._writer.write("".join(f"{each}\r\n" for each in lines).encode())

    async def _line(self) -> Line:
        assert self._reader is not None
        while raw := await self._reader.readline():
            line = read_line(raw.decode("utf-8", "replace"))
            if line.command != "PING":
                return line
            self._put(f"PONG :{line.params[-1]}")
        raise ConnectionResetError("the server closed the connection")


def _unreachable(reason: object) -> PlatformFailure:
    return PlatformFailure(FailureAction.RETRY, f"IRC cannot be reached ({reason}).")
