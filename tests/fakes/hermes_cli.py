"""The `hermes` command as a real process with a home of its own."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["hermes", "in_terminal"]

NO_SERVERS = dict.fromkeys(
    ("OLLAMA_BASE_URL", "LM_BASE_URL", "VLLM_BASE_URL", "LLAMA_BASE_URL"), "http://127.0.0.1:9/v1"
)
"""Port 9 answers nobody, so that servers of the machine that runs the tests do not count."""
LAUNCH = (
    "from hermes.cli import root\n"
    "root.COMMANDS.setdefault('model', '')\n"
    "root.COMMANDS.setdefault('setup', '')\n"
    "root.run()\n"
)


def _environ(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    return {
        "HERMES_HOME": str(home),
        "HOME": str(home.parent),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONWARNINGS": "error",
        **NO_SERVERS,
        **extra,
    }


def hermes(home: Path, *args: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run one command without a terminal; `extra` are further variables."""
    return subprocess.run(
        [sys.executable, "-c", LAUNCH, *args],
        env=_environ(home, extra),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def in_terminal(home: Path, args: list[str], steps: list[tuple[str, bytes]], **extra: str) -> str:
    """Run in a terminal; send each answer when its prompt has appeared."""
    main, side = pty.openpty()
    environ = _environ(home, {"TERM": "xterm", "COLUMNS": "120", "LINES": "40", **extra})
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *args],
        env=environ,
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
    )
    os.close(side)
    screen = ""
    waiting = list(steps)
    while True:
        try:
            data = os.read(main, 65_536)
        except OSError:
            break
        if not data:
            break
        if b"\x1b[6n" in data:
            os.write(main, b"\x1b[1;1R")
        screen += data.decode("utf-8", "replace")
        while waiting and waiting[0][0] in screen:
            os.write(main, waiting.pop(0)[1])
    os.close(main)
    process.wait(timeout=20)
    return screen
