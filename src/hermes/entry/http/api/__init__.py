"""Everything the API server offers, in the order in which it is described."""

from hermes.entry.http.api.approvals import ENDPOINTS as APPROVALS
from hermes.entry.http.api.catalog import ENDPOINTS as CATALOG
from hermes.entry.http.api.catalog import capabilities_endpoint
from hermes.entry.http.api.chat import ENDPOINTS as CHAT
from hermes.entry.http.api.health import ENDPOINTS as HEALTH
from hermes.entry.http.api.jobs import ENDPOINTS as JOBS
from hermes.entry.http.api.responses import ENDPOINTS as RESPONSES
from hermes.entry.http.api.runs import ENDPOINTS as RUNS
from hermes.entry.http.api.sessions import ENDPOINTS as SESSIONS
from hermes.entry.http.endpoint import Endpoint

__all__ = ["all_endpoints"]


def all_endpoints() -> tuple[Endpoint, ...]:
    plain = (*CHAT, *RESPONSES, *RUNS, *APPROVALS, *SESSIONS, *JOBS, *CATALOG, *HEALTH)
    return (*plain, capabilities_endpoint(plain))
