"""Puts tool calls together from the fragments in which servers send them.

The rule is one slot per `index`. Servers break it: some send no index, some
no id, some number every parallel call 0, some repeat the name with each
fragment, some send whole calls, some send arguments as an object.
"""

import msgspec

from hermes.domain.messages import ToolCall


class _Slot:
    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    def complete(self) -> bool:
        """Whether the arguments so far are one JSON value."""
        try:
            msgspec.json.decode("".join(self.arguments), type=msgspec.Raw)
        except msgspec.MsgspecError:
            return False
        return True


class CallAssembler:
    """Collects fragments; ids may come out empty or twice and are repaired later."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []

    def add(self, index: int | None, call_id: str, name: str, arguments: str) -> None:
        slot = self._find(index, call_id, name)
        if slot is None:
            slot = _Slot(index)
            self._slots.append(slot)
        if call_id and not slot.id:
            slot.id = call_id
        if name and name != slot.name:
            slot.name += name
        if arguments:
            slot.arguments.append(arguments)

    def calls(self) -> tuple[ToolCall, ...]:
        """Return what was collected, in order of first appearance."""
        return tuple(
            ToolCall(id=slot.id, name=slot.name, arguments="".join(slot.arguments))
            for slot in self._slots
            if slot.name
        )

    def _find(self, index: int | None, call_id: str, name: str) -> _Slot | None:
        if index is None:
            return self._find_unnumbered(call_id, name)
        slot = next((s for s in reversed(self._slots) if s.index == index), None)
        if slot is None:
            return None
        if call_id and slot.id and call_id != slot.id:
            return next((s for s in self._slots if s.id == call_id and s.index == index), None)
        if not call_id and name and slot.arguments and slot.complete():
            return None
        return slot

    def _find_unnumbered(self, call_id: str, name: str) -> _Slot | None:
        last = self._slots[-1] if self._slots else None
        if call_id:
            return next((s for s in self._slots if s.id == call_id), None)
        if last is None or not name:
            return last
        same = last.name == name and not last.complete()
        return last if same else None
