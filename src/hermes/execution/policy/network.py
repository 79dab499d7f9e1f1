"""Secrets on their way to the network, and shells on their way in."""

import re
from collections.abc import Iterator

from hermes.execution.policy.command import (
    Finding,
    Ground,
    ShellCommand,
    absolute,
    listed,
    may_match,
    only_local,
    pattern,
    words,
)
from hermes.execution.policy.expansion import is_unknown
from hermes.execution.policy.places import is_away, kinds, place_of
from hermes.execution.policy.syntax import COMPUTED

_NETWORK = listed("network")
_SECRET_FILES = pattern("secret-files")
_STORES = pattern("secret-stores")
_HOME_PUBLIC = pattern("home-public")
_STORE_KINDS = kinds("SSH CREDENTIALS SECRETS LEDGER HERMES")
_KEPT = (".env", "state.db", "ledger.db")
_STORED = listed("stored")
_PUBLIC = pattern("public-files")
_COPIERS = words("scp rsync sftp rclone gsutil aws")
_CLOUDS = words("rclone gsutil aws")
_LOOKS = words("ls lsd lsl lsf lsjson du stat size cat presign mb about")
_KEEPERS = words("printenv history security pass op secret-tool")
_LISTERS = words("env set declare export typeset readonly compgen")
_TELLS_LITTLE = words(
    "date printf echo seq uuidgen nproc tr cut basename dirname mktemp pwd true expr"
)
_SENT = listed("sent")
_SAID = _SENT | words("-A --user-agent -e --referer")
_TELLS_VARIABLES = re.compile(r"\benv\b|\$ENV|ENVIRON|environ")
_TRACES = re.compile(r"(?:^|\s)-[a-z]*[vx]|verbose|xtrace")
_TUBES = words("ssh sftp openssl websocat kcat nc telnet http https xh")
_BLIND = listed("blind")
_CONTAINERS = words("docker podman nerdctl docker-compose")
_SCRIPTED = words("sed gsed sqlite3 psql mysql duckdb")
_PIECES = re.compile(r"[\s'\"()<@:=,]+")
_SHOWS = words(
    "archive show diff grep hash-object cat-file blame log stash add interpret-trailers"
    " merge-file tag"
)
_SEARCHERS = words("rg ag ack ugrep")
_DEEP = words("grep egrep fgrep zgrep diff colordiff zip cp rsync scp")
_FINDERS = words("find fd fdfind locate")
_PACKERS = words("tar bsdtar zip 7z rar cpio pax")
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/")
_URL_USERS = words("curl wget git pip pip3 npm ssh scp docker")
_URL = re.compile(r"[a-z+]+://(?:[^/@\s]*@)?([^/:?#\s]+)")
_KEY = re.compile(r"^(?:-*[\w-]+=|-[A-Za-z](?=[/~]))?[@<]?")
"""What stands in front of a path: an option, a field, the mark of a file."""

READS_SECRET = Finding("it reads a file with secrets", "read secrets")


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    if _names_secrets(command, ground) or _finds_secrets(command, ground):
        yield READS_SECRET
    connected = any(map(_SOCKET.match, (*command.writes, *command.reads)))
    if connected:
        yield Finding("it opens a raw connection", "/dev/tcp")
    if command.name in _URL_USERS:
        hosts = [m.group(1) for m in map(_URL.match, command.args) if m]
        if any(not host.isascii() or "xn--" in host for host in hosts):
            yield Finding("the address imitates another one with foreign letters")
    if command.name in _NETWORK or connected:
        yield from _sends(command, ground)
    elif _computed_address(command) and not (
        command.inner and all(map(_tells_little, command.inner))
    ):
        yield Finding("it sends what a command prints to another machine", "send")


def _computed_address(command: ShellCommand) -> bool:
    rests = [a.partition("://")[2] for a in command.args if COMPUTED in a]
    if command.name in {"docker", "podman", "go"}:
        rests += [a for a in command.operands() if "." in a.partition("/")[0] and COMPUTED in a]
    return any(COMPUTED in r and not r.startswith(("localhost", "127.")) for r in rests)


