"""IRC as data: readable without importing the adapter."""

from typing import TYPE_CHECKING

from hermes.domain.platforms import Capabilities, ChatPlatform, LengthUnit, Limits, Rate

if TYPE_CHECKING:
    from hermes.domain.ports.platform import Adapter, AdapterRequest
    from hermes_irc.adapter import IrcSettings


def _make(request: "AdapterRequest") -> "Adapter":
    from hermes_irc.adapter import IrcAdapter  # noqa: PLC0415 - with use

    return IrcAdapter.configured(request)


def _settings() -> "type[IrcSettings]":
    from hermes_irc.adapter import IrcSettings  # noqa: PLC0415 - with use

    return IrcSettings


PLATFORM = ChatPlatform(
    name="irc",
    label="IRC",
    # A line is 512 bytes with what the server puts in front of it.
    capabilities=Capabilities(
        max_length=360,
        unit=LengthUnit.BYTES,
        limits=Limits(private=Rate(10, 10.0, burst=5), group=Rate(10, 10.0, burst=5)),
    ),
    make=_make,
    settings=_settings,
    hint="You are on IRC. Write plain text without markup, in a few short lines.",
    setup="Set platforms.irc.extra.server, .nick and .channels, and platforms.irc.enabled.",
)
