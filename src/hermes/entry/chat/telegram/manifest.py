"""Telegram as data: readable without importing the adapter or an HTTP library."""

from hermes.domain.platforms import Capabilities, ChatPlatform, Credential, LengthUnit, Limits, Rate

PLATFORM = ChatPlatform(
    name="telegram",
    label="Telegram",
    capabilities=Capabilities(
        max_length=4096,
        unit=LengthUnit.UTF16,
        dialect="telegram_html",
        signs_apart=False,
        edits=True,
        deletes=True,
        threads=True,
        buttons=True,
        typing=True,
        reactions=True,
        media=frozenset({"image", "voice", "audio", "video", "document"}),
        album_size=10,
        # A message a second and 20 a minute in groups are the defaults; it names no figure for
        # several bots of one host.
        limits=Limits(account=Rate(30, 1.0, burst=8, reserve=4)),
    ),
    adapter="hermes.entry.chat.telegram.adapter:TelegramAdapter",
    settings="hermes.entry.chat.telegram.settings:TelegramSettings",
    credentials=(
        Credential(
            key="token",
            variable="TELEGRAM_BOT_TOKEN",
            label="bot token",
            shape=r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
            mark=":AA",
        ),
    ),
    hint="""\
You are in a Telegram chat. Markdown works: bold, italic, links, lists, quotes and code; avoid \
wide tables. Be brief; what is longer than 4,096 characters is split into several messages.
To send a file, write `MEDIA:/absolute/path` on a line of its own: pictures, videos and audio are \
shown as such, other files as documents. `[[audio_as_voice]]` sends the audio as voice messages, \
`[[as_document]]` everything as documents. Files that people send are at the path that is given \
with them; voice messages arrive as text after [Voice message].
If nothing should be sent, answer with NO_REPLY and nothing else.""",
    setup="hermes config set TELEGRAM_BOT_TOKEN <token from @BotFather>.",
)
