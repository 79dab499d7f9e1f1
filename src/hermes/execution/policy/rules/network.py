"""Secrets on their way to the network, and shells on their way in."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from hermes.execution.policy.command import Finding, Ground, ShellCommand, absolute, listed, pattern
from hermes.execution.policy.rules.places import PlaceKind, is_away, place_of

NETWORK = listed("network")
_SECRET_KINDS = frozenset(
    (PlaceKind.SSH, PlaceKind.CREDENTIALS, PlaceKind.SECRETS, PlaceKind.HERMES, PlaceKind.LEDGER)
)
_SECRET_FILES = pattern("secret-files")
_STORES = pattern("secret-stores")
_STORE_KINDS = frozenset(
    (PlaceKind.SSH, PlaceKind.CREDENTIALS, PlaceKind.SECRETS, PlaceKind.LEDGER)
)
_STORED = (".ssh/id_rsa", ".ssh/id_ed25519", ".netrc", ".aws/credentials", ".env", ".npmrc")
_PUBLIC = re.compile(r"\.pub$|known_hosts$|/\.ssh/config$|cert\w*\.pem$|ca-certificates|cacert")
_COPIERS = frozenset({"scp", "rsync", "sftp", "rclone", "gsutil", "aws"})
_SENT = listed("sent")
_BLIND = listed("blind")
_SCRIPTED = frozenset({"sed", "gsed", "sqlite3", "psql", "mysql", "duckdb"})
_QUOTES = re.compile(r"[\s'\"()]+")
_DEEP = frozenset({"grep", "egrep", "rg", "ag", "ack", "zip", "cp", "rsync"})
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/")
_PIPES = frozenset({"nc", "ncat", "netcat", "socat", "telnet"})
_SHELLS = frozenset({"sh", "bash", "zsh"})
_URL_USERS = frozenset({"curl", "wget", "git", "pip", "pip3", "npm", "ssh", "scp", "docker"})
_URL = re.compile(r"[a-z+]+://(?:[^/@\s]*@)?([^/:?#\s]+)")


READS_SECRET = Finding("it reads a file with secrets", "read secrets")


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    if _names_secrets(command, ground) or _finds_secrets(command, ground):
        yield READS_SECRET
    upstream = {c.name for c in command.feed.upstream}
    if any(_SOCKET.match(w) for w in (*command.writes, *command.reads)):
        yield Finding("it opens a raw connection", "/dev/tcp")
    if (command.name in _SHELLS and upstream & _PIPES) or (
        command.name in _PIPES and upstream & _SHELLS
    ):
        yield Finding("it connects a shell to the network", "nc | sh")
    if command.name in _URL_USERS:
        hosts = [m.group(1) for m in map(_URL.match, command.args) if m]
        if any(not host.isascii() or "xn--" in host for host in hosts):
            yield Finding("the address imitates another one with foreign letters")
    if command.name in NETWORK or any(_SOCKET.match(w) for w in command.writes):
        sources = (*command.feed.upstream, *command.inner)
        if any(reads_secret(c, ground) for c in sources) or _sends_secret(command, ground):
            yield Finding("it sends secrets over the network")
    if command.name in _COPIERS and _sends_others(command, ground):
        yield Finding("it sends files from outside of the project", "send outside")


def _names_secrets(command: ShellCommand, ground: Ground) -> bool:
    reads = (*command.args, *command.reads) if command.name not in _BLIND else command.reads
    if command.name == "find" and {"-exec", "-execdir"} & set(command.args):
        reads = command.args
    if command.name in _SCRIPTED:
        reads = (*reads, *(word for arg in command.args for word in _QUOTES.split(arg)))
    return any(is_store(a, command, ground) for a in reads if a[:1] != "-" or "=" in a)


def _sends_others(command: ShellCommand, ground: Ground) -> bool:
    """Return whether files that are not the project's go to another machine."""
    *sources, target = command.operands() or [""]
    keys = set(command.values_of("-i", "-F"))
    local = [source for source in sources if ":" not in source and source not in keys]
    return ":" in target and any(is_away(c, ground) for o in local for c in command.where(o))


def _finds_secrets(command: ShellCommand, ground: Ground) -> bool:
    """Return whether a command shows what a search for secrets finds, or all of a home."""
    if command.name in _BLIND:
        return False
    via, upstream = set(command.via), command.feed.upstream[-1:]
    searched = [a for c in upstream for a in c.args] if "xargs" in via else []
    if any(is_store(a, command, ground) for a in searched if a[:1] != "-"):
        return True
    deep = command.letters() & {"r", "R", "a", "u"} and command.name in _DEEP
    whole = [c for o in command.operands() for c in command.where(o)] if deep else []
    return any(
        home == c or home.startswith(c.rstrip("/") + "/")
        for c in whole
        for home in ground.user_homes
    )


def reads_secret(command: ShellCommand, ground: Ground) -> bool:
    """Return whether `command` prints secrets."""
    name = command.name
    if name in {"env", "set", "declare"} and not command.operands():
        return True
    if name in {"printenv", "history", "security", "pass", "op", "secret-tool"}:
        return True
    if name in {"export", "declare"} and "-p" in command.args:
        return True
    return any(is_secret(a, command, ground) for a in (*command.args, *command.reads))


def is_secret(text: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether a word names a file with secrets."""
    path = re.sub(r"^(?:[\w-]+=)?@?", "", text)
    if not path or _PUBLIC.search(path) or "://" in path:
        return False
    if _SECRET_FILES.search(path) or path.rstrip("/") == ground.user_home:
        return True
    places = [place_of(clean, ground) for clean in command.where(path)]
    return any(place is not None and place.kind in _SECRET_KINDS for place in places)


def is_store(text: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether a word names a place where secrets are kept, or a glob that finds one."""
    path = re.sub(r"^(?:-*[\w-]+=)?@?", "", text)
    if not path or _PUBLIC.search(path) or "://" in path or " " in path:
        return False
    for clean in command.where(path):
        place = place_of(clean, ground)
        if _STORES.search(clean) or (place is not None and place.kind in _STORE_KINDS):
            return True
        if any(c in clean for c in "*?["):
            homes = (f"{h}/{s}" for h in ground.user_homes for s in _STORED)
            here = (absolute(s, cwd) for cwd in command.cwds for s in (".env", ".netrc"))
            ledger = (f"{h}/{s}" for h in ground.hermes_homes for s in (".env", "state.db"))
            if any(_globbed(clean, store) for store in (*homes, *here, *ledger)):
                return True
    return False


def _globbed(pattern: str, path: str) -> bool:
    """Return whether the shell would find `path` by `pattern`."""
    pairs = list(zip(pattern.split("/"), path.split("/"), strict=False))
    same_depth = pattern.count("/") == path.count("/")
    return same_depth and all(
        fnmatchcase(part, glob) and (part[:1] != "." or glob[:1] == ".") for glob, part in pairs
    )


def _sends_secret(command: ShellCommand, ground: Ground) -> bool:
    files = list(command.reads)
    if command.name in _COPIERS:
        keys = set(command.values_of("-i", "-F", "-e"))
        files += [a for a in command.operands()[:-1] if a not in keys]
    else:
        sent = command.values_of(*_SENT)
        named = [s for s in sent if "@" in s or s.startswith(("/", "~", "."))]
        files += [s[max(s.find("@"), 0) :] for s in named]
        files += [a[7:] for a in command.args if a.startswith("file:///")]
    return any(is_secret(f, command, ground) for f in files)
