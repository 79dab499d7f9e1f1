"""Configuration: `config.yaml`, `.env`, secrets, and the paths of a home.

This is the only layer that reads the process environment. Everything above
receives typed values: `load_config` returns the settings, the origin of each
value, and the secrets.
"""
