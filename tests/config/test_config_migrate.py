from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.edit import migrate_files
from hermes.config.loader import load_config
from hermes.config.migrations import MIGRATIONS, migrate_data, version_of
from hermes.config.paths import HermesHome
from hermes.domain.settings import CONFIG_VERSION

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

OLD = """\
_config_version: 10   # do not touch
# my own endpoint
custom_providers:
  - name: My Box
    base_url: http://127.0.0.1:9/v1
    api_key: none
fallback_model: {provider: openai, model: gpt-4}
compression:
  enabled: true   # keep
  summary_model: small
display:
  tool_progress_overrides:
    telegram: off
"""


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(root=tmp_path)


@pytest.mark.parametrize(
    ("number", "before", "after"),
    [
        (
            12,
            {"custom_providers": [{"name": "My Box", "base_url": "u"}], "providers": {"a": {}}},
            {"providers": {"a": {}, "my-box": {"base_url": "u"}}},
        ),
        (
            14,
            {"stt": {"provider": "groq", "model": "m"}},
            {"stt": {"provider": "groq", "groq": {"model": "m"}}},
        ),
        (
            16,
            {"display": {"tool_progress_overrides": {"telegram": False, "slack": "new"}}},
            {
                "display": {
                    "platforms": {
                        "telegram": {"tool_progress": "off"},
                        "slack": {"tool_progress": "new"},
                    }
                }
            },
        ),
        (
            17,
            {"compression": {"enabled": True, "summary_model": "m", "summary_x": 1}},
            {"compression": {"enabled": True}, "auxiliary": {"compression": {"model": "m"}}},
        ),
        (25, {"model_catalog": {"ttl_hours": 24}}, {"model_catalog": {"ttl_hours": 1}}),
        (25, {"model_catalog": {"ttl_hours": 12}}, {"model_catalog": {"ttl_hours": 12}}),
        (29, {"memory": {"write_mode": "approve"}}, {"memory": {"write_approval": True}}),
        (29, {"skills": {"write_mode": "auto"}}, {"skills": {"write_approval": False}}),
        (
            33,
            {"delegation": {"max_async_children": 5, "max_concurrent_children": 3}},
            {"delegation": {"max_concurrent_children": 5}},
        ),
        (
            34,
            {"fallback_model": {"provider": "a", "model": "m"}},
            {"fallback_providers": [{"provider": "a", "model": "m"}]},
        ),
        (34, {"fallback_model": {}}, {}),
        (34, {"custom_providers": [{"name": "x"}]}, {"providers": {"x": {}}}),
        (12, {"custom_providers": None}, {}),
    ],
)
def test_each_migration_does_its_one_thing_and_twice_is_as_good_as_once(
    number: int, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert MIGRATIONS[number](before) == after
    assert MIGRATIONS[number](after) == after


def test_migrations_are_in_order_and_end_at_the_current_version() -> None:
    assert list(MIGRATIONS) == sorted(MIGRATIONS)
    assert max(MIGRATIONS) == CONFIG_VERSION


def test_only_newer_migrations_are_applied() -> None:
    data = {"_config_version": 30, "memory": {"write_mode": "approve"}}
    assert migrate_data(data) == data
    assert version_of({"_config_version": "x"}) == 0


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "model", "write_mode", "summary_model", "provider", "platforms"]
            )
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
sections = st.sampled_from(
    [
        "custom_providers",
        "providers",
        "stt",
        "display",
        "compression",
        "auxiliary",
        "memory",
        "skills",
        "delegation",
        "fallback_model",
        "fallback_providers",
        "model_catalog",
        "other",
    ]
)


@given(st.dictionaries(sections, anything))
def test_migrations_survive_any_data_and_leave_other_keys_alone(data: dict[str, Any]) -> None:
    migrated = migrate_data(data)
    assert migrated.get("other") == data.get("other")
    assert migrate_data(migrated) == migrated


def test_a_file_is_migrated_with_a_backup_and_comments_stay(home: HermesHome) -> None:
    home.config_file.write_text(OLD)
    home.env_file.write_text("LLM_MODEL=x\nKEEP_KEY=y\nANTHROPIC_TOKEN=z\n")
    before = load_config(home, {}).config
    done = migrate_files(home, NOW)
    assert done.version == 10
    assert done.backup == home.backups_dir / "config-20260102T030405-v10.yaml"
    assert done.backup.read_text() == OLD
    after = home.config_file.read_text()
    assert "_config_version: 34   # do not touch\n" in after
    assert "# my own endpoint" in after
    assert "  enabled: true   # keep\n" in after
    assert "summary_model" not in after
    loaded = load_config(home, {})
    assert loaded.warnings == ()
    assert loaded.config.providers["my-box"].base_url == "http://127.0.0.1:9/v1"
    assert loaded.config.fallback_providers[0].model == "gpt-4"
    assert loaded.config.auxiliary.compression.model == "small"
    assert loaded.config.display.platforms["telegram"].tool_progress == "off"
    assert before.providers == loaded.config.providers
    # 9 and 13 are behind version 10 and before it, respectively.
    assert home.env_file.read_text() == "KEEP_KEY=y\nANTHROPIC_TOKEN=z\n"
    assert ".env LLM_MODEL" in done.changes


def test_a_current_file_is_left_alone(home: HermesHome) -> None:
    text = f"_config_version: {CONFIG_VERSION}\nfallback_model: x\n"
    home.config_file.write_text(text)
    done = migrate_files(home, NOW)
    assert done.backup is None
    assert done.changes == ()
    assert home.config_file.read_text() == text
    assert not home.backups_dir.exists()


def test_without_a_file_there_is_nothing_to_migrate(home: HermesHome) -> None:
    assert migrate_files(home, NOW).backup is None
    assert not home.config_file.exists()


def test_a_file_without_a_version_gets_one(home: HermesHome) -> None:
    home.config_file.write_text("model: x # mine\n")
    done = migrate_files(home, NOW)
    assert home.config_file.read_text() == "model: x # mine\n_config_version: 34\n"
    assert done.changes == ("_config_version",)
