import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.config.document import InvalidConfig
from hermes.config.loader import LoadedConfig, inspect_config, load_config
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError
from hermes.domain.settings import Settings
from hermes.domain.settings.models import ModelChoice

MINIMAL = """\
model: {default: anthropic/claude-sonnet-4, provider: openrouter}
fallback_providers: [{provider: openai-codex, model: gpt-5.5}]
terminal: {backend: docker, docker_image: python:3.12, container_persistent: true}
streaming: {enabled: true, edit_interval: 0.8}
session_reset: {mode: both, at_hour: 4, idle_minutes: 1440}
approvals: {mode: manual, timeout: 60}
platforms:
  webhook:
    enabled: true
    extra: {port: 8644, routes: {gh: {events: [pull_request], secret: X,
            prompt: "Review {pull_request.html_url}", deliver: github_comment,
            deliver_extra: {repo: "{repository.full_name}", pr_number: "{pull_request.number}"}}}}
  api_server: {enabled: true, extra: {port: 8642, key: LONGKEY}}
telegram: {require_mention: true, channel_prompts: {"-100123": "be brief"}}
mcp_servers: {files: {command: npx,
  args: ["-y", "@modelcontextprotocol/server-filesystem", "/srv"]}}
platform_toolsets: {telegram: [web, file, terminal, memory, skills]}
gateway: {multiplex_profiles: true, profile_routes:
  [{name: dev, platform: discord, guild_id: "1", chat_id: "2", profile: coder}]}
"""


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(root=tmp_path)


def load(home: HermesHome, text: str = "", env: str = "", **environ: str) -> LoadedConfig:
    home.config_file.write_text(text, "utf-8")
    home.env_file.write_text(env, "utf-8")
    return load_config(home, environ, managed=home.root / "managed.yaml")


def errors(home: HermesHome, text: str, **environ: str) -> list[str]:
    with pytest.raises(InvalidConfig) as caught:
        load(home, text, **environ)
    return [str(problem) for problem in caught.value.problems]


def test_without_any_file_everything_is_at_its_default(home: HermesHome) -> None:
    loaded = load_config(home, {}, managed=home.root / "managed.yaml")
    assert loaded.config == Settings()
    assert loaded.warnings == ()
    assert loaded.origin("terminal.backend") == "default"
    assert list(home.root.iterdir()) == []


def test_the_configuration_users_have_today_loads_without_warnings(home: HermesHome) -> None:
    loaded = load(home, MINIMAL)
    config = loaded.config
    assert loaded.warnings == ()
    assert config.model == ModelChoice(provider="openrouter", model="anthropic/claude-sonnet-4")
    assert config.fallback_providers[0].model == "gpt-5.5"
    assert config.terminal.backend == "docker"
    assert config.session_reset.mode == "both"
    assert config.approvals.timeout == 60
    assert config.platforms["webhook"].extra["routes"]["gh"]["secret"] == "X"
    assert config.platforms["api_server"].extra["key"] == "LONGKEY"
    assert config.platforms["telegram"].extra["channel_prompts"] == {"-100123": "be brief"}
    assert config.platform_toolsets["telegram"][0] == "web"
    assert loaded.origin("model.model") == "config.yaml:1"
    assert loaded.origin("platforms.api_server.extra.port") == "config.yaml:13"
    assert [line.partition(" has no effect")[0] for line in loaded.unused] == [
        "config.yaml:18: multiplex_profiles",
    ]


def test_the_defaults_are_the_ones_people_know(home: HermesHome) -> None:
    config = load(home).config
    known: dict[str, Any] = {
        "approvals.mode": "manual",
        "approvals.timeout": 300,
        "streaming.enabled": True,
        "session_reset.mode": "none",
        "agent.max_turns": 90,
        "terminal.lifetime_seconds": 300,
        "terminal.backend": "sandbox",
        "compression.threshold": 0.5,
        "auxiliary.compression.timeout": 120,
        "auxiliary.title_generation.timeout": 30,
        "model_timeouts.connect": 10,
        "model_timeouts.first_byte": 120,
        "model_timeouts.idle": 90,
        "model_timeouts.total": 1800,
        "budget.day_usd": None,
        "sessions.write_jsonl": False,
        "toolsets": ("hermes-cli",),
    }
    for key, expected in known.items():
        value: Any = config
        for name in key.split("."):
            value = getattr(value, name)
        assert value == expected, key


