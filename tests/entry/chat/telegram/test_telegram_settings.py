"""Settings come from the environment, the platform block and the root block."""

from collections.abc import Mapping
from typing import Any

import pytest

from hermes.domain.errors import ConfigError
from hermes.domain.ports.platform import SettingPlaces
from hermes.entry.chat.kit.settings import read_settings
from hermes.entry.chat.telegram.manifest import PLATFORM
from hermes.entry.chat.telegram.settings import TelegramSettings

TOKEN = {"TELEGRAM_BOT_TOKEN": "12:abc"}


def telegram_settings(
    section: Mapping[str, Any], block: Mapping[str, Any], variables: Mapping[str, str]
) -> TelegramSettings:
    merged = {**block, **section, **section.get("extra", {})}
    places = SettingPlaces(section=merged, variables=variables)
    return read_settings(PLATFORM, TelegramSettings, places)


def test_the_environment_wins_over_the_platform_block_over_the_root_block() -> None:
    settings = telegram_settings(
        {"extra": {"require_mention": False, "guest_mode": True}},
        {"require_mention": True, "guest_mode": False, "reactions": True},
        TOKEN | {"TELEGRAM_REQUIRE_MENTION": "yes"},
    )
    assert settings.require_mention is True
    assert settings.guest_mode is True
    assert settings.reactions is True


def test_the_minimal_config_people_have_loads() -> None:
    settings = telegram_settings(
        {"token": "12:abc"},
        {"require_mention": True, "channel_prompts": {"-100123": "be brief", -5: "x"}},
        {},
    )
    assert settings.token == "12:abc"
    assert settings.channel_prompt("-100123", None) == "be brief"
    assert settings.channel_prompt("-5", "9") == "x"
    assert settings.base_url == "https://api.telegram.org"
    assert settings.base_file_url == "https://api.telegram.org/file"


@pytest.mark.parametrize("given", ["http://127.0.0.1:8081", "http://127.0.0.1:8081/bot/"])
def test_another_server_may_be_named_with_or_without_bot(given: Any) -> None:
    settings = telegram_settings({"extra": {"base_url": given}}, {}, TOKEN)
    assert settings.base_url == "http://127.0.0.1:8081"
    assert settings.base_file_url == "http://127.0.0.1:8081/file"


def test_a_file_address_may_end_in_bot_as_libraries_want_it() -> None:
    extra = {"base_url": "http://h:1/bot", "base_file_url": "http://h:2/file/bot"}
    assert telegram_settings({"extra": extra}, {}, TOKEN).base_file_url == "http://h:2/file"


@pytest.mark.parametrize("given", ["-1,-2", ["-1", -2], '["-1", "-2"]', "-1\n-2"])
def test_lists_of_chats_can_be_written_in_several_ways(given: Any) -> None:
    settings = telegram_settings({"extra": {"allowed_chats": given}}, {}, TOKEN)
    assert settings.allowed_chats == {"-1", "-2"}


def test_the_webhook_comes_from_the_environment_or_the_config() -> None:
    env = {"TELEGRAM_WEBHOOK_URL": "https://h/x", "TELEGRAM_WEBHOOK_SECRET": "s3"}
    webhook = telegram_settings({}, {}, TOKEN | env).webhook
    assert webhook is not None
    assert (webhook.url, webhook.port, webhook.secret) == ("https://h/x", 8443, "s3")
    nested = telegram_settings(
        {"extra": {"webhook": {"url": "https://h/y", "port": 88}}}, {}, TOKEN
    ).webhook
    assert nested is not None
    assert (nested.url, nested.port) == ("https://h/y", 88)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("require_mention", "perhaps"),
        ("reply_to_mode", "some"),
        ("base_url", "ftp://x"),
        ("poll_timeout", "-1"),
        ("mention_patterns", ["("]),
        ("mention_patterns", ["(a+)+$"]),
        ("channel_prompts", "brief"),
    ],
)
def test_what_cannot_work_is_a_config_error_with_a_hint(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        telegram_settings({"extra": {key: value}}, {}, TOKEN)
    assert caught.value.hint


def test_a_missing_token_says_where_to_get_one() -> None:
    with pytest.raises(ConfigError, match="no bot token") as caught:
        telegram_settings({}, {}, {})
    assert "@BotFather" in caught.value.hint


def test_off_written_bare_in_yaml_means_off() -> None:
    assert telegram_settings({"reply_to_mode": False}, {}, TOKEN).reply_to_mode == "off"


def test_the_token_and_the_secret_are_not_shown() -> None:
    env = {"TELEGRAM_WEBHOOK_URL": "https://h/x", "TELEGRAM_WEBHOOK_SECRET": "s3cret"}
    shown = repr(telegram_settings({}, {}, {"TELEGRAM_BOT_TOKEN": "12:abcdef"} | env))
    shown += repr(telegram_settings({}, {}, TOKEN | env).webhook)
    assert "abcdef" not in shown
    assert "s3cret" not in shown


def test_the_manifest_says_what_telegram_can_do() -> None:
    can = PLATFORM.capabilities
    assert (can.max_length, can.unit) == (4096, "utf16")
    assert can.edits
    assert not can.idempotent_sends
