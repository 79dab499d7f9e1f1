import base64
import json
import logging
import string
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.cpu import least_cpu
from hermes.config.secrets import (
    OVERLAP,
    PIECE,
    PLACEHOLDERS,
    Redactor,
    Secrets,
    secrets_in_config,
    secrets_in_variables,
)
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import Platform
from hermes.domain.settings.models import ModelChoice

KEY = 'Zq8+pL/0 x&y="w" é9'


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(Secrets({"MY_KEY": KEY}))


def test_a_known_value_is_replaced_by_its_name(redactor: Redactor) -> None:
    assert redactor.redact(f"key={KEY}; again {KEY}") == "key=***MY_KEY***; again ***MY_KEY***"


@pytest.mark.parametrize(
    "encoded",
    [
        urllib.parse.quote(KEY),
        urllib.parse.quote(KEY, safe=""),
        urllib.parse.quote_plus(KEY),
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        base64.b64encode(f"user:{KEY}".encode()).decode(),
        base64.b64encode(f"u:{KEY}!".encode()).decode(),
        base64.b64encode(f"me:{KEY}??".encode()).decode(),
    ],
)
def test_encoded_values_are_found_as_well(redactor: Redactor, encoded: str) -> None:
    text = redactor.redact(f"GET /?q={encoded} HTTP/1.1")
    assert "***MY_KEY***" in text
    assert encoded not in text


def test_the_longest_of_overlapping_secrets_wins() -> None:
    redactor = Redactor(Secrets({"SHORT": "abcdefgh", "LONG": "abcdefgh-ijkl"}))
    assert redactor.redact("abcdefgh-ijkl abcdefgh-") == "***LONG*** ***SHORT***-"


def test_short_values_are_left_alone() -> None:
    assert Redactor(Secrets({"PIN": "1234567"})).redact("1234567") == "1234567"


