"""Finds the protocol of a route; each is imported when first used."""

from importlib import import_module
from types import MappingProxyType
from typing import Final, Protocol

from hermes.agent.llm.lowering import LoweredCache
from hermes.agent.llm.routes import Route
from hermes.agent.llm.settings import ApiMode
from hermes.agent.llm.wire import Decoder, Repairs, Sink, WireCall
from hermes.domain.ports.model import ModelRequest

__all__ = ["WireProtocol", "protocol_for"]


class WireProtocol(Protocol):
    """Encodes requests and decodes replies of one kind of endpoint."""

    def encode(
        self, request: ModelRequest, route: Route, repairs: Repairs, cache: LoweredCache
    ) -> WireCall:
        """Return the HTTP request, without the key."""
        ...

    def decoder(self, sink: Sink) -> Decoder:
        """Return a decoder for one reply."""
        ...


_MODULES: Final = MappingProxyType(
    {
        ApiMode.CHAT_COMPLETIONS: "hermes.agent.llm.protocols.chat_completions",
        ApiMode.RESPONSES: "hermes.agent.llm.protocols.responses",
        ApiMode.ANTHROPIC_MESSAGES: "hermes.agent.llm.protocols.anthropic_messages",
    }
)


def protocol_for(mode: ApiMode) -> WireProtocol:
    """Return the protocol for a mode."""
    protocol: WireProtocol = import_module(_MODULES[mode]).PROTOCOL
    return protocol
