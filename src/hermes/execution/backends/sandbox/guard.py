"""The guard of what the host runs later: what appears or changes inside is held.

What is there when nothing runs inside is the person's, and remembered: where it is, how it was
and, if that is short, what is in it. Most of it is mounted read-only. A mount goes when the
host puts another file in its place, and there are not mounts for everything; so each
look compares. What has appeared is renamed to `*.held`; what was changed without a mount over
it is too, and what was there before comes back. Changes that run nothing stay. What is renamed
may be the person's: nothing of it is lost (`held`).

While something runs inside, what is remembered is on disk too: where Hermes ends before it
could look, the next one on the project does that (`settle_left`).
"""

import contextlib
import fcntl
import math
import os
import re
import secrets
import stat
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes.execution.backends.sandbox.harmless import runs_nothing
from hermes.execution.backends.sandbox.held import Copies, Held, leave_out
from hermes.execution.backends.sandbox.later import Look, change_mode, found, reached
from hermes.execution.backends.sandbox.mounts import SandboxLayout, coverings, root_of
from hermes.execution.backends.sandbox.seen import (
    GONE,
    HIDDEN,
    Seen,
    born,
    described,
    identity_in,
)
from hermes.execution.backends.sandbox.settings import kind

_RECORD = "before"
_OURS = re.compile(r"\.held(?:-[0-9a-f]{6})?$")
"""Names of what was held: no tool obeys them."""
_ITSELF = os.path.realpath(sys.prefix)
"""Where Hermes is installed, which may be a project, too."""
_IN_FOLDERS = 5000
"""Files in folders without a mount that are compared."""
_REMEMBERED = 8 << 20
"""Bytes of content that are remembered of one project."""
_LONGEST_NAME = 240
"""Bytes of a name to which something can be added."""
_BACK_SOON = 30.0
"""Seconds in which what was held does not come back under its name, unless something puts it."""
_COARSE = 0.05
"""Seconds by which the clock of a file system may be behind."""
_SLOWEST = 120.0
"""Seconds after its last sign of life in which a Hermes that hangs is ended."""


class _Record(Struct, frozen=True):
    known: dict[bytes, Seen]
    mounted: list[bytes]


class Remembered(Struct, frozen=True):
    """What a guard remembers."""

    known: dict[str, Seen]
    own: dict[str, Seen]
    within: dict[tuple[int, ...], int]


