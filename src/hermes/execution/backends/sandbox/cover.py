"""Mounts things of a sandbox over themselves: a program of its own, inside but of the host.

Something inside may put a link in the way at any moment, or open what is mounted before it is
read-only. So no link is followed, and a mount is read-only before it has a place. Older
kernels cannot do that (before 5.12): there is no mount then, and looks compare.

Arguments: the namespaces of users and of mounts, then a letter and a path each: `r` for read-only.
"""

import ctypes
import os
import sys
from collections.abc import Iterator

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE, _CLOEXEC, _EMPTY_PATH, _RECURSIVE = 1, 0x80000, 0x1000, 0x8000
_FROM_AND_TO = 0x4 | 0x40
_READ_ONLY = 1 | 2 | 4
"""Neither are devices and rights of programs obeyed."""
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = (
        *(("set", ctypes.c_uint64), ("clear", ctypes.c_uint64)),
        *(("propagation", ctypes.c_uint64), ("userns", ctypes.c_uint64)),
    )


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _enter(namespaces: tuple[str, ...]) -> None:
    # All are opened first: inside there are other files.
    for opened in [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in namespaces]:
        if _libc.setns(ctypes.c_int(opened), ctypes.c_int(0)) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _opened(path: bytes) -> int:
    """Open something without following a link on the way to it."""
    at = os.open("/", _STEP)
    for name in path.strip(b"/").split(b"/"):
        below = os.open(name, _STEP, dir_fd=at)
        os.close(at)
        at = below
    return at


def _cover(path: bytes, *, writable: bool) -> None:
    at = _opened(path)
    empty, size = ctypes.c_char_p(b""), ctypes.c_size_t(ctypes.sizeof(_Attributes))
    how = _CLONE | _CLOEXEC | _EMPTY_PATH | (_RECURSIVE if writable else 0)
    tree = _call(_OPEN_TREE, ctypes.c_int(at), empty, ctypes.c_uint(how))
    if not writable:
        attributes = _Attributes(set=_READ_ONLY)
        flags = ctypes.c_uint(_EMPTY_PATH)
        changed = (ctypes.c_int(tree), empty, flags, ctypes.byref(attributes), size)
        _call(_MOUNT_SETATTR, *changed)
    places = (ctypes.c_int(tree), empty, ctypes.c_int(at), empty)
    _call(_MOVE_MOUNT, *places, ctypes.c_uint(_FROM_AND_TO))
    os.close(tree)
    os.close(at)


def _covered(words: list[str]) -> Iterator[str]:
    """Cover what is named; tell what could not be."""
    for word in words:
        try:
            _cover(os.fsencode(word[1:]), writable=word[0] == "w")
        except OSError as error:
            yield f"{word[1:]}: {error.strerror}"


if __name__ == "__main__":
    _enter((sys.argv[1], sys.argv[2]))
    failed = list(_covered(sys.argv[3:]))
    sys.exit("\n".join(failed) if failed else 0)
