"""Deletes: recursive, forced, computed or by the thousand."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.rules.shapes import Shape, Shapes
from hermes.execution.policy.scope import COMPUTED, UNKNOWN, is_unknown

__all__ = ["check"]

_SHAPES = Shapes(
    "delete",
    (
        Shape("find gfind", r"(?:^|\s)-delete\b", "find deletes what it finds", "find -delete"),
        Shape("find gfind", r"-fprintf?\s+/(?:etc|usr|bin|root)", "find writes a system file"),
        Shape("shred wipe srm scrub", "", "it destroys data for good", "shred"),
        Shape(
            "rsync",
            r"--del(?:ete)?\b|--remove-source-files",
            "rsync deletes files",
            "rsync --delete",
        ),
        Shape("gio trash trash-put", r"^(?:trash|remove)|.", "it moves files to the trash"),
        Shape("del erase rd", r"(?i)/[sqf]\b", "it deletes recursively or without asking"),
        Shape("Remove-Item ri", r"(?i)-(?:r|fo)", "it deletes recursively or without asking"),
        Shape("mv", r"\s/dev/null$", "it throws files away", "mv /dev/null"),
        Shape("rclone", r"^(?:delete|purge|sync|cleanup|rmdirs?)\b", "rclone deletes files"),
        Shape(
            "aws",
            r"\bs3\s+(?:rm|rb)\b|\bdelete-\w+|terminate-instances",
            "it deletes cloud resources",
            "aws delete",
        ),
        Shape("gcloud az gsutil doctl", r"\bdelete\b|\brm\b", "it deletes cloud resources"),
        Shape(
            "kubectl oc helm",
            r"(?:^|\s)(?:delete|drain|uninstall|cordon)\b",
            "it deletes or drains cluster resources",
        ),
        Shape(
            "terraform tofu pulumi",
            r"(?:^|\s)(?:destroy|apply\s.*-auto-approve|-destroy)",
            "it destroys infrastructure",
        ),
        Shape("vagrant", r"^destroy", "it destroys a machine"),
        Shape(
            "redis-cli",
            r"(?i)\bflush(?:all|db)\b|\bshutdown\b",
            "it empties Redis",
            "redis-cli flush",
        ),
        Shape(
            "mongo mongosh",
            r"(?i)dropDatabase|\.drop\(|deleteMany|remove\(",
            "it drops data",
            "mongo drop",
        ),
        Shape(
            "dropdb dropuser mysqladmin",
            r"^(?!.*\b(?:status|ping|version)\b).",
            "it drops a database or user",
        ),
    ),
)
_SOURCES = ("xargs", "find", "parallel")


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers of deleting."""
    yield from _SHAPES.check(call)
    if call.name == "rm":
        yield from _rm(call)
    elif call.name in {"unlink", "rmdir"} and set(_SOURCES) & set(call.via):
        yield Danger("delete", "it deletes whatever a list names", f"xargs {call.name}")


def _rm(call: Call) -> Iterator[Danger]:
    letters = call.letters()
    if letters & {"r", "R"} or call.has_long("recursive"):
        yield Danger("delete", "it deletes recursively", "rm -r")
    elif "f" in letters or call.has_long("force"):
        yield Danger("delete", "it deletes without asking", "rm -f")
    source = next((v for v in call.via if v in _SOURCES), "")
    if source:
        yield Danger("delete", "it deletes whatever a list names", f"{source} rm")
        return
    if (
        any(COMPUTED in a or UNKNOWN in a for a in call.args)
        or sum(is_unknown(a) for a in call.args) > 1
    ):
        yield Danger("delete", "what it deletes is computed")
    if any(re.fullmatch(r"(?:\./|\.\./)*(?:\*|\.\*|\*\*)/?", a) for a in call.operands()):
        yield Danger("delete", "it deletes everything in a directory", "rm *")