class Guard:
    """What one sandbox must leave as it is."""

    def __init__(self, layout: SandboxLayout) -> None:
        self._layout = layout
        self._known: dict[str, Seen] = {}
        self._own: dict[str, Seen] = {}
        """What was made inside and may stay: it runs nothing."""
        self._record = layout.kept / _RECORD
        self._recorded = b""
        self._copies = Copies(layout.held)
        self._before = self._began = -math.inf
        """When the look before and this one began."""
        self._looked = 0.0
        """When the look before began, as the clock on the wall says."""
        self._gone: dict[str, Seen] = {}
        """What was the person's and went while something ran, until nothing does."""
        self._away: dict[str, float] = {}
        """What was held since nothing ran, and when."""
        self._within: dict[tuple[int, ...], int] = {}
        """Files without a mount while something ran, and when they were made: it may have them
        open ever since."""
        self._sound: Collection[str] = ()
        """Mounts that this look goes by."""
        self._closed_files: set[tuple[int, ...]] | None = None
        """Files that nothing inside could reach when this look began."""
        self._put: dict[str, tuple[int, ...]] = {}
        """Where what was held is now, and which files these are."""
        self._full: set[str] = set()
        """Folders with more files of the person than are remembered."""
        self._lock = threading.Lock()
        """A look goes on in its thread when nobody waits for it any more."""

    def missing(self, mounted: Collection[str]) -> list[tuple[str, bool]]:
        """Return the mounts over what is known that are not there, or no more."""
        wanted = coverings(self._layout, {*self._known})
        return [(path, writable) for path, writable in wanted if path not in mounted]

    def memory(self) -> Remembered:
        """Return what is remembered, to go back to."""
        return Remembered(known={**self._known}, own={**self._own}, within={**self._within})

    def go_back(self, before: Remembered, covered: Iterable[str]) -> None:
        """Forget what was accepted since; what was covered since may be open inside."""
        with self._lock:
            self._known, self._own, self._within = before.known, before.own, before.within
            for path in covered:
                with contextlib.suppress(OSError):
                    self._within[identity_in(os.lstat(path))[:2]] = born(path)

    def doubt(self, covered: Iterable[str], since: int) -> None:
        """Compare what is in places that were made before then, and covered after it.

        Something inside may stand there, below the mount.
        """
        for place in covered:
            if not (made := born(place)) or made >= since:
                continue
            for path, seen in self._known.items():
                if f"{path}/".startswith(f"{place}/"):
                    self._within[seen.file] = seen.born
                    self._known[path] = seen.untrusted()

    def accept(self, mounted: Collection[str] | None = None, *, since: int = 0) -> bool:
        """Take what is there for the person's: nothing has run inside since the last look.

        Or it has stood still `since` then, in nanoseconds. What was made inside stays the
        sandbox's until the person changes it. While another sandbox works on the project that
        cannot be told: then what it found counts.
        """
        if not self._layout.project:
            return True
        mounted = self._layout.guarded if mounted is None else mounted
        with self._lock, Look() as look:
            self._looked = time.time() - _COARSE
            self._full.clear()
            size, known, own = 0, dict[str, Seen](), dict[str, Seen]()
            for path in self._present(look, mounted, None, None):
                before = self._known.get(path) or self._own.get(path)
                seen = self._seen(path, before, keep=size < _REMEMBERED)
                if seen.kind:
                    (own if _is_untouched(seen, self._own.get(path)) else known)[path] = seen
                size += len(seen.content or b"")
            noted = self._noted_by_others()
            if noted is None and since:
                self._known, self._own = self._doubted(known, since), own
            elif noted is None:
                self._known, self._own = known, own
                self._within.clear()
                self._gone.clear()
            else:
                closed = _closed_by(noted)
                others = {os.fsdecode(path): seen for path, seen in noted.known.items()}
                open_ = {p: seen for p, seen in others.items() if not self._is_below(p, closed)}
                sound = {p: seen for p, seen in known.items() if self._is_below(p, closed)}
                self._known = {**self._known, **open_, **sound}
        return noted is None

    def _doubted(self, known: dict[str, Seen], since: int) -> dict[str, Seen]:
        """Return the same, and take for open inside what was made before and has moved since."""
        for path, seen in known.items():
            before = self._known.get(path)
            if (before is None or before.file != seen.file) and (made := born(path)) < since:
                self._within[seen.file] = made
        within = self._within
        return {p: seen.untrusted() if seen.file in within else seen for p, seen in known.items()}

    def check(self, mounted: Collection[str], *, until: float = 0.0) -> list[Held]:
        """Hold what has appeared or changed inside; return it.

        Only the host can have changed what is `mounted` read-only, unless that has another name
        or was open inside before, and what was last touched after the time `until`.
        """
        if not self._layout.project:
            return []
        away: list[Held] = []
        self._copies.make_room()
        with self._lock, Look() as look:
            # Where another sandbox has no mount it may have changed what has one here.
            noted = self._noted_by_others()
            self._sound = mounted if noted is None else _closed_by(noted).intersection(mounted)
            self._closed_files = None
            self._before, self._began = self._began, time.monotonic()
            began = time.time()
            present = set[str]()
            # What opens a folder can be seen inside, and what was to be found be gone before it is.
            for inner in ((), None):
                present = self._present(look, self._sound, self._known, inner)
                # First what was the person's: there is not room for copies of everything.
                for path in sorted(present, key=lambda path: (path not in self._known, path)):
                    away += self._checked(path, look, until)
            self._forget_gone(present)
            self._looked = began - _COARSE
        return away

    def _checked(self, path: str, look: Look, until: float) -> list[Held]:
        before = self._known.get(path)
        if before is None and self._is_left_out(path):
            return []
        if before and path in self._sound and self._is_out_of_reach(path, before):
            seen = self._seen(path, before)
            if seen.file == before.file:  # and not another one by now, without a mount
                self._known[path] = seen
                return []
        if self._stays(path, before) or (until and _oldest(path, look) > until):
            return []
        return self._put_away(path, before)

    def _forget_gone(self, present: set[str]) -> None:
        """Have nothing put back when a name is used again: it was of something else."""
        for memory in (self._known, self._own):
            for path in [path for path in memory if path not in present]:
                if not os.path.lexists(path):
                    gone = memory.pop(path)
                    if memory is self._known:
                        self._gone[path] = gone

    def _is_left_out(self, path: str) -> bool:
        """Tell whether there was no room to remember what is in its folder."""
        return any(path.startswith(f"{folder}/") for folder in self._full)

    def _noted_by_others(self) -> _Record | None:
        """Return how the project was when others looked, and what none of them can reach."""
        noted: _Record | None = None
        for record in self._record.parent.parent.glob(f"*/{_RECORD}"):
            if record == self._record or not _is_held(record.with_name("lock")):
                continue
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                left = msgspec.msgpack.decode(record.read_bytes(), type=_Record)
                if noted is not None:
                    closed = {*noted.mounted}.intersection(left.mounted)
                    left = _Record(known={**noted.known, **left.known}, mounted=[*closed])
                noted = left
        return noted

    def disputed(self) -> dict[str, tuple[int, ...]]:
        """Return how things are that sandboxes of others, in which something runs, guard too."""
        found: dict[str, tuple[int, ...]] = {}
        for path in self._layout.guarded if self._noted_by_others() else ():
            with contextlib.suppress(OSError):
                found[path] = identity_in(os.lstat(path))
        return found

    def begin(self, mounted: Collection[str]) -> None:
        """Put on record what is there: something is about to run inside, or still does."""
        with self._lock:
            closed = [
                os.fsencode(path)
                for path, seen in self._known.items()
                if path in mounted and not self._was_within(path, seen.file)
            ]
            known = {os.fsencode(path): seen for path, seen in self._known.items()}
            record = msgspec.msgpack.encode(_Record(known=known, mounted=closed))
        draft = self._record.with_name(f"{_RECORD}.draft")
        with contextlib.suppress(OSError):  # a full disk keeps nobody from clearing it
            if record == self._recorded and self._record.exists():
                os.utime(self._record)  # it still is what to go by
                return
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.truncate()
                file.write(record)
            draft.replace(self._record)
            self._recorded = record

    def end(self) -> None:
        """Nothing runs inside any more, and all of it was looked at."""
        self._away.clear()
        self._record.unlink(missing_ok=True)

    def recall(self, record: Path) -> list[Held]:
        """Settle what another guard has left on record, and what it was about to put back."""
        try:
            until = record.stat().st_mtime + _SLOWEST
            left = msgspec.msgpack.decode(record.read_bytes(), type=_Record)
        except (OSError, msgspec.MsgspecError):
            record.unlink(missing_ok=True)
            return []
        self._known = {os.fsdecode(path): seen for path, seen in left.known.items()}
        begun = {held.name for held in self._copies.untold()}
        for path, before in self._known.items():
            if os.path.lexists(path) or not root_of(self._layout, path):
                continue
            if self._shown(path) in begun:
                with contextlib.suppress(OSError), self._folder_of(path) as directory:
                    _restore(directory, Path(path).name, before)
        held = self.check({os.fsdecode(path) for path in left.mounted}, until=until)
        record.unlink(missing_ok=True)
        return held

    def _present(
        self,
        look: Look,
        mounted: Collection[str],
        known: Collection[str] | None,
        inner: Iterable[str] | None,
    ) -> set[str]:
        """Return what is there: in the project, and in folders if they are not given as `inner`.

        Also what is in folders that are `known` and can be reached inside; all are unless that is
        given. What is in a folder that has appeared goes with it.
        """
        layout = self._layout
        if inner is None:
            theirs = (f"{layout.kept.parent}/", f"{layout.base}/")
            inner = found(layout.workspace, layout.repositories, look, theirs)
        top = (f"{layout.start}/.git", *layout.guarded, *inner)
        links = dict[str, bool]()
        paths = {self._reachable(path, links) for path in top if os.path.lexists(path)}
        room = _IN_FOLDERS
        for folder in sorted(path for path in paths if self._is_closed(path)):
            before = None if known is None else self._known.get(folder)
            if folder == _ITSELF and folder in mounted:
                continue
            if not before and known is not None:
                continue
            files, room = _files_in(folder, look, room)
            if before and folder in mounted and self._is_out_of_reach(folder, before):
                files = list(filter(self._may_be_of_commands, files))
            paths.update(files)
            if room <= 0 and known is None:
                self._full.add(folder)
        return paths

    def _may_be_of_commands(self, path: str) -> bool:
        """Tell whether a file under a read-only mount may be written to in another way.

        Any other one is the host's, however often git or an editor replaces it there.
        """
        before, now = self._known.get(path), GONE
        with contextlib.suppress(OSError):
            now = Seen(kind=-1, identity=identity_in(os.lstat(path)))
        if now is GONE:
            return False
        same = before if before is not None and before.file == now.file else None
        within = self._was_within(path, now.file)
        if now.identity[3] > 1 or within or (same and same.has_other_names):
            return True
        made = born(path)
        if same is None and made / 1e9 < self._looked and not self._was_closed(now.file):
            self._within[now.file] = made  # it was somewhere else before, where it may be open
        seen = self._seen(path, before)
        if seen.file == now.file:
            self._known[path] = seen
        return seen.file != now.file

    def _was_closed(self, file: tuple[int, ...]) -> bool:
        """Tell whether a file was under a mount before, where only the host could move it."""
        if self._closed_files is None:
            known = self._known.items()
            self._closed_files = {s.file for p, s in known if self._is_below(p, self._sound)}
        return file in self._closed_files

    def _is_below(self, path: str, mounted: Collection[str]) -> bool:
        """Tell whether something is under one of these mounts."""
        root = len(root_of(self._layout, path))
        ends = (at for at in range(root + 1, len(path) + 1) if path[at : at + 1] in {"/", ""})
        return any(path[:end] in mounted for end in ends)

    def _reachable(self, path: str, links: dict[str, bool]) -> str:
        """Return the first link on the way to something, if there is one, instead of it.

        Of each folder on the way it is noted in `links` whether it is one.
        """
        at = len(root_of(self._layout, path))
        while (at := path.find("/", at + 1)) >= 0:
            above = path[:at]
            if above not in links:
                links[above] = kind(above) == stat.S_IFLNK
            if links[above]:
                return above
        return path

    def _is_closed(self, folder: str) -> bool:
        """Tell whether all that is in a folder is of the kind that the host runs later."""
        return kind(folder) == stat.S_IFDIR and not folder.endswith("/.git")

    def _seen(
        self, path: str, before: Seen | None, *, keep: bool = True, compare: bool = True
    ) -> Seen:
        """Return how something is now: the same object if nothing has changed."""
        try:
            if before is not None and identity_in(os.lstat(path)) == before.identity:
                return before
            with self._folder_of(path) as directory:
                return described(directory, Path(path).name, keep=keep, compare=compare)
        except FileNotFoundError:
            return GONE
        except OSError:
            return HIDDEN

    def _is_out_of_reach(self, path: str, before: Seen) -> bool:
        """Tell whether this is the same file, which can be reached under its mount only."""
        try:
            status = os.lstat(path)
        except OSError:
            return False
        now = Seen(kind=stat.S_IFMT(status.st_mode), identity=identity_in(status))
        alone = not (now.has_other_names or before.has_other_names)
        return alone and now.file == before.file and not self._was_within(path, now.file)

    def _was_within(self, path: str, file: tuple[int, ...]) -> bool:
        # Another file may get the same number.
        return file in self._within and self._within[file] == born(path)

    def _stays(self, path: str, before: Seen | None) -> bool:
        """Tell whether this is as it was or has come to run nothing; then it is remembered."""
        past = self._gone.get(path, GONE) if before is None else GONE
        now = self._seen(path, before, compare=before is not None or past is not GONE)
        self._within[now.file] = born(path)
        if now is before or now is GONE:
            return True
        if now.kind == stat.S_IFDIR == past.kind or now.is_like(past):
            self._known[path] = now.untrusted()  # it is back as it was
            return True
        if before is None:
            stays = self._runs_nothing(path, now, b"")
            self._own.update({path: now} if stays else {})
            return stays
        known = before.content or b""
        # What is in a folder is compared by itself.
        same = now.kind == stat.S_IFDIR == before.kind or now.is_like(before)
        if same or (now.kind == stat.S_IFREG and self._runs_nothing(path, now, known)):
            # What a mapping has changed once it may change again without a time.
            self._known[path] = now.untrusted()
            return True
        return False

    def _runs_nothing(self, path: str, now: Seen, known: bytes) -> bool:
        try:
            with self._folder_of(path) as directory:
                return runs_nothing(self._layout, directory, path, now, known)
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False  # what cannot be looked at is a finding

    def _put_away(self, path: str, before: Seen | None) -> list[Held]:
        name = Path(path).name
        short = os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])
        aside = f"{short}.held-{secrets.token_hex(3)}"
        held = self._copies.announce(self._shown(path))
        back = self._known.pop(path, None) or self._own.get(path)
        try:
            with self._folder_of(path) as directory, _writable(directory):
                os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
                if back is not None and _may_come_back(back, directory, aside):
                    if before is not None:
                        # Whatever is made of it from now on, it is compared with what it was.
                        self._known[path] = before.of_another_file()
                    with contextlib.suppress(OSError):  # it must not stand in the way of the copy
                        _restore(directory, name, back)
                # Commands may take it away again, here and now: then there is no copy.
                with contextlib.suppress(FileNotFoundError):
                    held = self._copies.keep(directory, aside, held)
                    self._set_aside(directory, path, aside, held)
        except FileNotFoundError:
            self._copies.forget([held])
            return []
        except OSError as error:
            reason = f"{held.name} (it could not be renamed: {error.strerror})"
            return [replace(held, name=reason)]
        # What was there before the person may save once more; commands only at once, until it has
        # a mount again.
        since = self._began - _BACK_SOON if before is None else self._before
        again = self._away.get(path, -math.inf) > since
        self._away[path] = time.monotonic()
        return [replace(held, again=again)]

    def _set_aside(self, directory: int, path: str, aside: str, held: Held) -> None:
        leave_out(root_of(self._layout, path), path)
        if held.kept and stat.S_ISLNK(os.lstat(aside, dir_fd=directory).st_mode):
            os.unlink(aside, dir_fd=directory)  # git may write through it by any name
        elif held.kept:
            self._settle(directory, aside, f"{path}.held", f"{aside.rpartition('-')[0]}")

    def _settle(self, directory: int, aside: str, place: str, held: str) -> None:
        """Have what is aside take the place of the one held before, or go into that folder.

        Another one there is the person's, or has been changed by them.
        """
        ours = self._put.get(place) == _identity_at(held, directory)
        with contextlib.suppress(OSError):
            if ours:
                with contextlib.suppress(OSError):
                    os.unlink(held, dir_fd=directory)
            if not _is_there(held, directory):
                os.rename(aside, held, src_dir_fd=directory, dst_dir_fd=directory)
                self._put[place] = _identity_at(held, directory)
            elif ours:
                with reached(held, directory) as at, _writable(at):
                    os.rename(aside, aside.rpartition("-")[2], src_dir_fd=directory, dst_dir_fd=at)
                self._put[place] = _identity_at(held, directory)

    def _shown(self, path: str) -> str:
        return _printable(str(Path(path).relative_to(root_of(self._layout, path))))

    @contextlib.contextmanager
    def _folder_of(self, path: str) -> Iterator[int]:
        """Open the folder that something is in: commands may put links anywhere."""
        root = root_of(self._layout, path)
        with contextlib.ExitStack() as opened:
            at = opened.enter_context(reached(root))
            for folder in Path(path).relative_to(root).parts[:-1]:
                at = opened.enter_context(reached(folder, at))
            yield at


