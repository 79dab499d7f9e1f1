"""Files that a session makes or fetches: what is run from them is read, or asked about.

A command may run a file by its path, as the script of an interpreter, as a module, or because a
tool looks for it (`make`, `pytest`). What this script has written down is known by its text, what
an earlier call has written is read from the disk, and what nobody has seen asks: a file that was
fetched or unpacked, a folder full of them, and whatever lies outside of the project where
anybody may have put it.
"""

import os
import posixpath
import re
import stat
import sys
from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import product
from pathlib import Path

from hermes.execution.policy.code import SQL_CLIENTS, language_of, sed_harmless
from hermes.execution.policy.command import (
    Finding,
    Ground,
    ShellCommand,
    TooLong,
    absolute,
    base_name,
    listed,
    may_match,
    opaque,
    pattern,
    readings,
    words,
)
from hermes.execution.policy.floor import ELSEWHERE, mentions_floor
from hermes.execution.policy.nested import SHELLS, NestedText
from hermes.execution.policy.places import is_foreign
from hermes.execution.policy.roles import changes_files, operands_run, ran, script, written

MAX_FILE = 65_536
MAX_FILES = 1_048_576
"""Characters that are searched of all that a session has written."""
MAX_INLINE_FILES = 20_000
WROTE_FLOOR = opaque("a file that was written here mentions what is never run", ELSEWHERE)
WROTE_UNREAD = opaque("code was written here that is too long to be read, or no text", "made, run")
WROTE_TOO_MUCH = opaque("more files were written here than are remembered", "made, run")
RUNS_MADE = opaque("it runs a file that was just made", "made, run")
RUNS_FOREIGN = Finding("it runs a file from outside of the project", "run outside")
RUNS_FETCHED = Finding("it runs what was just fetched, or written to act", "fetched, run")
BEHIND_LINK = opaque("it works behind a link that was just made, or may have come just now")

_FETCHERS = listed("fetchers")
_ARRIVALS = _FETCHERS | listed("decoders") | listed("arrivals")
_RUN_CODE = listed("code-tools") | {"docker", "podman"}
_BRINGERS = listed("bringers")
_BRINGS = listed("brings")
_MOVERS = words("mv cp ln rsync install ditto git")
_REPOSITORIES = words("git hg svn")
_FETCHING = words("clone co export")
_REMOTE = re.compile(r"(?:^|/)\.git/refs/remotes/([^/]+)/\*$")
"""What stands for another repository among the files: where git keeps what it has of it."""
_TAKEN_OVER = words("checkout switch merge rebase pull cherry-pick reset restore worktree")
_CODE = pattern("code-files")
_DATA = pattern("data-files")
_HARM = pattern("harm-in-code")
_CLEANING = re.compile(r"(?m)^[\w-]*clean[\w-]*:[^\n]*\n(?:\t[^\n]*(?:\n|$))*")
"""A target of a makefile that tidies up."""


