"""The model wire: everything between a `ModelRequest` and a provider's bytes."""
