"""The HTTP door: an OpenAI-compatible API, durable runs, sessions, jobs and webhooks."""
