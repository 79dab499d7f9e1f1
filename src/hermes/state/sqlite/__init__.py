"""The ledger on SQLite: one writer thread, a few readers, SQL in files."""
