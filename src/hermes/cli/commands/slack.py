"""`hermes slack`: the app that a workspace needs, as a manifest to paste."""

import json
from pathlib import Path
from typing import Any

import click

from hermes.cli.home import say, this_home
from hermes.control.commands.builtin import builtin_registry

_RESERVED = frozenset(
    {"archive", "away", "call", "collapse", "dm", "dnd", "expand", "feed", "feedback", "invite"}
    | {"join", "kick", "leave", "me", "msg", "mute", "open", "prefs", "remind", "remove"}
    | {"rename", "search", "shortcuts", "shrug", "star", "status", "topic", "who"}
)
"""Slack's own commands; ours of that name are reached as `/hermes NAME`."""
_MOST_COMMANDS = 50
_SCOPES = (
    *("app_mentions:read", "channels:history", "channels:read", "chat:write", "chat:write.public"),
    *("commands", "files:read", "files:write", "groups:history", "groups:read", "im:history"),
    *("im:read", "im:write", "mpim:history", "mpim:read", "reactions:write", "users:read"),
)
_EVENTS = ("app_mention", "message.channels", "message.groups", "message.im", "message.mpim")
_PANE_EVENTS = ("assistant_thread_started", "assistant_thread_context_changed")
"""Slack wants them of an app with a pane for assistants."""
_ABOUT = "An agent of your own, in threads, channels and private messages."


def slash_commands() -> list[dict[str, Any]]:
    """Return Slack's menu: `/hermes`, and each command of the registry whose name is free."""
    own = {"command": "/hermes", "description": "Ask, or run a command", "usage_hint": "[command]"}
    found = [
        {"command": f"/{each.name}", "description": each.help}
        | ({"usage_hint": each.args} if each.args else {})
        for each in builtin_registry().commands(terminal=False)
        if each.name not in _RESERVED
    ]
    return [each | {"should_escape": False} for each in (own, *found)][:_MOST_COMMANDS]


def app_manifest(name: str, view: str) -> dict[str, Any]:
    """Return a Slack app with everything that the door uses; `view` is its place in Slack."""
    views = {
        "assistant": {"assistant_view": {"assistant_description": _ABOUT}},
        "agent": {"agent_view": {"agent_description": _ABOUT}},
    }
    scopes = [*_SCOPES, *(["assistant:write"] if view else [])]
    events = [*_EVENTS, *(_PANE_EVENTS if view == "assistant" else ())]
    tab = {"home_tab_enabled": False, "messages_tab_enabled": True}
    features = {
        "app_home": tab | {"messages_tab_read_only_enabled": False},
        "bot_user": {"display_name": name, "always_online": True},
        "slash_commands": slash_commands(),
    }
    return {
        "display_information": {"name": name, "description": _ABOUT},
        "features": features | views.get(view, {}),
        "oauth_config": {"scopes": {"bot": sorted(scopes)}},
        "settings": {
            "event_subscriptions": {"bot_events": events},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }


@click.group("slack")
def command() -> None:
    """Set up the Slack app."""


@command.command("manifest")
@click.option("--name", default="Hermes", show_default=True, help="What the app is called.")
@click.option(
    "--write",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Write it to a file; without one to slack-manifest.json in the home.",
)
@click.option("--slashes-only", is_flag=True, help="Only the slash commands.")
@click.option("--no-assistant", is_flag=True, help="Without the assistant's pane and its scope.")
@click.option("--agent-view", is_flag=True, help="With Slack's view for agents instead.")
def manifest_command(
    name: str, write: str | None, slashes_only: bool, no_assistant: bool, agent_view: bool
) -> None:
    """Print the manifest of the Slack app, to paste at api.slack.com/apps."""
    view = "" if no_assistant else "agent" if agent_view else "assistant"
    made = slash_commands() if slashes_only else app_manifest(name, view)
    text = json.dumps(made, indent=2, ensure_ascii=False)
    if write is None:
        say(text)
        return
    path = Path(write) if write else this_home().root / "slack-manifest.json"
    path.write_text(f"{text}\n", encoding="utf-8")
    say(f"Written to {path}. At https://api.slack.com/apps: Create New App, from a manifest.")
