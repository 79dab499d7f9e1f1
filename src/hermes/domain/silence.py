"""Words by which an agent says that it has nothing to say."""

__all__ = ["SILENT_MARKERS"]

SILENT_MARKERS = frozenset({"NO_REPLY", "[SILENT]", "SILENT", "NO REPLY"})
