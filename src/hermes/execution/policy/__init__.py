"""The command policy: reads a script and says allow, ask or block."""
