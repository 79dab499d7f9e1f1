"""Slack as data: readable without importing the adapter or the SDK."""

from hermes.domain.platforms import Capabilities, ChatPlatform, Credential, Limits, Rate

PLATFORM = ChatPlatform(
    name="slack",
    label="Slack",
    capabilities=Capabilities(
        max_length=39_000,
        # chat.update refuses more, though chat.postMessage takes it.
        edit_length=4_000,
        # Fifty edits a minute.
        edit_seconds=1.2,
        dialect="slack_mrkdwn",
        edits=True,
        deletes=True,
        threads=True,
        buttons=True,
        # Slack keeps `/` for itself, and in threads it does not work.
        command_mark="!",
        typing=True,
        reactions=True,
        media=frozenset({"image", "voice", "audio", "video", "document"}),
        album_size=10,
        # About a message a second to a channel, its threads included; bursts are fine.
        limits=Limits(private=Rate(20, 20.0, burst=3), group=Rate(20, 20.0, burst=6, reserve=3)),
        # The status line of a thread stays for two minutes, or until the answer comes.
        typing_seconds=60.0,
    ),
    adapter="hermes.entry.chat.slack.adapter:SlackAdapter",
    settings="hermes.entry.chat.slack.settings:SlackSettings",
    # The shapes of Slack's tokens are known wherever text is shown.
    credentials=(
        Credential(key="token", variable="SLACK_BOT_TOKEN", label="bot token"),
        Credential(key="app_token", variable="SLACK_APP_TOKEN", label="app-level token"),
    ),
    hint="""\
You are in Slack. Markdown works: bold, italic, links, lists, quotes and code; tables do not, and \
there is only one size of heading. `@U0123ABCD` in what people write is a member. Be brief.
To send a file, write `MEDIA:/absolute/path` on a line of its own. Files that people send are at \
the path that is given with them; voice clips arrive as text after [Voice message].
If nothing should be sent, answer with NO_REPLY and nothing else.""",
    setup="Make the app with `hermes slack manifest`, then set SLACK_BOT_TOKEN (xoxb-…) and "
    "SLACK_APP_TOKEN (xapp-…); see docs/how-to/slack.md.",
)
