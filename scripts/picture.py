"""Render a terminal as a picture: runs a command in tmux, types into it, writes an SVG.

    python scripts/picture.py OUT.svg 'COMMAND' 'line to type' 'text to wait for' ...

Lines and texts alternate; the first text is waited for before anything is typed.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 92, 26
PATIENCE = 25.0
FONT_FILES = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""A picture in a repository must not fetch anything."""
SESSION = f"hermes-picture-{time.monotonic_ns()}"


def tmux(*arguments: str) -> str:
    """Run a tmux command and return what it prints."""
    done = subprocess.run(["tmux", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def screen(*flags: str) -> str:
    """Return what the terminal shows."""
    return tmux("capture-pane", "-t", SESSION, "-p", *flags)


def wait_for(text: str) -> None:
    """Wait until the terminal shows a text."""
    deadline = time.monotonic() + PATIENCE
    while text not in screen():
        if time.monotonic() > deadline:
            raise SystemExit(f"{text!r} did not appear:\n{screen()}")
        time.sleep(0.2)
    time.sleep(3.0)


def main(out: Path, command: str, *script: str) -> None:
    """Play the script and write the picture."""
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    tmux("new-session", "-d", "-s", SESSION, *size, f"{command}; sleep 60")
    try:
        wait_for(script[0])
        for line, text in zip(script[1::2], script[2::2], strict=True):
            tmux("send-keys", "-t", SESSION, "-l", line)
            tmux("send-keys", "-t", SESSION, "Enter")
            wait_for(text)
        shown = screen("-e").rstrip("\n")
    finally:
        tmux("kill-session", "-t", SESSION)
    console = Console(record=True, width=COLUMNS, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(Text.from_ansi(shown))
    picture = console.export_svg(title="hermes")
    out.write_text(FONT_FILES.sub("", picture), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
