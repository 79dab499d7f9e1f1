"""A front process at the terminal, so that background processes can outlive the chat.

The shell waits for the process it started. With a person at the terminal that one only waits
in turn, for the chat, its child; it passes signals on and ends as the chat ends. A chat that
is left while background processes run on lets the front process go and stays behind without a
terminal, as the owner of these processes. Whoever kills the front process kills the chat.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from functools import partial

PR_SET_PDEATHSIG = 1
SI_USER = 0
PASSED_ON = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGINT})
HEARD = PASSED_ON | {signal.SIGCHLD, signal.SIGUSR1}


def behind_a_front() -> Callable[[], None] | None:
    """Go on as the child of a front process; return what lets it go, None where there is none."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    front, chat = os.getpid(), os.fork()
    if chat:
        _wait_for(chat)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != front:
        os._exit(128 + signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    return partial(_let_go, front, partial(prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0))


def _let_go(front: int, outlive: Callable[[], object]) -> None:
    outlive()
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    os.kill(front, signal.SIGUSR1)


def _wait_for(chat: int) -> None:
    """Wait for the end of the chat, or for its word, and end the same way."""
    while True:
        heard = signal.sigwaitinfo(HEARD)
        if heard.si_signo == signal.SIGUSR1 and heard.si_pid == chat:
            os._exit(0)
        if heard.si_signo in PASSED_ON and heard.si_code <= SI_USER:
            # Those of the kernel, for a terminal, reach the whole group.
            os.kill(chat, heard.si_signo)
        ended, status = os.waitpid(chat, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
