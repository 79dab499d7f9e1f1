"""A standstill: what changes in the project while everything inside stands still is the host's.

A person lets `git checkout` out while a server runs inside. Its changes could be anybody's,
so for as long as it runs nothing inside does: one signal that none can refuse stops all
processes, another one lets them go on. That they stood still is shown, not assumed. Each has been
given the processor as often as before, and the process that lets them go on has the number after
that of one before: no other was made in between.

Only commands that are over soon and need nothing of what runs inside are waited for in this way.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from hermes.execution.backends.sandbox.holder import Holder
from hermes.execution.policy.grammar import parse
from hermes.execution.policy.syntax import Lit, Param, ShellSyntaxError, Simple

LONGEST = 20.0
"""Seconds for which what runs inside has to wait."""
_LONGEST_TEXT = 2000
_FILE_WORK = frozenset(
    [
        *("git", "gh", "glab", "pre-commit", "lefthook", "husky", "direnv", "mise", "asdf"),
        *("cp", "mv", "rm", "ln", "mkdir", "rmdir", "touch", "chmod", "install", "tee", "sed"),
        *("patch", "rsync", "tar", "unzip", "cd", "echo", "printf", "true", "ls", "test"),
        *("cat", "cut", "grep", "head", "sort", "tail", "tr", "uniq", "wc"),
    ]
)
"""What works on files and asks no server of the project."""
_STOP = "kill -STOP -- -1 2>/dev/null; echo $$"
_COUNT = "echo $$"
_GO_ON = "echo $$; kill -CONT -- -1 2>/dev/null || :"
_STEP, _STEPS = 0.01, 100
_STOPPED = "TtZX"

_Switches = dict[str, str]
"""Thread -> how often it was given the processor."""


def is_file_work(text: str) -> bool:
    """Tell whether a command only works on files, and so does not wait for what runs inside."""
    if len(text) > _LONGEST_TEXT:
        return False
    try:
        nodes = [node for item in parse(text).items for node in item.commands]
    except (ShellSyntaxError, RecursionError):
        return False
    simple = [node for node in nodes if isinstance(node, Simple)]
    return len(simple) == len(nodes) > 0 and all(map(_is_file_work, simple))


def _is_file_work(node: Simple) -> bool:
    words = [*node.words, *(each.value for each in node.assigns)]
    parts = [part for word in words for part in word.parts]
    if not node.words or not all(isinstance(part, Lit | Param) for part in parts):
        return False
    first = (part.text for part in node.words[0].parts if isinstance(part, Lit))
    return "".join(first).rpartition("/")[2] in _FILE_WORK


class Standstill:
    """Everything inside a sandbox has been stopped; `end` lets it go on."""

    def __init__(self, holder: Holder, number: int, switches: _Switches) -> None:
        self.since = time.time_ns()
        self._holder = holder
        self._number = number
        self._switches = switches

    @classmethod
    async def begin(cls, holder: Holder) -> "Standstill | None":
        """Stop everything; None, and all goes on, if something does not stop."""
        still = None
        try:
            if await _numbered(holder, _STOP) and await _settled(holder) is not None:
                # Now, and not before: one that was about to be made took a number as well. And
                # before it is seen who is there: what comes in between has a higher one.
                number = await _numbered(holder, _COUNT)
                switches = await _settled(holder)
                if number and switches is not None:
                    still = cls(holder, number, switches)
        finally:
            if still is None:
                await asyncio.shield(_go_on(holder))
        return still

    async def end(self) -> bool:
        """Let everything go on; return whether nothing has run since it was stopped."""
        now = await asyncio.to_thread(_switches, self._holder)
        number = await _go_on(self._holder)
        return now == self._switches and number == self._number + 1


async def _settled(holder: Holder) -> _Switches | None:
    """Wait until all have stopped, also those that wait for them outside."""
    before = None
    for _ in range(_STEPS):
        switches = await asyncio.to_thread(_switches, holder)
        if switches is not None and switches == before:
            return switches
        before = switches
        await asyncio.sleep(_STEP)
    return None


async def _go_on(holder: Holder) -> int:
    number = await _numbered(holder, _GO_ON)
    if not number and await asyncio.to_thread(_switches, holder) is not None:
        await holder.end()  # nothing may stand still for ever
    for waiting in await asyncio.to_thread(holder.waiting):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(waiting, signal.SIGCONT)
    return number


async def _numbered(holder: Holder, script: str) -> int:
    """Run a script of ours inside; return the number of its process, 0 if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return int(await holder.ours(script))
    return 0


def _switches(holder: Holder) -> _Switches | None:
    """Return how often each thread was given the processor; None if one has not stopped."""
    found: _Switches = {}
    try:
        outside = (
            Path("/proc", str(process), "task", str(process)) for process in holder.waiting()
        )
        for thread in (*outside, *_threads(Path(holder.root, "proc"))):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = (thread / "status").read_text(encoding="utf-8", errors="replace")
                if status.partition("\nState:\t")[2][:1] not in _STOPPED:
                    return None
                switched = status.partition("\nvoluntary_ctxt_switches")[2]
                found[str(thread)] = switched
    except OSError:
        return None
    return found


def _threads(proc: Path) -> Iterator[Path]:
    for process in proc.iterdir():
        # The first holds the sandbox, and is nobody's.
        if process.name.isdigit() and process.name != "1":
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield from (process / "task").iterdir()
