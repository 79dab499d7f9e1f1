"""The status bar: one line that drops its least important parts when space is short."""

from msgspec import Struct
from wcwidth import ljust

from hermes.control.lanes.gateway import BusyMode
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


class Status(Struct, frozen=True, kw_only=True):
    model: str
    context_tokens: int = 0
    context_window: int | None = None
    tokens: int = 0
    cost_usd: float | None = None
    """None: not known, or not to be shown."""
    elapsed: float = 0.0
    busy_mode: BusyMode = BusyMode.INTERRUPT
    working: bool = False
    queued: int = 0
    yolo: bool = False
    title: str = ""


def status_line(status: Status, cells: int) -> str:
    """Return the bar, exactly `cells` wide."""
    parts = _parts(status)
    separator = " · "
    while len(parts) > 1 and width(_joined(parts, separator)) > cells - 2:
        parts.remove(max(parts, key=lambda part: part[0]))
    return ljust(cut(f" {_joined(parts, separator)}", cells), cells)


def _joined(parts: list[tuple[int, str]], separator: str) -> str:
    return separator.join(text for _, text in parts)


def _parts(status: Status) -> list[tuple[int, str]]:
    """Return (how soon it may go, text) in the order of display."""
    parts = [(0, _short_model(status.model))]
    if status.yolo:
        parts.append((1, "YOLO"))
    if status.context_window:
        share = status.context_tokens / status.context_window
        parts.append((2, f"ctx {share:.0%}"))
    elif status.context_tokens:
        parts.append((4, f"ctx {short_number(status.context_tokens)}"))
    parts.append((5, f"{short_number(status.tokens)} tok"))
    if status.cost_usd is not None:
        parts.append(
            (4, f"${status.cost_usd:.4f}" if status.cost_usd < 0.1 else f"${status.cost_usd:.2f}")
        )
    parts.append((3, elapsed_words(status.elapsed)))
    if status.queued:
        parts.append((2, f"{status.queued} queued"))
    parts.append((1 if status.working else 6, status.busy_mode.value))
    if status.title:
        parts.append((7, cut(status.title, 30)))
    return parts


def _short_model(model: str) -> str:
    return model.rpartition("/")[2] or model or "no model"


def short_number(number: int) -> str:
    """Return `950`, `12.3k`, `1.2M`."""
    if number < 1000:
        return str(number)
    if number < 100_000:
        return f"{number / 1000:.1f}k"
    if number < 1_000_000:
        return f"{number // 1000}k"
    return f"{number / 1_000_000:.1f}M"
