"""The waiting line: a face, a verb and how long it has been.

Pure: what is shown depends on the elapsed time only.
"""

from hermes.entry.terminal.skins import Spinner

__all__ = ["FRAME_SECONDS", "elapsed_words", "spinner_line"]

FRAME_SECONDS = 0.2
VERB_SECONDS = 6.0
PLAIN = ("|", "/", "-", "\\")


def spinner_line(spinner: Spinner, elapsed: float, *, thinking: bool, unicode: bool) -> str:
    """Return the line for this moment."""
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
