"""The part of the screen that is redrawn: live text, spinner, picker, input, status bar."""

from collections.abc import Callable, Sequence

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, has_completions, is_done
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Container,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenuControl
from prompt_toolkit.styles import Style

from hermes.entry.terminal.paint import Painter

__all__ = ["Panes", "chat_layout", "chat_style", "styled"]

MENU_LINES = 8
INPUT_LINES = 10


class Panes:
    """What the layout asks for each time it is drawn."""

    def __init__(
        self,
        *,
        live: Callable[[], Sequence[str]],
        spinner: Callable[[], str],
        picker: Callable[[], Sequence[tuple[str, str]]],
        prompt: Callable[[], str],
        hint: Callable[[], str],
        status: Callable[[], str],
    ) -> None:
        self.live = live
        self.spinner = spinner
        self.picker = picker
        self.prompt = prompt
        self.hint = hint
        self.status = status


def chat_layout(panes: Panes, text: Buffer, answer: Buffer, *, typing: Condition) -> Layout:
    """Put the panes together, input last but for the status bar."""
    picking = Condition(lambda: bool(panes.picker()))
    input_window = Window(
        BufferControl(buffer=text),
        height=Dimension(min=1, max=INPUT_LINES),
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=lambda line, wrapped: _prefix(panes.prompt(), line, wrapped),
    )
    answer_window = Window(
        BufferControl(buffer=answer),
        height=Dimension(min=1, max=4),
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=lambda line, wrapped: _prefix("  > ", line, wrapped),
    )
    menu = Window(
        CompletionsMenuControl(),
        height=Dimension(min=1, max=MENU_LINES),
        dont_extend_height=True,
        style="class:completion-menu",
    )
    body: list[Container] = [
        _pane(lambda: ANSI("\n".join(panes.live())), lambda: bool(panes.live())),
        ConditionalContainer(Window(height=1), filter=Condition(lambda: not panes.live())),
        _pane(lambda: [("class:spinner", panes.spinner())], lambda: bool(panes.spinner())),
        _pane(lambda: styled(panes.picker()), lambda: bool(panes.picker())),
        ConditionalContainer(answer_window, filter=picking & typing),
        ConditionalContainer(input_window, filter=~picking),
        _pane(lambda: [("class:hint", panes.hint())], lambda: bool(panes.hint())),
        ConditionalContainer(menu, filter=has_completions & ~is_done & ~picking),
        _pane(lambda: [("class:status", panes.status())], lambda: bool(panes.status())),
    ]
    return Layout(HSplit(body, align=VerticalAlign.TOP), focused_element=input_window)


def _pane(text: Callable[[], AnyFormattedText], shown: Callable[[], bool]) -> Container:
    window = Window(
        FormattedTextControl(text),
        dont_extend_height=True,
        wrap_lines=False,
        always_hide_cursor=True,
    )
    return ConditionalContainer(window, filter=Condition(shown))


def _prefix(prompt: str, line: int, wrapped: int) -> StyleAndTextTuples:
    if line == 0 and wrapped == 0:
        return [("class:prompt", prompt)]
    return [("", "  ")]


def styled(lines: Sequence[tuple[str, str]]) -> StyleAndTextTuples:
    """Turn (style, text) lines into formatted text."""
    fragments: StyleAndTextTuples = []
    for number, (style, text) in enumerate(lines):
        if number:
            fragments.append(("", "\n"))
        fragments.append((f"class:picker.{style}", text))
    return fragments


def chat_style(paint: Painter) -> Style:
    """Make the style sheet of a skin; without colours only weight remains."""

    def fg(name: str, *more: str) -> str:
        return " ".join([*([paint.hex(name)] if paint.hex(name) else []), *more])

    back = paint.hex("status_bar_bg")
    bar = " ".join([fg("status_bar_text"), f"bg:{back}" if back else ""]).strip()
    return Style.from_dict(
        {
            "prompt": fg("prompt", "bold"),
            "spinner": fg("ui_accent"),
            "hint": fg("banner_dim"),
            "status": bar or "noreverse",
            "picker.title": fg("ui_warn", "bold"),
            "picker.body": "",
            "picker.option": "",
            "picker.selected": fg("ui_accent", "bold"),
            "picker.hint": fg("banner_dim"),
            "completion-menu": "noreverse",
            "completion-menu.completion": fg("banner_dim", "bg:default"),
            "completion-menu.completion.current": fg(
                "ui_accent", "bold", "bg:default", "noreverse"
            ),
            "completion-menu.meta.completion": fg("banner_dim", "bg:default"),
            "completion-menu.meta.completion.current": fg("ui_accent", "bg:default"),
        }
    )
