"""The conversation behind the screen: which session, which choices, which turn.

`TerminalChat` is the `Door` of slash commands and follows every turn of its session,
whoever started it: typed, queued, steered or picked up after a crash. Painting is
left to its two forms, the full screen (`app`) and the chat line by line (`line_mode`).
"""

import asyncio
import os
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hermes.control.commands.builtin import builtin_registry
from hermes.control.commands.context import (
    CommandContext,
    Preference,
    Screen,
    ToolDetail,
    recalled,
)
from hermes.control.commands.registry import Invocation, parse, run_command
from hermes.control.commands.turns import EFFECTS
from hermes.control.commands.wording import count, money
from hermes.control.door import ANY, Door
from hermes.control.lanes.gateway import BusyMode, submit_while_busy
from hermes.domain.approvals import ApprovalKind, ApprovalRequest, Choice
from hermes.domain.errors import HermesError, UsageError
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Notice,
    SteerTaken,
    TurnJob,
    UsageReported,
)
from hermes.domain.inbound import REFERENCE, Attachment, InboxEntry
from hermes.domain.profile import AgentProfile, use_profile
from hermes.domain.session import Session
from hermes.domain.settings.doors import Display
from hermes.domain.wording import elapsed_words, harmless, one_line, short_number
from hermes.entry.terminal.chat import ChatParts
from hermes.entry.terminal.oneshot import PLATFORM, earlier_tools, inbound
from hermes.entry.terminal.overview import ASKED_CHARS, banner_lines, recap_lines
from hermes.entry.terminal.paint import Painter, TerminalKind, cut, wrap
from hermes.entry.terminal.questions import NO_ANSWER, PickerReply, Questions
from hermes.entry.terminal.references import ReferenceReader
from hermes.entry.terminal.render import RenderSettings, TurnRenderer
from hermes.entry.terminal.skins import Skin
from hermes.entry.terminal.tty import image_file, on_signals

QUESTION_LINES = 10
OUTLIVE_SECONDS = 0.5
ANSWERS = {"approve": ApprovalKind.APPROVAL, "answer": ApprovalKind.QUESTION}
SEEN_FIRST = "What waits for an answer appeared after that was typed."


def typed_line(text: str) -> str:
    return one_line(harmless(text), ASKED_CHARS)


