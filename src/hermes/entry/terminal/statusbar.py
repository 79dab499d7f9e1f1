"""The status bar: one line that drops its least important parts when space is short."""

from collections.abc import Sequence

from wcwidth import ljust

from hermes.entry.terminal.paint import cut
from hermes.entry.terminal.skins import Spinner
from hermes.streaming.units import width

FRAME_SECONDS = 0.2
VERB_SECONDS = 6.0
PLAIN = ("|", "/", "-", "\\")


def spinner_line(spinner: Spinner, elapsed: float, *, thinking: bool, unicode: bool) -> str:
    faces = spinner.thinking_faces if thinking and spinner.thinking_faces else ()
    faces = faces or spinner.waiting_faces
    if not unicode:
        faces = PLAIN
    frame = int(elapsed / FRAME_SECONDS)
    face = faces[(frame if not unicode else frame // 4) % len(faces)]
    verbs = spinner.thinking_verbs
    verb = verbs[int(elapsed / VERB_SECONDS) % len(verbs)]
    dots = "." * (1 + frame % 3)
    return f"{face} {verb}{dots.ljust(3)} {elapsed_words(elapsed)}"


def elapsed_words(seconds: float) -> str:
    """Return `4s`, `2m 05s`, `1h 02m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def status_line(parts: Sequence[tuple[int, str]], cells: int) -> str:
    """Return the bar, exactly `cells` wide; of (how soon it may go, text) the last to go stay."""
    kept = [part for part in parts if part[1]]
    while len(kept) > 1 and width(_joined(kept)) > cells - 2:
        kept.remove(max(kept, key=lambda part: part[0]))
    return ljust(cut(f" {_joined(kept)}", cells), cells)


def _joined(parts: Sequence[tuple[int, str]]) -> str:
    return " · ".join(text for _, text in parts)