def test_a_partial_section_keeps_the_defaults_of_its_place(home: HermesHome) -> None:
    config = load(
        home,
        "auxiliary: {compression: {model: m}}\n"
        "display: {platforms: {telegram: {tool_progress: off}, irc: {streaming: false}}}\n",
    ).config
    assert config.auxiliary.compression.timeout == 120
    assert config.auxiliary.compression.model == "m"
    platforms = config.display.platforms
    assert platforms["telegram"].streaming is None
    assert platforms["telegram"].tool_progress == "off"
    assert platforms["irc"].streaming is False


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("model: gpt-5", ModelChoice(model="gpt-5")),
        ("model: ''", ModelChoice()),
        ("model:", ModelChoice()),
        ("model: {default: a, provider: b}", ModelChoice(model="a", provider="b")),
        ("model: {model: a, default: b}", ModelChoice(model="a")),
        ("model: {model: a, max_tokens: '8000'}", ModelChoice(model="a", max_tokens=8000)),
        ("model: 4", ModelChoice(model="4")),
    ],
)
def test_the_model_is_a_string_or_a_mapping(
    home: HermesHome, text: str, choice: ModelChoice
) -> None:
    loaded = load(home, text)
    assert loaded.config.model == choice
    assert loaded.warnings == ()


def test_words_that_yaml_takes_for_something_else_are_read_as_meant(home: HermesHome) -> None:
    loaded = load(
        home,
        "approvals: {mode: off}\n"
        "streaming: {transport: off}\n"
        "model: {model: 0123}\n"
        "toolsets: [yes, 5]\n"
        "platforms: {telegram: {reply_to_mode: off, home_channel: {chat_id: -100123}}}\n"
        "agent: {max_turns: '50'}\n"
        "credential_pool_strategies: {gpt-5.5: off}\n"
        "display: {bell_on_complete: 'yes'}\n",
    )
    config = loaded.config
    assert loaded.warnings == ()
    assert config.approvals.mode == "off"
    assert config.streaming.transport == "off"
    assert config.model.model == "0123"
    assert config.toolsets == ("yes", "5")
    home_channel = config.platforms["telegram"].home_channel
    assert home_channel is not None
    assert home_channel.chat_id == "-100123"
    assert config.agent.max_turns == 50
    assert config.credential_pool_strategies == {"gpt-5.5": "off"}
    assert config.display.bell_on_complete is True


def test_all_wrong_values_are_reported_at_once_with_line_key_expectation_and_finding(
    home: HermesHome,
) -> None:
    found = errors(
        home,
        "terminal:\n  backend: dockr\n  lifetime_seconds: soon\nagent:\n  max_turns: 0\n"
        "toolsets: web\ncompression: [1]\nfallback_providers:\n- model: m\nbudget: {day_usd: -1}\n"
        "platforms: {x: {enabled: perhaps}}\n",
    )
    assert found == [
        (
            "config.yaml:2: terminal.backend should be one of apptainer, daytona, docker,"
            " local, modal, sandbox, singularity, ssh, but is 'dockr'; did you mean `docker`?"
        ),
        "config.yaml:3: terminal.lifetime_seconds should be a number of at least 0, but is 'soon'",
        "config.yaml:5: agent.max_turns should be a whole number of at least 1, but is 0",
        "config.yaml:6: toolsets should be a list, but is 'web'",
        "config.yaml:7: compression should be a mapping of keys to values, but is a list",
        "config.yaml:9: fallback_providers.0.provider is missing",
        "config.yaml:10: budget.day_usd should be a number of at least 0 or null, but is -1",
        "config.yaml:11: platforms.x.enabled should be true or false, but is 'perhaps'",
    ]