@pytest.mark.parametrize(
    "text",
    [
        "sk-abcdefghijklmnop1234",
        "sk-ant-api03-abcdefghijklmnop",
        "ghp_abcdefghijklmnopqrst12345",
        "github_pat_11ABCDEFG0123456789_abc",
        "xoxb-1234567890-abcdef",
        "AKIAABCDEFGHIJKLMNOP",
        "AIzaSyA-1234567890abcdefghijklmnopqrs",
        "123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijk",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_credentials_of_a_known_shape_are_replaced_without_being_known(text: str) -> None:
    redacted = Redactor(Secrets({})).redact(f"see {text}, please")
    assert text not in redacted
    assert redacted.startswith("see ***")
    assert redacted.endswith("***, please")


def test_a_bearer_header_is_redacted_but_the_word_is_not() -> None:
    redact = Redactor(Secrets({})).redact
    assert redact("Authorization: Bearer abc123def456ghi7") == "Authorization: Bearer ***BEARER***"
    assert redact("Use bearer authentication here.") == "Use bearer authentication here."


@pytest.mark.parametrize("text", ["", "risk-free task-oriented words", "a" * 10_000, "sk-short"])
def test_ordinary_text_is_returned_as_it_is(text: str) -> None:
    assert Redactor(Secrets({"K": "0123456789abcdef"})).redact(text) == text


def test_values_inside_data_are_redacted(redactor: Redactor) -> None:
    assert redactor.redact_value({"a": [KEY, 1], "b": None}) == {
        "a": ["***MY_KEY***", 1],
        "b": None,
    }


def test_a_secret_that_looks_like_its_own_mark_is_still_gone() -> None:
    redactor = Redactor(Secrets({"SECRET": "***SECRET***"}))
    assert redactor.redact("x ***SECRET*** y") == "x *** y"


def test_nearly_everything_in_the_env_file_is_secret_whatever_the_vendor_calls_it() -> None:
    found = secrets_in_variables(
        {
            "ACME_ACCESS": "0f5a7e3c-1111-2222-3333-444455556666",
            "OPENAI_API_KEY": "k" * 20,
            "OPENAI_BASE_URL": "https://api.example.com/v1",
            "TELEGRAM_ALLOWED_USERS": "1234567890,987654321",
            "FEATURE": "true",
            "DATABASE_URL": "postgres://u:pa55word99@db/x",
        },
        {},
    )
    assert found.names() == {"ACME_ACCESS", "OPENAI_API_KEY", "DATABASE_URL.password"}
    assert found.get("DATABASE_URL.password") == "pa55word99"


def test_the_environment_gives_secrets_by_name_and_wins_over_the_file() -> None:
    environ = {"PATH": "/usr/bin", "PWD": "/home/ann/work", "A_TOKEN": "from-env", "HOME": "/home"}
    found = secrets_in_variables({"A_TOKEN": "from-file", "B_SECRET": "b"}, environ)
    assert found.names() == {"A_TOKEN", "B_SECRET"}
    assert found.get("A_TOKEN") == "from-env"
    assert found.get("PATH") is None


def test_secrets_written_into_the_configuration_are_collected() -> None:
    found = secrets_in_config(
        {
            "model": {"api_key": "k" * 12, "model": "m"},
            "mcp_servers": {
                "a": {
                    "env": {"GITHUB_TOKEN": "g" * 12},
                    "headers": {"Authorization": "Bearer zzzzzzzzzz"},
                }
            },
            "voice": {"record_key": "ctrl+b"},
            "terminal": {"ssh_key": "/home/ann/.ssh/id"},
            "later": {"api_key": "${NOT_SET}"},
        }
    )
    assert dict(found.items()) == {
        "model.api_key": "k" * 12,
        "mcp_servers.a.env.GITHUB_TOKEN": "g" * 12,
        "mcp_servers.a.headers.Authorization": "zzzzzzzzzz",
    }


def test_no_representation_shows_a_value() -> None:
    secret = "very-secret-value"
    config = Settings(
        model=ModelChoice(api_key=secret),
        platforms={
            "x": Platform(token=secret, extra={"key": secret, "deep": [{"secret": secret}]})
        },
    )
    secrets = Secrets({"K": secret})
    for shown in (repr(config), repr(secrets), repr(Redactor(secrets)), f"{config.model}"):
        assert secret not in shown
    assert "api_key='***'" in repr(config)


def test_log_arguments_are_redacted_once_formatted(redactor: Redactor) -> None:
    record = logging.LogRecord("x", 20, "f", 1, "got %s", (KEY,), None)
    assert redactor.redact(record.getMessage()) == "got ***MY_KEY***"


values = st.text(string.ascii_letters + string.digits + "-_+/=.:;!? $%&\"'\\\n", min_size=8).filter(
    lambda value: value not in PLACEHOLDERS
)
around = st.text(max_size=20)


@given(st.lists(values, min_size=1, max_size=6, unique=True), st.data())
def test_no_secret_value_survives_redaction(secrets: list[str], data: st.DataObject) -> None:
    redactor = Redactor(Secrets({f"S{n}": value for n, value in enumerate(secrets)}))
    pieces = data.draw(st.lists(st.one_of(around, st.sampled_from(secrets)), max_size=8))
    redacted = redactor.redact("".join(pieces))
    for value in secrets:
        assert value not in redacted


@given(values)
def test_no_encoded_secret_value_survives_redaction(secret: str) -> None:
    redactor = Redactor(Secrets({"S": secret}))
    for form in (
        urllib.parse.quote(secret),
        json.dumps(secret),
        json.dumps({"a": [secret]}),
        base64.b64encode(secret.encode()).decode(),
    ):
        assert form not in redactor.redact(f"<{form}>")


def test_several_tokens_in_one_variable_are_each_redacted() -> None:
    redact = Redactor(Secrets({"SLACK_BOT_TOKEN": "first-token-123, second-token-456"})).redact
    assert redact("second-token-456") == "***SLACK_BOT_TOKEN***"


def test_a_placeholder_for_a_key_is_not_taken_out_of_ordinary_text() -> None:
    redact = Redactor(Secrets({"OPENAI_API_KEY": "placeholder"})).redact
    assert redact("a placeholder text") == "a placeholder text"


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----\n" * 20_000,
        "-----BEGIN PRIVATE KEY-----" + "a-" * 200_000,
        ("-----BEGIN " + "A " * 20) * 20_000,
        "sk-" * 150_000,
        "eyJ." * 100_000,
    ],
)
def test_redaction_takes_time_in_proportion_to_the_text(text: str) -> None:
    redactor = Redactor(Secrets({"KEY": "a-long-secret-value"}))
    quarter = least_cpu(lambda: redactor.redact(text[: len(text) // 4]))
    whole = least_cpu(lambda: redactor.redact(text))
    assert whole < 11 * max(quarter, 0.01), "four times the text, not sixteen times the work"


@pytest.mark.parametrize("at", [0, 1, PIECE - 30, PIECE - 1, PIECE, PIECE + OVERLAP - 9, 3 * PIECE])
@pytest.mark.parametrize(
    "secret",
    [
        "correct-horse-battery",
        "sk-abcdefghijklmnop0123456789ABCDEF",
        "sk-" + "a1" * PIECE * 2,
        "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIE\n" * 3000 + "-----END RSA PRIVATE KEY-----",
        "Bearer abc123abc123abc123",
    ],
)
def test_a_long_text_is_gone_through_in_pieces_and_no_secret_is_lost_between(
    secret: str, at: int
) -> None:
    redactor = Redactor(Secrets({"A_TOKEN": "correct-horse-battery"}))
    before, after = "~" * (at - 1) + " " * (at > 0), " " + "~" * 2 * PIECE
    assert redactor.redact(before + secret + after) == before + redactor.redact(secret) + after
    twice = redactor.redact(f"{before}{secret}{after}{secret} ")
    assert twice == f"{before}{redactor.redact(secret)}{after}{redactor.redact(secret)} "
