"""Discord as data: readable without importing the adapter or discord.py."""

from hermes.domain.platforms import Capabilities, ChatPlatform, Credential, Limits, Rate

PLATFORM = ChatPlatform(
    name="discord",
    label="Discord",
    capabilities=Capabilities(
        max_length=2000,
        edit_seconds=1.2,
        dialect="discord",
        edits=True,
        deletes=True,
        threads=True,
        buttons=True,
        typing=True,
        reactions=True,
        idempotent_sends=True,
        idempotent_seconds=90.0,
        media=frozenset({"image", "voice", "audio", "video", "document"}),
        # Five messages in five seconds to a channel, and the same again for edits and typing;
        # discord.py reads from the answers what is left.
        limits=Limits(private=Rate(10, 5.0, burst=5), group=Rate(10, 5.0, burst=5, reserve=2)),
        typing_seconds=8.0,
    ),
    adapter="hermes.entry.chat.discord.adapter:DiscordAdapter",
    settings="hermes.entry.chat.discord.settings:DiscordSettings",
    credentials=(
        # Tokens have nothing in common, so there is no shape to tell them by.
        Credential(key="token", variable="DISCORD_BOT_TOKEN", label="bot token"),
    ),
    hint="""\
You are on Discord. Its Markdown works: bold, italic, lists, quotes, headings, masked links and \
code blocks with a language; there are no tables. Be brief; what is longer than 2,000 characters \
is split into several messages.
To send a file, write `MEDIA:/absolute/path` on a line of its own. Files that people send are at \
the path that is given with them; voice messages arrive as text after [Voice message]. `<@ID>` \
names a person. If nothing should be sent, answer with NO_REPLY and nothing else.""",
    setup="hermes config set DISCORD_BOT_TOKEN <token of the bot in the Developer Portal>.",
    batch_seconds=0.6,
    long_batch_seconds=2.0,
)
