"""OpenAI chat completions, as spoken by most servers, with their dialects."""

from typing import Final

from hermes.agent.llm.lowering import LoweredCache
from hermes.agent.llm.protocols.chat_completions.decode import ChatDecoder
from hermes.agent.llm.protocols.chat_completions.encode import encode
from hermes.agent.llm.routes import Route
from hermes.agent.llm.wire import Decoder, Repairs, Sink, WireCall
from hermes.domain.ports.model import ModelRequest

__all__ = ["PROTOCOL", "ChatCompletions"]


class ChatCompletions:
    """The protocol object."""

    def encode(
        self, request: ModelRequest, route: Route, repairs: Repairs, cache: LoweredCache
    ) -> WireCall:
        """Return the HTTP request, without the key."""
        return encode(request, route, repairs, cache)

    def decoder(self, sink: Sink) -> Decoder:
        """Return a decoder for one reply."""
        return ChatDecoder(sink)


PROTOCOL: Final = ChatCompletions()
