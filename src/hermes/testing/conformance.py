"""The conformance suite: what a chat platform has to do, whichever it is.

A package that brings a platform writes a `PlatformDriver` for its fake (or for a real server on
loopback) and a class, and pytest does the rest:

    class TestIrc(Conformance):
        driver = IrcDriver

One gateway process serves all checks. Those that disturb nobody run side by side, each with a
person of its own; then come those in which something breaks, one after the other; then the
gateway is stopped, and the adapter is called directly for what no conversation shows for certain.

The manifest says which checks apply: what `Capabilities` claims, and the optional ports that the
adapter implements (`FileSource`, `AlbumSender`, ...). A claim without a check fails the suite. What
the service itself can do to a bot is not the adapter's to claim: the driver's `troubles` say it.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import Struct

from hermes.domain.inbound import InboundMessage
from hermes.domain.ports.platform import (
    Adapter,
    AdapterRequest,
    ButtonPress,
    PlatformFailure,
    SettingPlaces,
)
from hermes.entry.chat.kit.base import make_adapter
from hermes.entry.http.listener import SharedListener
from hermes.execution.clock import SystemClock
from hermes.testing.checks import BREAK, CALL, CHECKS, TALK, Check, ConformanceRun, claims, unproven
from hermes.testing.driver import PlatformDriver
from hermes.testing.gateway import GatewayRun, LoopbackModel


class Outcomes(Struct, kw_only=True):
    failures: dict[str, Exception] = {}
    skipped: dict[str, str] = {}
    unproven: list[str] = []
    durations: dict[str, float] = {}
    """Seconds that each check took; those of conversations overlap."""

    def report(self, name: str) -> None:
        """Pass, skip or fail as the check did."""
        if name in self.skipped:
            pytest.skip(self.skipped[name])
        if name in self.failures:
            raise self.failures[name]


class _ListSink:
    """Takes everything; implements `InboundSink`."""

    def __init__(self) -> None:
        self.messages: list[InboundMessage] = []

    async def message(self, message: InboundMessage) -> bool:
        self.messages.append(message)
        return True

    async def overheard(self, message: InboundMessage) -> None: ...

    async def press(self, press: ButtonPress) -> str:  # noqa: ARG002
        return ""

    def alive(self) -> None: ...

    def failing(self, failure: PlatformFailure, pause: float) -> None: ...

    async def cursor(self) -> Any:
        return None

    async def save_cursor(self, cursor: Any) -> None: ...


async def run_checks(driver: PlatformDriver, folder: Path) -> Outcomes:
    """Run every check that applies; return what came of them."""
    outcomes = Outcomes()
    async with LoopbackModel() as model, driver:
        section = driver.section() | {"enabled": True, "allowed_users": list(driver.people)}
        gateway = GatewayRun(folder, _config(driver, section, model, folder), driver.python_path)
        run = ConformanceRun(driver, model, gateway)
        adapter = _adapter(driver, section, folder)
        claimed = claims(driver.platform, adapter)
        outcomes.unproven = unproven(claimed)
        for each in CHECKS.values():
            if reason := each.reason_to_skip(driver, claimed):
                outcomes.skipped[each.name] = reason
        due = [each for each in CHECKS.values() if each.name not in outcomes.skipped]

        async def carry_out(each: Check) -> None:
            began = time.monotonic()
            try:
                await each.act(run)
            except Exception as error:  # noqa: BLE001 - reported by the test of this name
                outcomes.failures[each.name] = error
            outcomes.durations[each.name] = time.monotonic() - began

        await gateway.start()
        try:
            try:
                async with asyncio.timeout(run.seconds):
                    await driver.listening()
            except TimeoutError:
                raise AssertionError(f"The gateway does not listen.\n{gateway.log()}") from None
            await asyncio.gather(*(carry_out(each) for each in due if each.stage == TALK))
            for each in due:
                if each.stage == BREAK:
                    await carry_out(each)
            await gateway.stop()
        finally:
            await gateway.kill()
        try:
            await adapter.connect()
            run.adapter = adapter
            sink = _ListSink()
            run.heard = sink.messages
            receiving = asyncio.ensure_future(adapter.receive(sink))
            for each in due:
                if each.stage == CALL:
                    await carry_out(each)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        finally:
            await adapter.close()
    return outcomes


def _config(
    driver: PlatformDriver, section: dict[str, Any], model: LoopbackModel, folder: Path
) -> dict[str, Any]:
    wire = {"provider": "custom", "default": "conformance", "base_url": model.base_url}
    return {
        "model": wire,
        "platforms": {driver.platform.name: section},
        "auxiliary": {"title_generation": {"enabled": False}},
        "streaming": {"edit_interval": 0.3},
        "terminal": {"backend": "local"},
        "gateway": {"media_delivery_allow_dirs": [str(folder)]},
    }


def _adapter(driver: PlatformDriver, section: dict[str, Any], folder: Path) -> Adapter:
    flat: dict[str, Any] = {"reactions": True, "history_backfill": 10}
    flat |= {name: value for name, value in section.items() if name != "extra"}
    places = SettingPlaces(section=flat | section.get("extra", {}), variables={})
    request = AdapterRequest(
        places=lambda: places,
        state_dir=folder / "state",
        clock=SystemClock(),
        listener=SharedListener(),
    )
    return make_adapter(driver.platform, request)


class Conformance:
    """All checks as subtests of one test; a subclass names its driver."""

    driver: ClassVar[Callable[[], PlatformDriver]]

    def test_the_platform_conforms(self, tmp_path: Path, subtests: pytest.Subtests) -> None:
        outcomes = asyncio.run(run_checks(type(self).driver(), tmp_path))
        with subtests.test("every claim has a check"):
            assert outcomes.unproven == []
        for name in CHECKS:
            with subtests.test(name):
                outcomes.report(name)
