"""Names on disk for the sandboxes of sessions.

`<home>/sandboxes/<backend>/<task>` holds what one session keeps. A session id
may come from outside, so it becomes a directory name only after everything
unusual has been replaced, with a digest so that two ids never meet.
"""

import hashlib
import re
from pathlib import Path

__all__ = ["safe_name", "task_directory", "task_id"]

_MAX = 80


def safe_name(text: str) -> str:
    """Return `text` as a directory name; different texts give different names."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", text)[:_MAX]
    if plain == text and plain:
        return plain
    return f"{plain}.{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def task_id(agent_id: str, session_id: str) -> str:
    """Return the one name of an agent's session."""
    return f"{safe_name(agent_id)}.{safe_name(session_id)}"


def task_directory(sandbox_dir: str, backend: str, agent_id: str, session_id: str) -> Path:
    """Return where the files of a session's sandbox are kept."""
    return Path(sandbox_dir) / backend / safe_name(agent_id) / safe_name(session_id)