def test_an_error_never_shows_a_secret(home: HermesHome) -> None:
    (found,) = errors(home, "model: {api_key: [hunter2hunter2]}\n")
    assert "hunter2" not in found
    assert "model.api_key should be text" in found


def test_unknown_keys_are_warnings_with_a_suggestion(home: HermesHome) -> None:
    loaded = load(
        home,
        "terminal:\n  docker_imgae: 5\nfrobnicate: 1\n_note: mine\nx-common: {a: 1}\nagent: {}\n",
    )
    assert loaded.warnings == (
        (
            "config.yaml:2: terminal.docker_imgae is not a known key and has no effect;"
            " did you mean `docker_image`?"
        ),
        "config.yaml:3: frobnicate is not a known key and has no effect",
    )


def test_an_empty_section_is_its_default_and_an_explicit_null_is_mentioned(
    home: HermesHome,
) -> None:
    loaded = load(home, "terminal:\nagent:\n  max_turns:\napprovals:\n  timeout: null\nroutes:\n")
    assert loaded.config == Settings()
    assert loaded.warnings == ("config.yaml:5: approvals.timeout is null; the default is used",)


def test_an_old_file_is_migrated_in_memory_only(home: HermesHome) -> None:
    text = "_config_version: 10\nfallback_model: {provider: openai, model: gpt-4}\n"
    loaded = load(home, text)
    assert loaded.config.fallback_providers[0].model == "gpt-4"
    assert "hermes config migrate" in loaded.warnings[0]
    assert home.config_file.read_text() == text


def test_a_file_from_the_future_loads_with_a_warning(home: HermesHome) -> None:
    loaded = load(home, "_config_version: 999\nterminal: {lifetime_seconds: 3}\nnovelty: 1\n")
    assert loaded.config.terminal.lifetime_seconds == 3
    assert "version 999 is newer" in loaded.warnings[0]


def test_an_unreadable_file_and_a_wrong_encoding_are_config_errors(home: HermesHome) -> None:
    home.env_file.write_bytes(b"A=\xff\n")
    with pytest.raises(ConfigError, match=r"\.env: is not UTF-8"):
        load_config(home, {})
    home.env_file.unlink()
    home.config_file.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(home, {})


def test_a_link_to_nowhere_is_mentioned(home: HermesHome) -> None:
    home.config_file.symlink_to(home.root / "gone.yaml")
    loaded = load_config(home, {}, managed=home.root / "none")
    assert loaded.warnings == ("config.yaml: is a link to a file that does not exist",)


def test_an_inspection_reports_warnings_beside_errors(home: HermesHome) -> None:
    home.config_file.write_text(
        "a: 1\nterminal: {lifetime_seconds: x}\nterminal: {lifetime_seconds: y}\n"
    )
    found = inspect_config(home, {}, managed=home.root / "none")
    assert len(found.errors) == 1
    assert len(found.warnings) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=120), env=st.binary(max_size=60))
def test_arbitrary_files_load_or_raise_a_config_error(
    home: HermesHome, content: bytes, env: bytes
) -> None:
    home.config_file.write_bytes(content)
    home.env_file.write_bytes(env)
    with suppress(ConfigError):
        assert isinstance(load_config(home, {}, managed=home.root / "none").config, Settings)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["mode", "model", "platforms"]) | st.text(max_size=6), inner
        )
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.dictionaries(st.sampled_from(sorted(Settings.__struct_encode_fields__)), json_like))
def test_any_data_under_known_keys_loads_or_raises_a_config_error(
    home: HermesHome, data: dict[str, Any]
) -> None:
    home.config_file.write_bytes(msgspec.json.encode(data))
    with suppress(ConfigError):
        assert isinstance(load_config(home, {}, managed=home.root / "none").config, Settings)


def test_importing_the_loader_does_not_import_what_is_heavy() -> None:
    code = (
        "import sys, hermes.config.loader;"
        "print([m for m in ('ruamel', 'httpx2', 'asyncio', 'difflib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"
