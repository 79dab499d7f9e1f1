import os
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.config.document import format_key, parse_document, parse_key
from hermes.config.edit import set_value, unset_value
from hermes.config.loader import load_config
from hermes.config.meaning import parse_value, type_of
from hermes.config.paths import HermesHome
from hermes.domain.errors import ConfigError, UsageError

TEXT = """\
# My Hermes.
model:
  default: gpt-5   # the good one
  provider: openai

# --- where commands run ---
terminal:
  backend: local
  # slow machine
  lifetime_seconds: 300
# --- approvals ---
approvals: {mode: manual, timeout: 60}
toolsets:
  - web     # search
  - file
custom_thing: kept
empty:
"""


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    home = HermesHome(root=tmp_path / "home")
    home.ensure()
    home.config_file.write_text(TEXT)
    return home


def text(home: HermesHome) -> str:
    return home.config_file.read_text("utf-8")


def test_changing_a_value_changes_only_that_value(home: HermesHome) -> None:
    set_value(home, "terminal.lifetime_seconds", 90)
    assert text(home) == TEXT.replace("lifetime_seconds: 300", "lifetime_seconds: 90")
    set_value(home, "model.model", "gpt-6")
    assert "  default: gpt-6   # the good one\n" in text(home)


def test_lines_that_a_change_does_not_concern_keep_their_spaces(home: HermesHome) -> None:
    odd = "---\nagent:\n    max_turns:   5  \n\n    # why\n"
    odd += "    ephemeral_system_prompt: |\n        a\n\n        # b\n"
    home.config_file.write_text(f"{odd}toolsets:\n- web\nmodel : 'x'\n")
    set_value(home, "agent.reasoning_effort", "low")
    set_value(home, "toolsets.0", "file")
    assert text(home) == (f"{odd}    reasoning_effort: low\ntoolsets:\n- file\nmodel : 'x'\n")


def test_a_new_key_is_added_to_its_section_before_the_next_comment(home: HermesHome) -> None:
    set_value(home, "terminal.cwd", "/srv")
    assert "  lifetime_seconds: 300\n  cwd: /srv\n# --- approvals ---\n" in text(home)


def test_a_new_section_is_added_at_the_end(home: HermesHome) -> None:
    set_value(home, "auxiliary.vision.model", "m")
    assert text(home) == TEXT + "auxiliary:\n  vision:\n    model: m\n"


def test_a_key_is_added_to_a_mapping_on_one_line(home: HermesHome) -> None:
    set_value(home, "approvals.deny", ["rm *", "a, b"])
    assert "approvals: {mode: manual, timeout: 60, deny: [rm *, 'a, b']}\n" in text(home)
    set_value(home, "approvals.mode", "off")
    assert "approvals: {mode: 'off', timeout: 60" in text(home)


def test_a_list_is_replaced_as_a_whole(home: HermesHome) -> None:
    set_value(home, "toolsets", ["a"])
    assert "toolsets: [a]\ncustom_thing: kept\n" in text(home)
    set_value(home, "command_allowlist", ["git status"])
    config = load_config(home, {}).config
    assert config.toolsets == ("a",)
    assert config.command_allowlist == ("git status",)


def test_an_item_of_a_list_can_be_changed(home: HermesHome) -> None:
    set_value(home, "toolsets.1", "terminal")
    assert "  - web     # search\n  - terminal\n" in text(home)
    with pytest.raises(UsageError, match="no item `7`"):
        set_value(home, "toolsets.7", "x")


def test_removing_a_key_keeps_the_comments_around_it(home: HermesHome) -> None:
    assert unset_value(home, "model.provider") is True
    assert unset_value(home, "terminal.lifetime_seconds") is True
    after = text(home)
    assert after == TEXT.replace("  provider: openai\n", "").replace(
        "  lifetime_seconds: 300\n", ""
    )
    assert unset_value(home, "terminal.lifetime_seconds") is False
    assert unset_value(home, "nothing.here") is False


def test_removing_the_last_key_of_a_section_removes_the_section(home: HermesHome) -> None:
    unset_value(home, "terminal.lifetime_seconds")
    unset_value(home, "terminal.backend")
    assert "terminal:" not in text(home)
    assert "# --- approvals ---\napprovals:" in text(home)


def test_removing_from_a_mapping_on_one_line_works(home: HermesHome) -> None:
    unset_value(home, "approvals.mode")
    assert "timeout: 60" in text(home)
    assert "mode:" not in text(home)
    assert "# the good one" in text(home)


