"""MCP: tools of other programs, over the protocol's own SDK.

`servers.py` keeps one connection for each server of the configuration and turns what it lists into
tools; `client.py` is the only module that knows the SDK, and is imported with the first server.
"""
