"""A progress line on standard error: a bar in a terminal, two plain lines elsewhere."""

import sys
import time
from typing import Final, TextIO

_WIDTH: Final = 30
_EVERY: Final = 0.05
_LABELS: Final = {
    "download": "Downloading the embedded model",
    "unpack": "Unpacking it",
    "load": "Loading the model",
}


class ProgressLine:
    """Shows steps one after the other. Call it with `step, done, total`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar = self._stream.isatty()
        self._step = ""
        self._shown = 0.0

    def __call__(self, step: str, done: int, total: int) -> None:
        now = time.monotonic()
        new = step != self._step
        if new:
            self.finish()
            self._step = step
        if not self._bar:
            if new:
                self._stream.write(f"{_LABELS.get(step, step)} ...\n")
                self._stream.flush()
            return
        if new or done >= total or now - self._shown >= _EVERY:
            self._shown = now
            self._stream.write(f"\r{self._line(done, total)}\x1b[K")
            self._stream.flush()

    def finish(self) -> None:
        if self._step and self._bar:
            self._stream.write("\n")
            self._stream.flush()
        self._step = ""

    def _line(self, done: int, total: int) -> str:
        label = _LABELS.get(self._step, self._step)
        if total <= 0:
            return f"{label} ..."
        share = min(1.0, done / total)
        filled = round(share * _WIDTH)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        return f"{label:<32} {bar} {share:4.0%} {done / 1e6:6.1f} MB"
