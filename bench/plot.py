"""The history of all figures over commits as one SVG of small panels."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.budgets import BUDGETS, Budget
from bench.results import Result

__all__ = ["draw"]

WIDTH, HEIGHT, GAP, ACROSS = 280, 120, 16, 4
TOP, BOTTOM, SIDE = 34, 16, 10
STYLE = """
text { font: 11px sans-serif; fill: #333 } .value { font-weight: bold; text-anchor: end }
.small { font-size: 9px; fill: #777 }
.end { text-anchor: end } .panel { fill: #fafafa; stroke: #ddd }
.line { fill: none; stroke: #1f6feb; stroke-width: 1.5 } .dot { fill: #1f6feb }
.limit { stroke: #d1242f; stroke-dasharray: 4 3 }
.stretch { stroke: #1a7f37; stroke-dasharray: 2 3 }
"""
Point = tuple[str, float]


def draw(results: Sequence[Result], path: Path) -> None:
    """Write one panel per figure: its values over commits, budget in red, stretch in green."""
    series = {key: points for key in BUDGETS if (points := _points(results, key))}
    panels = [_panel(BUDGETS[key], points, at) for at, (key, points) in enumerate(series.items())]
    width = ACROSS * (WIDTH + GAP) + GAP
    height = -(-len(panels) // ACROSS) * (HEIGHT + GAP) + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
    lines = [head, f"<style>{STYLE}</style>", *panels, "</svg>", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _points(results: Sequence[Result], key: str) -> list[Point]:
    return [
        (result.commit, figure.measured)
        for result in results
        for figure in result.figures
        if figure.key == key
    ]


def _panel(budget: Budget, points: list[Point], at: int) -> str:
    left = GAP + at % ACROSS * (WIDTH + GAP)
    top = GAP + at // ACROSS * (HEIGHT + GAP)
    values = [value for _, value in points]
    marks = [mark for mark in (budget.limit, budget.stretch) if mark is not None]
    highest = max([*values, *marks, 1e-9]) * 1.1

    def x(index: int) -> float:
        room = WIDTH - 2 * SIDE
        return SIDE + (room * index / (len(points) - 1) if len(points) > 1 else room / 2)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(value, 0.0) / highest

    def rule(name: str, value: float | None) -> str:
        if value is None:
            return ""
        across = f'x1="{SIDE}" x2="{WIDTH - SIDE}" y1="{y(value):.1f}" y2="{y(value):.1f}"'
        return f'<line class="{name}" {across}/>'

    right = WIDTH - SIDE
    latest = f"{values[-1]:,.4g} {escape(budget.unit)}"
    places = [(x(index), y(value)) for index, value in enumerate(values)]
    return "".join(
        [
            f'<g transform="translate({left},{top})">',
            f'<rect class="panel" width="{WIDTH}" height="{HEIGHT}"/>',
            f'<text x="{SIDE}" y="14">{escape(budget.what)}</text>',
            f'<text class="value" x="{right}" y="28">{latest}</text>',
            rule("limit", budget.limit),
            rule("stretch", budget.stretch),
            '<polyline class="line" points="',
            " ".join(f"{px:.1f},{py:.1f}" for px, py in places),
            '"/>',
            *(f'<circle class="dot" cx="{px:.1f}" cy="{py:.1f}" r="2"/>' for px, py in places),
            f'<text class="small" x="{SIDE}" y="{HEIGHT - 4}">{escape(points[0][0])}</text>',
            f'<text class="small end" x="{right}" y="{HEIGHT - 4}">{escape(points[-1][0])}</text>',
            "</g>",
        ]
    )