class MadeFiles:
    """What a script makes, in the order of its commands, and what earlier calls have made."""

    def __init__(self, ground: Ground) -> None:
        self.files: dict[str, str | None] = {}
        """What the script makes, with its text if that is written there."""
        self.fetched = {path for path, fetched in ground.carried.files.items() if fetched}
        """What came from elsewhere; a tool may find code among it by itself."""
        self.read: dict[str, str] = {}
        """What of earlier calls this judgement goes by, with its text or when it was changed."""
        self.harms = False
        """Whether something was written that may run or delete something, by its words."""
        self._ground = ground
        self._forgot = forgotten(ground.carried.project) in ground.carried.files
        self._on_disk = {*ground.carried.files} - {forgotten(ground.carried.project)}
        """What earlier calls have made, and what the script makes executable."""
        self._empty: set[str] = set()
        """What is made by being touched."""
        self._moved: dict[str, str] = {}
        """Where on the disk a file is still that will have been moved; empty if it is not."""
        self._links: set[str] = set()
        self._arrived = False
        """Whether files may have come from elsewhere that nobody has seen."""
        self._acts = any(map(_may_run, self.fetched))
        """Whether code was fetched, or written that may run or delete something."""
        self._wrote_floor = False

    def remember(self, command: ShellCommand, text: str | None) -> None:
        """Note what a command makes; `text` is what it writes there, if that is known."""
        name, operands = command.name, command.operands()
        if name in {"chmod", "touch"}:
            there = {absolute(p, command.cwd) for p in operands}
            self._on_disk |= there
            self._empty |= {p for p in there if name == "touch" and not os.path.lexists(p)}
            return
        images = name in {"docker", "podman"} and "pull" in operands[:2]
        brings = name in _BRINGERS and bool(_BRINGS & {*operands[:3]}) and not images
        brought = brings and name not in _REPOSITORIES
        remote = _remote(command)
        if remote:
            self.files[absolute(f".git/refs/remotes/{remote}/*", command.cwd)] = None
        taken_over = name == "git" and _takes_over(command, self.remotes)
        paths = [*written(command), *(operands[-1:] if brought else ())]
        made = {absolute(p, cwd) for p in paths for cwd in command.cwds}
        folders = [*_unpacks(command), *(["."] if taken_over else [])]
        unpacked = {absolute(f"{folder}/*", command.cwd) for folder in folders}
        if command.writes or name == "tee":
            printers = (command, *command.feed.upstream)
            texts = [" ".join((*c.args, c.feed.text or "")) for c in printers]
            homes = self._ground.user_homes
            self._wrote_floor = self._wrote_floor or any(mentions_floor(t, homes) for t in texts)
            code = any(_CODE.search(p) and not p.endswith("Dockerfile") for p in made)
            harm = any(_HARM.search(_CLEANING.sub("", t)) for t in texts)
            self.harms = self.harms or harm
            self._acts = self._acts or (code and harm)
        if name in {"ln", "link"} or (name == "cp" and command.letters() & set("sl")):
            self._links |= made
        sources = {c.name for c in (command, *command.feed.upstream, *command.inner)}
        comes = bool(sources & _FETCHERS) or brought or self._comes_from_fetched(command)
        comes = comes or taken_over
        unpacks = bool(unpacked) and name not in _REPOSITORIES
        takes = unpacks or name == "patch" or (name == "git" and not unpacked)
        taken = [*operands, *command.reads] if takes else []
        comes = comes or any(is_foreign(p, command, self._ground) for p in taken)
        patches = name == "patch" or (name == "git" and bool({"apply", "am"} & {*operands}))
        whole = (
            brought or taken_over or unpacks or patches or bool(command.letters() & {"r", "R", "a"})
        )
        self.fetched |= unpacked
        if comes or (unpacks and self._arrived):
            self.fetched |= {f"{p}*" for p in unpacked}
            self.fetched |= {f"{p}/**" for p in made} if whole else made
            arrived = whole and bool(made or unpacked or patches)
            self._acts = self._acts or arrived or any(map(_may_run, made))
        self._take_along(command)
        for path in made:
            self._moved.pop(path, None)
        self.files |= {path: text if path not in self.files else None for path in made}
        self.files |= dict.fromkeys(unpacked)
        self._arrived = self._arrived or brings or name in _ARRIVALS

    @property
    def remotes(self) -> set[str]:
        """The names that this session has given to repositories elsewhere."""
        found = map(_REMOTE.search, (*self.files, *self._on_disk))
        return {match[1] for match in found if match}

    def _take_along(self, command: ShellCommand) -> None:
        """Note where files are that a folder takes along which is moved, copied or linked."""
        named = command.operands()
        if command.name not in _MOVERS or (command.name == "git" and named[:1] != ["mv"]):
            return
        targets = [*command.values_of("-t", "--target-directory"), *named[-1:]]
        known = [p for p in (*self.files, *self._on_disk) if p[-2:] != "**"]
        for source, target in product(named, targets):
            here, there = absolute(source, command.cwd).rstrip("/*"), absolute(target, command.cwd)
            below = [p for p in known if f"{p}/".startswith(f"{here}/") and here != there]
            for path, name in product(below, ("", f"/{posixpath.basename(here)}")):
                place = f"{there}{name}{path[len(here) :]}"
                self.files[place] = self.files.get(path)
                self._moved[place] = self._moved.get(path, "" if path in self.files else path)
                self.fetched |= {place} if path in self.fetched else set()

    def _comes_from_fetched(self, command: ShellCommand) -> bool:
        """Return whether a command copies, moves or unpacks something that was fetched."""
        named = [*command.operands(), *command.reads, *command.values_of("-i", "if=")]
        places = [absolute(o, cwd) for o in named for cwd in command.cwds]
        return any(_is_made(p, self.fetched) for place in places for p in (place, f"{place}/."))

    def check(self, command: ShellCommand, *, first: bool) -> Iterator[Finding]:
        """Yield findings for a command that runs or works behind what was made."""
        runs = [*ran(command), *operands_run(command)]
        if self._ground.project is not None:
            runs = [p if p[:1] in {"/", "~", "."} else f"./{p}" for p in runs if p]
        foreign = [absolute(p, command.cwd) for p in runs if is_foreign(p, command, self._ground)]
        known = (*self.files, *self._on_disk)
        if not all(_is_made(path, known) for path in foreign):
            yield RUNS_FOREIGN
        if self._behind_link(command):
            yield BEHIND_LINK
        if command.name != "tee" and (known or self._arrived):
            if self._works_on_fetched(command):
                fetched = [p for p, comes in self._ground.carried.files.items() if comes]
                self.read |= {path: _stamp(path) for path in fetched}
                yield RUNS_FETCHED
            if changes_files(command):
                yield from [WROTE_FLOOR] if self._wrote_floor else self._written
        if any(text is None for _, text in self._texts(command, first=first)):
            yield RUNS_MADE

    def texts(self, command: ShellCommand, *, first: bool) -> Iterator[NestedText]:
        """Yield the programs that a command runs from files of this session."""
        for language, text in self._texts(command, first=first):
            if text is not None and language:
                yield NestedText(text, command.name, language)

    def _texts(self, command: ShellCommand, *, first: bool) -> Iterator[tuple[str, str | None]]:
        """Yield languages and texts; none where nobody knows the text."""
        shell = command.name in SHELLS or command.name in {"source", "."}
        unseen = self._arrived or (shell and not first)
        runs = [absolute(path, cwd) for path in ran(command) for cwd in command.cwds]
        found = [absolute(path, cwd) for path in _modules(command) for cwd in command.cwds]
        for clean in (each for path in (*runs, *found) for each in self._matching(path)):
            new = _is_made(clean, self.files) or (
                unseen and clean in runs and _not_yet(clean, command.cwd)
            )
            known = new or _is_made(clean, self._on_disk)
            if not (known or (self._forgot and os.path.lexists(clean))):
                continue
            text = self.files.get(clean) if new else self._read(clean)
            if text is None and clean in self._empty and clean not in self.files:
                text = ""
            if text is None and self._moved.get(clean):
                text = self._read(self._moved[clean])
            if command.name in {"sed", "gsed"}:
                yield "", text if text is not None and sed_harmless(text) else None
            else:
                yield _language(command.name, text or ""), text

    def _matching(self, path: str) -> list[str]:
        """Return the files that a path stands for: a module is somewhere below the project."""
        known = (*self.files, *self._on_disk) if "/**/" in path else ()
        return [p for p in known if may_match(p, path)] if "/**/" in path else [path]

    def _read(self, path: str) -> str | None:
        text = _read(path)
        self.read[path] = _stamp(path) if text is None else text
        return text

    def _behind_link(self, command: ShellCommand) -> bool:
        """Return whether a command works behind a link that the script itself has made."""
        if command.name == "ln" or not (self._links or self._arrived):
            return False
        targets = set(written(command))
        named = command.operands() if changes_files(command) or self._links else ()
        for path in {*targets, *named, *ran(command)}:
            place = absolute(path, command.cwd)
            linked = any(f"{place}/".startswith(f"{link}/") for link in self._links)
            below = posixpath.dirname(place)
            if linked or (self._arrived and path in targets and _not_yet(below, command.cwd)):
                return True
        return False

    def _works_on_fetched(self, command: ShellCommand) -> bool:
        """Return whether a program that runs code works in a folder that this session fetched."""
        if self._acts and (command.name in _RUN_CODE or language_of(command.name)):
            return True
        runs_code = changes_files(command) or command.name == "cmake"
        if not runs_code or command.name in {"git", "cd", "ln"}:
            return False
        if self._arrived and command.cwd and _not_yet(command.cwd, self._ground.cwd):
            return True
        options = command.values_of("-C", "-S", "--prefix", "--manifest-path")
        places = [absolute(p, command.cwd) for p in (*command.operands(), *options, ".")]
        folders = [f[:-1] for f in (*self.files, *self._on_disk) if f[-2:] == "/*"]
        root = f"{self._ground.project}/"
        return any(f"{p}/".startswith(f) for p in places for f in folders if f != root)

    @cached_property
    def _written(self) -> list[Finding]:
        """What is wrong with the code that earlier calls have written, which tools may find."""
        found, length = [WROTE_TOO_MUCH] if self._forgot else [], 0
        for path in filter(_may_run, self._on_disk):
            text = _read(path)
            length += len(text or "")
            if length > MAX_INLINE_FILES and self._ground.longest < sys.maxsize:
                raise TooLong
            if length > MAX_FILES or (text is None and _CODE.search(path) and _stamp(path)):
                found.append(WROTE_UNREAD)
            elif mentions_floor(text or "", self._ground.user_homes):
                found.append(WROTE_FLOOR)
            else:
                continue
            self.read[path] = _stamp(path) if text is None else text
        return list(dict.fromkeys(found))