class TerminalChat(Door, Screen):
    """The conversation behind a screen; the full screen and the chat line by line are the two."""

    name = "terminal"
    platforms = (ANY,)

    def __init__(
        self, parts: ChatParts, skin: Skin, kind: TerminalKind, group: asyncio.TaskGroup
    ) -> None:
        self.parts = parts
        self.host = parts.host
        self.skin = skin
        self.kind = kind
        self.session = parts.session
        self.registry = builtin_registry()
        self.mode = BusyMode(self._display.busy_input_mode)
        self.yolo = False
        self.waiting: tuple[str, ...] = ()
        """What was said and is not being answered yet."""
        self._coming: dict[str, bool] = {}
        """What was submitted here and has no turn yet, and whether it is on the screen."""
        self._noted = set[str]()
        """Notices that are on the screen, and may have a turn of their own yet."""
        self.renderer: TurnRenderer | None = None
        self.started_at: float | None = None
        self.last_seconds = 0.0
        self.exit_code = 0
        self.outlived = False
        """Background processes run on when the person has left."""
        self.attachments: list[Attachment] = []
        """What goes with the next message."""
        self.questions = Questions(self.changed, parts.host.gateway.clock)
        self._detail = parts.host.tool_detail(PLATFORM, terminal=True)
        self._reasoning = parts.host.shows_reasoning(PLATFORM, terminal=True)
        self._usage: UsageReported | None = None
        self._turn_tokens = 0
        self._turn_cost = 0.0
        self._jobs: asyncio.Queue[TurnJob] = asyncio.Queue()
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what a screen does -------------------------------------------------

    @property
    @abstractmethod
    def cells(self) -> int: ...

    @abstractmethod
    async def chat(self) -> None: ...

    @abstractmethod
    def show(self, lines: Sequence[str]) -> None: ...

    @abstractmethod
    def changed(self) -> None: ...

    @abstractmethod
    def ring(self) -> None: ...

    # -- its life -----------------------------------------------------------

    async def run(self) -> int:
        """Chat until the person leaves; return the exit code."""
        with on_signals(self._signalled), self.host.gateway.doors.attached(self):
            self.show(self._banner())
            self.spawn(self._follow_turns())
            await self.explained(self._go_on())
            try:
                await self.chat()
            finally:
                for task in self._tasks:
                    task.cancel()
            if self.outlived:
                await self._outlive()
        return self.exit_code

    async def _outlive(self) -> None:
        """Without a terminal, wait for the end of the background processes, or for a signal."""
        assert self.parts.let_go is not None
        self.host.gateway.drain()
        self.parts.let_go()
        while not self.exit_code and await self.host.controls.background():
            await self.host.gateway.clock.sleep(OUTLIVE_SECONDS)

    async def _go_on(self) -> None:
        await self.refresh()
        await self.recap()
        await self.pick_up()

    def _signalled(self, number: int) -> None:
        self.exit_code = 128 + number
        self.leave()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside the chat, until this ends."""
        task = self._group.create_task(self.explained(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def explained(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something; an error is told to the person."""
        try:
            await work
        except HermesError as error:
            self.say(f"{error.message} {error.hint}".rstrip(), "ui_error")

    def _banner(self) -> list[str]:
        """Return which model, how many tools, which session, notices and one tip."""
        parts, branding, session = self.parts, self.skin.branding, self.session
        if self._display.compact:
            return [self.paint(f"· {notice}", "ui_warn") for notice in parts.notices]
        title = f"⚕ {branding.agent_name} {self.host.version}"
        tools = self.host.controls.tools(parts.profile.id, session)
        named = (session.title or session.id) if session else "new session"
        below = [("banner_dim", str(self.directory))]
        below += [("ui_warn", notice) for notice in parts.notices]
        below += [("banner_dim", branding.welcome)] if branding.welcome else []
        if tips := self.skin.tips:
            minute = int(self.host.gateway.clock.now()) // 60
            below.append(("banner_dim", f"Tip: {tips[minute % len(tips)]}"))
        lines = banner_lines(title, [self._model(), f"{len(tools)} tools", named], self.cells)
        lines += [
            (colour, f"  {line}") for colour, text in below for line in wrap(text, self.cells - 2)
        ]
        return [self.paint(text, colour) for colour, text in lines]

    # -- what the screen shows --------------------------------------------

    @property
    def working(self) -> bool:
        return self.renderer is not None

    @property
    def _display(self) -> Display:
        return self.host.settings().display

    def _model(self) -> str:
        running = self.renderer.model if self.renderer else ""
        known = running or (self.session.model if self.session else "")
        return known or self.parts.profile.model or "no model"

    def paint(self, text: str, colour: str = "") -> str:
        return Painter(self.skin, self.kind)(text, colour)

    def elapsed(self) -> float:
        """Return the seconds of the running turn, or of the last one."""
        if self.started_at is None:
            return self.last_seconds
        return self.host.gateway.clock.monotonic() - self.started_at

    def status(self) -> list[tuple[int, str]]:
        """Return the parts of the status bar: how soon it may go, and its text."""
        session, usage = self.session, self._usage
        context, tokens, cost = "", self._turn_tokens, self._turn_cost
        if usage and usage.context_window:
            context = f"ctx {usage.context_tokens / usage.context_window:.0%}"
        elif usage and usage.context_tokens:
            context = f"ctx {short_number(usage.context_tokens)}"
        if session is not None:
            tokens, cost = tokens + session.usage.total_tokens, cost + session.cost_usd
        priced = self._display.show_cost and (usage is None or usage.cost_usd is not None)
        return [
            (0, self._model().rpartition("/")[2]),
            (1, "YOLO" if self.yolo else ""),
            (2, context),
            (5, f"{short_number(tokens)} tok"),
            (4, money(cost) if priced else ""),
            (3, elapsed_words(self.elapsed())),
            (2, f"{self.queued} queued" if self.queued else ""),
            (1 if self.working else 6, self.mode.value),
            (7, cut(session.title, 30) if session and session.title else ""),
        ]

    def say(self, text: str, colour: str = "banner_dim") -> None:
        """Print something that is not part of the conversation."""
        lines = wrap(harmless(text), self.cells)
        self.show([self.paint(line, colour) for line in lines])

    # -- what was typed ----------------------------------------------------

    async def typed(
        self,
        text: str,
        attachments: tuple[Attachment, ...] = (),
        seen: str = "",
        *,
        shown: bool = True,
    ) -> None:
        """Take what a person sent: a command, or a message for the agent.

        `seen` is the id of the request that was on the screen when it was begun. What is not
        `shown` yet is shown when it is answered.
        """
        await self.explained(self._take(text, attachments, seen, shown=shown))

    async def _take(
        self, text: str, attachments: tuple[Attachment, ...], seen: str, *, shown: bool
    ) -> None:
        parsed = parse(text)
        if isinstance(parsed, Invocation) and not attachments:
            await self._only_what_was_seen(parsed, seen)
            await self._command(parsed)
            return
        message = text if isinstance(parsed, Invocation) else parsed
        await self._pass_on(message, self.mode, attachments, shown=shown)

    async def _only_what_was_seen(self, invocation: Invocation, seen: str) -> None:
        """Refuse an answer that was begun before its question was on the screen."""
        kind = ANSWERS.get(invocation.name)
        if kind is None or self.session is None:
            return
        pending = await self.host.gateway.ledger.pending_approvals(self.session.id)
        first = next((each.request for each in pending if each.request.kind is kind), None)
        if first is not None and first.id != seen:
            raise UsageError(SEEN_FIRST, hint=self.how_to_answer())

    @abstractmethod
    def how_to_answer(self) -> str: ...

    async def _command(self, invocation: Invocation) -> None:
        context = CommandContext(
            host=self.host,
            caller=self,
            agent_id=self.parts.profile.id,
            session=await self._current(),
        )
        with use_profile(self.parts.profile):
            await run_command(self.registry, context, invocation)

    async def _current(self) -> Session | None:
        if self.session is not None:
            self.session = await self.host.gateway.ledger.session(self.session.id) or self.session
        return self.session

    async def _referenced(self, text: str) -> str:
        """Return what the references in a message stand for."""
        reader = ReferenceReader(
            cwd=self.directory,
            environ=self.parts.environ,
            fetch_url=self.parts.fetch_url,
        )
        expanded = await reader.expand(text)
        for line in expanded.taken:
            self.say(f"+ {line}")
        for line in expanded.problems:
            self.say(f"! {line}", "ui_warn")
        return expanded.added

    async def attach_image(self, path: str | None) -> str:
        picture = await self.picture(path)
        self.attachments.append(picture)
        self.changed()
        return f"Attached {picture.name} to the next message."

    async def picture(self, path: str | None) -> Attachment:
        """Read a picture from a file; some screens read the clipboard if none is named."""
        if path is None:
            raise UsageError("Which file?", hint="/image PATH")
        return await image_file(path, self.directory)

    # -- the caller of commands ---------------------------------------------

    @property
    def source(self) -> str:
        return PLATFORM

    @property
    def user_id(self) -> str:
        return self.parts.user

    @property
    def screen(self) -> Screen:
        return self

    async def reply(self, text: str) -> None:
        self.say(text, "")

    async def ensure_session(self) -> Session:
        if self.session is None:
            self.session = await self.host.gateway.open_session(
                self.parts.profile.id, PLATFORM, self.parts.user
            )
        return self.session

    async def switch(self, session: Session | None) -> None:
        """Make `session` the current one and show where it stands."""
        before, self.session = self.directory, session
        self._usage = None
        self.last_seconds = 0.0
        await self._check_directory()
        await self.refresh()
        if session is not None:
            await self.recap()
        if self.directory != before:
            self.say(f"This conversation works in {self.directory}.", "ui_warn")
        if session is not None:
            await self.pick_up()

    async def use_agent(self, profile: AgentProfile) -> None:
        self.parts = replace(self.parts, profile=profile)
        await self.switch(None)

    @property
    def directory(self) -> Path:
        """Where the conversation works."""
        session = self.session
        return Path(session.cwd) if session and session.cwd else self.parts.profile.workspace

    async def _check_directory(self) -> None:
        """Move a conversation whose directory is gone to the one of this chat."""
        here = self.parts.profile.workspace
        if self.session and not await asyncio.to_thread(self.directory.is_dir):
            self.say(f"{self.directory} is gone.", "ui_warn")
            ledger = self.host.gateway.ledger
            self.session = await ledger.update_session(self.session.id, cwd=str(here))

    async def submit(
        self, text: str, *, mode: BusyMode, attachments: tuple[Attachment, ...] = ()
    ) -> None:
        """Send text to the agent; say what it does if a turn is running."""
        await self._pass_on(text, mode, attachments, shown=False)

    async def _pass_on(
        self, text: str, mode: BusyMode, attachments: tuple[Attachment, ...], *, shown: bool
    ) -> None:
        session = await self.ensure_session()
        if added := await self._referenced(text):
            attachments += (Attachment(kind=REFERENCE, name="references", text=added),)
        user, now = self.parts.user, self.host.gateway.clock.now()
        message = inbound(session, text, user, now, attachments)
        self._coming[message.native_id] = shown
        submission = await submit_while_busy(
            self.host.gateway,
            self.parts.profile.id,
            message,
            session_id=session.id,
            mode=mode,
        )
        if submission.effect is not None:
            self.say(f"· {submission.effect.value}: this {EFFECTS[submission.effect]}")
        await self._count_queued()

    async def refresh(self) -> None:
        session, ledger, host = await self._current(), self.host.gateway.ledger, self.host
        session_id = session.id if session else None
        self.mode = await host.busy_mode(PLATFORM, session_id)
        shown = await recalled(ledger, session_id, Preference.SHOW_REASONING, bool)
        self._reasoning = host.shows_reasoning(PLATFORM, terminal=True) if shown is None else shown
        detail = await recalled(ledger, session_id, Preference.TOOL_DETAIL, str)
        usual = host.tool_detail(PLATFORM, terminal=True)
        self._detail = ToolDetail(detail) if detail in set(ToolDetail) else usual
        self.yolo = await recalled(ledger, session_id, Preference.YOLO, bool) or False
        if self.renderer is not None:
            self.renderer.settings = self._render_settings()
        await self._count_queued()

    async def _count_queued(self) -> None:
        entries = await self.host.gateway.ledger.waiting(self.session.id) if self.session else []
        self.waiting = tuple(typed_line(entry.message.shown) for entry in entries)
        self.changed()

    @property
    def queued(self) -> int:
        return len(self.waiting)

    @property
    def busy(self) -> bool:
        """Something is being answered, or is about to be: what is typed now comes after it."""
        return self.working or bool(self._coming) or not self._jobs.empty()

    def show_question(self, text: str) -> None:
        """Print what the person said above the answer to it."""
        lines = wrap(text.strip(), self.cells - 2)
        if len(lines) > QUESTION_LINES:
            more = f"… {count(len(lines) - QUESTION_LINES, 'more line')}"
            lines = [*lines[:QUESTION_LINES], more]
        marks = [self.skin.branding.prompt_symbol, *" " * len(lines)]
        marked = [f"{mark} {line}" for mark, line in zip(marks, lines, strict=False)]
        self.show(["", *(self.paint(line, "prompt") for line in marked)])

    # -- turns -------------------------------------------------------------

    def on_turn(self, job: TurnJob) -> None:
        if self.session is not None and job.stream.session_id == self.session.id:
            self._jobs.put_nowait(job)

    async def _follow_turns(self) -> None:
        """Show the turns of the session, one after the other, until cancelled."""
        while True:
            await self._follow(await self._jobs.get())

    async def _follow(self, job: TurnJob) -> None:
        self._announce(job)
        renderer = TurnRenderer(self.skin, self.kind, self._render_settings())
        specs = self.host.controls.tools(job.profile.id, self.session)
        renderer.earlier = await earlier_tools(self.host.gateway, job, specs)
        self.renderer, self.started_at = renderer, self.host.gateway.clock.monotonic()
        self._turn_tokens, self._turn_cost = 0, 0.0
        await self._count_queued()
        async for event in job.stream.follow_joined():
            if lines := renderer.event(event, self.cells):
                self.show(lines)
            match event:
                case ApprovalAsked(request=request):
                    self.questions.ask(request)
                case ApprovalAnswered(approval_id=approval_id):
                    self.questions.settle(approval_id)
                case Notice(about=about) if about:
                    self._noted.add(about)
                case SteerTaken():
                    await self._count_queued()
                    self._coming.clear()
                case UsageReported():
                    self._usage = event
                    self._turn_tokens += event.usage.total_tokens
                    self._turn_cost += event.cost_usd or 0.0
            self.changed()
        self.last_seconds, self.started_at = self.elapsed(), None
        self.renderer = None
        self._turn_tokens, self._turn_cost = 0, 0.0
        self.questions.settle("")
        await self.refresh()
        if not self.waiting and self._jobs.empty() and not self.interruptible:
            self._coming.clear()  # Some may have been dropped.
        if self._display.bell_on_complete:
            self.ring()

    def _announce(self, job: TurnJob) -> None:
        """Put the question above its answer, unless it stands there or is in the recap."""
        message = job.entry.message if job.entry else None
        shown = self._coming.pop(message.native_id, False) if message else True
        if message is None or shown or job.resumed:
            return
        if not message.internal:
            self.show_question(message.text)
        elif message.native_id in self._noted:
            self._noted.discard(message.native_id)
        else:
            self.show([""])
            self.say(f"· {message.shown}")

    def on_trouble(self, entry: InboxEntry, error: HermesError) -> None:  # noqa: ARG002
        self._coming.pop(entry.message.native_id, None)

    def _render_settings(self) -> RenderSettings:
        display = self._display
        return RenderSettings(
            markdown=display.final_response_markdown != "raw",
            reasoning=self._reasoning,
            diffs=display.inline_diffs,
            detail=self._detail,
            label_cells=display.tool_preview_length,
        )

    @property
    def interruptible(self) -> bool:
        session = self.session
        return session is not None and self.host.gateway.current_turn(session.id) is not None

    def interrupt(self) -> bool:
        """Stop the running turn; False if none runs."""
        return self.session is not None and self.host.gateway.interrupt(self.session.id)

    async def answer(self, request: ApprovalRequest, reply: PickerReply) -> None:
        answers, user = self.host.answers, self.parts.user
        if request.kind is ApprovalKind.APPROVAL:
            taken = await answers.answer(request.id, Choice(reply.value), by=user, text=reply.text)
        else:
            text = reply.text or reply.value or NO_ANSWER
            taken = await answers.reply(request.id, text, by=user)
        if taken is None:
            self.say("This was already answered, or it has expired.")
            if reply.text:
                self.prefill(reply.text)

    # -- beginning and end -------------------------------------------------

    async def recap(self) -> None:
        session = self.session
        if session is None or self._display.resume_display == "minimal":
            return
        ledger, lines = self.host.gateway.ledger, list[str]()
        history = await ledger.history(session.id)
        open_turns = {turn.id for turn in await ledger.open_turns(session.id)}
        going_on = bool(history) and history[-1].turn_id in open_turns
        for who, text in recap_lines(session, history, going_on=going_on):
            you = f"{self.skin.branding.prompt_symbol} "
            mark = {"head": "· ", "notice": "· ", "you": you}.get(who, "  ")
            colour = {"head": "ui_accent", "you": "prompt"}.get(who, "banner_dim")
            wrapped = wrap(text, self.cells - 2)
            lines += [
                self.paint(f"{mark if number == 0 else '  '}{line}", colour)
                for number, line in enumerate(wrapped)
            ]
        self.show(["", *lines])

    async def pick_up(self) -> None:
        """Go on with what another process left open in this session."""
        if self.session is None:
            return
        gateway = self.host.gateway
        left_open = await gateway.ledger.open_turns(self.session.id)
        try:
            await gateway.recover(self.session.id)
        except HermesError as error:
            self.say(f"{error.message} {error.hint}".rstrip(), "ui_warn")
            return
        for turn in left_open:
            ended = await gateway.ledger.turn(turn.id)
            if ended is not None and ended.error is not None:
                self.say(f"✗ {ended.error.message} {ended.error.hint}".rstrip(), "ui_error")
        if self.queued:
            await self.host.gateway.wake(self.session.id)

    async def may_leave(self) -> bool:
        """Ask what becomes of background processes; False if the person stays."""
        commands = await self.host.controls.background()
        if not commands:
            return True
        number = "a background process" if len(commands) == 1 else f"{len(commands)} processes"
        running = f"{number}: {'; '.join(one_line(harmless(each), 60) for each in commands)}"
        choices = ["Stay", "Leave and end what runs", "Leave and let it run on"]
        offered = choices if self.parts.let_go else choices[:2]
        chosen = await self.pick(f"Still running: {running}", offered)
        self.outlived = chosen == 2
        end = f"left running (kill {os.getpid()} ends it)" if self.outlived else "ended"
        if chosen:
            self.say(f"· {end} · {running}")
        return bool(chosen)

    async def hold(self) -> None:
        """Stop the running turn and keep what is queued for the next time."""
        if self.session is None:
            return
        self.host.gateway.hold(self.session.id)
        self.interrupt()
        if self.queued:
            queued = count(self.queued, "queued message")
            self.say(f"· {queued}: answered when you continue this conversation.")
