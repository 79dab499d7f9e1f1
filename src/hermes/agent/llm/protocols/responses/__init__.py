"""OpenAI Responses: typed items, typed events, encrypted reasoning."""

from typing import Final

from hermes.agent.llm.lowering import LoweredCache
from hermes.agent.llm.protocols.responses.decode import ResponsesDecoder
from hermes.agent.llm.protocols.responses.encode import encode
from hermes.agent.llm.routes import Route
from hermes.agent.llm.wire import Decoder, Repairs, Sink, WireCall
from hermes.domain.ports.model import ModelRequest

__all__ = ["PROTOCOL", "Responses"]


class Responses:
    """The protocol object."""

    def encode(
        self, request: ModelRequest, route: Route, repairs: Repairs, cache: LoweredCache
    ) -> WireCall:
        """Return the HTTP request, without the key."""
        return encode(request, route, repairs, cache)

    def decoder(self, sink: Sink) -> Decoder:
        """Return a decoder for one reply."""
        return ResponsesDecoder(sink)


PROTOCOL: Final = Responses()
