"""Everything the API server offers, in the order in which it is described."""

from hermes.entry.http.api import (
    approvals,
    catalog,
    chat,
    conversations,
    health,
    jobs,
    responses,
    responses_window,
    runs,
    sessions,
)
from hermes.entry.http.endpoint import Endpoint, operations

MODULES = (
    chat,
    responses,
    responses_window,
    conversations,
    runs,
    approvals,
    sessions,
    jobs,
    catalog,
    health,
)


def all_endpoints() -> tuple[Endpoint, ...]:
    plain = tuple(each for module in MODULES for each in operations(module))
    return (*plain, catalog.capabilities_endpoint(plain))
