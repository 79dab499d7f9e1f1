"""Colour for single lines: `#rrggbb` brought down to what the terminal has."""

from wcwidth import wcswidth, wcwidth

from hermes.entry.terminal.capabilities import Colours, TerminalKind, ascii_text
from hermes.entry.terminal.skins import Skin

__all__ = [
    "Painter",
    "cut",
    "pad",
    "width",
    "wrap",
]


RESET = "\x1b[0m"
_SIXTEEN = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205),
    (229, 229, 229), (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255),
    (255, 0, 255), (0, 255, 255), (255, 255, 255),
)  # fmt: skip


class Painter:
    """Paints text in the colours of a skin, by their names in its palette."""

    def __init__(self, skin: Skin, kind: TerminalKind) -> None:
        self.skin = skin
        self.kind = kind

    def __call__(self, text: str, colour: str = "", *, bold: bool = False) -> str:
        """Return `text` in the palette's `colour`."""
        if not self.kind.unicode:
            text = ascii_text(text)
        codes = self._codes(colour, bold=bold)
        if not codes or not text:
            return text
        return f"\x1b[{codes}m{text}{RESET}"

    def hex(self, colour: str) -> str:
        """Return `#rrggbb` for a colour of the palette; empty if there is none to use."""
        if self.kind.colours is Colours.NONE or not colour:
            return ""
        value = getattr(self.skin.colors, colour)
        assert isinstance(value, str)
        return value if _is_hex(value) else ""

    def _codes(self, colour: str, *, bold: bool) -> str:
        if self.kind.colours is Colours.NONE:
            return ""
        codes = ["1"] if bold else []
        value = self.hex(colour)
        if value:
            codes.append(_code(value, self.kind.colours))
        return ";".join(codes)


def _is_hex(value: str) -> bool:
    digits = value[1:]
    return (
        value.startswith("#")
        and len(digits) == 6
        and all(c in "0123456789abcdefABCDEF" for c in digits)
    )


def _code(value: str, colours: Colours) -> str:
    red, green, blue = (int(value[i : i + 2], 16) for i in (1, 3, 5))
    if colours is Colours.TRUE:
        return f"38;2;{red};{green};{blue}"
    if colours is Colours.MANY:
        return f"38;5;{_cube(red, green, blue)}"
    nearest = min(range(16), key=lambda n: _distance(_SIXTEEN[n], (red, green, blue)))
    return str(30 + nearest if nearest < 8 else 82 + nearest)


def _cube(red: int, green: int, blue: int) -> int:
    if max(red, green, blue) - min(red, green, blue) < 10:
        grey = (red + green + blue) // 3
        return 16 if grey < 8 else 231 if grey > 246 else 232 + min(23, (grey - 8) // 10)
    steps = [
        0 if value < 48 else 1 if value < 115 else (value - 35) // 40
        for value in (red, green, blue)
    ]
    return 16 + 36 * steps[0] + 6 * steps[1] + steps[2]


def _distance(one: tuple[int, int, int], other: tuple[int, int, int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def width(text: str) -> int:
    """Return how many cells `text` takes."""
    cells = wcswidth(text)
    return cells if cells >= 0 else sum(max(0, wcwidth(char)) for char in text)


def cut(text: str, cells: int, *, ellipsis: str = "…") -> str:
    """Return `text`, shortened to at most `cells`."""
    if width(text) <= cells:
        return text
    room = cells - width(ellipsis)
    if room <= 0:
        return ellipsis[: max(0, cells)]
    return _fitting(text, room).rstrip() + ellipsis


def pad(text: str, cells: int) -> str:
    """Return `text` filled with blanks to `cells`."""
    return text + " " * max(0, cells - width(text))


def wrap(text: str, cells: int) -> list[str]:
    """Break text into lines of at most `cells`, between words where possible."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        lines += _wrap_line(paragraph, max(1, cells))
    return lines


def _wrap_line(line: str, cells: int) -> list[str]:
    lines: list[str] = []
    rest = line
    while width(rest) > cells:
        head = _fitting(rest, cells) or rest[0]
        blank = head.rfind(" ")
        if blank > 0 and len(head) < len(rest) and rest[len(head)] != " ":
            head = head[:blank]
        lines.append(head.rstrip())
        rest = rest[len(head) :].lstrip(" ")
    return [*lines, rest]


def _fitting(text: str, cells: int) -> str:
    """Return the longest beginning of `text` that fits."""
    used = 0
    for position, char in enumerate(text):
        used += max(0, wcwidth(char))
        if used > cells:
            return text[:position]
    return text
