"""The system call filter of the sandbox: what no ordinary program needs is not there.

A list of what is refused, because what compilers, package managers and servers
call cannot be foreseen. Refused are kernel keyrings, io_uring, userfaultfd, BPF,
performance counters, mounts, modules, file handles, clocks and swap, reading
other processes' memory, typing into terminals, and sockets of any family but
Unix, IPv4, IPv6 and netlink. `ptrace` stays, for debuggers that start their
program; attaching to a running one does not. Leases of files make whoever opens
one wait, on the host too: there are none. Shared memory of System V outlives its
process and counts for nobody: a segment may be as large as databases need it.

The filter is assembled here, for the machine it runs on. Programs for another
architecture (32 bit) find no system calls at all.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Callable

_X86_64, _AARCH64 = 0xC000003E, 0xC00000B7
_ARCHITECTURES = {"x86_64": _X86_64, "aarch64": _AARCH64}
_REFUSED = """
    ptrace 101 117 | add_key 248 217 | request_key 249 218 | keyctl 250 219
    io_uring_setup 425 425 | io_uring_enter 426 426 | io_uring_register 427 427
    userfaultfd 323 282 | bpf 321 280 | perf_event_open 298 241 | fanotify_init 300 262
    process_vm_readv 310 270 | process_vm_writev 311 271 | process_madvise 440 440
    pidfd_getfd 438 438 | kcmp 312 272 | open_by_handle_at 304 265
    mount 165 40 | umount2 166 39 | pivot_root 155 41 | chroot 161 51 | open_tree 428 428
    move_mount 429 429 | fsopen 430 430 | fsconfig 431 431 | fsmount 432 432 | fspick 433 433
    mount_setattr 442 442 | open_tree_attr 467 467 | quotactl 179 60 | quotactl_fd 443 443
    kexec_load 246 104 | kexec_file_load 320 294 | init_module 175 105 | finit_module 313 273
    delete_module 176 106 | reboot 169 142 | swapon 167 224 | swapoff 168 225 | acct 163 89
    settimeofday 170 170 | clock_settime 227 112 | syslog 103 116 | lookup_dcookie 212 18
    vhangup 153 58 | nfsservctl 180 42 | modify_ldt 154 - | iopl 172 - | ioperm 173 -
    uselib 134 - | create_module 174 - | get_kernel_syms 177 - | query_module 178 - | sysfs 139 -
    memfd_secret 447 447
"""
_SOCKET, _IOCTL = {_X86_64: 41, _AARCH64: 198}, {_X86_64: 16, _AARCH64: 29}
_FAMILIES = (1, 2, 10, 16)
_SHMGET, _SEGMENT = {_X86_64: 29, _AARCH64: 194}, 65_536
_FCNTL, _LEASES = {_X86_64: 72, _AARCH64: 25}, (1024, 1040)  # F_SETLEASE, F_SETDELEG
_TERMINAL_TRICKS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_PTRACE_ATTACH = (16, 0x4206)  # and PTRACE_SEIZE
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in what the kernel shows the filter; arguments are compared by their lower half."""


Step = tuple[int, int, int, int]


def filter_program() -> bytes:
    """Return the filter in the form that the kernel and bubblewrap take; empty: not known here."""
    architecture = _ARCHITECTURES.get(os.uname().machine)
    if architecture is None:
        return b""
    column = 1 if architecture == _X86_64 else 2
    numbers = {row.split()[0]: row.split()[column] for row in _rows()}
    attach = int(numbers.pop("ptrace"))
    refused = [int(number) for number in numbers.values() if number != "-"]
    missing, denied = _no(errno.ENOSYS), _no(errno.EPERM)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        missing,
        (_LOAD, 0, 0, _NUMBER),
        *([(_AT_LEAST, 0, 1, _X32), missing] if architecture == _X86_64 else ()),
        *(step for number in refused for step in ((_EQUAL, 0, 1, number), denied)),
        *_by_argument(_SOCKET[architecture], _FIRST, _FAMILIES, _no(errno.EAFNOSUPPORT), keep=True),
        *_by_argument(_IOCTL[architecture], _SECOND, _TERMINAL_TRICKS, denied, keep=False),
        *_by_argument(_FCNTL[architecture], _SECOND, _LEASES, denied, keep=False),
        *_by_argument(attach, _FIRST, _PTRACE_ATTACH, denied, keep=False),
        *_at_most(_SHMGET[architecture], _SECOND, _SEGMENT, _no(errno.EINVAL)),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def confiner() -> Callable[[], None]:
    """Return what puts the calling thread under the filter, in a session keyring of its own.

    What it starts inherits both; the other threads of the process do not.
    """
    program = filter_program()
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    filter_ = ctypes.create_string_buffer(described, len(described))
    keyctl = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)

    def confine() -> None:
        if keyctl is not None:
            libc.syscall(keyctl, 1, None)  # KEYCTL_JOIN_SESSION_KEYRING; without keyrings: nothing
        if not instructions:
            return
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, filter_, 0, 0):
            # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
            raise OSError(ctypes.get_errno(), "the kernel refuses the filter of the sandbox")

    return confine


def _rows() -> list[str]:
    return [row.strip() for row in _REFUSED.replace("\n", "|").split("|") if row.strip()]


def _no(code: int) -> Step:
    return (_RETURN, 0, 0, _ERRNO | code)


def _by_argument(
    call: int,
    offset: int,
    values: tuple[int, ...],
    refusal: Step,
    *,
    keep: bool,
) -> list[Step]:
    """Return the part that looks at an argument of one call: only `values` pass, or all others."""
    count = len(values)
    passed, refused = (_RETURN, 0, 0, _ALLOW), refusal
    end = [refused, passed] if keep else [passed, refused]
    checks = [(_EQUAL, count - place, 0, value) for place, value in enumerate(values)]
    return [(_EQUAL, 0, count + 3, call), (_LOAD, 0, 0, offset), *checks, *end]


def _at_most(call: int, offset: int, limit: int, refusal: Step) -> list[Step]:
    """Return the part that refuses one call if an argument, in both its halves, is larger."""
    return [
        (_EQUAL, 0, 6, call),
        (_LOAD, 0, 0, offset + 4),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, offset),
        (_AT_LEAST, 0, 1, limit + 1),
        refusal,
        (_RETURN, 0, 0, _ALLOW),
    ]
