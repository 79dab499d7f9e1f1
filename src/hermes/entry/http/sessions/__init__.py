"""`/api/sessions`: conversations, kept and continued by their id."""

from hermes.entry.http.endpoint import Endpoint
from hermes.entry.http.sessions import chatting, forking, keeping, reading

__all__ = ["ENDPOINTS"]

ENDPOINTS: tuple[Endpoint, ...] = (
    *reading.ENDPOINTS,
    *keeping.ENDPOINTS,
    *forking.ENDPOINTS,
    *chatting.ENDPOINTS,
)
