"""Which paths matter: what a place is, and how much harm writing there does."""

import fnmatch
import posixpath
import re
from enum import StrEnum

from msgspec import Struct

from hermes.execution.policy.calls import Ground
from hermes.execution.policy.scope import COMPUTED, UNKNOWN, UNKNOWN_QUOTED
from hermes.execution.policy.vocabulary import words

__all__ = ["Place", "PlaceKind", "absolute", "is_device", "is_vital", "join", "place_of"]


class PlaceKind(StrEnum):
    """What a protected path belongs to."""

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
    CUSTOM = "a protected path"


class Place(Struct, frozen=True):
    """A protected path and its short name for patterns."""

    kind: PlaceKind
    label: str


_UNKNOWN = re.compile(f"[{UNKNOWN}{UNKNOWN_QUOTED}{COMPUTED}]")
_VITAL = words(
    "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /libx32 /mnt /media /opt /proc /root /run "
    "/sbin "
    "/srv /sys /usr /var /nix /snap /usr/bin /usr/sbin /usr/lib /usr/lib64 /usr/share /usr/local "
    "/usr/local/bin /usr/local/lib /usr/include /usr/libexec /var/lib /var/lib/dpkg "
    "/var/lib/docker "
    "/etc/ssh /etc/pam.d /etc/systemd /lib/modules /boot/efi /lib/systemd "
    "/Users /System /Library /Applications /private /private/etc /private/var /Volumes /cores "
    "/c /c/Windows /mnt/c /mnt/c/Windows C: C:/ C:/Windows C:/Users"
)
_DEVICE = re.compile(
    r"/dev/(?:sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|nvme\d|mmcblk\d|r?disk\d|md\d|dm-\d|mapper/|loop\d|"
    r"zd\d|ram\d|nbd\d|sr\d|sg\d|disk/|block/|root\b|mem$|kmem$|port$|mtd|ubi|drbd|bcache|"
    r"sd[\[?*{]|nvme[\[?*{]|sd$|\[|\?|\*)"
)
_SYSTEM = re.compile(
    r"/(?:etc|usr|bin|sbin|lib|lib32|lib64|boot|sys|proc|root|var/lib|var/run|run/systemd|"
    r"var/spool|opt/hermes|System|Library|private/etc|nix/store)(?:/|$)"
)
_HARMLESS_SYSTEM = re.compile(r"/(?:proc/self/fd/\d|usr/local/src/|usr/src/)")
_SCHEDULE = re.compile(
    r"(?:^|/)(?:etc/cron[^/]*|var/spool/(?:cron|at)|etc/systemd|systemd/(?:user|system)|"
    r"Library/Launch(?:Agents|Daemons)|\.config/autostart|etc/init\.d|etc/rc\.local)(?:/|$)"
    r"|^(?!.*/(?:src|tests?)/).*/systemd/.*\.(?:service|timer)$"
)
_SSH = re.compile(r"(?:^|/)\.ssh(?:/|$)|(?:^|/)(?:id_(?:rsa|dsa|ecdsa|ed25519)|authorized_keys)$")
_CREDENTIALS = re.compile(
    r"(?:^|/)(?:\.aws|\.gnupg|\.kube|\.azure|\.config/gcloud|\.config/gh|\.docker|"
    r"\.password-store|\.config/hub|\.terraform\.d|\.vault-token|\.netrc|_netrc|\.pgpass|\.my\.cnf|"
    r"\.npmrc|\.pypirc|\.git-credentials|\.boto|\.s3cfg|\.cargo/credentials(?:\.toml)?|"
    r"\.gem/credentials|\.config/op|\.local/share/keyrings|Library/Keychains|\.htpasswd)(?:/|$)"
)
_SHELL = re.compile(
    r"(?:^|/)\.(?:bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|"
    r"zprofile|zlogin|zlogout|kshrc|cshrc|tcshrc|login|logout|inputrc|xinitrc|xprofile|xsession|"
    r"vimrc|gitconfig|tmux\.conf|config/fish/.*|config/git/config|config/nvim/init\.\w+)$"
)
_SECRETS = re.compile(r"(?:^|/)\.env(?:\.[^/]+|rc)?$|(?:^|/)secrets?\.(?:ya?ml|json|toml)$")
_SAMPLE = re.compile(r"\.(?:example|sample|template|dist|test|tpl)$")
_PROJECT = re.compile(
    r"(?:^|/)(?:\.github/workflows/|\.gitlab-ci\.yml$|\.circleci/|\.travis\.yml$|Jenkinsfile$|"
    r"azure-pipelines\.yml$|bitbucket-pipelines\.yml$|\.drone\.yml$|\.buildkite/|\.woodpecker|"
    r"\.git/(?:hooks|config|info)|\.husky/|config\.ya?ml$|\.pre-commit-config\.yaml$|"
    r"sitecustomize\.py$|usercustomize\.py$|[^/]+\.pth$|\.vscode/(?:tasks|settings|launch)\.json$)"
)


def join(cwd: str | None, path: str) -> str | None:
    """Return where `path` leads from `cwd`, or None if that is not known."""
    if path == "-" or (_UNKNOWN.search(path) and not path.startswith("/")):
        return None
    if path.startswith("/"):
        return absolute(path, None)
    return None if cwd is None else absolute(path, cwd)


