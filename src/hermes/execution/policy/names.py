"""Which command a name stands for when it is written as a glob or in odd letters."""

import fnmatch
import posixpath

__all__ = ["guess_name"]

_DANGEROUS = (
    "rm", "dd", "mkfs", "mkfs.ext4", "shutdown", "reboot", "halt", "poweroff", "sh", "bash", "kill",
    "chmod", "chown", "curl", "wget", "python3", "python", "perl", "nc", "find", "sudo", "mv",
    "tee", "init", "telinit", "systemctl", "killall", "pkill", "shred", "wipefs",
)  # fmt: skip


def guess_name(path: str) -> str:
    """Return the name a command runs under; a glob counts as the worst name it matches."""
    name = posixpath.basename(path.rstrip("/")) or path
    if not any(c in path for c in "*?["):
        return name
    for candidate in _DANGEROUS:
        if fnmatch.fnmatchcase(candidate, name):
            return candidate
    return path
