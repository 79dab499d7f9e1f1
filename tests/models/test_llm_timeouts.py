"""Every wait has a bound, silence is told, and leaving closes the connection."""

import asyncio

import pytest
from msgspec.structs import replace

from fakes.model import FakeModelServer, Script, Step
from fakes.model_client import QUICK, Heard, ask, client_of, route_to
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.models.client import RetryPolicy

ONCE = RetryPolicy(max_retries=0)
LONG = "word " * 50


@pytest.mark.parametrize("stall", ["before", "first"])
async def test_no_first_byte_is_a_timeout_and_the_connection_is_closed(stall: str) -> None:
    async with FakeModelServer([Step(text="x", stall=stall)]) as server:
        client = client_of(route_to(server, timeouts=replace(QUICK, first_byte=0.1)), policy=ONCE)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await asyncio.wait_for(server.disconnected.wait(), 5)
        await client.close()
    assert failure.value.kind is FailureKind.TIMEOUT
    assert "within 0.1 s" in failure.value.message
    assert server.disconnects == 1


async def test_a_stream_that_falls_silent_is_a_timeout_and_the_connection_is_closed() -> None:
    async with FakeModelServer([Step(text=LONG, stall="middle")]) as server:
        heard = Heard()
        client = client_of(route_to(server, timeouts=replace(QUICK, idle=0.1)), policy=ONCE)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask(), heard)
        await asyncio.wait_for(server.disconnected.wait(), 5)
        await client.close()
    assert failure.value.kind is FailureKind.TIMEOUT
    assert "nothing more came for 0.1 s" in failure.value.message
    assert LONG.startswith(heard.text)
    assert heard.text


async def test_bytes_that_keep_coming_cannot_stretch_the_total() -> None:
    async with FakeModelServer([Step(text=LONG * 20, interval=0.01)]) as server:
        client = client_of(route_to(server, timeouts=replace(QUICK, total=0.3)), policy=ONCE)
        with pytest.raises(ModelFailure) as failure:
            await asyncio.wait_for(client.complete(ask()), 5)
        await asyncio.wait_for(server.disconnected.wait(), 5)
        await client.close()
    assert failure.value.kind is FailureKind.TIMEOUT


async def test_silence_is_tried_again_only_once() -> None:
    async with FakeModelServer(Script(default=Step(text="x", stall="before"))) as server:
        client = client_of(route_to(server, timeouts=replace(QUICK, first_byte=0.05)))
        with pytest.raises(ModelFailure):
            await client.complete(ask())
        await client.close()
    assert len(server.requests) == 2


async def test_a_complete_reply_does_not_wait_for_a_server_that_lingers() -> None:
    async with FakeModelServer([Step(text="all of it", stall="end")]) as server:
        client = client_of(route_to(server))
        reply = await asyncio.wait_for(client.complete(ask()), 3)
        await client.close()
    assert reply.message.text == "all of it"


class _Noticing(Heard):
    def __init__(self, wanted: int) -> None:
        super().__init__()
        self._wanted = wanted
        self.noticed = asyncio.Event()

    def on_notice(self, code: str, text: str) -> None:
        super().on_notice(code, text)
        if len(self.notices) >= self._wanted:
            self.noticed.set()


async def test_a_person_is_told_that_the_model_is_waited_for_until_it_answers() -> None:
    async with FakeModelServer([Step(text="at last", stall="before")]) as server:
        heard = _Noticing(3)
        client = client_of(route_to(server, notice=0.02))
        async with asyncio.TaskGroup() as group:
            call = group.create_task(client.complete(ask(), heard))
            await asyncio.wait_for(heard.noticed.wait(), 5)
            server.release()
        await client.close()
    assert call.result().message.text == "at last"
    assert set(heard.notices) == {"waiting"}
    kinds = [what for what, _ in heard.log]
    assert kinds.index("text") > len(heard.notices) - 1, "no notice after the first text"


class _Listening(Heard):
    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    def on_text(self, text: str) -> None:
        super().on_text(text)
        self.begun.set()


@pytest.mark.parametrize("stall", ["before", "middle"])
async def test_cancelling_a_call_closes_its_connection(stall: str) -> None:
    async with FakeModelServer([Step(text=LONG, stall=stall)]) as server:
        heard = _Listening()
        client = client_of(route_to(server))
        call = asyncio.ensure_future(client.complete(ask(), heard))
        waited = heard.begun if stall == "middle" else server.arrived
        await asyncio.wait_for(waited.wait(), 5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(server.disconnected.wait(), 5)
        follow_up = await client.complete(ask())
        await client.close()
    assert server.disconnects == 1
    assert follow_up.message.text == "ok"


async def test_a_connection_that_cannot_be_made_in_time_is_a_timeout() -> None:
    async with FakeModelServer() as server:
        route = route_to(server, timeouts=replace(QUICK, connect=0.0))
        client = client_of(route, policy=ONCE)
        with pytest.raises(ModelFailure) as failure:
            await client.complete(ask())
        await client.close()
    assert failure.value.kind is FailureKind.TIMEOUT


async def test_a_hundred_calls_at_once_do_not_wait_for_each_other() -> None:
    async with FakeModelServer(Script(default=Step(text="x", stall="before"))) as server:
        client = client_of(route_to(server))
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(client.complete(ask())) for _ in range(100)]
            async with asyncio.timeout(10):
                while len(server.requests) < 100:
                    server.arrived.clear()
                    await server.arrived.wait()
            server.release()
        await client.close()
    assert {call.result().message.text for call in calls} == {"x"}
