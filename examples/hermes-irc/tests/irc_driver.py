"""People on a real ngircd, as the conformance suite drives them."""

import asyncio
import os
import shutil
import socket
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

from hermes.testing.driver import Place, SeenInChat, Trouble
from hermes_irc.adapter import read_line
from hermes_irc.manifest import PLATFORM

_HERE = Path(__file__).parent.parent
NGIRCD = shutil.which("ngircd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_CONFIG = """
[Global]
Name = irc.example.net
Info = A server for tests
Listen = 127.0.0.1
Ports = {port}
[Limits]
MaxConnections = 0
MaxConnectionsIP = 0
MaxJoins = 0
MaxNickLength = 20
[Options]
DNS = no
Ident = no
PAM = no
"""


class _Person:
    """One connection, and what came by it."""

    def __init__(self, nick: str) -> None:
        self.nick = nick
        self.heard: list[tuple[str, str]] = []
        """(where, what) the bot said."""
        self.names: set[str] = set()
        self.joined: set[str] = set()
        self.alive = False
        self._writer: asyncio.StreamWriter | None = None
        self._seen: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._task: asyncio.Task[None] | None = None

    async def connect(self, port: int) -> None:
        await self.leave()
        self.joined.clear()
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self.put(f"NICK {self.nick}", f"USER {self.nick} 0 * :{self.nick}")
        self.alive = True
        self._task = asyncio.ensure_future(self._read(reader))
        await self.until("001")

    async def leave(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._seen.clear()

    def put(self, *lines: str) -> None:
        assert self._writer is not None
        self._writer.write("".join(f"{each}\r\n" for each in lines).encode())

    async def until(self, command: str) -> None:
        async with asyncio.timeout(10):
            await self._seen[command].wait()

    async def join(self, channel: str) -> None:
        if channel not in self.joined:
            self.put(f"JOIN {channel}")
            await self.until(f"366 {channel}")
            self.joined.add(channel)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while raw := await reader.readline():
                line = read_line(raw.decode())
                if line.command == "PING":
                    self.put(f"PONG :{line.params[-1]}")
                elif line.command == "PRIVMSG" and line.source.startswith("hermes!"):
                    self.heard.append((line.params[0], line.params[1]))
                elif line.command == "353":
                    self.names |= set(line.params[-1].replace("@", "").split())
                elif line.command == "366":
                    self._seen[f"366 {line.params[1]}"].set()
                self._seen[line.command].set()
        self.alive = False


class IrcDriver:
    platform = PLATFORM
    people = tuple(f"person{number}" for number in range(1, 41))
    stranger = "stranger"
    troubles = frozenset[Trouble]()
    bold = "bold"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hermes-irc-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process: asyncio.subprocess.Process | None = None
        self._people: dict[str, _Person] = {}
        self._channels = [f"#garden{number}" for number in range(1, 9)]
        self._groups = iter(self._channels)

    @property
    def python_path(self) -> str:
        """Put what an installer would write into a folder."""
        project = tomllib.loads((_HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        info = self._folder / f"hermes_irc-{project['version']}.dist-info"
        info.mkdir(exist_ok=True)
        points = project["entry-points"]["hermes.platforms"]
        lines = ["[hermes.platforms]", *(f"{name} = {target}" for name, target in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return f"{self._folder}{os.pathsep}{_HERE}"

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for person in self._people.values():
            await person.leave()
        await self._stop()
        shutil.rmtree(self._folder)

    async def _start(self) -> None:
        config = self._folder / "ngircd.conf"
        config.write_text(_CONFIG.format(port=self._port), encoding="utf-8")
        log = (self._folder / "ngircd.log").open("ab")
        assert NGIRCD is not None
        self._process = await asyncio.create_subprocess_exec(
            *(NGIRCD, "-n", "-f", str(config)), stdout=log, stderr=log
        )
        log.close()
        async with asyncio.timeout(10):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                    writer.close()
                    return
                await asyncio.sleep(0.02)

    async def _stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    def section(self) -> dict[str, Any]:
        where = {"server": "127.0.0.1", "port": self._port, "tls": False}
        return {"extra": where | {"channels": self._channels}}

    def private(self, person: str) -> Place:
        return Place(person=person, chat=person)

    def group(self, person: str) -> Place:
        return Place(person=person, chat=next(self._groups), group=True)

    def thread(self, person: str) -> Place:
        raise NotImplementedError

    async def _person(self, nick: str) -> _Person:
        person = self._people.setdefault(nick, _Person(nick))
        if not person.alive:
            await person.connect(self._port)
        return person

    async def listening(self) -> None:
        """Wait until the bot is in the last of its channels."""
        watcher = await self._person("watcher")
        watcher.names.clear()
        async with asyncio.timeout(30):
            while "hermes" not in watcher.names:
                watcher.put(f"NAMES {self._channels[-1]}")
                await asyncio.sleep(0.05)

    async def say(self, place: Place, text: str, *, mention: bool = True, file: bytes = b"") -> str:
        person = await self._person(place.person)
        if place.group:
            await person.join(place.chat)
        to, said = (place.chat, f"hermes: {text}" if mention else text)
        person.put(f"PRIVMSG {to if place.group else 'hermes'} :{said}")
        return ""

    def shown(self, place: Place) -> list[SeenInChat]:
        person = self._people.get(place.person)
        heard = person.heard if person is not None else []
        return [
            SeenInChat(id=str(number), text=text)
            for number, (to, text) in enumerate(heard)
            if to == place.chat
        ]

    async def again(self, place: Place, message_id: str) -> None:
        raise NotImplementedError

    async def press(self, place: Place, shown: SeenInChat, label: str) -> Callable[[], str]:
        raise NotImplementedError

    def typing(self, place: Place) -> int:
        raise NotImplementedError

    def reactions(self, place: Place, message_id: str) -> list[str]:
        raise NotImplementedError

    def trouble(self, trouble: Trouble, place: Place) -> None:
        raise NotImplementedError

    async def drop(self) -> None:
        async with self.outage():
            pass

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        await self._stop()
        for person in self._people.values():
            await person.leave()
            person.alive = False
        yield
        await self._start()