def test_a_plain_model_becomes_a_mapping_when_it_must(home: HermesHome) -> None:
    home.config_file.write_text("model: gpt-5 # mine\n")
    set_value(home, "model.provider", "openai")
    assert text(home) == "model: {default: gpt-5, provider: openai} # mine\n"
    home.config_file.write_text("model: gpt-5\n")
    set_value(home, "model", "gpt-6")
    assert text(home) == "model: gpt-6\n"


def test_unknown_keys_in_the_file_stay_and_new_ones_need_force(home: HermesHome) -> None:
    with pytest.raises(UsageError, match="did you mean `docker_image`") as caught:
        set_value(home, "terminal.docker_imgae", 5)
    assert "--force" in caught.value.hint
    assert text(home) == TEXT
    set_value(home, "terminal.docker_imgae", 5, force=True)
    assert "custom_thing: kept" in text(home)
    assert "docker_imgae: 5" in text(home)


@pytest.mark.parametrize(
    ("key", "value"),
    [("terminal.backend", "dockr"), ("agent.max_turns", 0), ("toolsets", "web"), ("model", [1])],
)
def test_a_wrong_value_is_refused_and_nothing_is_written(
    home: HermesHome, key: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match="should be"):
        set_value(home, key, value, force=True)
    assert text(home) == TEXT


def test_one_wrong_value_can_be_repaired_while_others_remain(home: HermesHome) -> None:
    home.config_file.write_text("terminal: {lifetime_seconds: soon}\nagent: {max_turns: many}\n")
    set_value(home, "terminal.lifetime_seconds", 5)
    assert text(home) == "terminal: {lifetime_seconds: 5}\nagent: {max_turns: many}\n"


def test_a_file_with_broken_syntax_is_not_touched(home: HermesHome) -> None:
    home.config_file.write_text("a: [1\n")
    with pytest.raises(ConfigError, match=r"config\.yaml:"):
        set_value(home, "terminal.lifetime_seconds", 5)
    assert text(home) == "a: [1\n"


def test_names_in_capitals_go_to_the_env_file(home: HermesHome) -> None:
    set_value(home, "OPENAI_API_KEY", "sk-1 2")
    assert home.env_file.read_text() == 'OPENAI_API_KEY="sk-1 2"\n'
    assert home.env_file.stat().st_mode & 0o777 == 0o600
    assert text(home) == TEXT
    assert unset_value(home, "OPENAI_API_KEY") is True
    assert unset_value(home, "OPENAI_API_KEY") is False
    assert home.env_file.read_text() == ""


def test_files_are_private_and_nothing_is_left_behind(home: HermesHome) -> None:
    home.config_file.chmod(0o644)
    set_value(home, "terminal.lifetime_seconds", 1)
    assert home.config_file.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in home.root.iterdir()) == [".config.lock", "config.yaml"]