def check_sourced(commands: list[ShellCommand], ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a script that loads secrets of the project, then shows or sends them."""
    sourced = traced = False
    for command in commands:
        names = command.args if command.name in {"source", "."} else ()
        sourced = sourced or any(_is_kept(c, ground) for a in names for c in command.where(a))
        if names:
            yield from (READS_SECRET,) if sourced and traced else ()
            continue
        traces = command.name in {"set", "shopt", "bash", "sh"}
        traced = traced or (traces and bool(_TRACES.search(command.line)))
        text = f"{command.line} {command.feed.text or ''}"
        lists = _shows_variables(command) or _TELLS_VARIABLES.search(text)
        if sourced and (traced or lists or is_unknown(text)):
            yield READS_SECRET


def _sends(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for what goes to another machine: variables, what is printed, files."""
    local = command.name in {"scp", "rsync", "sftp"} or only_local(command.args)
    sends = command.name in _TUBES or any(v[-1:] == "-" for v in command.values_of(*_SENT))
    piped = command.piped and command.feed.text is None and sends
    told = [c for c in command.inner if (c.name != ":" or c.reads) and not _tells_little(c)]
    pairs = zip(("", *command.args), command.args, strict=False)
    listed_here = "xargs" in command.via  # what a list names is fetched
    held = not command.inner and any(
        COMPUTED in a and not (listed_here and a == COMPUTED and b not in _SAID) for b, a in pairs
    )
    if any(map(_shows_variables, (*command.feed.upstream, *command.inner))):
        yield Finding("it sends secrets over the network")
    elif not local and (piped or held or (told and COMPUTED in command.line) or _may_send(command)):
        yield Finding("it sends what a command prints to another machine", "send")
    for path in {*_sent(command), *command.reads} - {"/dev/null", "-"}:
        private = _SECRET_FILES.search(path) or is_store(path, command, ground)
        if private or any(is_away(c, ground) for c in command.where(path)):
            yield Finding("it sends a file that is not the project's", "send outside")
        elif not local:
            yield Finding("it sends a file of the project away", "send")


def _may_send(command: ShellCommand) -> bool:
    """Return whether a word that is computed may be an option."""
    return bool(command.inner) and any(a[:1] == COMPUTED for a in command.args)


def _tells_little(command: ShellCommand) -> bool:
    if command.name == "jq":
        return command.piped and "@uri" in command.args
    files = command.reads or (command.name == "cut" and not command.piped)
    return command.name in _TELLS_LITTLE and not files and not is_unknown(command.line)


def _shows_variables(command: ShellCommand) -> bool:
    listing = all("=" in o for o in command.operands()) or "p" in command.letters()
    return command.name in _KEEPERS or (command.name in _LISTERS and listing)


def _sent(command: ShellCommand) -> list[str]:
    """Return the files that a command sends away, as far as its words name them."""
    if command.name in _CLOUDS and _LOOKS & {*command.operands()[:2]}:
        return []
    if command.name in _COPIERS:
        keys = set(command.values_of("-i", "-F", "-e"))
        *sources, target = command.operands() or [""]
        return [s for s in sources if s not in keys and ":" not in s] if ":" in target else []
    named = [v for v in command.values_of(*_SENT) if re.search(r"[@<]|^[/~.]", v)]
    if command.name in {"http", "https", "xh"}:
        named += [a for a in command.args if re.search(r"(?:\w:?=?|^)@\S", a)]
    if command.name in {"curl", "wget"}:
        named += command.values_of("-T", "--upload-file", "--post-file", "--body-file")
    addresses = [a[7:] for a in command.args if a.startswith("file:///")]
    return [re.sub(r"^[^@<]*[@<]", "", v) for v in named] + addresses


def _names_secrets(command: ShellCommand, ground: Ground) -> bool:
    if command.name in {"source", "."} and any(
        _is_kept(c, ground) and is_away(c, ground) for a in command.args for c in command.where(a)
    ):
        return True
    reads = (*command.args, *command.reads) if command.name not in _BLIND else command.reads
    if command.name in _CONTAINERS:
        mounted = command.values_of("--env-file", "--secret", "-v", "--volume", "--mount")
        pieces = [p for v in mounted for p in _PIECES.split(v)]
        reads = tuple(p for p in pieces if all(is_away(c, ground) for c in command.where(p)))
    if command.name == "find" and {"-exec", "-execdir"} & set(command.args):
        reads = command.args
    shows = command.name == "git" and bool(_SHOWS & {*command.operands()[:1]})
    if command.name in _SCRIPTED or shows or (command.name in _NETWORK and reads):
        reads = (*reads, *(word for arg in command.args for word in _PIECES.split(arg)))
    made = {*command.values_of("-keyout", "-out")} if command.name == "openssl" else set()
    return any(
        is_store(a, command, ground) for a in reads if a not in made and (a[:1] != "-" or "=" in a)
    )


def _finds_secrets(command: ShellCommand, ground: Ground) -> bool:
    """Return whether a command shows what a search for secrets finds, or all of a home."""
    if command.name in _BLIND:
        return False
    listers = command.feed.upstream[-1:] if "xargs" in command.via else ()
    listers += tuple(c for c in command.inner if c.name in _FINDERS)
    searched = [a for c in listers for a in c.args if a[:1] != "-"]
    deep = command.name in _SEARCHERS or (
        command.name in _DEEP
        and (
            command.letters() & {"r", "R", "a", "u", "d"}
            or any(map(command.has_long, ("recursive", "archive", "directories")))
        )
    )
    named = command.operands() if deep or command.name in _PACKERS else []
    inner = [f"{c}/{o}" for c in command.values_of("-C", "--directory") for o in named]
    if any(is_store(path, command, ground) for path in inner):
        return True
    if "find" in command.via:
        named = [*command.found_below]
    whole = [c.rstrip("/") for o in (*named, *searched) for c in command.where(o)]
    stored = [f"{h}/{s}" for h in ground.user_homes for s in _STORED] + [*ground.hermes_homes]
    private = [a for a in searched if _SECRET_FILES.search(a) or is_store(a, command, ground)]
    return bool(private) or any(
        f"{store}/".startswith(f"{place}/") for place in whole for store in stored
    )


def is_store(text: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether a word names a place where secrets are kept, or a glob that finds one."""
    path = _KEY.sub("", text)
    if not path or "://" in path or (" " in path and path[0] not in "/~."):
        return False
    for clean in command.where(path):
        if _PUBLIC.search(clean):
            continue
        if _is_kept(clean, ground):
            return True
        if any(
            clean.startswith(f"{h}/") and not _HOME_PUBLIC.match(clean[len(h) + 1 :])
            for h in ground.user_homes
        ):
            return True
        if any(c in clean for c in "*?["):
            homes = [f"{h}/{s}" for h in ground.user_homes for s in _STORED]
            homes += [f"{h}/{s}" for h in ground.hermes_homes for s in _KEPT]
            homes += [absolute(s, cwd) for cwd in command.cwds for s in (".env", ".netrc")]
            if any(_globbed(clean, store) for store in homes):
                return True
    return False


def _is_kept(clean: str, ground: Ground) -> bool:
    place = place_of(clean, ground)
    return bool(_STORES.search(clean)) or (place is not None and place.kind in _STORE_KINDS)


def _globbed(pattern: str, path: str) -> bool:
    """Return whether the shell would find `path` by `pattern`."""
    pairs = list(zip(pattern.split("/"), path.split("/"), strict=False))
    same_depth = pattern.count("/") == path.count("/")
    return same_depth and all(
        may_match(part, glob) and (part[:1] != "." or glob[:1] == ".") for glob, part in pairs
    )
