"""IRC's side of the `Adapter` port: one connection, private messages and channels.

A server does not say that it took a message. It does answer a PING, and in order: so each
message is followed by one, and counts as sent when the PONG comes.
"""

import asyncio
import re
import uuid
from itertools import count

from msgspec import Struct

from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender
from hermes.domain.ports.platform import FailureAction, InboundSink, Outgoing, PlatformFailure, Sent
from hermes.entry.chat.kit.base import ChatAdapter
from hermes.entry.chat.kit.intake import Heard, read_addressing
from hermes.entry.chat.kit.settings import ChatSettings
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


class IrcAdapter(ChatAdapter[IrcSettings]):
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter | None = None
    _confirmed: asyncio.Future[None] | None = None  # of the message that is being sent

    @property
    def account(self) -> str:
        return f"{self._rules().nick}@{self._rules().server}"

    async def connect(self) -> None:
        rules, self._one, self._numbers = self._rules(), asyncio.Lock(), count(1)
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
        nick, (to, text), own = line.source.partition("!")[0], line.params[:2], self._rules().nick
        if nick.lower() == own.lower() or text.startswith("\x01"):
            return None
        private = to.lower() == own.lower()
        kind, place = (ChatKind.PRIVATE, nick) if private else (ChatKind.GROUP, to)
        names = re.finditer(rf"(?<![\w-]){re.escape(own)}(?![\w-])", text, re.IGNORECASE)
        said = read_addressing(text, [each.span() for each in names], username=own, commands={})
        message = InboundMessage(
            platform=PLATFORM.name,
            account=self.account,
            native_id=uuid.uuid4().hex,  # IRC has no names for messages, and repeats none
            chat=Chat(kind=kind, id=place),
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
            number, chat = next(self._numbers), outgoing.target.chat_id
            self._confirmed = asyncio.get_running_loop().create_future()
            self._put(*(f"PRIVMSG {chat} :{each}" for each in lines), f"PING :sent-{number}")
            await asyncio.wait([self._confirmed], timeout=_ANSWER)
            if self._confirmed.done() and not self._confirmed.cancelled():
                self._confirmed.result()
                return Sent(native_id=f"{chat}:{number}")
        message = "The connection broke; it may have been sent."
        raise PlatformFailure(FailureAction.UNKNOWN, message)

    # -- the connection ---------------------------------------------------------------------

    def _put(self, *lines: str) -> None:
        assert self._writer is not None
        self._writer.write("".join(f"{each}\r\n" for each in lines).encode())

    async def _line(self) -> Line:
        while raw := await self._reader.readline():
            line = read_line(raw.decode("utf-8", "replace"))
            if line.command != "PING":
                return line
            self._put(f"PONG :{line.params[-1]}")
        raise ConnectionResetError("the server closed the connection")


def _unreachable(reason: object) -> PlatformFailure:
    return PlatformFailure(FailureAction.RETRY, f"IRC cannot be reached ({reason}).")
