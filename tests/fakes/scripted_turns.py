"""A turn runner that plays scripts: real gateway, real ledger, no model."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from hermes.control.approvals import ApprovalAnswers
from hermes.domain.approvals import (
    ApprovalKind,
    ApprovalRequest,
    Choice,
    Decision,
)
from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    MessageCompleted,
    SteerTaken,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnJob,
    TurnStarted,
    TurnStream,
    UsageReported,
)
from hermes.domain.ids import new_id
from hermes.domain.messages import AssistantMessage, ToolOutcome, UserMessage, content_text
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import Ledger
from hermes.domain.profile import AgentProfile
from hermes.domain.turn import Turn, TurnControl, TurnError, TurnState
from hermes.domain.usage import Usage

__all__ = ["Play", "Script", "ScriptedRunner"]


class Play:
    """One running script and what it can do."""

    def __init__(
        self, runner: "ScriptedRunner", turn: Turn, stream: TurnStream, control: TurnControl
    ) -> None:
        self.asked = ""
        self.text = ""
        self.stream = stream
        self.control = control
        self._runner = runner
        self._turn = turn

    def emit(self, event: TurnEvent) -> None:
        self.stream.emit(event)

    async def say(self, text: str, *, step: int = 7) -> None:
        """Stream text in small pieces and commit the message."""
        for start in range(0, len(text), step):
            self.text += text[start : start + step]
            self.emit(TextDelta(text[start : start + step]))
            await asyncio.sleep(0)
        await self.complete(text)

    async def complete(self, text: str) -> None:
        message = AssistantMessage(text=text)
        stored = await self._runner.ledger.record_reply(
            self._turn.id, message, None, self._runner.clock.now()
        )
        self.emit(MessageCompleted(message_id=stored.id, message=message))
        self.text = ""

    def tool(
        self,
        name: str,
        label: str,
        *,
        emoji: str = "📖",
        outcome: ToolOutcome = ToolOutcome.OK,
        preview: str = "",
        diff: str | None = None,
    ) -> None:
        call = new_id("call")
        self.emit(ToolStarted(call_id=call, name=name, arguments={}, emoji=emoji, label=label))
        self.emit(
            ToolFinished(
                call_id=call, name=name, outcome=outcome, seconds=0.3, preview=preview, diff=diff
            )
        )

    def usage(self, tokens: int = 1200, window: int | None = 8000) -> None:
        self.emit(
            UsageReported(
                usage=Usage(input_tokens=tokens, output_tokens=100),
                cost_usd=0.0123,
                context_tokens=tokens,
                context_window=window,
            )
        )

    async def ask(
        self,
        subject: str,
        *,
        kind: ApprovalKind = ApprovalKind.APPROVAL,
        choices: tuple[str, ...] = tuple(Choice),
    ) -> Decision:
        """Ask a person and wait for the answer, as the gate does."""
        now = self._runner.clock.now()
        approval = await self._runner.ledger.ask(
            ApprovalRequest(
                id=new_id("appr"),
                kind=kind,
                agent_id=self._turn.agent_id,
                session_id=self._turn.session_id,
                turn_id=self._turn.id,
                call_id=new_id("call"),
                tool="terminal",
                arguments_hash=hashlib.sha256(subject.encode()).hexdigest(),
                subject=subject,
                reason="recursive delete" if kind is ApprovalKind.APPROVAL else "",
                pattern="rm -r" if kind is ApprovalKind.APPROVAL else "",
                choices=choices,
                created_at=now,
                expires_at=now + 300,
            )
        )
        self.emit(ApprovalAsked(request=approval.request))
        decision = await self._runner.answers.wait(approval)
        self.emit(ApprovalAnswered(approval_id=approval.request.id, decision=decision))
        return decision

    async def deny_elsewhere(self) -> None:
        """Answer what waits as another door would."""
        for approval in await self._runner.ledger.pending_approvals(self._turn.session_id):
            await self._runner.answers.answer(approval.request.id, Choice.DENY, by="elsewhere")

    async def take_steering(self) -> list[str]:
        """Wait until something is said to the running turn, and take it."""
        while not (taken := self.control.take_steering()):  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.005)
        for inbox_id, message in taken:
            text = content_text(message.content)
            await self._runner.ledger.add_inputs(
                self._turn.id, [message], [inbox_id], self._runner.clock.now()
            )
            self.emit(SteerTaken(text=text))
        return [content_text(message.content) for _, message in taken]


Script = Callable[[Play], Awaitable[None]]


async def echo(play: Play) -> None:
    await play.say(f"You said: {play.asked}")


class ScriptedRunner:
    """Plays the script whose name is the first word of what was said; else echoes."""

    def __init__(
        self, ledger: Ledger, answers: ApprovalAnswers, clock: Clock, scripts: dict[str, Script]
    ) -> None:
        self.ledger = ledger
        self.answers = answers
        self.clock = clock
        self.turns: list[str] = []
        self._scripts = scripts

    async def run(self, job: TurnJob) -> None:
        turn, stream, control = job.turn, job.stream, job.control
        play = Play(self, turn, stream, control)
        outcome, error = TurnState.DONE, None
        # Before it can be interrupted: a turn that began is on record.
        play.asked = await self._asked(turn)
        self.turns.append(play.asked)
        try:
            control.attach()
            play.emit(
                TurnStarted(
                    turn_id=turn.id,
                    session_id=turn.session_id,
                    agent_id=job.profile.id,
                    model="demo",
                )
            )
            first = play.asked.split(maxsplit=1)[0] if play.asked.split() else ""
            await self._scripts.get(first, echo)(play)
        except asyncio.CancelledError:
            control.detach()
            if not control.interrupted:
                stopping = TurnError(code="shutdown", message="Hermes is stopping.")
                self._finish(stream, TurnState.INTERRUPTED, stopping)
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            outcome = TurnState.INTERRUPTED
        except ValueError as failure:
            outcome = TurnState.FAILED
            error = TurnError(code="demo", message=str(failure), hint="Try another script.")
        control.detach()
        if play.text:
            cut = AssistantMessage(text=play.text)
            await self.ledger.record_reply(turn.id, cut, None, self.clock.now())
        await self.ledger.finish_turn(turn.id, outcome, error, self.clock.now())
        self._finish(stream, outcome, error)

    async def after_turn(self, profile: AgentProfile, session_id: str) -> None:
        return None

    async def _asked(self, turn: Turn) -> str:
        history = await self.ledger.history(turn.session_id)
        said = [each.message for each in history if each.turn_id == turn.id]
        return "\n".join(content_text(m.content) for m in said if isinstance(m, UserMessage))

    def _finish(self, stream: TurnStream, outcome: TurnState, error: TurnError | None) -> None:
        stream.emit(
            TurnFinished(
                outcome=outcome, text="", usage=Usage(), cost_usd=0.0, model_calls=1, error=error
            )
        )
