"""Decisions of the person who runs Hermes, and the places where things are kept.

This is the only layer that reads the process environment. Everything above
receives typed values: `load_config` gives the `Config`, where each value came
from, and the secrets.
"""
