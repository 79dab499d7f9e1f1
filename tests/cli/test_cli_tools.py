"""`hermes tools`: lists what the agent has at a door, and switches it."""

import json
from pathlib import Path
from typing import Any

import yaml

from fakes.hermes_cli import hermes


def enabled(home: Path, platform: str = "cli") -> set[str]:
    shown = json.loads(hermes(home, "tools", "list", "--platform", platform, "--json").stdout)
    return {row["tool"] for row in shown["tools"] if row["enabled"]}


def config(home: Path) -> dict[str, Any]:
    return yaml.safe_load((home / "config.yaml").read_text()) or {}


def test_tools_are_listed_and_switched_for_one_door_or_all(tmp_path: Path) -> None:
    listed = hermes(tmp_path, "tools", "list").stdout
    assert "on   file             read_file\n" in listed
    assert "on   delegation       delegate_task\n" in listed

    off = hermes(tmp_path, "tools", "disable", "patch", "terminal", "--platform", "telegram")
    assert off.stdout == "patch, terminal off for telegram.\n"
    there = enabled(tmp_path, "telegram")
    assert {"read_file", "write_file", "todo"} <= there
    assert not {"patch", "terminal"} & there
    chosen = config(tmp_path)["platform_toolsets"]["telegram"]
    assert "file" not in chosen
    assert "browser" in chosen, "what is not installed yet stays switched on"

    hermes(tmp_path, "tools", "enable", "file", "terminal", "--platform", "telegram")
    assert {"patch", "terminal"} <= enabled(tmp_path, "telegram")
    assert not config(tmp_path).get("platform_toolsets"), "the default leaves no key behind"

    hermes(tmp_path, "tools", "disable", "delegation", "--platform", "all")
    assert config(tmp_path)["agent"]["disabled_toolsets"] == ["delegation"]
    assert "delegate_task" not in enabled(tmp_path)
    refused = hermes(tmp_path, "tools", "enable", "delegation")
    assert refused.returncode
    assert "hermes tools enable delegation --platform all" in refused.stderr
    unknown = hermes(tmp_path, "tools", "disable", "terminl")
    assert "Did you mean `terminal`?" in unknown.stderr
    misspelled = hermes(tmp_path, "tools", "disable", "terminal", "--platform", "telegrm")
    assert "Did you mean `telegram`?" in misspelled.stderr
    assert "platform_toolsets" not in config(tmp_path)