def absolute(path: str, cwd: str | None) -> str:
    """Return `path` with `.` and `..` resolved; relative only if `cwd` is not known."""
    path = path.replace("\\", "/") if re.match(r"[A-Za-z]:\\", path) else path
    if not path.startswith("/") and cwd is not None:
        path = cwd.rstrip("/") + "/" + path
    clean = posixpath.normpath(path) if path else "."
    return "/" + clean.lstrip("/") if clean.startswith("/") else clean


def is_device(path: str) -> bool:
    """Return whether `path` is a disk or the machine's memory."""
    return _DEVICE.match(path) is not None


def is_vital(path: str, cwd: str | None, ground: Ground) -> bool:
    """Return whether losing `path` loses the system, a home or the home of Hermes."""
    clean = absolute(path, cwd)
    if _UNKNOWN.search(clean):
        return False
    # Everything inside a directory is the directory: `/*`, `~/.*`, `/etc/{*,.*}`.
    stripped = re.sub(r"(?:/(?:\.?\*+|\.\[!\.\]\*|\.\?\?\*|\*\.\*|\.))+$", "", clean) or "/"
    for candidate in {clean, stripped}:
        if candidate in _VITAL or re.match(r"/(?:home|Users)/[^/]+$", candidate):
            return True
        if candidate in {ground.user_home, ground.hermes_home}:
            return True
        if (ground.hermes_home + "/").startswith(candidate.rstrip("/") + "/"):
            return candidate.startswith("/")
    if not any(c in stripped for c in "*?["):
        return False
    homes = {ground.user_home, ground.hermes_home, "/home/user"}
    return any(fnmatch.fnmatchcase(v, stripped) and v.count("/") == stripped.count("/")
               for v in _VITAL | homes)  # fmt: skip


def place_of(path: str, cwd: str | None, ground: Ground) -> Place | None:
    """Return the protected place that `path` belongs to, if it does."""
    clean = absolute(path, cwd)
    if is_device(clean) or clean == "/proc/sysrq-trigger":
        return Place(PlaceKind.DEVICE, "device")
    for protected in ground.protected:
        if clean == protected or clean.startswith(protected.rstrip("/") + "/"):
            return Place(PlaceKind.CUSTOM, protected)
    hermes = _hermes(clean, ground)
    if hermes is not None:
        return hermes
    for kind, label, pattern in _TABLE:
        if pattern.search(clean):
            return None if _exempt(kind, clean, ground) else Place(kind, label)
    if any(c in clean for c in "*?[") and clean.startswith("/"):
        top = clean.split("/")[1]
        if any(fnmatch.fnmatchcase(name, top) for name in ("etc", "usr", "bin", "boot", "root")):
            return _SYSTEM_PLACE
    return _SYSTEM_PLACE if clean == "/" else None


def _exempt(kind: PlaceKind, clean: str, ground: Ground) -> bool:
    """Return whether a path only looks like the kind of place it was taken for."""
    if kind is PlaceKind.SECRETS:
        return _SAMPLE.search(clean) is not None
    if kind is PlaceKind.SHELL:
        return not _in_a_home(clean, ground)
    if kind is PlaceKind.SYSTEM:
        at_home = clean.startswith(ground.user_home + "/")
        return at_home or _HARMLESS_SYSTEM.match(clean) is not None
    return False


_SYSTEM_PLACE = Place(PlaceKind.SYSTEM, "system path")
_TABLE: tuple[tuple[PlaceKind, str, re.Pattern[str]], ...] = (
    (PlaceKind.SSH, "~/.ssh", _SSH),
    (PlaceKind.CREDENTIALS, "credentials", _CREDENTIALS),
    (PlaceKind.SHELL, "shell rc", _SHELL),
    (PlaceKind.SCHEDULE, "schedule", _SCHEDULE),
    (PlaceKind.SECRETS, ".env", _SECRETS),
    (PlaceKind.PROJECT, "project config", _PROJECT),
    (PlaceKind.SYSTEM, "system path", re.compile("^" + _SYSTEM.pattern)),
)


def _in_a_home(clean: str, ground: Ground) -> bool:
    """Return whether a path is in a home directory; a bare relative one may be."""
    if clean.startswith((ground.user_home + "/.", "/root/.", ".")):
        return True
    return re.match(r"/(?:home|Users)/[^/]+/\.", clean) is not None


def _inside_workspace(clean: str, ground: Ground) -> bool:
    """Return whether a path is inside the part of a Hermes home where agents work."""
    home = ground.hermes_home
    if not clean.startswith(home + "/"):
        return False
    inner = clean[len(home) + 1 :]
    return (
        re.match(r"(?:agents/[^/]+/|profiles/[^/]+/)?(?:workspace|cache|tmp)/", inner) is not None
    )


def _hermes(clean: str, ground: Ground) -> Place | None:
    homes = (ground.hermes_home, ".hermes", "~/.hermes")
    for home in homes:
        if clean == home or clean.startswith(home + "/"):
            inner = clean[len(home) + 1 :]
            if re.match(r"(?:.*/)?state\.db(?:-wal|-shm)?$", inner):
                return Place(PlaceKind.LEDGER, "Hermes ledger")
            if _inside_workspace(f"{ground.hermes_home}/{inner}", ground):
                return None
            return Place(PlaceKind.HERMES, "Hermes home")
    if re.search(r"(?:^|/)\.hermes/(?!.*workspace/)", clean):
        return Place(PlaceKind.HERMES, "Hermes home")
    return None
