"""Reach of a command: what it does (`roles`), and whose that is (`places`).

| it … | of the project, or temporary | elsewhere, and there | protected or private |
|---|---|---|---|
| writes | allowed | asks | asks |
| may change | allowed | asks | asks about some |
| shows | allowed | allowed | asks |
| runs, loads, obeys | of the project and of tools only | asks | asks |
| sends | asks, but for this machine | asks | asks |
"""

import os
import re
from collections.abc import Iterator

from hermes.execution.policy import places, roles
from hermes.execution.policy.code import language_of
from hermes.execution.policy.command import (
    TABLES,
    Finding,
    Ground,
    ShellCommand,
    listed,
    may_match,
    only_local,
    opaque,
    pattern,
    readings,
    words,
)
from hermes.execution.policy.expansion import NUMBER, UNKNOWN, is_unknown
from hermes.execution.policy.named import PRINTED
from hermes.execution.policy.nested import mounted
from hermes.execution.policy.places import PlaceKind, Zone
from hermes.execution.policy.syntax import COMPUTED
from hermes.execution.policy.table import COMMANDS

READS_SECRET = Finding("it reads a file with secrets", "read secrets")
_NEVER_MENTIONED = frozenset(
    PlaceKind[name] for name in ("SHELL", "SSH", "SCHEDULE", "DEVICE", "LEDGER", "OUTSIDE")
)
_MAKERS = frozenset({"touch", "mkdir"})
_DELETERS = frozenset({"rm", "unlink", "rmdir"})
_COPIERS = frozenset({"cp", "gcp", "mv", "install", "ln"})
_OVERWRITERS = _COPIERS | {"tee"}
_LOCKERS = frozenset({"chmod", "chown", "chgrp"})
_LOGS = pattern("logs")
_USUAL_OUTPUTS = pattern("usual-outputs")
_CLEANS = re.compile(
    r"(?i)(?:dist|mr|real)?clean(?:[:_-]\w+)?$|--?(?!no)[\w-]*(?:clean|empty|expunge|clobber|delete-\w)"
)
_OUTPUT = re.compile(
    r"(?i)^-[bdo]$|^o$|out(?!er|line)|dest|dist|dir(?:ectory)?$|^-*build$|base$|path$|root$"
)
_WRITTEN_OPTION = re.compile(
    r"-o$|--?(?!exclude|without)[\w-]*out(?:put)?(?:[_-]?(?:file|dir|path))?$|--?dest\w*$"
)
_PLACE = re.compile(r"(?!\d+$|true$|false$)[\w./~+-]+")


