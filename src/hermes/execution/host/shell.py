"""Shell state without a live shell, and the environment that is built on it.

Every command is a new bash. Around the command stands a short preamble that
restores the exported variables, functions and directory which the previous
command left, and an epilogue that saves them. State goes through two files
in a private directory, never through the output: there is nothing to parse
and nothing to leak. Each command writes its own generation of the files and
writes the directory last, so a generation is either complete or ignored; a
command that is killed or replaces itself with `exec` leaves the previous
generation in force.

`ShellEnvironment` is what every environment does with that: commands,
background processes, files and the bookkeeping of idleness. A backend adds
where the state is kept, what starts a rendered script, and its files.
"""

import asyncio
import contextlib
import hashlib
import os
import posixpath
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from hermes.domain.errors import HermesError
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.execution import CommandResult, DirEntry, FileStat, ProcessInfo, ShellRun
from hermes.execution.host.background import BackgroundProcesses
from hermes.execution.host.files import BlockingFiles, Files
from hermes.execution.host.process import Startable, run

_MAX_INLINE = 24 * 1024
"""Longer scripts go through a file: Linux takes 128 KB in one argument, quotes included."""

_SEES_ITSELF = re.compile(r"\b(?:pkill|pgrep|ps)\b")
"""`pkill -f server` must not find the shell that has these words on its command line."""

_MAX_CWD = 8192
_REPORTED = re.compile(r"/[^\0\ud800-\udfff]*\n")
"""A directory, as text: commands may write anything in place of it."""
_KEPT = 16
"""Generations kept on disk: commands that just started may still read them."""

# `set +...` first: the user's options (xtrace, errexit, allexport, noclobber)
# must not act on the saving. Errors and traces of it go nowhere.
_SAVE = (
    "{{ __hermes_status=$?; if [[ -z ${{__hermes_saved-}} ]]; then set +aeuxvC; __hermes_saved=1;"
    " declare +x __hermes_status __hermes_saved;"
    " {snapshot}builtin pwd >|{cwd}; fi; }} 2>/dev/null"
)
# Functions come back with every later command, so no more of them are kept than that takes no time.
# They are read back from the file because a shell that runs in `$()` would take longer.
_SNAPSHOT = (
    "declare -f >|{env}; IFS= builtin read -rd '' __hermes_code <{env};"
    " [[ ${{#__hermes_code}} -gt 262144 ]] && __hermes_code=;"
    ' {{ export -p; builtin printf "%s\\n" "$__hermes_code"; }} >|{env} && '
)


class Generation(Struct, frozen=True, kw_only=True):
    """The files that one command writes its state to."""

    number: int
    env: str
    cwd: str
    script: str
    """Where the command itself goes if it is too long for the command line."""


class ShellSession:
    """Which generation is in force and where the session stands."""

    def __init__(self, state_dir: str, start: str, cwd: str = "", *, begun: bool = False) -> None:
        """Start in `cwd`; `start` is where to go when it is gone, `begun` that env.0 is there."""
        self._dir = state_dir
        self._start = start
        self._issued = 0
        self.current = self._generation(0) if begun else None
        self.cwd = cwd or start

    def next_generation(self) -> Generation:
        self._issued += 1
        return self._generation(self._issued)

    def render(
        self,
        script: str,
        *,
        save: Generation | None,
        cwd: str | None = None,
        exports: Mapping[str, str] | None = None,
    ) -> str:
        """Return the text for `bash -c` that runs `script` as the next command."""
        return wrap(
            script,
            save,
            restore=self.current.env if self.current else None,
            enter=_enter_exactly(cwd) if cwd is not None else _enter_any(self.cwd, self._start),
            exports=exports or {},
        )

    def outdated(self, generation: Generation) -> Generation | None:
        """Return the generation that nobody can be reading any more."""
        number = generation.number - _KEPT
        if number < 1 or (self.current is not None and self.current.number == number):
            return None
        return self._generation(number)

    def adopt(
        self, generation: Generation, reported: str | None, *, keep_env: bool, keep_cwd: bool
    ) -> None:
        """Put a finished command's state in force; `reported` is its cwd file."""
        if reported is None or not _REPORTED.fullmatch(reported):
            return
        if self.current is not None and self.current.number > generation.number:
            return
        if not keep_env:
            self.current = generation
        if not keep_cwd:
            self.cwd = reported[:-1]

    def _generation(self, number: int) -> Generation:
        return Generation(
            number=number,
            env=f"{self._dir}/env.{number}",
            cwd=f"{self._dir}/cwd.{number}",
            script=f"{self._dir}/script.{number}",
        )


