"""File operations through bash on another machine.

Works with GNU, busybox and BSD tools. Data travels byte for byte on standard
input and output. A write goes to a new file beside the target, is counted,
and only then takes its place: a connection cut half-way changes nothing.
"""

import re
import secrets
import shlex
import stat
from collections.abc import Sequence
from typing import Protocol

from hermes.domain.errors import HermesError, NotFound, UsageError
from hermes.domain.ports.execution import NOTHING, DirEntry, FileStat
from hermes.execution.host.files import changed_meanwhile

MAX_READ = 256 * 1024 * 1024
"""Bytes that one read may bring over."""

_NOT_FOUND, _IS_DIR, _NOT_REGULAR, _DENIED, _TOO_BIG, _CHANGED = 44, 45, 46, 47, 48, 75

# A function that prints mode (hex), size and time of the files it is given.
_STAT = (
    'st() { if stat -c %s / >/dev/null 2>&1; then stat "$@" -c \'%f %s %Y %.9Y\' -- "$f";'
    ' else stat "$@" -f \'%Xp %z %m %Fm\' -- "$f"; fi; }; '
)
_REGULAR = (
    f'[ -d "$f" ] && exit {_IS_DIR}; if [ ! -f "$f" ]; then [ -e "$f" ] && exit {_NOT_REGULAR};'
    f" exit {_NOT_FOUND}; fi; "
)
_READ = (
    _REGULAR + f'[ -r "$f" ] || exit {_DENIED}; '
    f'[ {{limit}} -ge 0 ] || [ "$(wc -c <"$f")" -le {MAX_READ} ] || exit {_TOO_BIG}; '
    'exec 2>/dev/null; {take} <"$f"'
)
_WRITE = (
    't=$(readlink -f -- "$f" 2>/dev/null && printf x) || t="$f"$\'\\n\'x;'
    " t=${{t%x}}; t=${{t%$'\\n'}};"
    f' [ -d "$t" ] && exit {_IS_DIR}; [ -e "$t" ] && [ ! -f "$t" ] && exit {_NOT_REGULAR};'
    f' [ -e "$t" ] && [ ! -w "$t" ] && exit {_DENIED};'
    ' d="${{t%/*}}/.hermes-{nonce}.tmp"; mkdir -p -- "${{t%/*}}/" || exit 1;'
    ' o=; if [ -e "$t" ]; then o=$(stat -c "%a %u:%g" -- "$t" 2>/dev/null ||'
    ' stat -f "%Lp %u:%g" -- "$t"); (umask 077; : >"$d"); fi;'
    ' cat >"$d" && [ "$(($(wc -c <"$d")))" = {size} ] || {{ rm -f -- "$d"; exit 1; }};'
    ' if [ -n "$o" ]; then chown "${{o#* }}" "$d" 2>/dev/null; chmod "${{o%% *}}" "$d"; fi;'
    # One writer at a time, where there is `flock`; compared where there is a program for that.
    ' {{ exec 9<"${{t%/*}}/" && flock -w 5 9; }} 2>/dev/null; w={was};'
    ' if [ -n "$w" ]; then if [ -e "$t" ]; then h=$({{ sha256sum <"$t" || shasum -a 256 <"$t"; }}'
    f" 2>/dev/null); h=${{{{h%% *}}}}; else h={NOTHING}; fi;"
    f' [ "${{{{h:-$w}}}}" = "$w" ] || {{{{ rm -f -- "$d"; exit {_CHANGED}; }}}}; fi;'
    ' mv -f -- "$d" "$t" || {{ rm -f -- "$d"; exit 1; }}'
)
_REMOVE = f'[ -L "$f" ] || {{ {_REGULAR}:; }}; rm -f -- "$f"'
_LIST = (
    f'[ -d "$f" ] || exit {_NOT_FOUND}; cd -- "$f" || exit {_DENIED};'
    f" [ -r . ] || exit {_DENIED}; exec 2>/dev/null;"
    " shopt -s nullglob dotglob; names=(*); [ ${#names[@]} -gt 0 ] || exit 0;"
    " if stat -c %s / >/dev/null 2>&1; then how=(-c %s); else how=(-f %z); fi; i=0;"
    ' while read -r size; do n=${names[i]}; i=$((i+1)); k=f; [ -d "./$n" ] && k=d;'
    r' printf "%s %s\0%s\0" $k "$size" "$n"; done'
    r' < <(printf "%s\0" "${names[@]/#/./}" | xargs -0 stat "${how[@]}");'
    f" [ $i -eq ${{#names[@]}} ] || exit {_CHANGED}"
)


