from pathlib import Path

import pytest

from hermes.config.document import InvalidConfig
from hermes.config.loader import LoadedConfig, inspect_config, load_config, with_private_files
from hermes.config.paths import HermesHome
from hermes.domain.settings.models import ModelChoice


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(root=tmp_path)


def load(home: HermesHome, text: str = "", env: str = "", **environ: str) -> LoadedConfig:
    home.config_file.write_text(text, "utf-8")
    home.env_file.write_text(env, "utf-8")
    return load_config(home, environ, managed=home.root / "managed.yaml")


def test_an_error_shows_no_secret_that_came_by_a_variable(home: HermesHome) -> None:
    home.env_file.write_text("MY_KEY=hunter2hunter2\n")
    home.config_file.write_text("terminal: {lifetime_seconds: '${MY_KEY}'}\n")
    (found,) = inspect_config(home, {}, managed=home.root / "none").errors
    assert "but is '***MY_KEY***'" in found.text


def test_variables_are_expanded_from_env_file_and_environment(home: HermesHome) -> None:
    loaded = load(
        home,
        "model: {api_key: '${MY_KEY}', model: 'x-${SUFFIX:-mini}', max_tokens: '${N}'}\n"
        "platforms: {a: {extra: {list: ['${MY_KEY}'], other: '$MY_KEY {N}'}}}\n",
        env="MY_KEY=from-file-123\n",
        N="99",
    )
    assert loaded.config.model == ModelChoice(
        api_key="from-file-123", model="x-mini", max_tokens=99
    )
    assert loaded.config.platforms["a"].extra == {
        "list": ["from-file-123"],
        "other": "$MY_KEY {N}",
    }
    assert loaded.warnings == ()


def test_a_variable_that_is_not_set_is_a_warning_and_never_sent_as_a_key(home: HermesHome) -> None:
    loaded = load(home, "\nmodel: {api_key: '${NOPE}', default: 'm-${NOPE}'}\n")
    assert loaded.config.model.api_key == ""
    assert loaded.config.model.model == "m-${NOPE}"
    assert "config.yaml:2: model.api_key refers to NOPE, which is not set" in loaded.warnings
    assert loaded.templates["model"]["api_key"] == "${NOPE}"


def test_names_of_lent_secrets_are_no_secrets(home: HermesHome) -> None:
    loaded = load(home, "agents: {lent: {secrets: [OPENAI_API_KEY]}}\n")
    text = "please set OPENAI_API_KEY now"
    assert loaded.redactor().redact(text) == text


def test_the_environment_wins_over_the_env_file_and_both_over_the_file(home: HermesHome) -> None:
    loaded = load(
        home,
        "model: a\nterminal: {backend: local, lifetime_seconds: 1, cwd: /x}\n",
        env="TERMINAL_LIFETIME_SECONDS=2\nTERMINAL_CWD=/y\nHERMES_MODEL=b\n",
        TERMINAL_CWD="/z",
        TERMINAL_ENV="docker",
        TERMINAL_DOCKER_VOLUMES="/a:/a, /b:/b",
        TERMINAL_DOCKER_ENV='{"A": "1"}',
    )
    terminal = loaded.config.terminal
    assert loaded.config.model.model == "b"
    assert (terminal.backend, terminal.lifetime_seconds, terminal.cwd) == ("docker", 2, "/z")
    assert terminal.docker_volumes == ("/a:/a", "/b:/b")
    assert terminal.docker_env == {"A": "1"}
    assert loaded.origin("terminal.lifetime_seconds") == ".env:1 TERMINAL_LIFETIME_SECONDS"
    assert loaded.origin("terminal.cwd") == "env TERMINAL_CWD"
    assert loaded.origin("terminal.backend") == "env TERMINAL_ENV"
    assert loaded.origin("terminal.docker_env.A") == "env TERMINAL_DOCKER_ENV"
    assert loaded.origin("terminal.docker_image") == "default"


def test_platforms_can_be_set_up_by_variables_alone(home: HermesHome) -> None:
    loaded = load(
        home,
        API_SERVER_ENABLED="true",
        API_SERVER_KEY="0123456789abcdef",
        API_SERVER_PORT="9000",
        WEBHOOK_SECRET="whsec",
        GATEWAY_ALLOWED_USERS="1, 2",
        TELEGRAM_ALLOWED_USERS="77",
        TELEGRAM_HOME_CHANNEL="-100",
        TELEGRAM_ALLOW_ALL_USERS="1",
        HERMES_YOLO_MODE="1",
    )
    config = loaded.config
    assert loaded.warnings == ()
    assert config.platforms["api_server"].enabled is True
    assert config.platforms["api_server"].extra == {"key": "0123456789abcdef", "port": 9000}
    assert config.platforms["webhook"].extra == {"secret": "whsec"}
    assert config.gateway.allowed_users == ("1", "2")
    assert config.platforms["telegram"].allowed_users == ("77",)
    assert config.platforms["telegram"].allow_all_users is True
    assert config.approvals.mode == "off"
    assert loaded.origin("approvals.mode") == "env HERMES_YOLO_MODE"


