"""IRC as data: readable without importing the adapter."""

from hermes.domain.platforms import Capabilities, ChatPlatform, LengthUnit, Limits, Rate

PLATFORM = ChatPlatform(
    name="irc",
    label="IRC",
    # A line is 512 bytes with what the server puts in front of it.
    capabilities=Capabilities(
        max_length=360,
        unit=LengthUnit.BYTES,
        limits=Limits(private=Rate(10, 10.0, burst=5), group=Rate(10, 10.0, burst=5)),
    ),
    adapter="hermes_irc.adapter:IrcAdapter",
    settings="hermes_irc.adapter:IrcSettings",
    hint="You are on IRC. Write plain text without markup, in a few short lines.",
    setup="Set platforms.irc.extra.server, .nick and .channels, and platforms.irc.enabled.",
)
