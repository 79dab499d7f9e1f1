"""`/v1/responses`: the Responses API over durable runs."""
