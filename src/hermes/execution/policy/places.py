"""Paths, whatever is done with them: whose each is, what it holds, what its loss means."""

import os
import re
from enum import StrEnum

from msgspec import Struct

from hermes.execution.policy.command import (
    Ground,
    ShellCommand,
    absolute,
    listed,
    may_match,
    pattern,
    patterns,
    real_path,
)
from hermes.execution.policy.expansion import is_unknown


class Zone(StrEnum):
    """Whose a path is."""

    PROJECT = "project"
    TEMPORARY = "temporary"
    TOOLS = "tools"
    """Of the system or of the home: where programs and their settings belong."""
    ELSEWHERE = "elsewhere"
    """Where anybody may have put something."""
    UNKNOWN = "unknown"
    """Relative to a directory that nobody knows."""


class PlaceKind(StrEnum):
    DEVICE = "a raw device"
    LEDGER = "the ledger of Hermes"
    HERMES = "the home of Hermes"
    SYSTEM = "a system path"
    SSH = "SSH keys and settings"
    CREDENTIALS = "credentials"
    SHELL = "a shell start-up file"
    SECRETS = "an environment file with secrets"
    PROJECT = "project or CI configuration"
    SCHEDULE = "a schedule or service definition"
    OUTSIDE = "a place outside of the project"


class ProtectedPlace(Struct, frozen=True):
    kind: PlaceKind
    label: str


OUTSIDE = ProtectedPlace(PlaceKind.OUTSIDE, "outside")
TEMPORARY = re.compile(r"/(?:tmp|var/tmp|dev/shm)(?:/|$)")
_VITAL = listed("vital")
_EVERYTHING = re.compile(r"(?:/(?:[.!+]?\*+|\.?\[[^\]/]*\]\*|\.?\?+\*|\*\.\*|\.))+$")
_A_HOME = re.compile(r"/(?:home|Users)/[^/]+(/\.)?")
_DEVICE = pattern("devices")
_ANYBODYS = re.compile(r"/(?:$|(?:home|Users|root|media|mnt|srv|run/user)(?:/|$))")
_HOME_TOOLS = re.compile(r"\.(?!cache/)|(?:bin|go|miniconda3|anaconda3)/")
_WORKSPACE = re.compile(r"(?:agents/[^/]+/|profiles/[^/]+/)?(?:workspace|cache|tmp)/")
_LEDGER = re.compile(r"(?:.*/)?(?:state|ledger)\.db(?:-wal|-shm)?$")
_OBEYED = re.compile(r"/(?:\.(?!hermes/)|s?bin/|Library/)")
"""Where a new file of a home counts without anybody's doing."""
_MAX_PATH = 4096
_SOUGHT = (".git/config", ".git/hooks/pre-commit", ".github/workflows/ci.yml", ".husky/pre-commit")
"""What a glob may find of the project's configuration."""
_SYSTEM_PLACE = ProtectedPlace(PlaceKind.SYSTEM, "system path")
_TABLE = tuple(
    (ProtectedPlace(PlaceKind[kind], label.replace("_", " ")), found)
    for (kind, label), found in (
        (name.split("|"), found) for name, found in patterns("places").items()
    )
)
_STORES = pattern("secret-stores")
_PUBLIC = pattern("public-files")
_HOME_PUBLIC = pattern("home-public")
_STORE_KINDS = frozenset(
    PlaceKind[name] for name in ("SSH", "CREDENTIALS", "SECRETS", "LEDGER", "HERMES", "DEVICE")
)


def join(cwd: str | None, path: str) -> str | None:
    """Return where `path` leads from `cwd`, or None if that is not known."""
    if is_unknown(path) or re.match(r"-$|[-+]\d", path):
        return None
    return None if cwd is None and not path.startswith("/") else absolute(path, cwd)


def inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def zone_of(clean: str, ground: Ground) -> Zone:
    project = ground.project
    if not clean.startswith("/"):
        above = clean == ".." or clean.startswith("../")
        here = Zone.PROJECT if project is None else Zone.UNKNOWN
        return Zone.ELSEWHERE if above else here
    if project is not None and any(inside(clean, p) for p in (project, real_path(project))):
        return Zone.PROJECT
    for home in ground.user_homes:
        if inside(clean, home):
            tools = _HOME_TOOLS.match(clean[len(home) + 1 :])
            return Zone.TOOLS if tools else Zone.ELSEWHERE
    if TEMPORARY.match(clean):
        return Zone.TEMPORARY
    return Zone.ELSEWHERE if _ANYBODYS.match(clean) else Zone.TOOLS


