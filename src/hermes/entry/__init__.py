"""Layer 1: the doors. Each turns what it hears into inbound messages."""
