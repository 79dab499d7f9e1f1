"""Names on disk for the sandboxes of sessions.

`<home>/sandboxes/<backend>/<task>` holds what one session keeps. A session id
may come from outside, so it becomes a directory name only after everything
unusual has been replaced, with a digest so that two ids never meet.
"""

import hashlib
import os
import re
from pathlib import Path

from hermes.domain.errors import ConfigError

__all__ = ["checked_project", "safe_name", "task_directory", "task_id"]

_MAX = 80
_TOP_LEVEL = 2


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


def checked_project(path: str, hermes_home: str) -> Path:
    """Return a directory that may be opened for writing, without links."""
    project = Path(os.path.realpath(path))
    home = Path(os.path.realpath(hermes_home))
    if not project.is_dir():
        raise ConfigError(
            f"The directory to work on does not exist: {path}.",
            hint="Start Hermes in another directory or set `terminal.cwd`.",
        )
    system = (Path("/usr"), Path("/etc"), home)
    if len(project.parts) <= _TOP_LEVEL or any(project.is_relative_to(place) for place in system):
        raise ConfigError(
            f"A sandbox does not get {project} to write in.",
            hint="Work in a project directory, or choose another `terminal.backend`.",
        )
    return project
