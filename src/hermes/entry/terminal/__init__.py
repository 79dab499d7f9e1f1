"""The terminal door."""
