"""Hermes: one agent behind many doors.

Importing this package has no side effects and costs next to nothing; every
other module is imported by whoever needs it.
"""

__version__ = "0.1.0"
