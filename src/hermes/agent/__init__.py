"""Layer 4: the one agent core behind every door."""
