"""Models that run on this machine: GGUF files served by a process of their own."""