def is_foreign(path: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether a word names a place where anybody may have put something."""
    names = path.startswith(("/", "~", ".")) or "/../" in path
    places = command.where(path) if names else ()
    return any(zone_of(clean, ground) in {Zone.TEMPORARY, Zone.ELSEWHERE} for clean in places)


def is_away(clean: str, ground: Ground) -> bool:
    """Return whether a path is neither below the project nor temporary."""
    return zone_of(clean, ground) not in {Zone.PROJECT, Zone.TEMPORARY}


def is_there(clean: str, ground: Ground) -> bool:
    """Return whether a path outside of the project is there, or may be: it could be lost."""
    if clean[:1] != "/" or clean.startswith("/dev/") or not is_away(clean, ground):
        return False
    open_end = next((i for i, c in enumerate(clean) if c in "*?[" or is_unknown(c)), None)
    stem = clean if open_end is None else clean[:open_end].rpartition("/")[0] or "/"
    known = (*ground.user_homes, ground.project or "/")
    obeyed = any(inside(clean, h) for h in ground.user_homes) and _OBEYED.search(clean)
    return bool(obeyed) or any(inside(place, stem) for place in known) or os.path.lexists(stem)


def is_device(path: str) -> bool:
    return _DEVICE.match(path) is not None


def is_vital(clean: str, ground: Ground) -> bool:
    """Return whether losing a path loses the system, a home or the home of Hermes."""
    if is_unknown(clean):
        return False
    clean = re.sub(r"^/proc/(?:\d+|self)/root(?=/|$)", "", clean) or "/"
    # Everything inside a directory is the directory: `/*`, `~/.*`, `/etc/{*,.*}`, `/!(x)`.
    stripped = clean[:-200] + _EVERYTHING.sub("", clean[-200:]) or "/"
    homes = {*ground.user_homes, *ground.hermes_homes, "/home/user"}
    for candidate in (clean, stripped):
        a_home = _A_HOME.fullmatch(candidate)
        if candidate in _VITAL or candidate in homes or (a_home and not a_home.group(1)):
            return True
        if candidate.startswith("/") and any(inside(h, candidate) for h in ground.hermes_homes):
            return True
    if not any(c in stripped for c in "*?["):
        return False
    depth = stripped.count("/")
    return any(v.count("/") == depth and may_match(v, stripped) for v in _VITAL | homes)


def is_ledger(clean: str, ground: Ground) -> bool:
    """Return whether a path is the ledger, or a glob beside it that takes it along."""
    named = [f"{h}/{n}.db" for h in ground.hermes_homes for n in ("state", "ledger")]
    beside = any(clean.startswith(f"{home}/") for home in ground.hermes_homes)
    if beside and any(may_match(n, clean) for n in named):
        return True
    place = _hermes(clean, ground)
    return place is not None and place.kind is PlaceKind.LEDGER


def place_of(clean: str, ground: Ground) -> ProtectedPlace | None:
    """Return the protected place that a path belongs to, if it does."""
    clean = clean[:_MAX_PATH]
    if is_device(clean) or clean == "/proc/sysrq-trigger":
        return ProtectedPlace(PlaceKind.DEVICE, "device")
    hermes = _hermes(clean, ground)
    if hermes is not None:
        return None if hermes.label == "workspace" else hermes
    for place, found in _TABLE:
        if found.search(clean) and not _only_looks_like(place.kind, clean, ground):
            return place
    glob = any(c in clean for c in "*?[")
    if glob and any(may_match(f"{ground.project or ''}/{name}", clean) for name in _SOUGHT):
        return ProtectedPlace(PlaceKind.PROJECT, "project config")
    if glob and clean.startswith("/"):
        top = clean.split("/")[1]
        if any(may_match(name, top) for name in ("etc", "usr", "bin", "boot", "root")):
            return _SYSTEM_PLACE
    return _SYSTEM_PLACE if clean == "/" else None


def _only_looks_like(kind: PlaceKind, clean: str, ground: Ground) -> bool:
    at_home = any(clean.startswith(f"{home}/") for home in ground.user_homes)
    if kind is PlaceKind.SHELL:
        # A bare relative path may be in a home directory.
        in_home = clean.startswith((*(f"{h}/." for h in ground.user_homes), "/root/.", "."))
        home = _A_HOME.match(clean)
        return not in_home and not (home and home.group(1))
    return kind is PlaceKind.SYSTEM and at_home


def _hermes(clean: str, ground: Ground) -> ProtectedPlace | None:
    for home in (*ground.hermes_homes, ".hermes", "~/.hermes"):
        if inside(clean, home):
            inner = clean[len(home) + 1 :]
            if _LEDGER.match(inner):
                return ProtectedPlace(PlaceKind.LEDGER, "Hermes ledger")
            workspace = _WORKSPACE.match(inner) is not None
            return ProtectedPlace(PlaceKind.HERMES, "workspace" if workspace else "Hermes home")
    if re.search(r"(?:^|/)\.hermes/(?!.*workspace/)", clean):
        return ProtectedPlace(PlaceKind.HERMES, "Hermes home")
    return None


def keeps_secrets(clean: str, ground: Ground) -> bool:
    """Return whether a place is known to hold secrets."""
    place = place_of(clean, ground)
    return bool(_STORES.search(clean)) or (place is not None and place.kind in _STORE_KINDS)


def is_secret(clean: str, ground: Ground) -> bool:
    """Return whether nobody may show a path unasked: what holds secrets, or is private."""
    if _PUBLIC.search(clean):
        return False
    for home in ground.user_homes:
        parts, depth = clean.split("/"), home.count("/") + 1
        above, inner = "/".join(parts[:depth]), "/".join(parts[depth:])
        if inner and (above == home or may_match(home, above)) and not _HOME_PUBLIC.match(inner):
            return True
    return keeps_secrets(clean, ground)
