"""Slash commands: one registry, the same handlers behind every door."""
