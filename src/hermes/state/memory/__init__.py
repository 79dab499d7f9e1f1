"""The ledger in one process's memory, with the contract of the one on disk."""
