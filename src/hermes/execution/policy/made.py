"""Files that a session makes or fetches: what is run from them is read, or asked about.

A command may run a file by its path, as the script of an interpreter, as a module, or because a
tool looks for it (`make`, `pytest`). What this script has written down is known by its text, what
an earlier call has written is read from the disk, and what nobody has seen asks: a file that was
fetched or unpacked, a folder full of them, and whatever lies outside of the project where
anybody may have put it.
"""

import os
import posixpath
from collections.abc import Collection, Iterator
from pathlib import Path

from hermes.execution.policy.code import language_of
from hermes.execution.policy.command import (
    Finding,
    Ground,
    ShellCommand,
    absolute,
    base_name,
    listed,
    may_match,
    opaque,
    pattern,
    words,
)
from hermes.execution.policy.floor import ELSEWHERE, mentions_floor
from hermes.execution.policy.nested import SHELLS, NestedText
from hermes.execution.policy.places import Zone, is_foreign, zone_of
from hermes.execution.policy.roles import changes_files, operands_run, ran, script, written
from hermes.execution.policy.rules import sed_harmless

MAX_FILE = 65_536
WROTE_FLOOR = opaque("a file that was written here mentions what is never run", ELSEWHERE)
RUNS_MADE = opaque("it runs a file that was just made", "made, run")
RUNS_FOREIGN = Finding("it runs a file from outside of the project", "run outside")
RUNS_FETCHED = Finding("it runs what was just fetched, or written to act", "fetched, run")
BEHIND_LINK = opaque("it works behind a link that was just made")

_MAKES_NOTHING = words("chmod chown chgrp touch mkdir rm unlink rmdir")
_FETCHERS = listed("fetchers")
_ARRIVALS = _FETCHERS | listed("decoders") | listed("arrivals")
_CODE_TOOLS = listed("code-tools")
_BRINGERS = listed("bringers")
_BRINGS = listed("brings")
_REPOSITORIES = words("git hg svn")
_FETCHING = words("clone co export")
_CODE = pattern("code-files")
_DATA = pattern("data-files")
_HARM = pattern("harm-in-code")