def check(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    yield from losses(command, ground)
    yield from _loads(command, ground)
    yield from _shows(command, ground)
    yield from _sends(command, ground)


def _empties(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a place that is given as output to what empties it."""
    if command.name == "git" or not any(map(_CLEANS.match, command.args)):
        return
    for option, value in (*roles.settings(command.args), *command.assigns):
        if _OUTPUT.search(option) and _PLACE.fullmatch(value):
            there = any(places.is_there(clean, ground) for clean in command.where(value))
            if there or not _USUAL_OUTPUTS.search(value):
                yield Finding(f"it would empty {value}", f"{command.name} clean")


def _mounts(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a container that gets what is vital, or holds more than the project."""
    own = (*ground.user_homes, *ground.hermes_homes, *((ground.project,) if ground.project else ()))
    for path in mounted(command) if command.name in roles.CONTAINERS else ():
        for clean in command.where(path) if path[:1] in {"/", "~", "."} else ():
            holds = clean[:1] == "/" and any(places.inside(o, clean) for o in own if o != clean)
            if (
                holds
                or clean in own[:-1]
                or places.is_vital(clean, ground)
                or clean.endswith(".sock")
            ):
                yield opaque("the container gets the host's files", "docker run -v /")


def losses(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for what a command changes or loses."""
    findings = list(_writes(command, ground))
    yield from findings or _mentions(command, ground)
    yield from _mounts(command, ground)
    yield from _empties(command, ground)
    name = command.name
    if name in {"rm", "unlink"}:
        yield from _rm(command)
    elif name in {"rmdir", "kill"} and roles.MANY & set(command.via):
        yield Finding("it deletes or ends whatever a list names", f"xargs {name}")
    elif name == "git" and _checks_out_files(command):
        yield Finding("it throws uncommitted work away", "git checkout --")
    elif name == "kill":
        everybody = [a for a in command.args if a != "-1" and re.fullmatch(r"\s*-0*1\s*", a)]
        looked_up = any(c.name not in {"cat", "jobs"} for c in command.inner)
        if looked_up or everybody or NUMBER in command.line:
            yield opaque("whom it signals is computed, or everybody", "kill computed")
    elif name == "truncate" and not any(v[:1] == "+" for v in command.values_of("-s", "--size")):
        files = [c for o in command.operands() if not o.endswith(".log") for c in command.where(o)]
        if any(is_unknown(f) or "*" in f or os.path.lexists(f) for f in files):
            yield Finding("it cuts files short", "truncate")
    else:
        yield from _moves(command, ground)


def _checks_out_files(command: ShellCommand) -> bool:
    """Return whether `git checkout` is given files of the disk, and no branch."""
    found = readings("git", command.args)
    operands = [o for own, _ in found if own[0] == "checkout" for o in own[1:]]
    made = {"-b", "-B", "--orphan"} & {*command.args}
    return not made and any(
        "*" in o or any(map(os.path.lexists, command.where(o))) for o in operands
    )


def _rm(command: ShellCommand) -> Iterator[Finding]:
    recursive = bool(command.letters() & {"r", "R"}) or command.has_long("recursive")
    source = next((v for v in command.via if v in roles.MANY), "")
    computed = [a for a in command.args if is_unknown(a)]
    loose = len(computed) > 1 or any(COMPUTED in a or UNKNOWN in a for a in computed)
    if source:
        yield Finding("it deletes whatever a list names", f"{source} rm", opaque=recursive)
    elif loose or (computed and recursive):
        yield opaque("what it deletes is computed")


def _moves(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for files that leave the project, or get a second name in it."""
    name, letters = command.name, command.letters()
    target = roles.destination(command)
    sources = [o for o in command.operands() if o != target]
    # One file is no more than any tool may overwrite; a folder or several are a loss.
    many = len(sources) > 1 or "*" in "".join(sources) or bool(roles.MANY & set(command.via))
    moved = [c for s in sources if not _leaves(s, command, ground) for c in command.where(s)]
    away = name == "mv" and _leaves(target, command, ground)
    if away and moved and (many or any(map(os.path.isdir, moved))):
        yield Finding("it moves files out of the project", "mv out")
    if roles.MANY & set(command.via) and name in _OVERWRITERS and target:
        folder = target[-1:] == "/" or any(map(os.path.isdir, command.where(target)))
        if COMPUTED in target or (name == "mv" and not folder and target not in {".", ".."}):
            yield Finding("it overwrites files that a list names", f"xargs {name}")
    symbolic = "s" in letters or command.has_long("symbolic-link")
    copied = name == "cp" and ("l" in letters or symbolic or command.has_long("link"))
    for source in sources if copied or name in {"ln", "link"} else ():
        outside = (copied or not symbolic) and _leaves(source, command, ground)
        lost = places.is_vital if symbolic else places.place_of
        if outside or any(lost(clean, ground) for clean in command.where(source)):
            yield Finding("it gives what is not the project's a second name", "ln")


def _leaves(path: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether a path is not in the project, as far as that is known."""
    clean = command.where(path)[-1]
    return clean.startswith("/") and places.zone_of(clean, ground) is not Zone.PROJECT


# --- writes ---


def _writes(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for every protected place that is written."""
    seen: set[str] = set()
    narrow = command.name in {"tee", "cp", "sed", "gsed", "echo", "printf", "cat", "touch", "mkdir"}
    for path in roles.written(command):
        yield from _odd_target(path, command, ground)
        for clean in command.where(path):
            place = places.place_of(clean, ground) or _outside(path, clean, command, ground)
            if place is None or clean in seen:
                continue
            seen.add(clean)
            yield Finding(
                f"it writes to {place.kind}: {clean}",
                f"write {place.label}",
                opaque=command.name in _LOCKERS and places.is_vital(clean, ground),
                grant=f"write {clean}" if " " not in clean and narrow else "",
            )


def _odd_target(path: str, command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for what is written, wherever that is."""
    if re.search(r"(?:^|/)-[^/]+$", path):
        yield opaque("a file would be named like an option")
    if _LOGS.search(path):
        yield Finding("it changes logs or history", "write logs")
    if path in command.writes and any(c in path for c in "*?["):
        yield Finding("it overwrites several files", "write several")
    listed = bool(roles.MANY & set(command.via)) and not path.strip(COMPUTED + UNKNOWN)
    if listed and (path in command.writes or command.name in {"dd", "tee"}):
        yield Finding("it overwrites files that a list names", "write listed")
    if (
        command.name in _OVERWRITERS
        and "/dev/null" in command.args
        and any(c in path for c in "*?[")
    ):
        yield Finding("it empties several files", "write several")
    lost = _is_lost(command, ground) and path[:1] not in {"/", "~"}
    if lost or _nowhere(path, command):
        yield opaque("where it writes is computed", "write computed")
    if path.startswith("/dev/") and not places.is_device(path) and not places.TEMPORARY.match(path):
        yield Finding(f"it writes to {path}", "write device file")


def _is_lost(command: ShellCommand, ground: Ground) -> bool:
    """Return whether nobody can tell in which directory a command runs."""
    return None in command.cwds and ground.cwd is not None and not command.remote


def _nowhere(path: str, command: ShellCommand) -> bool:
    """Return whether the directory that a path is in is computed, and not by a list of files."""
    sources = command.feed.upstream[-1:] if roles.MANY & set(command.via) else command.inner
    if "find" in command.via or (sources and {c.name for c in sources} <= roles.LISTERS):
        return False
    above = ".." in path and is_unknown(path)
    return above or COMPUTED in path[:1] or COMPUTED in path.rpartition("/")[0]


def outside(clean: str, ground: Ground) -> places.ProtectedPlace | None:
    """Return the place of a file that is there outside of the project, or counts without doing."""
    return places.OUTSIDE if ground.project is not None and places.is_there(clean, ground) else None


def _outside(
    path: str, clean: str, command: ShellCommand, ground: Ground
) -> places.ProtectedPlace | None:
    """Return the place of a path that is lost outside of the project, if it is."""
    if command.name in _DELETERS and places.is_away(clean, ground):
        return places.OUTSIDE
    if command.name in _MAKERS or not places.is_there(clean, ground):
        return None
    into = path == roles.destination(command) and roles.is_folder(path, command)
    folder = into and not os.path.isfile(clean)  # noqa: PTH113 - never raises
    keeps = command.name in _COPIERS and folder and "T" not in command.letters()
    return None if keeps else places.OUTSIDE


def _mentions(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a place that a command may change, as far as anybody knows."""
    changes = bool(roles.MANY & set(command.via)) and command.name in roles.CHANGERS
    reader = command.name in roles.READERS and not changes and not roles.runs_a_writer(command)
    if reader or command.name in _MAKERS or "maybe" in command.via:
        return
    outside = not command.remote and not roles.only_reads(command)
    files = [word for word in command.operands() if "://" not in word]
    printed = PRINTED in command.via
    computed = any(f"{COMPUTED}/" in word for word in files)
    if outside and computed and command.name not in roles.CONTAINERS:
        yield opaque("the directory of a file that it may change is computed", "write computed")
    settings = roles.settings(command.args) if not language_of(command.name) else ()
    outputs = {value for option, value in settings if _WRITTEN_OPTION.match(option)}
    for path in roles.mentioned(command, ground):
        for clean in command.look_up(path, command.cwds[-1:]):
            place = places.place_of(clean, ground)
            free = place is None or (printed and place.kind not in _NEVER_MENTIONED)
            if free and outside and places.is_there(clean, ground):
                place = places.OUTSIDE
            inner = place is not None and "/.git/" in f"{clean}/" and command.name != "git"
            output = outside and path in outputs
            if place is not None and (inner or output or place.kind in _NEVER_MENTIONED):
                device = place.kind is PlaceKind.DEVICE
                reason = f"it may change {place.kind}: {path}"
                yield Finding(reason, f"write {place.label}", opaque=device)


# --- runs, loads and obeys ---

_CODE_TOOLS = listed("code-tools")
_OBEYS_HERE = listed("obeys-here")
_INSTALLS = words(
    "install i in it install-test add update upgrade run restore build shell init plugin tool pub"
)
_FROM_ADDRESS = re.compile(r"(?!--registry)(?:git\+|github:|\S*://(?!localhost|127\.))")
_ADDRESS = re.compile(r"[a-z+]+://(?!localhost|127\.)")
_SHOWN = (roles.READERS | roles.VIEWERS) - listed("blind")
_DESCRIBED = listed("programs") - roles.VIEWERS - listed("readers") - listed("blind") - _CODE_TOOLS
_DESCRIBED -= TABLES["targets"].keys() | TABLES["interpreters"].keys() | listed("text-tools")
_DESCRIBED -= {"venv", "virtualenv", "python3"}
_UNRULED = _DESCRIBED - {*COMMANDS.names()} - TABLES["code options"].keys()
_WORKERS = _CODE_TOOLS - roles.READERS - roles.VIEWERS - {"pip", "pip3"}
_OBEYED_OPTION = re.compile(
    r"-[cri]$|--?(?:config|plugin|require|transform|helper|load|import|init|hook|include|preset|rules|setup)"
)
_CODE_OPTION = re.compile(r"-e$|--?(?:e|eval|exec\w*|command|cmd|expression|run|script|hook)$")
_INSTALLERS = TABLES["verbs"].keys() - roles.CONTAINERS - {"git", "gh", "glab"}
_OUTPUT_OPTIONS = pattern("output-options")
_SETTINGS_OPTION = re.compile(r"config|reporter|plugin|formatter|build-file")
_LOADS_OUTSIDE = "load outside"
_WITHIN = re.compile(r"(?:/tmp|/var/tmp|/dev/shm|/home|~)/[^\"',}\s]*")
"""A path inside a value."""


def _loads(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for what a program obeys, runs or installs from elsewhere."""
    name, operands = command.name, command.operands()
    composes = name in roles.CONTAINERS and {"compose", "build"} & {*operands[:1]}
    module = bool(language_of(name)) and "-m" in command.args and "venv" not in command.args
    obeys = bool(composes) or module or name in _OBEYS_HERE | _CODE_TOOLS | _DESCRIBED
    lost = _is_lost(command, ground)
    if obeys and (lost or _works_elsewhere(command, ground)):
        yield Finding("it obeys what is in a place outside of the project", _LOADS_OUTSIDE)
    if lost and any(o[:1] not in {"/", "~"} for o in operands) and name in _SHOWN:
        yield Finding("nobody can tell which files it shows", "read computed")
    if _INSTALLS & {*operands[:2]} and name in _INSTALLERS:
        for word in command.args[1:]:
            if _FROM_ADDRESS.match(word) or places.is_foreign(word, command, ground):
                yield Finding(f"it installs or runs {word} from elsewhere", "install url")
    absolutes = [o for o in operands if o[:1] in {"/", "~"}] if name in _WORKERS else []
    if any(places.is_foreign(o, command, ground) for o in absolutes):
        yield Finding("it works on what is outside of the project", _LOADS_OUTSIDE)
    yield from _code_behind_options(command)
    inner = (way for value in _loaded(command) for way in (value, *_WITHIN.findall(value)))
    for value in inner:
        if places.is_foreign(value, command, ground):
            yield Finding(f"it loads {value} from outside of the project", _LOADS_OUTSIDE)


def _code_behind_options(command: ShellCommand) -> Iterator[Finding]:
    """Yield findings for options that load code from an address, or look as if they ran some."""
    simple = command.name in _UNRULED
    for option, value in roles.settings(command.args) if command.name not in roles.NETWORK else ():
        if _OBEYED_OPTION.match(option) and _ADDRESS.match(value):
            yield Finding(f"it loads {value} from elsewhere", "install url")
        if simple and _CODE_OPTION.match(option) and re.search(r"[\s(;|&`]", value):
            yield opaque(f"what is behind {option} may be code", "option code")


def _works_elsewhere(command: ShellCommand, ground: Ground) -> bool:
    """Return whether a program works where anybody may have put something for it to obey."""
    here = (".", *command.values_of("--prefix", "--dir", "--cwd", "--project-directory"))
    return ground.project is not None and any(places.is_foreign(p, command, ground) for p in here)


def _loaded(command: ShellCommand) -> Iterator[str]:
    """Yield the files that options and variables make a program obey."""
    name = command.name
    tools = command.operands()[:2] if name in {"yarn", "pnpm", "bun", "npx", "npm"} else []
    runs = bool(_CODE_TOOLS & {name, *tools}) or bool(language_of(name))
    for option, value in roles.settings(command.args) if runs or name in _DESCRIBED else ():
        output = _OUTPUT_OPTIONS.match(option) and not _SETTINGS_OPTION.search(option)
        if not output if runs else _OBEYED_OPTION.match(option):
            yield value


# --- shows ---

_KEY = re.compile(r"^(?:-*[\w-]+=|-[A-Za-z\d]+(?=[/~.]))?[@<]?")
"""What stands in front of a path: an option, a field, the mark of a file."""
_KEEPERS = words("printenv envsubst history security pass op secret-tool")
_TELLS_VARIABLES = re.compile(r"\benv\b|\$ENV|ENVIRON|environ")
_TRACERS, _TRACES = words("set shopt bash sh"), re.compile(r"(?:^|\s)-[a-z]*[vx]|verbose|xtrace")
_LISTS_VARIABLES = words("env set declare export typeset readonly compgen")


def is_store(text: str, command: ShellCommand, ground: Ground) -> bool:
    """Return whether a word names a place where secrets are kept, or a glob that finds one."""
    path = _KEY.sub("", text)
    if not path or re.search(r"://| \| |\(", path) or (" " in path and path[0] not in "/~."):
        return False
    cleans = [c.rpartition("/") for c in command.where(path)]
    # A glob finds hidden files if it begins like them; a script of sed may look like one.
    names = [n for f, _, n in cleans if path[0] in "/~." or f in {"", *command.cwds}]
    finds = any(n[:1] == "." and may_match(h, n) for n in names for h in (".env", ".netrc"))
    return finds or any(places.is_secret(clean, ground) for clean in command.where(path))


def _shows(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a command that shows secrets, or all of what holds some."""
    sourced = [a for a in _sourced(command) if _leaves(a, command, ground)]
    looked_for = roles.searched(command)
    whole = roles.taken_whole(command)
    homes = (*ground.user_homes, *ground.hermes_homes)
    taken = [c for o in (*whole, *looked_for) for c in command.where(o) if c[:1] == "/"]
    if (
        any(
            is_store(word, command, ground)
            for word in (*roles.shown(command, ground), *whole, *sourced)
        )
        or any(is_store(a, command, ground) for a in looked_for)
        or any(places.inside(home, place) for place in taken for home in homes)
    ):
        yield READS_SECRET


def check_remotes(commands: list[ShellCommand], added: set[str]) -> Iterator[Finding]:
    """Yield a finding for a push to where the same session has said that a name leads."""
    said = [found[0] for c in commands if c.name == "git" for found in readings("git", c.args)]
    if any(o[:1] == ["push"] and added & {*o[1:]} for o in said):
        yield Finding("it pushes to an address", "git push address")


def _sourced(command: ShellCommand) -> tuple[str, ...]:
    return command.args if command.name in {"source", "."} else ()


def check_sourced(commands: list[ShellCommand], ground: Ground) -> Iterator[Finding]:
    """Yield a finding for a script that loads secrets of the project and may tell them."""
    loads = [any(is_store(a, c, ground) for a in _sourced(c)) for c in commands]
    others = [c for c in commands if not _sourced(c)]
    traced = any(c.name in _TRACERS and _TRACES.search(c.line) for c in others)
    if any(loads) and traced:
        yield READS_SECRET
    for command in others[loads.index(True) :] if any(loads) else []:
        text = f"{command.line} {command.feed.text or ''}"
        if _TELLS_VARIABLES.search(text) or is_unknown(text) or _shows_variables(command):
            yield READS_SECRET


def _shows_variables(command: ShellCommand) -> bool:
    listing = all("=" in o for o in command.operands()) or "p" in command.letters()
    return command.name in _KEEPERS or (command.name in _LISTS_VARIABLES and listing)


# --- sends ---

_TUBES = words("ssh sftp openssl websocat kcat nc telnet http https xh")
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/")


def _sends(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    connected = any(map(_SOCKET.match, (*command.writes, *command.reads)))
    if connected:
        yield Finding("it opens a raw connection", "/dev/tcp")
    if command.name in roles.NETWORK or connected:
        yield from _sends_away(command, ground)
    elif _computed_address(command):
        yield Finding("it sends what a command prints to another machine", "send")


def _computed_address(command: ShellCommand) -> bool:
    rests = [a.partition("://")[2] for a in command.args if COMPUTED in a]
    if command.name in {"docker", "podman", "go"}:
        rests += [a for a in command.operands() if "." in a.partition("/")[0] and COMPUTED in a]
    return any(COMPUTED in rest for rest in rests)


def _sends_away(command: ShellCommand, ground: Ground) -> Iterator[Finding]:
    """Yield findings for what goes to another machine: variables, what is printed, files."""
    local = command.name in {"scp", "rsync", "sftp"} or only_local(command)
    tube = command.name in _TUBES and (command.name != "openssl" or "s_client" in command.args)
    sends = tube or any(v[-1:] == "-" for v in command.values_of(*roles.SENT))
    piped = command.piped and command.feed.text is None and sends
    if any(map(_shows_variables, (*command.feed.upstream, *command.inner))):
        yield Finding("it sends secrets over the network")
    elif not local and (piped or COMPUTED in command.line):
        yield Finding("it sends what a command prints to another machine", "send")
    for path in {*roles.sent(command), *command.reads} - {"/dev/null", "-"}:
        private = is_store(path, command, ground) or path.endswith((".pem", ".key"))
        if private or any(places.is_away(c, ground) for c in command.where(path)):
            yield Finding("it sends a file that is not the project's", "send outside")
        elif not local:
            yield Finding("it sends a file of the project away", "send")
