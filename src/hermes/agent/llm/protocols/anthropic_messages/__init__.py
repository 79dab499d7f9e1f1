"""Anthropic Messages: blocks, cache breakpoints, signed thinking."""

from typing import Final

from hermes.agent.llm.lowering import LoweredCache
from hermes.agent.llm.protocols.anthropic_messages.decode import MessagesDecoder
from hermes.agent.llm.protocols.anthropic_messages.encode import encode
from hermes.agent.llm.routes import Route
from hermes.agent.llm.wire import Decoder, Repairs, Sink, WireCall
from hermes.domain.ports.model import ModelRequest

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
