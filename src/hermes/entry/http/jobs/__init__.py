"""`/api/jobs`: scheduled jobs over HTTP."""

from hermes.entry.http.jobs.routes import ENDPOINTS

__all__ = ["ENDPOINTS"]
