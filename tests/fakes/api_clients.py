"""What client packages are tried against: one real gateway and a model that knows its lines.

The first word of what a client says chooses the answer, so that any number of
tests can share the gateway; `asked` finds what the model was asked.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes.api_gateway import ApiGateway, running_api
from fakes.listener import start_server
from fakes.model import Call, FakeModelServer, RecordedRequest, Rule, Script, Step

__all__ = [
    "MARK",
    "MAX_RUNS",
    "OWN_CALLS",
    "PIXEL",
    "WEATHER",
    "ClientWorld",
    "CutLine",
    "client_world",
]

MARK = "seen-by-the-server-only"
OWN_CALLS = 32
"""How many calls of its own the agent makes in a `long` turn."""
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk"
    "YAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Tells the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
"""A function of the client, which the model calls when it is asked about the weather."""
MAX_RUNS = 6


def _shell(command: str) -> Call:
    return Call(name="terminal", arguments={"command": command})


def _long() -> list[Step]:
    """Eight model calls with four tool calls each; two of all calls take a second."""
    steps = []
    for number in range(OWN_CALLS // 4):
        slow = "sleep 1" if number in {2, 5} else "true"
        commands = [f"{slow} && echo {number}", *(f"echo {number}.{part}" for part in range(3))]
        steps.append(Step(text="", calls=[_shell(command) for command in commands]))
    return [*steps, Step(text="All of it is done.")]


def _script() -> Script:
    weather = Call(name="weather", arguments={"city": "Rome"})
    forecast = [
        Step(text="Let me see.", calls=[_shell(f"echo {MARK}")]),
        Step(calls=[_shell("echo second"), weather]),
        Step(text="Sunny in Rome."),
    ]
    return Script(
        rules=[
            Rule(contains="weather", steps=forecast),
            Rule(contains="long", steps=_long()),
            Rule(contains="stall", steps=[Step(text="This takes for ever.", stall="middle")]),
            Rule(contains="person", steps=[Step(text='{"name": "Ada", "age": 36}')]),
            Rule(contains="think", steps=[Step(reasoning="Hm, well.", text="Thought.")]),
            Rule(contains="echo", steps=[Step(echo=True)]),
            Rule(
                contains="once",
                steps=[Step(calls=[_shell("echo once")]), Step(text="Done once.", delay=0.8)],
            ),
            Rule(contains="fail", steps=[Step(status=400, body={"error": {"message": "No."}})]),
        ],
        default=Step(text="Hello from the agent."),
    )


class ClientWorld:
    """A gateway, and the model behind it."""

    def __init__(self, gateway: ApiGateway, model: FakeModelServer) -> None:
        self.gateway = gateway
        self.model = model
        self.base_url = f"{gateway.url}/v1"

    def asked(self, text: str) -> list[RecordedRequest]:
        """Return the requests to the model that mention a text."""
        return [each for each in self.model.requests if text.encode() in each.raw]

    async def until_asked(self, text: str, times: int = 1) -> None:
        """Wait until the model was asked something."""
        async with asyncio.timeout(20):
            while len(self.asked(text)) < times:
                self.model.arrived.clear()
                await self.model.arrived.wait()

    async def new_key(self, name: str, *options: str) -> str:
        """Make a key with the command that people use."""
        made = await self.gateway.hermes.run("keys", "create", name, *options)
        assert made.code == 0, made.err
        return made.out.strip()


@asynccontextmanager
async def client_world(folder: Path, **config: Any) -> AsyncIterator[ClientWorld]:
    """Run a gateway for clients for the body of the `with`."""
    async with FakeModelServer(_script()) as model:
        settings: dict[str, Any] = {
            "gateway": {"api_server": {"max_concurrent_runs": MAX_RUNS}},
            "providers": {"custom": {"vision": True}},
        }
        async with running_api(folder, model.base_url, **settings, **config) as gateway:
            yield ClientWorld(gateway, model)


class CutLine:
    """A network that loses the first answer, and cuts that line once `cut` is set."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.cut = asyncio.Event()
        self.connections = 0
        self.port = 0

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[str]:
        """Carry connections for the body of the `with`; gives the address to use."""
        server = await start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}/v1"
        finally:
            server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        first = self.connections == 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        back = self.cut.wait() if first else _pump(far_reader, writer)
        ways = {
            asyncio.ensure_future(_pump(reader, far_writer)),
            asyncio.ensure_future(back),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()
            far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