def _closed_by(noted: _Record) -> set[str]:
    """Return what is under mounts of all others: a mount goes with the file that it is over."""
    closed = set()
    for path in noted.mounted:
        with contextlib.suppress(OSError, KeyError):
            over, name = noted.known[path], os.fsdecode(path)
            if identity_in(os.lstat(name))[:2] == over.file and born(name) == over.born:
                closed.add(name)
    return closed


def settle_left(layout: SandboxLayout, folder: Path) -> list[Held]:
    """Hold what commands made that ended together with their Hermes; return what was not told yet.

    `folder` has what is kept for the project, by all who ever worked on it.
    """
    if not layout.project:
        return []
    held: list[Held] = []
    for record in sorted(folder.glob(f"*/{_RECORD}")):
        if record.parent == layout.kept:
            held += Guard(layout).recall(record)
            continue
        lock = os.open(record.parent / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held += Guard(layout).recall(record)
        except BlockingIOError:
            continue  # it still runs
        finally:
            os.close(lock)
    return [*held, *Copies(layout.held).untold()]


def _is_held(lock: Path) -> bool:
    """Tell whether somebody else's sandbox is open."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_untouched(now: Seen, before: Seen | None) -> bool:
    if before is None:
        return False
    return now.identity[:-1] == before.identity[:-1] and now.is_like(before)


def _files_in(folder: str, look: Look, most: int) -> tuple[list[str], int]:
    """Return files below a folder, and how many of the `most` entries are left to look at."""
    ahead, files = [folder], list[str]()
    while ahead and most > 0:
        for entry in look.entries(ahead.pop(), most):
            most -= 1
            if _OURS.search(entry.name):
                continue
            (ahead if entry.is_dir(follow_symlinks=False) else files).append(entry.path)
    return files, most


def _oldest(path: str, look: Look) -> float:
    """Return when that was last touched in a tree which was left alone longest."""
    times = []
    for each in (path, *_files_in(path, look, 1000)[0]):
        with contextlib.suppress(OSError):
            times.append(os.lstat(each).st_ctime)
    return min(times, default=0.0)


def _printable(name: str) -> str:
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "�" for c in text)


@contextlib.contextmanager
def _writable(directory: int) -> Iterator[None]:
    """Take the right to rename in a folder back, if its owner has it no more."""
    mode = os.fstat(directory).st_mode
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        yield
        return
    with contextlib.suppress(PermissionError):
        change_mode(directory, mode | stat.S_IRWXU)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            change_mode(directory, mode)


def _is_there(name: str, directory: int) -> bool:
    return _identity_at(name, directory) != ()


def _identity_at(name: str, directory: int) -> tuple[int, ...]:
    try:
        return identity_in(os.stat(name, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        return ()


def _may_come_back(back: Seen, directory: int, aside: str) -> bool:
    """Tell whether what was there is of this folder, and something else than what was held."""
    if back.content is None or not back.was_in(directory):
        return False
    with contextlib.suppress(OSError):
        return not described(directory, aside, compare=False).is_like(back)
    return True


def _restore(directory: int, name: str, before: Seen) -> None:
    """Put back what was there, all at once, unless something is there again."""
    content = before.content or b""
    if before.kind == stat.S_IFLNK:
        os.symlink(os.fsdecode(content), name, dir_fd=directory)
        return
    draft = f"{os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])}.held-{secrets.token_hex(3)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o600, dir_fd=directory), "wb") as file:
            os.fchmod(file.fileno(), stat.S_IMODE(before.mode))
            file.write(content)
        try:
            os.link(draft, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if not _is_there(name, directory):
                os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=directory)
