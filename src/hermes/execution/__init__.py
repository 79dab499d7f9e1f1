"""Side effects: one environment per agent and session."""