def forgotten(project: str) -> str:
    """Return what stands for files of a session that are no longer remembered one by one."""
    return f"{project.rstrip('/')}/**"


def _may_run(path: str) -> bool:
    """Return whether a tool may find a file that was fetched: all but data."""
    # What is in a folder is looked at where it is used.
    return path[-2:] != "/*" and (bool(_CODE.search(path)) or not _DATA.search(path))


def _modules(command: ShellCommand) -> Iterator[str]:
    """Yield the files that an interpreter may find by the name of a module or a folder."""
    if language_of(command.name) in {"python", "node"}:
        for name in script(command):
            module = name.replace(".", "/") if "-m" in command.args else name.rstrip("./")
            yield from (f"{module}{end}" for end in (".py", "/__main__.py", ".js", "/index.js"))
            yield f"{name.partition('.')[0]}.py"


def _unpacks(command: ShellCommand) -> Iterator[str]:
    """Yield the folders that `command` fills with files from elsewhere."""
    name, operands = command.name, command.operands()
    letters = command.letters() | set(command.args[0][:6] if command.args else "")
    if name in {"unzip", "7z", "cpio", "unar"} or (
        name in {"tar", "bsdtar"} and ("x" in letters or command.has_long("extract"))
    ):
        yield from [*command.values_of("-C", "-d", "--directory")] or ["."]
    elif name in {"pip", "pip3"} and operands[:1] == ["download"]:
        yield from [*command.values_of("-d", "--dest")] or ["."]
    elif name == "gh" and "download" in operands[:2]:
        yield from [*command.values_of("-D", "--dir")] or ["."]
    elif name == "helm" and command.has_long("untar"):
        folder = next(command.values_of("-d", "--untardir", "--destination"), ".")
        yield from (posixpath.join(folder, posixpath.basename(o)) for o in operands[1:])
    elif (name in {"git", "hg", "svn", "gh"} and _FETCHING & {*operands[:2]}) or (
        name == "git" and operands[:2] == ["submodule", "add"]
    ):
        # Options may have values: it yields too much rather than too little.
        for operand in operands:
            local = operand[:1] in {"/", "~", "."} and operand is not operands[-1]
            marks = (f"{p}/{n}" for p in command.where(operand) for n in (".git", "HEAD"))
            source = local and any(map(os.path.lexists, marks))
            yield posixpath.basename(operand.rstrip("/")).removesuffix(".git")
            yield from (operand,) if ":" not in operand and not source else ()


