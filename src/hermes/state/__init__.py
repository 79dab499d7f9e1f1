"""Layer 5: what survives a restart. `sqlite` is the ledger; the rest are files of the home."""
