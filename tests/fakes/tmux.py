"""A real terminal for tests: tmux, driven by keys and read by its screen."""

import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Tmux"]

SECONDS = 20.0


class Tmux:
    """One tmux server with one window, running a shell without a prompt of its own."""

    def __init__(self, folder: Path, *, columns: int = 80, rows: int = 40) -> None:
        self.folder = folder
        self._socket = folder / "tmux.sock"
        self._raw = folder / "raw.txt"
        shell = f"cd {shlex.quote(str(folder))} && exec sh"
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), shell
        )
        self._tmux("set", "-g", "status", "off")
        self._tmux("pipe-pane", "-o", f"cat >> {shlex.quote(str(self._raw))}")

    def close(self) -> None:
        subprocess.run(
            ["tmux", "-S", str(self._socket), "kill-server"], check=False, capture_output=True
        )

    def run(self, command: str) -> None:
        """Run a command that reports its exit code and the terminal's settings around it."""
        script = self.folder / "run.sh"
        script.write_text(
            f"stty -a > before\n{command}\ncode=$?\nstty -a > after\necho EXIT $code\n",
            encoding="utf-8",
        )
        self.keys("clear; . ./run.sh", "Enter")

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """Paste as a terminal does, in brackets if the program asked for them."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p", "-r")

    def screen(self, *, colours: bool = False) -> str:
        text = self._tmux("capture-pane", "-p", *(["-e"] if colours else []))
        return "\n".join(line.rstrip() for line in text.rstrip().split("\n"))

    def wait_for(self, wanted: str | Callable[[str], bool], *, seconds: float = SECONDS) -> str:
        """Return the screen once it shows the text, or fail with what it shows instead."""
        found = wanted if callable(wanted) else re.compile(wanted, re.MULTILINE).search
        until = time.monotonic() + seconds
        while True:
            screen = self.screen()
            if found(screen):
                return screen
            if time.monotonic() > until:
                raise AssertionError(f"not seen: {wanted!r}; the screen shows:\n{screen}")
            time.sleep(0.03)

    def choose(self, number: int) -> None:
        """Answer the question on the screen the deliberate way."""

        marked = re.compile(r"^❯ (\d+)\. ", re.MULTILINE)
        looks: dict[str, int] = {}

        def press(key: str, screen: str) -> None:
            """Press a key once its screen has stood a moment, again if nothing comes of it."""
            looks[screen] = looks.get(screen, 0) + 1
            if looks[screen] % 25 == 4:
                self.keys(key)

        def selected(screen: str) -> bool:
            found = marked.search(screen)
            if found is None or found[1] != str(number):
                press("Tab" if found is None else str(number), found[0] if found else "")
            return found is not None and found[1] == str(number)

        def gone(screen: str) -> bool:
            found = marked.search(screen)
            if found is None or found[1] != str(number):
                return True
            press("Enter", "enter")
            return False

        self.wait_for(r"^[❯ ] \d\. ")
        self.wait_for(selected)
        self.wait_for(gone)

    def raw(self) -> str:
        """Return every byte the program sent to the terminal."""
        return self._raw.read_text(encoding="utf-8", errors="replace")

    def programs(self) -> list[int]:
        """Return the processes that the shell has started."""
        shell = self._tmux("display", "-p", "#{pane_pid}").strip()
        found = Path(f"/proc/{shell}/task/{shell}/children").read_text(encoding="ascii")
        return [int(each) for each in found.split()]

    def cursor_shown(self) -> bool:
        return self._tmux("display", "-p", "#{cursor_flag}").strip() == "1"

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
        return done.stdout.decode(errors="replace")