class HelperRun(Protocol):
    """Runs a bash script on the machine and returns its status and output."""

    async def __call__(
        self, script: str, stdin: bytes = b"", *, timeout: float = 60.0
    ) -> tuple[int, bytes]:
        """Run `script`; standard error is part of the output."""


class RemoteFiles:
    """The files that `call` can reach; paths are absolute there."""

    def __init__(self, call: HelperRun) -> None:
        self._call = call

    async def stat(self, path: str) -> FileStat | None:
        status, output = await self._call(_on(path) + _STAT + "export LC_ALL=C; st -L")
        text = output.decode("utf-8", "replace")
        if status:
            if "No such file" in text or "Not a directory" in text:
                return None
            raise _explained(path, status, text)
        mode, size, whole, exact = text.split()[:4]
        kind = int(mode, 16)
        return FileStat(
            path=path,
            is_dir=stat.S_ISDIR(kind),
            is_file=stat.S_ISREG(kind),
            size=int(size),
            modified_at=float(exact if re.fullmatch(r"\d+\.\d+", exact) else whole),
        )

    async def present(self, paths: Sequence[str]) -> frozenset[str]:
        tests = "; ".join(f"[ -e {shlex.quote(path)} ]; printf $?" for path in paths)
        status, output = await self._call(tests)
        answers = output.decode("ascii", "replace")
        if status or len(answers) != len(paths):
            _fail(paths[0] if paths else "/", status or 1, output)
        return frozenset(path for path, answer in zip(paths, answers, strict=True) if answer == "0")

    async def read(self, path: str, offset: int, limit: int | None) -> bytes:
        take = "cat" if not offset else f"tail -c +{offset + 1}"
        if limit is not None:
            take = f"head -c {limit}" if not offset else f"{{ {take} | head -c {limit}; }}"
        script = _READ.format(limit=-1 if limit is None else limit, take=take)
        status, output = await self._call(_on(path) + script, timeout=600)
        # `head` closing the pipe early may end `tail` with SIGPIPE; that is no failure.
        return output if status in {0, 141} else _fail(path, status, output)

    async def write(self, path: str, data: bytes, was: str = "") -> None:
        script = _WRITE.format(nonce=secrets.token_hex(6), size=len(data), was=was)
        status, output = await self._call(_on(path) + script, data, timeout=600)
        if status == _CHANGED:
            raise changed_meanwhile(path)
        if status:
            _fail(path, status, output)

    async def remove(self, path: str) -> None:
        status, output = await self._call(_on(path) + _REMOVE)
        if status:
            _fail(path, status, output)

    async def list_dir(self, path: str) -> list[DirEntry]:
        status, output = await self._call(_on(path) + _LIST)
        for _ in range(4):
            if status != _CHANGED:  # something came or went while it was read
                break
            status, output = await self._call(_on(path) + _LIST)
        if status:
            _fail(path, status, output)
        fields = output.decode("utf-8", "surrogateescape").split("\0")[:-1]
        entries = [
            DirEntry(name=name, is_dir=facts[0] == "d", size=int(facts[2:]))
            for facts, name in zip(fields[::2], fields[1::2], strict=True)
        ]
        return sorted(entries, key=lambda entry: entry.name)


def _on(path: str) -> str:
    if "\0" in path:
        raise UsageError(f"{path!r} is not a usable path: embedded null byte.")
    return f"f={shlex.quote(path)}; "


def _fail(path: str, status: int, output: bytes) -> bytes:
    raise _explained(path, status, output.decode("utf-8", "replace"))


def _explained(path: str, status: int, text: str) -> HermesError:
    if status == _NOT_FOUND or "No such file" in text:
        return NotFound(f"There is no file at {path}.")
    if status == _IS_DIR:
        return UsageError(f"{path} is a directory, not a file.")
    if status == _NOT_REGULAR:
        return UsageError(f"{path} is a device, pipe or socket, not a regular file.")
    if status == _TOO_BIG:
        return UsageError(
            f"{path} is too large to be read at once.", hint="Read it in parts, with a limit."
        )
    if status == _DENIED or "ermission denied" in text:
        return HermesError(f"Permission denied: {path}.")
    return HermesError(f"{path}: {text.strip().rpartition(': ')[2] or f'exit code {status}'}.")
