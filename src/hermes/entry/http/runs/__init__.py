"""`/v1/runs`: requests that are answered in the background, durably."""

from hermes.entry.http.endpoint import Endpoint
from hermes.entry.http.runs import controls, reading, starting

__all__ = ["ENDPOINTS"]

ENDPOINTS: tuple[Endpoint, ...] = (
    *starting.ENDPOINTS,
    *reading.ENDPOINTS,
    *controls.ENDPOINTS,
)
