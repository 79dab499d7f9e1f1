"""Layer 5: what survives a restart.

`sqlite` is the ledger on disk, `memory` the same ledger in one process;
beside them live process ownership, transcripts as JSON Lines and the plain
text files (SOUL.md, memories) that people edit by hand.
"""