def test_a_wrong_variable_is_an_error_that_names_it(home: HermesHome) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(home, TERMINAL_LIFETIME_SECONDS="soon")
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "env TERMINAL_LIFETIME_SECONDS: terminal.lifetime_seconds should be a number of"
            " at least 0, but is 'soon'"
        )
    ]
    assert "environment variable" in caught.value.hint


def test_the_machines_overlay_wins_leaf_by_leaf(home: HermesHome) -> None:
    managed = home.root / "managed.yaml"
    managed.write_text("model: big\nterminal:\n  backend: docker\ntoolsets: [web]\n")
    loaded = load(
        home,
        "model: {default: a, provider: p}\nterminal: {backend: local, lifetime_seconds: 7}\n"
        "toolsets: [a, b]\n",
        TERMINAL_ENV="ssh",
    )
    assert loaded.config.model == ModelChoice(model="big", provider="p")
    assert (loaded.config.terminal.backend, loaded.config.terminal.lifetime_seconds) == (
        "docker",
        7,
    )
    assert loaded.config.toolsets == ("web",)
    assert loaded.origin("terminal.backend") == f"{managed}:3"
    assert loaded.origin("model.model") == f"{managed}:1"


def test_a_top_level_key_beats_the_same_key_under_gateway(home: HermesHome) -> None:
    loaded = load(
        home,
        "gateway:\n  session_reset: {mode: daily, at_hour: 6}\n"
        "  platforms: {telegram: {enabled: true, token: low}}\n"
        "session_reset: {mode: idle}\nplatforms: {telegram: {token: top}}\n",
    )
    assert loaded.config.session_reset.mode == "idle"
    assert loaded.config.session_reset.at_hour == 6
    assert loaded.config.platforms["telegram"].token == "top"
    assert loaded.config.platforms["telegram"].enabled is True
    assert loaded.warnings == ()


def test_the_streaming_mode_alias_switches_streaming(home: HermesHome) -> None:
    assert load(home, "streaming: {mode: edit}").config.streaming.transport == "edit"
    off = load(home, "streaming: {mode: off}").config.streaming
    assert (off.enabled, off.transport) == (False, "off")
    below = load(home, "gateway: {streaming: {mode: off}}").config.streaming
    assert (below.enabled, below.transport) == (False, "off")


def test_secrets_are_found_by_name_and_carry_no_plain_settings(home: HermesHome) -> None:
    loaded = load(home, env="OPENAI_API_KEY=sk-123456789012\n", LANG="C.UTF-8")
    assert loaded.secrets.get("OPENAI_API_KEY") == "sk-123456789012"
    assert loaded.secrets.get("LANG") is None
    assert loaded.variable("LANG") == "C.UTF-8"
    assert loaded.variable("MISSING") is None
    assert "sk-123456789012" not in repr(loaded)
    assert loaded.redactor().redact("sk-123456789012") == "***OPENAI_API_KEY***"


def test_a_secret_in_both_places_is_called_by_its_variable(home: HermesHome) -> None:
    loaded = load(home, "model: {api_key: '${A_KEY}'}\n", env="A_KEY=hunter2hunter2\n")
    assert loaded.redactor().redact("hunter2hunter2") == "***A_KEY***"


def test_a_file_with_secrets_that_others_can_read_is_reported_and_mended(home: HermesHome) -> None:
    home.env_file.write_text("OPENAI_API_KEY=sk-1\n")
    home.env_file.chmod(0o644)
    loaded = load_config(home, {})
    assert with_private_files(loaded, home).warnings == (
        ".env: other users could read it; now only you can",
    )
    assert home.env_file.stat().st_mode & 0o777 == 0o600
    assert with_private_files(loaded, home).warnings == ()
    home.config_file.write_text("model: {api_key: sk-in-the-file}\n")
    home.config_file.chmod(0o644)
    assert with_private_files(load_config(home, {}), home).warnings == (
        "config.yaml: other users could read it; now only you can",
    )
    home.config_file.write_text("model: {default: x}\n")
    home.config_file.chmod(0o644)
    assert with_private_files(load_config(home, {}), home).warnings == ()
