"""What the configuration of the API server may say."""

from typing import Any

import pytest

from hermes.config.environment import is_loopback
from hermes.config.normalize import overrides_in
from hermes.domain.errors import ConfigError
from hermes.entry.http.settings import (
    HttpSettings,
    configured_keys,
    http_settings,
    webhook_settings,
)

GOOD = "0123456789abcdefX"


def test_a_key_is_enough_and_everything_else_has_a_default() -> None:
    assert http_settings({"key": GOOD, "enabled": True}) == HttpSettings(keys=(GOOD,))
    defaults = HttpSettings()
    assert (defaults.host, defaults.port) == ("127.0.0.1", 8642)


def test_all_keys_are_read() -> None:
    settings = http_settings(
        {
            "host": "0.0.0.0",
            "port": "9000",
            "key": GOOD,
            "keys": ["another-key-for-rotation"],
            "cors_origins": "https://A.example/, http://b.example",
            "allowed_hosts": ["Box.Example"],
            "model_name": "jeeves",
            "max_body_bytes": 2048,
            "keepalive_seconds": 3,
            "body_seconds": 4,
            "grace_seconds": 0,
            "max_auth_failures": 7,
        }
    )
    assert settings == HttpSettings(
        host="0.0.0.0",
        port=9000,
        keys=(GOOD, "another-key-for-rotation"),
        cors_origins=("https://a.example", "http://b.example"),
        allowed_hosts=("box.example",),
        model_name="jeeves",
        max_body_bytes=2048,
        keepalive_seconds=3,
        body_seconds=4,
        grace_seconds=0,
        max_auth_failures=7,
    )


@pytest.mark.parametrize("section", [{}, {"key": ""}, {"key": "  "}, {"key": None, "keys": []}])
def test_without_a_key_nothing_starts(section: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        http_settings(section)
    assert "hermes config set API_SERVER_KEY $(openssl rand -hex 32)" in caught.value.hint


@pytest.mark.parametrize("key", ["changeme", "CHANGE-ME", "your-api-key", "xxxxxxxxxxxxxxxxxxxx"])
def test_a_placeholder_is_no_key(key: str) -> None:
    with pytest.raises(ConfigError, match="placeholder"):
        http_settings({"key": key})


@pytest.mark.parametrize(
    "key", ["two words of a key", "schlüssel-schlüssel", "a\x00bcdefghijklmnop"]
)
def test_a_key_has_to_fit_into_a_header(key: str) -> None:
    with pytest.raises(ConfigError, match="header"):
        http_settings({"key": key})


def test_a_short_key_is_enough_on_loopback_only() -> None:
    assert http_settings({"key": "short", "host": "localhost"}).keys == ("short",)
    for host in ("0.0.0.0", "::", "192.168.1.5", "box.example"):
        with pytest.raises(ConfigError, match="16 are needed"):
            http_settings({"key": "short", "host": host})
        assert http_settings({"key": GOOD, "host": host}).host == host


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "http"),
        ("port", -1),
        ("port", 65536),
        ("port", True),
        ("port", float("nan")),
        ("keepalive_seconds", 0),
        ("cors_origins", "chat.example.org"),
        ("cors_origins", {"a": 1}),
        ("allowed_hosts", [1]),
        ("host", ["127.0.0.1"]),
        ("key", True),
        ("helper_patterns", ["(never closed"]),
        ("helper_patterns", [1]),
    ],
)
def test_a_value_that_makes_no_sense_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"extra.{name} has to be"):
        http_settings({"key": GOOD, name: value})


def test_a_range_is_named_in_words_and_webhooks_point_to_their_page() -> None:
    with pytest.raises(ConfigError, match=r"port has to be a number from 0 to 65535\."):
        http_settings({"key": GOOD, "port": 70_000})
    with pytest.raises(ConfigError, match="a number from 0 to 65535") as failure:
        webhook_settings({"port": 70_000})
    assert "docs/how-to/webhooks.md" in failure.value.hint


def test_a_pattern_of_helper_calls_may_stand_alone_and_have_commas() -> None:
    alone = http_settings({"key": GOOD, "helper_patterns": "^Name this, please"})
    assert alone.helper_patterns == ("^Name this, please",)
    several = http_settings({"key": GOOD, "helper_patterns": ["^a", "b$"]})
    assert several.helper_patterns == ("^a", "b$")


def test_a_number_may_be_a_key() -> None:
    assert configured_keys({"key": 12345678901234567890}) == ("12345678901234567890",)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.1.2.3"])
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback(host)
    assert not is_loopback("10.0.0.1")


def test_the_environment_may_name_hosts_and_origins() -> None:
    variables = {"API_SERVER_ALLOWED_HOSTS": "a.example, b.example", "API_SERVER_PORT": "9000"}
    given = {path[-1]: value for _, path, value in overrides_in(variables)}
    settings = http_settings({"key": GOOD, **given})
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.port == 9000
