"""Seeing what Hermes does: log files, counters and traces, never with a secret."""
