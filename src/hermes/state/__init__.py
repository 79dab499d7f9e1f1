"""Layer 5: what survives a restart.

`sqlite` is the ledger; beside it live process ownership, transcripts as JSON Lines and the plain
text files (SOUL.md, memories) that people edit by hand.
"""