def test_a_link_stays_a_link(home: HermesHome, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.yaml"
    home.config_file.rename(real)
    home.config_file.symlink_to(os.path.relpath(real, home.root))
    set_value(home, "terminal.lifetime_seconds", 1)
    assert home.config_file.is_symlink()
    assert "lifetime_seconds: 1\n" in real.read_text()


def test_a_missing_home_and_file_are_created(tmp_path: Path) -> None:
    home = HermesHome(root=tmp_path / "new")
    set_value(home, "terminal.lifetime_seconds", 5)
    assert text(home) == "terminal:\n  lifetime_seconds: 5\n"


def test_windows_line_ends_and_a_byte_order_mark_survive_editing(home: HermesHome) -> None:
    home.config_file.write_bytes(b"\xef\xbb\xbf# c\r\nterminal:\r\n  lifetime_seconds: 1\r\n")
    set_value(home, "terminal.cwd", "/x")
    after = home.config_file.read_bytes()
    assert b"# c\r\nterminal:\r\n  lifetime_seconds: 1\r\n  cwd: /x\r\n" in after
    assert b"\r\r" not in after


def test_a_block_of_text_is_kept_and_can_be_replaced(home: HermesHome) -> None:
    home.config_file.write_text(
        "agent:\n  ephemeral_system_prompt: |\n    one\n    two\n  max_turns: 5\n"
    )
    set_value(home, "agent.max_turns", 6)
    assert "    one\n    two\n  max_turns: 6\n" in text(home)
    set_value(home, "agent.ephemeral_system_prompt", "short")
    assert load_config(home, {}).config.agent.ephemeral_system_prompt == "short"
    unset_value(home, "agent.ephemeral_system_prompt")
    assert text(home) == "agent:\n  max_turns: 6\n"


def test_a_value_shared_by_an_anchor_is_not_changed_in_the_other_place(home: HermesHome) -> None:
    home.config_file.write_text("discord: &x {a: 1}\nslack: *x\n")
    with pytest.raises(ConfigError, match="without changing the rest"):
        set_value(home, "slack.a", 2)
    assert text(home) == "discord: &x {a: 1}\nslack: *x\n"


def test_two_writers_do_not_lose_each_others_change(home: HermesHome) -> None:
    def write(name: str) -> None:
        for n in range(5):
            set_value(home, f"platform_toolsets.{name}{n}", ["web"])

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(load_config(home, {}).config.platform_toolsets) == 10


@pytest.mark.parametrize(
    ("key", "given_text", "value"),
    [
        ("terminal.lifetime_seconds", "90", 90),
        ("approvals.mode", "off", "off"),
        ("agent.ephemeral_system_prompt", "no", "no"),
        ("agent.ephemeral_system_prompt", "12:30 # x", "12:30 # x"),
        ("model.model", "0123", "0123"),
        ("display.platforms.x.streaming", "false", False),
        ("toolsets", "[web, file]", ["web", "file"]),
        ("toolsets", '["web"]', ["web"]),
        ("budget.day_usd", "null", None),
        ("budget.day_usd", "2.5", 2.5),
        ("telegram.x", "{a: 1}", {"a": 1}),
        ("model.model", "a: b: c", "a: b: c"),
        ("display.tool_progress", "off", "off"),
    ],
)
def test_values_from_the_command_line_follow_the_type_of_the_key(
    key: str, given_text: str, value: Any
) -> None:
    assert parse_value(parse_key(key), given_text) == value


def test_the_schema_knows_the_type_of_nested_keys() -> None:
    assert type_of(("platforms", "x", "allow_all_users")) is bool
    assert type_of(("fallback_providers", "0", "provider")) is str
    assert type_of(("nothing",)) is None


@given(st.lists(st.text(min_size=1), min_size=1).map(tuple))
def test_keys_survive_being_written_and_read(path: tuple[str, ...]) -> None:
    assert parse_key(format_key(path)) == path


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "a..b", 'a"b', '"a'])
def test_a_malformed_key_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="not a configuration key"):
        parse_key(key)


plain_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
names = st.text("abc_-é:#.0 ", min_size=1, max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | plain_text | st.sampled_from(["off", "1e3", "~"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)


def test_a_key_below_an_empty_list_item_makes_it_a_mapping(home: HermesHome) -> None:
    home.config_file.write_text(TEXT)
    set_value(home, "quick_commands.a", [None, 7])
    set_value(home, "quick_commands.a.0.b", "x")
    data = parse_document(home.config_file.read_bytes(), "config.yaml").data
    assert data["quick_commands"]["a"] == [{"b": "x"}, 7]
    with pytest.raises(UsageError, match="single value"):
        set_value(home, "quick_commands.a.1.b", "x")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(st.lists(st.tuples(st.lists(names, min_size=1, max_size=3), json_values), max_size=4))
def test_what_is_set_is_read_back_and_comments_stay(
    home: HermesHome, changes: list[tuple[list[str], Any]]
) -> None:
    home.config_file.write_text(TEXT)
    for names_below, value in changes:
        key = format_key(("quick_commands", *names_below))
        try:
            set_value(home, key, value)
        except UsageError:
            continue  # below a single value or a list
        document = parse_document(home.config_file.read_bytes(), "config.yaml")
        found: Any = document.data
        for name in ("quick_commands", *names_below):
            found = found[int(name)] if isinstance(found, list) else found[name]
        assert found == value
    after = text(home)
    for line in TEXT.splitlines():
        assert line in after


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(st.dictionaries(names, json_values, min_size=1, max_size=3), st.data())
def test_removing_what_was_set_restores_the_data(
    home: HermesHome, entries: dict[str, Any], data: st.DataObject
) -> None:
    home.config_file.write_text(TEXT)
    before = parse_document(TEXT.encode(), "config.yaml").data
    for name, value in entries.items():
        set_value(home, format_key(("quick_commands", name)), value)
    for name in data.draw(st.permutations(sorted(entries))):
        assert unset_value(home, format_key(("quick_commands", name))) is True
    assert parse_document(home.config_file.read_bytes(), "config.yaml").data == before
    assert text(home) == TEXT


def test_a_word_that_looks_like_a_number_stays_a_word(home: HermesHome) -> None:
    home.config_file.write_text("model: m  # mine\n")
    set_value(home, "platform_hints", {"._": "x", "plain": "-._"}, force=True)
    set_value(home, "agent.max_turns", 3)
    read = yaml.safe_load(home.config_file.read_text())
    assert read["platform_hints"] == {"._": "x", "plain": "-._"}
    assert "# mine" in home.config_file.read_text()
