"""TurnOptions: what a message asks of the turn that answers it.

They travel with the message through the inbox, so that a turn which goes on
after a crash still has them. A person in a chat never sets any; programs that
come in over HTTP do.
"""

from typing import Any

from msgspec import Struct

from hermes.domain.messages import Content

__all__ = ["ClientResult", "ClientTool", "TurnOptions"]


class ClientTool(Struct, frozen=True, kw_only=True):
    """A tool that the program which asks carries out itself."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON Schema of the arguments."""


class ClientResult(Struct, frozen=True, kw_only=True):
    """What the program's tool gave back for a call that was handed to it."""

    call_id: str
    content: Content


class TurnOptions(Struct, frozen=True, kw_only=True):
    """Wishes for one turn; unset ones leave things as they are."""

    instructions: str = ""
    """Further instructions for this turn only; never stored in the session."""
    client_tools: tuple[ClientTool, ...] = ()
    tool_choice: str | None = None
    """`none`, `required`, or the name of a tool; for the first call of the turn."""
    max_tokens: int | None = None
    """Bounds the final answer: it is not continued when it is cut off by this."""
    temperature: float | None = None
    reasoning_effort: str | None = None
    response_schema: dict[str, Any] | None = None
    """JSON Schema that the final answer has to follow."""
    title: bool = True
    """Whether the session deserves a title; not if it exists for one request only."""
