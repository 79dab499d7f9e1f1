"""`hermes slack manifest`: the app as JSON, with the commands of the registry."""

import json
from pathlib import Path

from click.testing import CliRunner

from hermes.cli.commands.slack import command
from hermes.control.commands.builtin import builtin_registry


def test_the_manifest_has_what_the_door_uses_and_every_command_that_slack_allows(
    tmp_path: Path,
) -> None:
    made = json.loads(CliRunner().invoke(command, ["manifest", "--name", "Robo"]).output)
    assert made["settings"]["socket_mode_enabled"] is True
    assert made["settings"]["interactivity"]["is_enabled"] is True
    assert {"app_mention", "message.im", "assistant_thread_started"} <= set(
        made["settings"]["event_subscriptions"]["bot_events"]
    )
    assert {"chat:write", "files:read", "im:history", "assistant:write"} <= set(
        made["oauth_config"]["scopes"]["bot"]
    )
    assert made["features"]["bot_user"]["display_name"] == "Robo"
    listed = {each["command"] for each in made["features"]["slash_commands"]}
    known = {f"/{each.name}" for each in builtin_registry().commands(terminal=False)}
    assert known - listed == {"/status"}
    assert listed - known == {"/hermes"}
    assert all(0 < len(each["description"]) <= 2000 for each in made["features"]["slash_commands"])

    plain = json.loads(CliRunner().invoke(command, ["manifest", "--no-assistant"]).output)
    assert "assistant_view" not in plain["features"]
    assert not [
        each
        for each in plain["settings"]["event_subscriptions"]["bot_events"]
        if "assistant" in each
    ]
    assert "assistant:write" not in plain["oauth_config"]["scopes"]["bot"]

    target = tmp_path / "app.json"
    told = CliRunner().invoke(command, ["manifest", "--slashes-only", "--write", str(target)])
    assert str(target) in told.output
    assert {each["command"] for each in json.loads(target.read_text())} == listed
