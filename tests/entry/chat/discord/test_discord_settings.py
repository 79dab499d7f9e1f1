"""Settings of Discord under the names people know."""

from collections.abc import Mapping
from typing import Any

import pytest

from hermes.domain.errors import ConfigError
from hermes.domain.ports.platform import SettingPlaces
from hermes.entry.chat.discord.manifest import PLATFORM
from hermes.entry.chat.discord.settings import DiscordRules, DiscordSettings
from hermes.entry.chat.kit.settings import read_settings


def settings(section: Mapping[str, Any], variables: Mapping[str, str]) -> DiscordSettings:
    places = SettingPlaces(section=section, variables=variables)
    return read_settings(PLATFORM, DiscordSettings, places)


def test_the_variables_of_earlier_versions_count() -> None:
    found = settings(
        {"free_response_channels": 600, "reactions": True},
        {
            "DISCORD_BOT_TOKEN": "abc",
            "DISCORD_ALLOWED_CHANNELS": "1,2",
            "DISCORD_IGNORED_CHANNELS": "3",
            "DISCORD_NO_THREAD_CHANNELS": "4",
            "DISCORD_AUTO_THREAD": "false",
            "DISCORD_REACTIONS": "off",
            "DISCORD_REQUIRE_MENTION": "no",
            "DISCORD_COMMAND_SYNC_POLICY": "off",
        },
    )
    assert found.allowed_chats == {"1", "2"}
    assert found.ignored_chats == {"3"}
    assert found.no_thread_chats == {"4"}
    assert found.free_response_chats == {"600"}
    assert (found.auto_thread, found.reactions, found.require_mention) == (False, False, False)
    assert found.command_sync_policy == "off"
    assert "abc" not in repr(found)


def test_what_is_usual() -> None:
    found = settings({"token": "abc", "base_url": "http://127.0.0.1:1/api/v10/"}, {})
    assert found.base_url == "http://127.0.0.1:1/api/v10"
    assert found.auto_thread
    assert found.max_attachment_bytes == 33_554_432
    # Without a token there are still the rules, with Discord's defaults.
    assert read_settings(PLATFORM, DiscordRules, SettingPlaces(section={}, variables={})).reactions


def test_what_cannot_work_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="not an http or https URL"):
        settings({"token": "abc", "base_url": "discord.com"}, {})
    with pytest.raises(ConfigError) as caught:
        settings({}, {})
    assert "DISCORD_BOT_TOKEN" in caught.value.hint
