"""Where side effects happen: one environment per agent and session."""