class MadeFiles:
    """What a script makes, in the order of its commands, and what earlier calls have made."""

    def __init__(self, ground: Ground) -> None:
        self.files: dict[str, str | None] = {}
        """What the script makes, with its text if that is written there."""
        self._ground = ground
        self._marked: set[str] = set()
        """What it makes executable."""
        self._links: set[str] = set()
        self._arrived = False
        """Whether files may have come from elsewhere that nobody has seen."""
        self.fetched = {path for path, fetched in ground.carried.files.items() if fetched}
        """What came from elsewhere; a tool may find code among it by itself."""
        self._acts = any(p[-2:] == "**" or self._may_run(p) for p in self.fetched)
        """Whether code was fetched, or written that may run or delete something."""
        self._written: list[str] = []
        self._floor: bool | None = None

    def remember(self, command: ShellCommand, text: str | None) -> None:
        """Note what a command makes; `text` is what it writes there, if that is known."""
        if command.name == "chmod":
            self._marked |= {absolute(p, command.cwd) for p in command.operands()[1:]}
        if command.name in _MAKES_NOTHING:
            return
        brings = command.name in _BRINGERS and bool(_BRINGS & {*command.operands()[:3]})
        brought = brings and command.name not in _REPOSITORIES
        paths = [*written(command), *(command.operands()[-1:] if brought else ())]
        made = {absolute(p, cwd) for p in paths for cwd in command.cwds}
        code = any(map(_CODE.search, made))
        if command.writes or command.name == "tee":
            printers = (command, *command.feed.upstream)
            texts = [" ".join((*c.args, c.feed.text or "")) for c in printers]
            self._written += texts
            self._floor = None
            self._acts = self._acts or (code and any(map(_HARM.search, texts)))
        self.files |= {path: text if path not in self.files else None for path in made}
        unpacked = {absolute(f"{folder}/*", command.cwd) for folder in _unpacks(command)}
        self.files |= dict.fromkeys(unpacked)
        if command.name in {"ln", "link"} or (
            command.name == "cp" and command.letters() & set("sl")
        ):
            self._links |= made
        sources = (command, *command.feed.upstream, *command.inner)
        fetches = {c.name for c in sources} & _FETCHERS
        unpacks = bool(unpacked) and command.name not in _REPOSITORIES
        comes = bool(fetches) or brought or self._comes_from_fetched(command)
        patches = command.name == "patch" or (command.name == "git" and "apply" in command.args)
        whole = brought or unpacks or patches or bool(command.letters() & {"r", "R", "a"})
        if comes or (unpacks and self._arrived):
            self.fetched |= {f"{p}/**" for p in made} if whole else made
            self.fetched |= {f"{p}*" for p in unpacked}
            self._acts = self._acts or whole or any(map(self._may_run, made))
        else:
            self.fetched |= unpacked
        self._arrived = self._arrived or brings or command.name in _ARRIVALS

    def _may_run(self, path: str) -> bool:
        """Return whether a tool may find a file that was fetched: all but data of the project."""
        if path.endswith("/*"):
            return False  # what is in such a folder is looked at where it is used
        project = self._ground.project
        inside = project is None or zone_of(path, self._ground) is Zone.PROJECT
        return bool(_CODE.search(path)) or (inside and not _DATA.search(path))

    def _comes_from_fetched(self, command: ShellCommand) -> bool:
        """Return whether a command copies, moves or unpacks something that was fetched."""
        named = [*command.operands(), *command.reads, *command.values_of("-i", "if=")]
        places = [absolute(o, cwd) for o in named for cwd in command.cwds]
        return bool(self.fetched) and any(
            _is_made(path, self.fetched) for place in places for path in (place, f"{place}/.")
        )

    def check(self, command: ShellCommand, *, first: bool) -> Iterator[Finding]:
        """Yield findings for a command that runs or works behind what was made."""
        runs = [*ran(command), *operands_run(command)]
        if self._ground.project is not None:
            runs = [p if p[:1] in {"/", "~", "."} else f"./{p}" for p in runs if p]
        foreign = [path for path in runs if is_foreign(path, command, self._ground)]
        known = (*self.files, *self._ground.carried.files)
        if not all(_is_made(absolute(p, command.cwd), known) for p in foreign):
            yield RUNS_FOREIGN
        if self._behind_link(command):
            yield BEHIND_LINK
        if command.name != "tee" and (known or self._arrived):
            if self._works_on_fetched(command):
                yield RUNS_FETCHED
            if changes_files(command) and self._wrote_floor():
                yield WROTE_FLOOR
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
        carried = self._ground.carried.files
        if command.name == "tee" or not (self.files or carried or unseen or self._marked):
            return
        runs = [absolute(path, cwd) for path in ran(command) for cwd in command.cwds]
        found = [absolute(path, cwd) for path in _modules(command) for cwd in command.cwds]
        for clean in (*runs, *found):
            new = _is_made(clean, self.files) or (
                unseen and clean in runs and _not_yet(clean, command.cwd)
            )
            if not (new or _is_made(clean, carried) or clean in self._marked):
                continue
            text = self.files.get(clean) if new else _read(clean)
            if command.name in {"sed", "gsed"}:
                yield "", text if text is not None and sed_harmless(text) else None
            else:
                yield _language(command.name, text or ""), text

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
        runs = command.name in _CODE_TOOLS | {"docker", "podman"} or language_of(command.name)
        if self._acts and runs:
            return True
        runs_code = changes_files(command) or command.name == "cmake"
        if not runs_code or command.name in {"git", "cd", "ln"}:
            return False
        if self._arrived and command.cwd and _not_yet(command.cwd, self._ground.cwd):
            return True
        options = command.values_of("-C", "-S", "--prefix", "--manifest-path")
        places = [absolute(p, command.cwd) for p in (*command.operands(), *options, ".")]
        folders = [f[:-1] for f in (*self.files, *self._ground.carried.files) if f[-2:] == "/*"]
        root = f"{self._ground.project}/"
        return any(f"{p}/".startswith(f) for p in places for f in folders if f != root)

    def _wrote_floor(self) -> bool:
        """Return whether a file that this session has written mentions what is never run."""
        if self._floor is None:
            texts = [*self._written]
            for path in reversed(self._ground.carried.files):
                if sum(map(len, texts)) > 2 * MAX_FILE:
                    break
                texts.append("" if "*" in path else _read(path) or "")
            self._floor = any(mentions_floor(text, self._ground.user_homes) for text in texts)
        return self._floor


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
    elif name in {"git", "hg", "svn", "gh"} and _FETCHING & {*operands[:2]}:
        # Options may have values: it yields too much rather than too little.
        for operand in operands:
            yield posixpath.basename(operand.rstrip("/")).removesuffix(".git")
            yield from (operand,) if ":" not in operand else ()


def _read(path: str) -> str | None:
    """Return the text of a file on the disk that is not large; nothing if it is not there."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except (OSError, ValueError):
        return None
    return None if len(data) > MAX_FILE or b"\0" in data else data.decode(errors="replace")


def _language(runner: str, text: str) -> str:
    """Return the language of a file by the program that runs it, or by its first line."""
    first = text.partition("\n")[0]
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