def _remote(command: ShellCommand) -> str:
    """Return the name that a command gives to a repository elsewhere."""
    for operands, _ in readings("git", command.args) if command.name == "git" else ():
        if operands[:2] == ["remote", "add"] and len(operands) > 3:
            return operands[-2]
    return ""


def _takes_over(command: ShellCommand, remotes: set[str]) -> bool:
    """Return whether a command puts what came from one of the remotes into the work tree."""
    found = readings("git", command.args)
    named = {o.partition("/")[0] for o in found[0][0][1:]} if found else set()
    known = remotes | ({"FETCH_HEAD"} if remotes else set())
    return bool(named & known) and found[0][0][0] in _TAKEN_OVER


def _read(path: str) -> str | None:
    """Return the text of a file on the disk that is not large; nothing if it is none.

    Nothing here waits for anybody: not for the other end of a pipe, nor for a device.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        data = os.read(file, MAX_FILE + 1) if stat.S_ISREG(os.fstat(file).st_mode) else b"\0"
    except OSError:
        return None
    finally:
        os.close(file)
    return None if len(data) > MAX_FILE or b"\0" in data else data.decode(errors="replace")


def _stamp(path: str) -> str:
    """Return what tells a file from the one that was in its place before."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return ""
    return f"{found.st_ino} {found.st_size} {found.st_ctime_ns}"


def _language(runner: str, text: str) -> str:
    """Return the language of a file by the program that runs it, or by its first line."""
    first = text.partition("\n")[0]
    if SQL_CLIENTS.match(runner):
        return "sql"
    if runner in SHELLS or runner in {"source", "."} or first[:2] != "#!":
        return language_of(runner) or "shell"
    name = base_name(first[2:].replace("env ", "/").strip()).split(" ")[0]
    return "shell" if name in SHELLS else language_of(name) or "other"


def _is_made(path: str, files: Collection[str]) -> bool:
    """Return whether a path is one of the files, or a glob is involved that fits."""
    return path in files or any(may_match(path, f) or may_match(f, path) for f in files)


def _not_yet(path: str, here: str | None) -> bool:
    """Return whether a path will only be there when a command runs, here where others are."""
    made = path.endswith("/bin/activate") or not os.path.isdir(here or "")  # noqa: PTH112
    return not made and not os.path.lexists(path)
