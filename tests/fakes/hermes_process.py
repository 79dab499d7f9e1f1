"""Another Hermes process, for tests of what happens when it dies or is not root."""

import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from fakes.boxes import PATH

_TESTS = Path(__file__).parents[1]
_OURS = f"{_TESTS}:{_TESTS.parent / 'src'}"


def other_process(
    script: str, *, python: str = sys.executable, before: Sequence[str] = (), path: str = ""
) -> "subprocess.Popen[bytes]":
    """Start a Python script that may import what tests import."""
    return subprocess.Popen(
        [*before, python, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": PATH, "PYTHONPATH": f"{_OURS}:{path}" if path else _OURS},
    )


def processes_with(marker: str) -> list[int]:
    """Find processes of this machine whose command line holds `marker`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
