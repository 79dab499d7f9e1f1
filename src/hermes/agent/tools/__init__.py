"""Tools: what the model may call, one file a family."""
