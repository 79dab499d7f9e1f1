"""Ports: what a layer needs from another, as small protocols in domain verbs."""
