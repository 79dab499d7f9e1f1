"""Pieces of a turn become text above the input, and a few live lines that are redrawn.

Pure apart from rendering: events in, terminal text out. Printed text is final,
so only finished blocks are printed; the open block, running tools and the end
of a thought are live until they are finished.

Text from outside is made harmless first: control characters could move the
cursor, change the title or write to the clipboard.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.control.commands.context import ToolDetail
from hermes.domain.approvals import ApprovalState, Decision
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Notice,
    NoticeLevel,
    SteerTaken,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from hermes.domain.messages import ToolOutcome
from hermes.domain.turn import TurnState
from hermes.domain.wording import harmless
from hermes.entry.terminal.markdown import Block, MarkdownStream
from hermes.entry.terminal.paint import Painter, TerminalKind, cut, wrap
from hermes.entry.terminal.skins import Skin
from hermes.streaming.stdout import tool_tail
from hermes.streaming.units import width
from hermes.streaming.view import Completed, Piece, Said, Thought, ToolDone, TurnView

if TYPE_CHECKING:
    from hermes.entry.terminal.markdown import MarkdownRenderer

DIFF_LINES = 40
PREVIEW_LINES = 6
LONGEST_LIVE = 4_000
"""Characters of an open block that are rendered anew whenever it grows."""


class _Printed(StrEnum):
    NOTHING = "nothing"
    TEXT = "text"
    THOUGHT = "thought"
    TOOL = "tool"
    REMARK = "remark"


def _needs_gap(last: _Printed, this: _Printed) -> bool:
    if this is _Printed.TEXT or this is _Printed.THOUGHT:
        return last is not _Printed.NOTHING
    return last in (_Printed.TEXT, _Printed.THOUGHT)


class RenderSettings(Struct, frozen=True, kw_only=True):
    markdown: bool = True
    reasoning: bool = True
    diffs: bool = True
    detail: ToolDetail = ToolDetail.ALL
    label_cells: int = 0
    """How long the detail of a tool line may be; 0: to the edge."""


class TurnRenderer:
    def __init__(self, skin: Skin, kind: TerminalKind, settings: RenderSettings) -> None:
        self.settings = settings
        self.paint = Painter(skin, kind)
        self.model = ""
        """The model that answers this turn; empty before it has started."""
        self.earlier: Mapping[str, ToolDone] = {}
        """What an earlier process carried out for this turn, by call."""
        self._view = TurnView()
        self._markdown = MarkdownStream()
        self._raw = ""
        self._thought = ""
        self._unanswered: set[str] = set()
        self._progress: dict[str, str] = {}
        """The last line of what running tools have shown, by call."""
        self._last = _Printed.NOTHING
        self._last_tool = ""
        self._kind = kind
        self._blocks_of: MarkdownRenderer | None = None
        self._open_lines: tuple[tuple[Block, int], list[str]] | None = None

    @property
    def thinking(self) -> bool:
        return bool(self._thought)

    def event(self, event: TurnEvent, cells: int) -> list[str]:
        """Take the next event; return what to print above the input at this width."""
        lines: list[str] = []
        open_calls = list(self._view.running.values())
        for piece in self._view.feed(event):
            if isinstance(piece, TurnFinished) and piece.outcome is TurnState.INTERRUPTED:
                lines += self._stopped(open_calls, cells)
            match piece:
                case Said() | Thought() | Completed():
                    lines += self._message(piece, cells)
                case ToolStarted() | ToolProgress() | ToolDone():
                    lines += self._tool(piece, cells)
                case _:
                    lines += self._other(piece, cells)
        return lines

    def _message(self, piece: Said | Thought | Completed, cells: int) -> list[str]:
        match piece:
            case Said(text=text, again=again):
                lines = self._end_thought(cells)
                if again:
                    lines += self._end_text(cells)
                    lines += self._remark("the answer starts over", cells, warning=True)
                return lines + self._say(harmless(text), cells)
            case Thought(text=text, again=again):
                lines = self._end_thought(cells) if again else []
                self._thought += harmless(text)
                return lines
            case Completed(message=message) if message.continues:
                return self._end_thought(cells)
            case Completed(message=message):
                lines = [*self._end_thought(cells), *self._end_text(cells)]
                before = [self.earlier.get(call.id) for call in message.tool_calls]
                return lines + [x for each in before if each for x in self._tool_lines(each, cells)]

    def _other(self, piece: Piece, cells: int) -> list[str]:
        match piece:
            case TurnStarted(model=model, resumes=resumes):
                self.model = model
                again = "resuming where the last process stopped"
                return self._remark(again, cells) if resumes else []
            case ApprovalAsked(request=request):
                self._unanswered.add(request.id)
                return self._end_thought(cells)
            case ApprovalAnswered(approval_id=approval_id, decision=decision):
                self._unanswered.discard(approval_id)
                return self._decision(decision, cells)
            case Notice(text=text, level=level):
                return self._remark(text, cells, warning=level is NoticeLevel.WARNING)
            case SteerTaken(text=text):
                return self._remark(f"added to the running turn: {text}", cells)
            case TurnFinished():
                lines = [*self._end_thought(cells), *self._end_text(cells)]
                return lines + self._ending(piece, cells)
            case _:
                return []

    # -- text --------------------------------------------------------------

    def _say(self, text: str, cells: int) -> list[str]:
        if not self.settings.markdown:
            return self._say_raw(text, cells)
        return self._blocks(self._markdown.add(text), cells)

    def _say_raw(self, text: str, cells: int) -> list[str]:
        self._raw += text
        if "\n" not in self._raw:
            return []
        done, _, self._raw = self._raw.rpartition("\n")
        return self._lines_of(done, cells)

    def _end_text(self, cells: int) -> list[str]:
        lines = self._blocks(self._markdown.end(), cells)
        if self._raw:
            lines += self._lines_of(self._raw, cells)
            self._raw = ""
        return lines

    def _blocks(self, blocks: list[Block], cells: int) -> list[str]:
        lines: list[str] = []
        for block in blocks:
            if not block.follows:
                lines += self._gap_before(_Printed.TEXT)
            lines += self._block(block, cells)
        return lines

    def _block(self, block: Block, cells: int, *, final: bool = True) -> list[str]:
        # rich is heavy: loaded with the first answer, not with the program.
        from hermes.entry.terminal.markdown import MarkdownRenderer  # noqa: PLC0415

        if self._blocks_of is None:
            self._blocks_of = MarkdownRenderer(self.paint.skin, self._kind)
        return self._blocks_of.render(block, cells, final=final)

    def _lines_of(self, text: str, cells: int) -> list[str]:
        gap = [] if self._last is _Printed.TEXT else self._gap_before(_Printed.TEXT)
        return gap + [self.paint(line) for line in wrap(text, cells)]

    def _gap_before(self, kind: _Printed) -> list[str]:
        """Return the blank line, if any, between what was printed last and this."""
        last, self._last = self._last, kind
        return [""] if _needs_gap(last, kind) else []

    # -- other pieces ------------------------------------------------------

    def _end_thought(self, cells: int) -> list[str]:
        text, self._thought = self._thought.strip(), ""
        if not text or not self.settings.reasoning:
            return []
        bar = "▏ "
        return self._gap_before(_Printed.THOUGHT) + [
            self.paint(f"{bar}{line}", "reasoning") for line in wrap(text, cells - width(bar))
        ]

    def _tool(self, piece: ToolStarted | ToolProgress | ToolDone, cells: int) -> list[str]:
        match piece:
            case ToolStarted():
                return self._end_thought(cells)
            case ToolProgress(call_id=call_id, text=text):
                lines = [line for line in harmless(text).splitlines() if line.strip()]
                self._progress[call_id] = lines[-1].strip() if lines else ""
                return []
            case ToolDone():
                self._progress.pop(piece.finished.call_id, None)
                return self._tool_lines(piece, cells)

    def _stopped(self, calls: Sequence[ToolStarted], cells: int) -> list[str]:
        """Return the lines of calls that did not come to their end."""
        lines = [*self._end_thought(cells), *self._end_text(cells)] if calls else []
        for call in calls:
            ended = ToolFinished(
                call_id=call.call_id,
                name=call.name,
                outcome=ToolOutcome.UNKNOWN,
                failure="interrupted",
                seconds=-1.0,
                preview="",
            )
            lines += self._tool_lines(ToolDone(started=call, finished=ended), cells)
        return lines

    def _tool_lines(self, done: ToolDone, cells: int) -> list[str]:
        detail, finished = self.settings.detail, done.finished
        failed = bool(finished.trouble)
        again, self._last_tool = finished.name == self._last_tool, finished.name
        lines: list[str] = []
        if detail in (ToolDetail.ALL, ToolDetail.VERBOSE) or (
            detail is ToolDetail.NEW and (failed or not again)
        ):
            limit = self.settings.label_cells
            lines.append(tool_line(done, self.paint, cells, label_cells=limit))
            if detail is ToolDetail.VERBOSE or failed:
                output = harmless(finished.output or finished.preview)
                lines += self._preview(output, cells, end=failed)
        if finished.diff and self.settings.diffs and detail is not ToolDetail.OFF:
            lines += diff_lines(harmless(finished.diff), self.paint, cells)
        return [*self._gap_before(_Printed.TOOL), *lines] if lines else []

    def _preview(self, output: str, cells: int, *, end: bool) -> list[str]:
        """Return the first lines of an output, or the last ones, which say what went wrong."""
        prefix = self.paint.skin.tool_prefix
        lines = [line for line in output.splitlines() if line.strip()]
        part = lines[-PREVIEW_LINES:] if end else lines[:PREVIEW_LINES]
        shown = [cut(f"{prefix}    {line.expandtabs(4)}", cells) for line in part]
        if len(lines) > len(part):
            more = cut(f"{prefix}    … {len(lines) - len(part)} more lines: /output", cells)
            shown.insert(0 if end else len(shown), more)
        return [self.paint(line, "tool") for line in shown]

    def _remark(self, text: str, cells: int, *, warning: bool = False) -> list[str]:
        colour = "ui_warn" if warning else "banner_dim"
        self._last = _Printed.REMARK
        return [self.paint(line, colour) for line in wrap(harmless(f"· {text}"), cells)]

    def _decision(self, decision: Decision, cells: int) -> list[str]:
        words = {
            ApprovalState.APPROVED: f"allowed ({decision.choice.value if decision.choice else ''})",
            ApprovalState.DENIED: "denied",
            ApprovalState.ANSWERED: "answered",
            ApprovalState.EXPIRED: "expired",
        }
        text = words.get(decision.state, decision.state.value)
        said = f": {decision.text}" if decision.text else ""
        expired = decision.state is ApprovalState.EXPIRED
        return self._remark(f"{text}{said}", cells, warning=expired)

    def _ending(self, finished: TurnFinished, cells: int) -> list[str]:
        if finished.outcome is TurnState.INTERRUPTED and finished.error is None:
            denied = self._remark("denied: the turn was stopped", cells) * bool(self._unanswered)
            return denied + self._remark("interrupted", cells, warning=True)
        if finished.error is None:
            return []
        lines = wrap(f"✗ {finished.error.message}", cells)
        if finished.error.hint:
            lines += wrap(f"  → {finished.error.hint}", cells)
        return [self.paint(line, "ui_error") for line in lines]

    # -- live --------------------------------------------------------------

    def live(self, cells: int, most: int) -> list[str]:
        """Return the last lines of what is still open, at most `most`."""
        lines = [*self._live_thought(cells), *self._live_text(cells, most)]
        for call_id, tool in self._view.running.items():
            text = f"{tool.emoji} {tool.verb or tool.name} {_flat(tool.label)}".rstrip()
            if progress := self._progress.get(call_id):
                text += f" · {progress}"
            line = cut(f"{self.paint.skin.tool_prefix} {text}", cells)
            lines.append(self.paint(line, "tool"))
        return lines[-most:] if most > 0 else []

    def _live_thought(self, cells: int) -> list[str]:
        if not self._thought.strip() or not self.settings.reasoning:
            return []
        tail = self._thought.strip()[-cells * 4 :]
        return [self.paint(f"▏ {line}", "reasoning") for line in wrap(tail, cells - 2)[-3:]]

    def _live_text(self, cells: int, most: int) -> list[str]:
        if self._raw:
            return [self.paint(line) for line in wrap(self._raw, cells)]
        block = self._markdown.open
        if block is None:
            return []
        source = block.source
        if source.count("\n") > 3 * most or len(source) > LONGEST_LIVE:
            # Of a long table, line or list item the end is enough, as it was written.
            tail = "\n".join(source[-LONGEST_LIVE:].split("\n")[-most:])
            return [self.paint(line) for line in wrap(tail, cells)]
        if self._open_lines is None or self._open_lines[0] != (block, cells):
            self._open_lines = ((block, cells), self._block(block, cells, final=False))
        gap = _needs_gap(self._last, _Printed.TEXT) and not block.follows
        return [""] * gap + self._open_lines[1]


def tool_line(done: ToolDone, paint: Painter, cells: int, *, label_cells: int = 0) -> str:
    """Return `┊ emoji verb detail duration`, fitted to the width."""
    begun, ended = done.started, done.finished
    tail = tool_tail(ended)
    emoji, verb = (begun.emoji, begun.verb or begun.name) if begun else ("🔧", ended.name)
    head = f"{paint.skin.tool_prefix} {emoji} {verb}"
    room = cells - width(head) - width(tail) - 1
    if label_cells:
        room = min(room, label_cells)
    label = _flat(begun.label) if begun else ""
    detail = f" {cut(label, room)}" if label and room > 3 else ""
    return paint(cut(f"{head}{detail}{tail}", cells), "ui_error" if ended.trouble else "tool")


def _flat(text: str) -> str:
    return " ".join(harmless(text).split())


def diff_lines(diff: str, paint: Painter, cells: int, most: int = DIFF_LINES) -> list[str]:
    lines = _with_names(diff.splitlines())
    shown = [_diff_line(line, paint, cells) for line in lines[:most]]
    if len(lines) > most:
        shown.append(paint(f"  … {len(lines) - most} more lines", "banner_dim"))
    return shown


def _with_names(lines: list[str]) -> list[str]:
    """Return a diff with one line of heading for each file, which begins with `+++ `."""
    shown: list[str] = []
    before = ""
    """The `--- ` line of a heading whose other half comes next."""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("--- ") and after.startswith("+++ "):
            before = line[4:].removeprefix("a/")
        elif before:
            shown.append(f"+++ {before} (deleted)" if line == "+++ /dev/null" else line)
            before = ""
        elif not line.startswith(("diff ", "index ")):
            shown.append(line)
    return shown


def _diff_line(line: str, paint: Painter, cells: int) -> str:
    text = cut(f"  {line.expandtabs(4)}", cells)
    if line.startswith("+++ "):
        name = line[4:].partition("\t")[0].removeprefix("b/")
        return paint(cut(f"  {name}", cells), "ui_accent")
    if line.startswith("+"):
        return paint(text, "diff_add")
    if line.startswith("-"):
        return paint(text, "diff_remove")
    return paint(text, "ui_accent" if line.startswith("@@") else "")
