"""Every platform passes the conformance suite; the suite knows a claim that it does not check."""

from typing import Any

import pytest
from msgspec.structs import replace

from fakes.drivers import DiscordDriver, SlackDriver, TelegramDriver
from hermes.domain.platforms import Capabilities
from hermes.testing.checks import claims, unproven
from hermes.testing.conformance import Conformance


@pytest.mark.timeout(150)
class TestTelegram(Conformance):
    driver = TelegramDriver


@pytest.mark.timeout(150)
class TestDiscord(Conformance):
    driver = DiscordDriver


@pytest.mark.timeout(150)
class TestSlack(Conformance):
    driver = SlackDriver


def test_a_claim_without_its_check_is_an_error() -> None:
    class Wider(Capabilities, frozen=True, kw_only=True):
        holograms: bool = False

    def claimed(**more: Any) -> list[str]:
        known = Wider(max_length=100, **more)
        return unproven(claims(replace(TelegramDriver.platform, capabilities=known)))

    assert claimed(edits=True, streams=True, buttons=True) == []
    assert claimed(holograms=True) == ["holograms"]
