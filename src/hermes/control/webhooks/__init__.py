"""Webhooks: services that send something, and what is done about it."""
