"""Anthropic Messages: blocks, cache breakpoints, signed thinking."""

from typing import Final

from hermes.domain.ports.model import ModelRequest
from hermes.models.encode_common import LoweredCache
from hermes.models.protocols.anthropic_messages.decode import MessagesDecoder
from hermes.models.protocols.anthropic_messages.encode import encode
from hermes.models.routes import Route
from hermes.models.wire import Decoder, Repairs, Sink, WireCall

__all__ = ["PROTOCOL", "AnthropicMessages"]


class AnthropicMessages:
    """The protocol object."""

    def encode(
        self, request: ModelRequest, route: Route, repairs: Repairs, cache: LoweredCache
    ) -> WireCall:
        """Return the HTTP request, without the key."""
        return encode(request, route, repairs, cache)

    def decoder(self, sink: Sink) -> Decoder:
        """Return a decoder for one reply."""
        return MessagesDecoder(sink)


PROTOCOL: Final = AnthropicMessages()
