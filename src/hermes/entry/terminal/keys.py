"""The keys of the interactive chat."""

from collections.abc import Callable
from typing import Protocol

from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

__all__ = ["KeyActions", "chat_keys"]

E = KeyPressEvent


class KeyActions(Protocol):
    """What keys can set off."""

    def submit(self) -> None:
        """Send the input."""
        ...

    def pasted(self, text: str) -> None:
        """Take a paste."""
        ...

    def ctrl_c(self) -> None:
        """Stop something, or leave."""
        ...

    def leave(self) -> None:
        """End the chat."""
        ...

    def redraw(self) -> None:
        """Paint everything anew."""
        ...

    def open_editor(self) -> None:
        """Open the external editor on the input."""
        ...

    def paste_image(self) -> None:
        """Attach the picture in the clipboard."""
        ...

    def picker_open(self) -> bool:
        """Say whether a picker has the keys."""
        ...

    def picker_typing(self) -> bool:
        """Say whether text is being typed for the picker."""
        ...

    def picker_key(self, key: str) -> None:
        """Give a key to the picker: up, down, enter, escape or a digit."""
        ...


def chat_keys(actions: KeyActions) -> KeyBindings:
    """Bind the keys of the input and of pickers."""
    keys = KeyBindings()
    picking = Condition(actions.picker_open)
    typing = Condition(actions.picker_typing)
    _bind_input(keys, actions, ~picking)
    _bind_picker(keys, actions, picking, typing)
    _bind_always(keys, actions)
    return keys


def _bind_input(keys: KeyBindings, actions: KeyActions, idle: Filter) -> None:
    @keys.add("enter", filter=idle)
    def _(_event: E) -> None:
        actions.submit()

    @keys.add("escape", "enter", filter=idle)
    @keys.add("c-j", filter=idle)
    def _(event: E) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste, filter=idle)
    def _(event: E) -> None:
        actions.pasted(event.data)

    @keys.add("tab", filter=idle)
    def _(event: E) -> None:
        buffer = event.current_buffer
        if buffer.complete_state:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    _each(keys, (("c-g",), ("escape", "g"), ("c-x", "c-e")), idle, actions.open_editor)
    _each(keys, (("c-v",), ("escape", "v")), idle, actions.paste_image)

    @keys.add("c-d", filter=idle)
    def _(event: E) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            actions.leave()


def _bind_picker(keys: KeyBindings, actions: KeyActions, picking: Filter, typing: Filter) -> None:
    choosing = picking & ~typing

    def bind(key: str, name: str, when: Filter) -> None:
        @keys.add(key, filter=when, eager=True)
        def _(_event: E) -> None:
            actions.picker_key(name)

    for key, name in (("up", "up"), ("down", "down"), ("c-p", "up"), ("c-n", "down")):
        bind(key, name, choosing)
    for digit in "123456789":
        bind(digit, digit, choosing)
    bind("enter", "enter", picking)
    bind("escape", "escape", picking)

    @keys.add(Keys.Any, filter=choosing)
    def _(_event: E) -> None:
        """Ignore other keys: the input is not reachable while something is asked."""


def _bind_always(keys: KeyBindings, actions: KeyActions) -> None:
    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(_event: E) -> None:
        actions.ctrl_c()

    @keys.add("c-q")
    def _(_event: E) -> None:
        actions.leave()

    @keys.add("c-l")
    def _(_event: E) -> None:
        actions.redraw()

    @keys.add("c-z")
    def _(event: E) -> None:
        event.app.suspend_to_background()


def _each(
    keys: KeyBindings,
    sequences: tuple[tuple[str, ...], ...],
    when: Filter,
    action: Callable[[], None],
) -> None:
    for sequence in sequences:

        @keys.add(*sequence, filter=when)
        def _(_event: E) -> None:
            action()