def wrap(
    script: str,
    save: Generation | None,
    *,
    restore: str | None,
    enter: str,
    exports: Mapping[str, str],
) -> str:
    """Return `script` with state restored before it and saved, if asked, after it."""
    lines = [
        f"{{ . {shlex.quote(restore)}; }} >/dev/null 2>&1" if restore else "",
        # `cd -` must mean the session's previous directory, not this one.
        f"__hermes_old=${{OLDPWD-}}; {enter}; OLDPWD=$__hermes_old; unset __hermes_old",
        *(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
        *_with_saving(f"eval -- {shlex.quote(script)}", save, keep_env=bool(exports)),
    ]
    # One group on one line: it is parsed whole before it runs, so that a syntax
    # error in the script cannot derail what follows, and its lines count from 1.
    return "{ " + "; ".join(line for line in lines if line) + "; }"


def _with_saving(action: str, save: Generation | None, *, keep_env: bool) -> list[str]:
    if save is None:
        return [action]
    # Variables given to one command must not stay, so then none are saved.
    snapshot = "" if keep_env else _SNAPSHOT.format(env=shlex.quote(save.env))
    code = _SAVE.format(snapshot=snapshot, cwd=shlex.quote(save.cwd))
    # The trap serves `exit` and `set -e`; the last line a script with its own trap.
    return [f"trap -- {shlex.quote(code)} EXIT", action, f"{code}; exit $__hermes_status"]


def _enter_exactly(cwd: str) -> str:
    return f"builtin cd -- {shlex.quote(cwd)} || exit 1"


def _enter_any(*directories: str) -> str:
    tries = (f"builtin cd -- {shlex.quote(path)} 2>/dev/null" for path in (*directories, "/"))
    return "{ " + " || ".join(tries) + "; }"


class RenderedCommand(Struct, frozen=True, kw_only=True):
    """A command as bash text that restores and saves the state of the shell."""

    script: str
    command: ShellRun
    generation: Generation
    """Where it leaves its state."""
    outdated: Generation | None
    restores: bool
    """True when variables of the session come back from a snapshot."""
    background: bool

    @property
    def interactive(self) -> bool:
        return self.background and self.command.stdin is None

    @property
    def no_input(self) -> str:
        """Go before the script where it has no input: `rg` would search a pipe or an empty file."""
        given = self.interactive or self.command.pty or self.command.stdin is not None
        return "" if given else "exec </dev/null; "


class ShellEnvironment(ABC):
    """The commands, background processes and files of one session."""

    exposed: tuple[str, ...] = ()
    can_leave = False
    about = ""
    own: tuple[str, ...] = ()
    _files: Files
    _max_inline = _MAX_INLINE
    _terminal_prelude = ""
    """Goes before a script that is given a terminal."""
    _before_restore = "unset $(compgen -e) 2>/dev/null; "
    """Takes away the variables of the machine before those of the session come back."""

    def __init__(
        self,
        *,
        cwd: str,
        clock: Clock,
        notify: Callable[[str, str, int | None], None],
        kill_grace: float,
    ) -> None:
        self._cwd = cwd
        self._clock = clock
        self._grace = kill_grace
        self._shell: ShellSession | None = None
        self._opening = asyncio.Lock()
        self._background = BackgroundProcesses(clock, notify)
        self._active = 0
        self._last_used = clock.monotonic()

    @property
    def cwd(self) -> str:
        return self._shell.cwd if self._shell else self._cwd

    @property
    def idle_since(self) -> float | None:
        return None if self._active or self._background.running else self._last_used

    @property
    def background_since(self) -> float | None:
        return self._background.running_since

    async def run(
        self, command: ShellRun, on_output: Callable[[str], None] | None = None
    ) -> CommandResult:
        with self._in_use():
            shell = await self._opened()
            generation = shell.next_generation()
            finished = await run(
                await self._launch(shell, generation, command),
                timeout=command.timeout,
                max_output=command.max_output,
                on_output=on_output,
                grace=self._grace,
            )
            reported = await self._collect(generation, shell.outdated(generation))
            shell.adopt(
                generation,
                reported,
                keep_env=bool(command.env),
                keep_cwd=command.cwd is not None,
            )
            note = await self._settle()
        return CommandResult(
            exit_code=finished.exit_code,
            output=f"{finished.output}{note}",
            cwd=shell.cwd,
            timed_out=finished.timed_out,
            truncated_bytes=finished.truncated_bytes,
        )

    async def spawn(
        self, command: ShellRun, on_output: Callable[[str], None] | None = None
    ) -> ProcessInfo:
        with self._in_use():
            launch = await self.prepared(command)
            placed = structs.replace(command, cwd=self.resolve(command.cwd or "."))
            return await self._background.spawn(launch, placed, on_output)

    async def prepared(self, command: ShellRun) -> Startable:
        """Return what starts a background process."""
        shell = await self._opened()
        return await self._launch(shell, shell.next_generation(), command, background=True)

    async def processes(self) -> list[ProcessInfo]:
        return await self._background.list()

    async def process_output(self, process_id: str, offset: int = 0) -> tuple[str, int]:
        return await self._background.output(process_id, offset)

    async def write_stdin(self, process_id: str, data: str) -> None:
        await self._background.write(process_id, data)

    async def close_stdin(self, process_id: str) -> None:
        await self._background.close_stdin(process_id)

    async def wait(self, process_id: str, timeout: float) -> ProcessInfo:
        with self._in_use():
            return await self._background.wait(process_id, timeout)

    async def kill(self, process_id: str) -> ProcessInfo:
        with self._in_use():
            return await self._background.kill(process_id, self._grace)

    def resolve(self, path: str) -> str:
        if path == "~" or path.startswith("~/"):
            path = self._home + path[1:]
        return posixpath.normpath(posixpath.join(self.cwd, path))

    def hides(self, path: str) -> bool:  # noqa: ARG002 - where there are walls
        return False

    def received(self, path: str, name: str) -> str:
        folder = self._inbox()
        if not folder:
            return path
        digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:6]
        plain = re.sub(r"[^\w.-]+", "_", name).strip("._")[-60:] or "file"
        stem, suffix = posixpath.splitext(plain)
        return f"{folder}/{stem}-{digest}{suffix}"

    async def stat(self, path: str) -> FileStat | None:
        async with self._reached() as files:
            return await files.stat(self.resolve(path))

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        full = {path: self.resolve(path) for path in paths}
        async with self._reached() as files:
            found = await files.present(tuple(full.values()))
        return frozenset(path for path, resolved in full.items() if resolved in found)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        async with self._reached() as files:
            return await files.read(self.resolve(path), offset, limit)

    async def write(self, path: str, data: bytes, was: str = "") -> None:
        async with self._reached() as files:
            await files.write(self.resolve(path), data, was)

    async def remove(self, path: str) -> None:
        async with self._reached() as files:
            await files.remove(self.resolve(path))

    async def list_dir(self, path: str) -> list[DirEntry]:
        async with self._reached() as files:
            return await files.list_dir(self.resolve(path))

    async def close(self) -> None:
        """Stop everything that still runs; a later call starts again where this one was."""
        async with self._opening:
            self._cwd = self.cwd
            self._shell = None
            try:
                await self._background.close(self._grace)
            finally:
                await self._shut()

    def _inbox(self) -> str:
        """Return the folder for copies of received files; empty where commands see them anyway."""
        return ""

    @property
    @abstractmethod
    def _home(self) -> str:
        """What `~` means where the commands run."""

    @abstractmethod
    async def _open(self) -> ShellSession:
        """Make sure that commands can run; return the shell state, in `_shell` if that is valid."""

    @abstractmethod
    async def _shut(self) -> None:
        """Stop what still runs and give back what was held."""

    @abstractmethod
    def _start(self, rendered: RenderedCommand) -> Startable:
        """Return what runs a rendered command."""

    @abstractmethod
    async def _collect(self, generation: Generation, outdated: Generation | None) -> str | None:
        """Return the directory a command ended in, and clear away what is not needed."""

    async def _settle(self) -> str:
        """Look after the backend when a command has ended; return what to tell about it."""
        return ""

    async def _opened(self) -> ShellSession:
        async with self._opening:
            self._shell = await self._open()
            return self._shell

    @contextlib.asynccontextmanager
    async def _reached(self) -> AsyncIterator[Files]:
        with self._in_use():
            await self._opened()
            yield self._files

    async def _launch(
        self,
        shell: ShellSession,
        generation: Generation,
        command: ShellRun,
        *,
        background: bool = False,
    ) -> Startable:
        script = command.script
        if len(script) > self._max_inline or _SEES_ITSELF.search(script):
            data = script.encode("utf-8", "surrogateescape")
            await self._files.write(generation.script, data)
            path = shlex.quote(generation.script)
            script = f"IFS= read -rd '' __hermes_script <{path}; eval -- \"$__hermes_script\""
        if command.pty:
            script = f"{self._terminal_prelude}{script}"
        text = shell.render(
            script,
            save=None if background else generation,
            cwd=self.resolve(command.cwd) if command.cwd is not None else None,
            exports=command.env,
        )
        # Once there is a snapshot it is the whole truth: a variable that the
        # session unset must not come back from where the command runs.
        restores = shell.current is not None
        return self._start(
            RenderedCommand(
                script=f"{self._before_restore}{text}" if restores else text,
                command=command,
                generation=generation,
                outdated=shell.outdated(generation),
                restores=restores,
                background=background,
            )
        )

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            self._last_used = self._clock.monotonic()


def collect_state(
    files: BlockingFiles, generation: Generation, outdated: Generation | None
) -> str | None:
    """Read the directory a command ended in, and clear away what is not needed."""
    for path in (generation.script, *((outdated.env, outdated.cwd) if outdated else ())):
        with contextlib.suppress(HermesError):
            files.remove(path)
    try:
        return os.fsdecode(files.read(generation.cwd, 0, _MAX_CWD))
    except HermesError:
        return None
