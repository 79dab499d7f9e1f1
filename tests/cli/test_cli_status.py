"""`hermes status` and `hermes hooks`."""

import json
from pathlib import Path

import pytest

from fakes.hermes_cli import hermes


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_status_says_what_there_is_and_makes_nothing(home: Path) -> None:
    done = hermes(home, "status")
    assert done.returncode == 0, done.stderr
    assert f"home {home}" in done.stdout
    assert "Gateway: not running" in done.stdout
    assert "Platforms: none enabled" in done.stdout
    assert not home.exists()


def test_status_names_model_and_platforms_without_secrets(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(
        "model: {default: m-1, provider: openrouter}\n"
        "platforms: {telegram: {enabled: true, token: '123:verysecrettoken'}}\n"
    )
    done = hermes(home, "status")
    assert "m-1 (openrouter)" in done.stdout
    assert "Platforms: telegram" in done.stdout
    facts = json.loads(hermes(home, "status", "--json").stdout)
    assert facts["config"]["platforms"] == ["telegram"]
    assert facts["gateway"]["running"] is False
    assert facts["ledger"]["sessions"] == 0
    assert "verysecret" not in done.stdout + json.dumps(facts)


def test_status_and_doctor_say_where_commands_run_if_it_is_here(home: Path) -> None:
    here = "run on this computer itself, with your rights (terminal.backend: local)"
    assert here not in hermes(home, "status").stdout + hermes(home, "doctor").stdout
    home.mkdir()
    (home / "config.yaml").write_text("terminal: {backend: local}\n")
    assert f"Commands {here}" in hermes(home, "status").stdout
    assert here in hermes(home, "doctor").stdout
    facts = json.loads(hermes(home, "status", "--json").stdout)
    assert facts["config"]["backend"] == "local"


def test_status_works_with_a_broken_configuration(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text("agent: {max_turns: many}\n")
    done = hermes(home, "status")
    assert done.returncode == 0, done.stderr
    assert "Configuration: invalid" in done.stdout
    assert "agent.max_turns" in done.stdout


def test_the_doctor_finds_nothing_wrong_where_nothing_is(home: Path) -> None:
    done = hermes(home, "doctor", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["errors"] == []
    assert not home.exists()
    home.mkdir()
    (home / "config.yaml").write_text("agent: {max_turns: many}\n")
    wrong = hermes(home, "doctor")
    assert wrong.returncode == 1
    assert "agent.max_turns" in wrong.stdout


def test_hooks_are_listed_enabled_and_disabled(home: Path) -> None:
    folder = home / "hooks" / "notes"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text("events: [agent:end]\n")
    (folder / "handler.py").write_text("def handle(event_type, context): pass\n")
    assert "nobody has enabled it yet" in hermes(home, "hooks", "list").stdout
    enabled = hermes(home, "hooks", "enable", "notes")
    assert enabled.returncode == 0, enabled.stderr
    assert "agent:end" in enabled.stdout
    assert "notes\tagent:end\tenabled" in hermes(home, "hooks", "list").stdout
    assert hermes(home, "hooks", "disable", "notes").returncode == 0
    assert hermes(home, "hooks", "disable", "notes").returncode == 4
    assert hermes(home, "hooks", "enable", "other").returncode == 4
