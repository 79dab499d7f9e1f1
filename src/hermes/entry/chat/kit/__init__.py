"""The kit for chat platforms: what an adapter would otherwise write again. See ../README.md."""
