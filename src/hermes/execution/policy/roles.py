"""Roles that a command gives its words: which paths it writes, may change, shows, runs and sends.

Each function yields too much rather than too little. What a path is, `places` knows; what
follows from both, `reach` says.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, product

from hermes.execution.policy.code import SQL_CLIENTS, language_of
from hermes.execution.policy.command import (
    TABLES,
    Ground,
    ShellCommand,
    command_start,
    listed,
    readings,
    words,
)
from hermes.execution.policy.nested import SHELLS, shell_code
from hermes.execution.policy.places import is_away

READERS = listed("readers") | listed("blind") - listed("runs-others")
VIEWERS = listed("viewers")
CHANGERS = frozenset({"sed", "gsed", "mv", "chmod", "ln"})
LISTERS = frozenset({"find", "fd", "git", "grep", "rg", "ag", "ls"})
MANY = frozenset({"xargs", "find", "parallel"})
CONTAINERS = words("docker podman nerdctl kubectl oc docker-compose")
NETWORK = listed("network")
SENT = listed("sent")
_BLIND = listed("blind")
_GITREADERS = listed("git-readers")
_TALKERS = words("git gh glab")
_FILLERS = listed("fillers")
_RUNS_FILES = listed("runs-files")
_RULED = words("make gmake awk gawk mawk sed ninja psql sqlite3 mysql mariadb mycli pgcli duckdb")
_EXECS = frozenset({"-exec", "-execdir", "-x", "-X", "--exec", "--exec-batch"})
_COPIERS = words("scp rsync sftp rclone gsutil aws")
_LOCKERS = words("chmod chown chgrp")
_CLOUDS = words("rclone gsutil aws")
_LOOKS = words("ls lsd lsl lsf lsjson du stat size cat presign mb about")
_PLACERS = words("cp gcp mv install ln tee touch mkdir tar bsdtar unzip cmake rsync scp")
_SCRIPTED = words("sed gsed sqlite3 psql mysql duckdb")
_SHOWS = words(
    "archive clone show diff grep hash-object cat-file blame annotate log whatchanged stash add"
    " interpret-trailers merge-file tag diff-files diff-index diff-tree difftool format-patch"
)
_KEPT = words("archive format-patch")
_NOTES = words("commit notes merge")
_SEARCHERS = words("rg ag ack ugrep")
_DEEP = words("grep egrep fgrep zgrep diff colordiff zip cp rsync scp")
_FINDERS = words("find fd fdfind locate")
_PACKERS = words("tar bsdtar zip 7z rar cpio pax")
_PIECES = re.compile(r"[\s'\"()<@:=,]+")
_SEPARATORS = re.compile(r"""(?:[a-z+]+://|[=:,@\s'"()<>|;])+""")
GLUED = re.compile(r"^-[A-Za-z\d]+(?=[/~]|\.[^=]*$)")
_SILENT = re.compile(r"/dev/(?:(?:null|stdout|stderr|tty|zero|full)$|fd/\d+$|tcp/|udp/)")
_AWK_OUTPUT = re.compile(r"(?:-[dop]|--(?:dump|pretty|profile)[\w-]*=)([^-\s].*)")
_KEPT_AS = re.compile(r"-(?:[a-zA-Z]*?i|-in-place=)(.*[*/].*)")
_FILE = re.compile(r"\w\.[a-z]\w{0,4}$")
_PATCHED = re.compile(r"(?m)^[ \tX]*(?:---|\*\*\*|\+\+\+) (?!/dev/null)([^\s]+)")
_SED_WRITE = re.compile(r"(?:^|[;{}\n\d$/gp])[ \t]*[wW][ \t]+(/?\S+)")


# --- what it writes ---


def written(command: ShellCommand) -> Iterator[str]:
    """Yield every path that `command` creates, changes or replaces."""
    named: list[str] = []
    for target in TABLES["targets"].get(command.name, "").split():
        if target in _TARGETS:
            named += _TARGETS[target](command)
        elif target[0] == "-":
            named += [v for v in command.values_of(target) if v != "-"]
        else:
            named += [a[len(target) :] for a in command.args if a.startswith(target)]
    if command.name in _LOCKERS and "find" in command.via:
        named += command.found_below
    for path in (*command.writes, *named):
        if path and not _SILENT.match(path):
            yield path


def destination(command: ShellCommand) -> str:
    """Return what files are copied, moved or linked to; it may be a directory."""
    operands = command.operands()
    named = command.values_of("-t", "--target-directory")
    return next(named, operands[-1] if len(operands) > 1 else "")


def is_folder(path: str, command: ShellCommand) -> bool:
    """Return whether a path is a directory, or may become one: it is not called like a file."""
    return _FILE.search(path) is None or any(map(os.path.isdir, command.where(path)))


def _copies(command: ShellCommand) -> Iterator[str]:
    operands = command.operands()
    folder = destination(command)
    sources = operands if folder not in operands[-1:] else operands[:-1]
    if command.name in {"scp", "rsync"}:
        sources = [s for s in sources if ":" in s and ":" not in folder]
    if folder:
        yield folder
        # Into a directory: the file keeps its name there.
        for source in sources if len(sources) > 1 or is_folder(folder, command) else ():
            name = source.rstrip("/").rsplit("/", 1)[-1].rpartition(":")[2]
            yield f"{folder.rstrip('/')}/{name}"
    elif command.name == "ln" and operands:
        yield operands[0].rsplit("/", 1)[-1]
    if command.name == "mv":
        yield from sources


def _in_place(command: ShellCommand) -> Iterator[str]:
    scripts = list(command.values_of("-e", "--expression"))
    operands = command.operands()
    if any(re.match(r"-[a-zA-Z]*i", a) for a in command.args) or command.has_long("in-place"):
        given = scripts or list(command.values_of("-f"))
        files = operands if given else (operands[1:] or operands)
        yield from files
        # With `*` or a folder in it what is added to a name is where the old file goes.
        kept_as = [m[1] for m in map(_KEPT_AS.match, command.args) if m]
        for (folder, _, name), kept in product((f.rpartition("/") for f in files), kept_as):
            yield posixpath.join(folder, kept.replace("*", name) if "*" in kept else name + kept)
    found = [_AWK_OUTPUT.match(arg) for arg in command.args]
    if command.name in {"sed", "gsed"}:
        found = [_SED_WRITE.search(text) for text in (*scripts, *operands[:1])]
    yield from (match.group(1) for match in found if match)


def _archive(command: ShellCommand) -> Iterator[str]:
    """Yield where an archive is unpacked, or the archive itself."""
    letters = command.letters()
    extracts = command.has_long("extract") or command.has_long("get")
    if "x" in letters or extracts or command.name == "unzip":
        yield from [*command.values_of("-C", "--directory", "-d")] or ["."]
    elif "t" not in letters or command.has_long("delete"):
        yield from command.values_of("-f", "--file")
    if command.has_long("remove-files"):
        yield from command.operands()


def _address(command: ShellCommand) -> Iterator[str]:
    """Yield what a file is called after the address that it comes from."""
    named = any(command.values_of("-O", "--output-document"))
    kept = bool(command.letters() & {"O", "J"}) or command.has_long("remote-name-all")
    if (command.name != "curl" and not named) or kept:
        for operand in command.operands():
            yield posixpath.basename(operand.partition("?")[0]) if "/" in operand else operand


def _patched(command: ShellCommand) -> Iterator[str]:
    """Yield the files that a patch names, without the folders that are left out."""
    for name in _PATCHED.findall(command.feed.text or ""):
        odd = "\\" in name or '"' in name
        yield from ("/",) if odd else (name, name.partition("/")[2])


def _says_how(command: ShellCommand) -> bool:
    """Return whether options, and not the first operand, say how files are changed."""
    mode = command.name == "chmod" and any(re.match(r"-[rwxXst]+$", a) for a in command.args)
    return mode or command.has_long("reference")


_TARGETS: dict[str, Callable[[ShellCommand], Iterable[str]]] = {
    "operands": ShellCommand.operands,
    "last": lambda c: c.operands()[-1:],
    "first": lambda c: c.operands()[:1],
    "rest": lambda c: c.operands()[0 if _says_how(c) else 1 :],
    "copies": _copies,
    "in-place": _in_place,
    "archive": _archive,
    "address": _address,
    "patched": _patched,
    "compiled": lambda c: [v for v in c.values_of("-o", "--output", "--outfile") if v[:1] in "/~."],
    "preprocessed": lambda c: c.values_of("-o") if "-E" in c.args else (),
    "kept": lambda c: c.values_of("-o") if _KEPT & {*c.operands()[:3]} else (),
    "key": lambda c: c.values_of("-f") if c.args[:1] not in {("-l",), ("-lf",)} else (),
}


# --- what it may change, as far as anybody knows ---


def changes_files(command: ShellCommand) -> bool:
    """Return whether a command is not known to only read the files it names."""
    return command.name not in READERS and not only_reads(command)


def only_reads(command: ShellCommand) -> bool:
    if command.name != "git":
        return command.name in VIEWERS
    found = readings("git", command.args)
    return all(operands[0] in _GITREADERS for operands, _ in found)


def runs_a_writer(command: ShellCommand) -> bool:
    """Return whether a search runs a program on what it finds that may change it."""
    names = [program for option, program in pairwise(command.spelled) if option in _EXECS]
    harmless = (READERS | VIEWERS) - CHANGERS
    return command.name in {"find", "fd", "fdfind"} and any(n not in harmless for n in names)


def mentioned(command: ShellCommand, ground: Ground) -> Iterator[str]:
    """Yield what looks like a path in the words of a command, also behind an option or a key."""
    values = [v for name, v in command.assigns if not name.endswith(("HOME", "PATH", "CONFIG"))]
    # The script of an interpreter is run, not changed.
    args = [a for a in command.args if a[:1] == "-" or not language_of(command.name)]
    if command.name == "git" and "clone" in args[:4]:
        # It only reads what it clones, and fills no folder that has something in it.
        args = [a for a in args[-1:] if not any(map(os.path.isdir, command.where(a)))]
    listing = command.feed.upstream if MANY & set(command.via) else command.inner
    args += [a for lister in listing if lister.name in LISTERS for a in lister.args]
    for arg in (*args, *values):
        if command.name in _TALKERS and " " in arg:
            continue
        text = arg.partition(":")[0] if command.name in CONTAINERS else arg
        for piece in _SEPARATORS.split(GLUED.sub("", text)):
            if piece.startswith(("/", "~", ".")) or "/.." in piece:
                yield piece
    here = command.cwd
    if here is not None and here != ground.cwd and is_away(here, ground):
        # Where a `cd` has led it: the files it names, or all.
        yield from (a for a in command.operands() if a and a[0] not in "/~.$" and " " not in a)
        yield from (".",) if command.name in _FILLERS else ()


# --- what it runs and loads ---


def ran(command: ShellCommand) -> Iterator[str]:
    """Yield the files that `command` runs: itself, the script of an interpreter, its input."""
    if "/" in command.path:
        yield command.path
    if command.args[:1] in {("--check",), ("-n",)}:
        return  # of node and shells: it reads, and runs nothing
    if command.name in _RULED:
        yield from command.values_of("-f", "--file", "--makefile")
        yield from command.reads if SQL_CLIENTS.match(command.name) else ()
    elif command.name in SHELLS or command.name in {"source", "."} or language_of(command.name):
        yield from command.reads
        if shell_code(command) is None and "-m" not in command.args:
            yield from script(command)


def operands_run(command: ShellCommand) -> Iterator[str]:
    """Yield the files of a program that runs all of its operands."""
    if command.name in _RUNS_FILES:
        for before, arg in pairwise(("", *command.args)):
            yield from (arg,) if "/" in arg and "-" not in (before[:1], arg[:1]) else ()


def script(command: ShellCommand) -> tuple[str, ...]:
    """Return what an interpreter runs, and the word before it that may be an option's value."""
    args = command.args
    start = command_start(args, "-W -X -I -o -O -r --require --rcfile --init-file")
    if start is None:
        return ()
    valued = start > 0 and args[start - 1][:1] == "-" and not re.search(r"[./]", args[start])
    return args[start : start + 1 + valued]


def settings(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield options and variables with the values that they may have."""
    for arg, following in zip(args, (*args[1:], "-"), strict=False):
        name, equals, value = arg.partition("=")
        glued = GLUED.match(arg)
        if glued is not None:
            yield f"-{arg[glued.end() - 1]}", arg[glued.end() :]
        elif equals:
            yield name.removeprefix("-D"), value
            yield name, value.rpartition("=")[2]
        elif arg[:1] == "-" and following[:1] != "-":
            yield name, following


# --- what it shows and sends ---


def shown(command: ShellCommand, ground: Ground) -> Iterator[str]:
    """Yield the words that may name a file whose text comes to light."""
    words = (*command.args, *command.reads) if command.name not in _BLIND else command.reads
    if command.name in CONTAINERS - {"kubectl", "oc"}:
        mounted = command.values_of("--env-file", "--secret", "-v", "--volume", "--mount")
        pieces = [p for v in mounted for p in _PIECES.split(v)]
        words = tuple(p for p in pieces if all(is_away(c, ground) for c in command.where(p)))
    if command.name == "find" and {"-exec", "-execdir"} & set(command.args):
        words = command.args
    shows = command.name == "git" and bool(_SHOWS & {*command.operands()[:1]})
    if command.name in _SCRIPTED or shows or (command.name in NETWORK and words):
        inner = (word for arg in command.args for word in _PIECES.split(arg))
        words = (*words, *(word for word in inner if word[:2] != ".*"))
    made = {*command.values_of("-keyout", "-out")} if command.name == "openssl" else set()
    if command.name in _PLACERS:  # where they write, outside of the project, asks for itself
        made |= {w for w in written(command) if all(is_away(c, ground) for c in command.where(w))}
    if command.name == "git" and _NOTES & {*command.operands()[:3]}:
        words = (*words, *command.values_of("-F", "--file", "-t", "--template"))
    named = (w for w in words if w[:1] != "-" or "=" in w or GLUED.match(w))
    yield from (w for w in named if w not in made)


def searched(command: ShellCommand) -> list[str]:
    """Return what a search in front of a command looks for, and where."""
    listers = command.feed.upstream if "xargs" in command.via else ()
    listers += tuple(c for c in command.inner if c.name in _FINDERS)
    return [a for c in listers for a in c.args if a[:1] != "-"] if not is_blind(command) else []


def is_blind(command: ShellCommand) -> bool:
    return command.name in _BLIND


def taken_whole(command: ShellCommand) -> list[str]:
    """Return the folders of which a command shows or packs everything."""
    if "find" in command.via:
        return [*command.found_below]
    deep = bool(command.letters() & {"r", "R", "a", "u", "d"}) or any(
        map(command.has_long, ("recursive", "archive", "directories"))
    )
    deep = command.name in _SEARCHERS | _PACKERS or (command.name in _DEEP and deep)
    operands = command.operands() if deep else []
    below = [f"{c}/{o}" for c in command.values_of("-C", "--directory") for o in operands]
    return [*operands, *below]


def sent(command: ShellCommand) -> list[str]:
    """Return the files that a command sends away, as far as its words name them."""
    if command.name in _CLOUDS and _LOOKS & {*command.operands()[:2]}:
        return []
    if command.name in _COPIERS:
        keys = set(command.values_of("-i", "-F", "-e"))
        *sources, target = command.operands() or [""]
        return [s for s in sources if s not in keys and ":" not in s] if ":" in target else []
    options = SENT if command.name != "ssh" else []  # its `-T` has no value
    named = [v for v in command.values_of(*options) if re.search(r"[@<]|^[/~.]", v)]
    if command.name in {"http", "https", "xh"}:
        named += [a for a in command.args if re.search(r"(?:\w[:=]{0,3}|^)@\S", a)]
    if command.name in {"curl", "wget"}:
        named += command.values_of("-T", "--upload-file", "--post-file", "--body-file")
    addresses = [a[7:] for a in command.args if a.startswith("file:///")]
    return [re.sub(r"^[^@<]*[@<]", "", v) for v in named] + addresses
