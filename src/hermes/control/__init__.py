"""Layer 3: the control plane between doors and the agent core."""
