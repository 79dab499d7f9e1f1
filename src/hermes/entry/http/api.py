"""Everything the API server offers, in the order in which it is described."""

from hermes.entry.http import approvals, catalog, health, jobs, runs, sessions
from hermes.entry.http.chat import endpoint as chat
from hermes.entry.http.endpoint import Endpoint
from hermes.entry.http.responses import endpoints as responses

__all__ = ["all_endpoints"]


def all_endpoints() -> tuple[Endpoint, ...]:
    """Return all operations."""
    plain = (
        *chat.ENDPOINTS,
        *responses.ENDPOINTS,
        *runs.ENDPOINTS,
        *approvals.ENDPOINTS,
        *sessions.ENDPOINTS,
        *jobs.ENDPOINTS,
        *catalog.ENDPOINTS,
        *health.ENDPOINTS,
    )
    return (*plain, catalog.capabilities_endpoint(plain))
