"""How a session's shell state carries over without a live shell.

Every command is a new bash. Around the command stands a short preamble that
restores the exported variables, functions and directory which the previous
command left, and an epilogue that saves them. State goes through two files
in a private directory, never through the output: there is nothing to parse
and nothing to leak. Each command writes its own generation of the files and
writes the directory last, so a generation is either complete or ignored; a
command that is killed or replaces itself with `exec` leaves the previous
generation in force.
"""

import shlex
from collections.abc import Mapping

from msgspec import Struct

MAX_INLINE = 96 * 1024
"""Longer scripts go through a file: Linux takes 128 KB in one argument."""

_KEPT = 16
"""Generations kept on disk: commands that just started may still read them."""

# `set +...` first: the user's options (xtrace, errexit, allexport, noclobber)
# must not act on the saving. Errors and traces of it go nowhere.
_SAVE = (
    "{{ __hermes_status=$?; if [[ -z ${{__hermes_saved-}} ]]; then set +aeuxvC; __hermes_saved=1;"
    " declare +x __hermes_status __hermes_saved;"
    " {snapshot}builtin pwd >|{cwd}; fi; }} 2>/dev/null"
)
_SNAPSHOT = "{{ export -p; declare -f; }} >|{env} && "


class Generation(Struct, frozen=True, kw_only=True):
    """The files that one command writes its state to."""

    number: int
    env: str
    cwd: str
    script: str
    """Where the command itself goes if it is too long for the command line."""


class ShellSession:
    """Which generation is in force and where the session stands."""

    def __init__(self, state_dir: str, start: str) -> None:
        self._dir = state_dir
        self._start = start
        self._issued = 0
        self.current: Generation | None = None
        self.cwd = start

    def next_generation(self) -> Generation:
        """Name the files for one more command."""
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
        if reported is None or not reported.endswith("\n"):
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
