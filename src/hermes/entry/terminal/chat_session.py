"""The conversation behind the screen: which session, which choices, which turn.

`Talk` is the `Door` of slash commands and follows every turn of its session,
whoever started it: typed, queued, steered or picked up after a crash. Painting
is left to a `TerminalOutput`, so the full screen and the line-by-line chat share all
of this.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from hermes.control.commands.builtin import builtin_registry
from hermes.control.commands.context import (
    CommandContext,
    CommandHost,
    Preference,
    Screen,
    ToolDetail,
    recalled,
)
from hermes.control.commands.registry import Invocation, parse, run_command
from hermes.control.commands.running import EFFECTS
from hermes.control.commands.wording import Exchange, exchanges
from hermes.control.door import ANY, Door
from hermes.control.lanes.gateway import BusyMode, submit_while_busy
from hermes.domain.approvals import ApprovalKind, ApprovalRequest, Choice
from hermes.domain.errors import HermesError
from hermes.domain.events import TurnJob, TurnStream, UsageReported
from hermes.domain.inbound import Attachment
from hermes.domain.session import Session, StoredMessage
from hermes.domain.settings import Settings
from hermes.domain.wording import one_line
from hermes.entry.terminal.chat import ChatParts
from hermes.entry.terminal.oneshot import PLATFORM, Question, inbound
from hermes.entry.terminal.paint import Painter, TerminalKind, harmless, wrap
from hermes.entry.terminal.questions import PickerReply
from hermes.entry.terminal.references import ReferenceReader
from hermes.entry.terminal.render import RenderSettings, TurnRenderer
from hermes.entry.terminal.skins import Skin
from hermes.entry.terminal.statusbar import Status

RECAP_EXCHANGES = 10
ASKED_CHARS = 300
ANSWER_CHARS = 200
ANSWER_LINES = 3
NO_ANSWER = "(no answer)"


def recap_lines(session: Session, history: Sequence[StoredMessage]) -> list[tuple[str, str]]:
    """Return (who, text) pairs, `head`, `you` or `agent`."""
    found = exchanges(history)
    left_out = len(found) - RECAP_EXCHANGES
    head = session.title or session.id
    if left_out > 0:
        head += f" · {left_out} earlier exchanges not shown"
    lines = [("head", head)]
    for exchange in found[-RECAP_EXCHANGES:]:
        asked = one_line(harmless(exchange.asked_text), ASKED_CHARS)
        lines += [("you", asked), ("agent", _answer(exchange))]
    return lines


def _answer(exchange: Exchange) -> str:
    lines = [line for line in harmless(exchange.answer).splitlines() if line.strip()]
    text = "\n".join(lines[:ANSWER_LINES])
    if len(lines) > ANSWER_LINES or len(text) > ANSWER_CHARS:
        text = text[: ANSWER_CHARS - 1].rstrip() + "…"
    tools = f" ({exchange.tools} tool calls)" if exchange.tools else ""
    return (text or NO_ANSWER) + tools


class TerminalOutput(Screen, Protocol):
    """What `Talk` needs beyond what commands do with a screen."""

    @property
    def cells(self) -> int: ...

    def show(self, lines: Sequence[str]) -> None: ...

    def ask(self, request: ApprovalRequest) -> None: ...

    def settle(self, approval_id: str) -> None: ...

    def changed(self) -> None: ...

    def ring(self) -> None: ...


def tool_detail(settings: Settings) -> ToolDetail:
    """Return which tool calls the terminal shows unless a session says otherwise."""
    progress = settings.display.tool_progress
    return ToolDetail(progress) if progress in set(ToolDetail) else ToolDetail.ALL


class Talk(Door):
    name = "terminal"
    platforms = (ANY,)

    def __init__(
        self, parts: ChatParts, skin: Skin, kind: TerminalKind, display: TerminalOutput
    ) -> None:
        self.parts = parts
        self.skin = skin
        self.kind = kind
        self.display = display
        self.session = parts.session
        self.registry = parts.registry or builtin_registry()
        self.mode = BusyMode(parts.settings().display.busy_input_mode)
        self.yolo = False
        self.queued = 0
        self.renderer: TurnRenderer | None = None
        self.started_at: float | None = None
        self.last_seconds = 0.0
        self._detail = tool_detail(parts.settings())
        self._reasoning = parts.settings().display.show_reasoning
        self._usage: UsageReported | None = None
        self._turn_tokens = 0
        self._turn_cost = 0.0
        self._streams: asyncio.Queue[TurnStream] = asyncio.Queue()
        self._host = CommandHost(
            ledger=parts.ledger,
            gateway=parts.gateway,
            desk=parts.desk,
            controls=parts.controls,
            clock=parts.clock,
            profiles={parts.profile.id: parts.profile},
            version=parts.version,
            saved_dir=parts.paths.saved_dir,
            settings=parts.settings,
        )

    # -- what the screen shows --------------------------------------------

    @property
    def working(self) -> bool:
        return self.renderer is not None

    def paint(self, text: str, colour: str = "", *, bold: bool = False) -> str:
        return Painter(self.skin, self.kind)(text, colour, bold=bold)

    def elapsed(self) -> float:
        """Return the seconds of the running turn, or of the last one."""
        if self.started_at is None:
            return self.last_seconds
        return self.parts.clock.monotonic() - self.started_at

    def status(self) -> Status:
        session, usage = self.session, self._usage
        spent = (session.cost_usd if session else 0.0) + self._turn_cost
        known = usage is None or usage.cost_usd is not None
        return Status(
            model=(self.renderer.model if self.renderer else "")
            or (session.model if session else "")
            or self.parts.model_label,
            context_tokens=usage.context_tokens if usage else 0,
            context_window=usage.context_window if usage else None,
            tokens=(session.usage.total_tokens if session else 0) + self._turn_tokens,
            cost_usd=spent if self.parts.settings().display.show_cost and known else None,
            elapsed=self.elapsed(),
            busy_mode=self.mode,
            working=self.working,
            queued=self.queued,
            yolo=self.yolo,
            title=(session.title or "") if session else "",
        )

    def say(self, text: str, colour: str = "banner_dim") -> None:
        """Print something that is not part of the conversation."""
        lines = wrap(harmless(text), self.display.cells)
        self.display.show([self.paint(line, colour) for line in lines])

    # -- what was typed ----------------------------------------------------

    async def typed(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Take what a person sent: a command, or a message for the agent."""
        try:
            parsed = parse(text)
            if isinstance(parsed, Invocation) and not attachments:
                await self._command(parsed)
                return
            message = text if isinstance(parsed, Invocation) else parsed.text
            await self.submit(
                await self._expanded(message), mode=self.mode, attachments=attachments
            )
        except HermesError as error:
            self.say(f"{error.message} {error.hint}".rstrip(), "ui_error")

    async def _command(self, invocation: Invocation) -> None:
        context = CommandContext(
            host=self._host,
            caller=self,
            agent_id=self.parts.profile.id,
            session=await self._current(),
        )
        await run_command(self.registry, context, invocation)

    async def _current(self) -> Session | None:
        if self.session is not None:
            self.session = await self.parts.ledger.session(self.session.id) or self.session
        return self.session

    async def _expanded(self, text: str) -> str:
        reader = ReferenceReader(
            cwd=self.parts.profile.workspace,
            environ=self.parts.environ,
            fetch_url=self.parts.fetch_url,
        )
        expanded = await reader.expand(text)
        for line in expanded.taken:
            self.say(f"+ {line}")
        for line in expanded.problems:
            self.say(f"! {line}", "ui_warn")
        return expanded.text

    # -- the Door of commands ---------------------------------------------

    @property
    def source(self) -> str:
        return PLATFORM

    @property
    def user_id(self) -> str:
        return self.parts.user

    @property
    def screen(self) -> Screen:
        return self.display

    async def reply(self, text: str) -> None:
        self.say(text, "")

    async def ensure_session(self) -> Session:
        """Return the current session, opening one if there is none yet."""
        if self.session is None:
            self.session = await self.parts.gateway.open_session(
                self.parts.profile.id, PLATFORM, self.parts.user
            )
        return self.session

    async def switch(self, session: Session | None) -> None:
        """Make `session` the current one and show where it stands."""
        self.session = session
        self._usage = None
        self.last_seconds = 0.0
        await self.refresh()
        if session is not None:
            await self.recap()
            await self.pick_up()

    async def submit(
        self, text: str, *, mode: BusyMode, attachments: tuple[Attachment, ...] = ()
    ) -> None:
        """Send text to the agent; say what it does if a turn is running."""
        session = await self.ensure_session()
        question = Question(
            agent_id=self.parts.profile.id,
            session=session,
            text=text,
            asked_by=self.parts.user,
            at=self.parts.clock.now(),
            attachments=attachments,
        )
        submission = await submit_while_busy(
            self.parts.gateway,
            self.parts.profile.id,
            inbound(question),
            session_id=session.id,
            mode=mode,
        )
        if submission.effect is not None:
            self.say(f"· {submission.effect.value}: this {EFFECTS[submission.effect]}")
        await self._count_queued()

    async def refresh(self) -> None:
        session, ledger = await self._current(), self.parts.ledger
        session_id, settings = session.id if session else None, self.parts.settings()
        self.mode = await self._host.busy_mode(PLATFORM, session_id)
        shown = await recalled(ledger, session_id, Preference.SHOW_REASONING, bool)
        self._reasoning = settings.display.show_reasoning if shown is None else shown
        detail = await recalled(ledger, session_id, Preference.TOOL_DETAIL, str)
        self._detail = ToolDetail(detail) if detail in set(ToolDetail) else tool_detail(settings)
        self.yolo = await recalled(ledger, session_id, Preference.YOLO, bool) or False
        if self.renderer is not None:
            self.renderer.settings = self._render_settings()
        await self._count_queued()

    async def _count_queued(self) -> None:
        waiting = await self.parts.ledger.waiting(self.session.id) if self.session else []
        self.queued = len(waiting)
        self.display.changed()

    # -- turns -------------------------------------------------------------

    def on_turn(self, job: TurnJob) -> None:
        if self.session is not None and job.stream.session_id == self.session.id:
            self._streams.put_nowait(job.stream)

    async def follow_turns(self) -> None:
        """Show the turns of the session, one after the other, until cancelled."""
        while True:
            await self._follow(await self._streams.get())

    async def _follow(self, stream: TurnStream) -> None:
        renderer = TurnRenderer(self.skin, self.kind, self._render_settings())
        self.renderer, self.started_at = renderer, self.parts.clock.monotonic()
        self._turn_tokens, self._turn_cost = 0, 0.0
        await self._count_queued()
        async for event in stream.follow():
            shown = renderer.event(event, self.display.cells)
            if shown.lines:
                self.display.show(shown.lines)
            for request in shown.asked:
                self.display.ask(request)
            for approval_id in shown.answered:
                self.display.settle(approval_id)
            if isinstance(event, UsageReported):
                self._count(event)
            self.display.changed()
        self.last_seconds, self.started_at = self.elapsed(), None
        self.renderer = None
        self._turn_tokens, self._turn_cost = 0, 0.0
        self.display.settle("")
        await self.refresh()
        if self.parts.settings().display.bell_on_complete:
            self.display.ring()

    def _count(self, usage: UsageReported) -> None:
        self._usage = usage
        self._turn_tokens += usage.usage.total_tokens
        self._turn_cost += usage.cost_usd or 0.0

    def _render_settings(self) -> RenderSettings:
        display = self.parts.settings().display
        return RenderSettings(
            markdown=display.final_response_markdown != "raw",
            reasoning=self._reasoning,
            diffs=display.inline_diffs,
            detail=self._detail,
            label_cells=display.tool_preview_length,
        )

    def interrupt(self) -> bool:
        """Stop the running turn; False if none runs."""
        return self.session is not None and self.parts.gateway.interrupt(self.session.id)

    async def answer(self, request: ApprovalRequest, reply: PickerReply) -> None:
        desk, user = self.parts.desk, self.parts.user
        if request.kind is ApprovalKind.APPROVAL:
            taken = await desk.answer(request.id, Choice(reply.value), by=user, text=reply.text)
        else:
            text = reply.text or reply.value or NO_ANSWER
            taken = await desk.reply(request.id, text, by=user)
        if taken is None:
            self.say("It had been answered already, or it has expired.")

    # -- beginning and end -------------------------------------------------

    async def recap(self) -> None:
        session = self.session
        if session is None or self.parts.settings().display.resume_display == "minimal":
            return
        history = await self.parts.ledger.history(session.id)
        lines: list[str] = []
        for who, text in recap_lines(session, history):
            mark = {"head": "· ", "you": f"{self.skin.branding.prompt_symbol} "}.get(who, "  ")
            colour = {"head": "ui_accent", "you": "prompt"}.get(who, "banner_dim")
            wrapped = wrap(text, self.display.cells - 2)
            lines += [
                self.paint(f"{mark if number == 0 else '  '}{line}", colour)
                for number, line in enumerate(wrapped)
            ]
        self.display.show(["", *lines])

    async def pick_up(self) -> None:
        """Go on with what another process left open in this session."""
        if self.session is None:
            return
        try:
            await self.parts.gateway.recover(self.session.id)
        except HermesError as error:
            self.say(f"{error.message} {error.hint}".rstrip(), "ui_warn")
            return
        if self.queued:
            await self.parts.gateway.wake(self.session.id)

    async def leave(self) -> None:
        """Stop the running turn and keep what is queued for the next time."""
        if self.session is None:
            return
        self.parts.gateway.hold(self.session.id)
        self.interrupt()
        if self.queued:
            self.say(f"· {self.queued} queued: answered when this conversation goes on.")
