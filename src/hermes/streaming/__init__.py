"""Layer 2: one stream of turn events, many shapes."""
