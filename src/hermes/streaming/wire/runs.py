"""A turn as named events: for the followers of a run, and for a session's chat.

Followers of a run (`run_frame`):

    id: <seq>
    data: {"event": "message.delta", "run_id", "timestamp", ...}

Each logged event gives one frame under its own id, made from nothing but that
event: a reader that comes back with `Last-Event-ID` gets exactly the rest. The
frames have no `event:` line, because browsers hand named events only to
listeners of that name; the name is in the data, where every client finds it.
Text is built from `message.delta`. `message.reset` voids the deltas since the
last `message.completed`: a model call was repeated, or the run continues after
a restart, and then `messages` holds what had been said completely until then.

A session's chat (`SessionStream`, for `/api/sessions/{id}/chat/stream`):

    event: assistant.delta
    data: {"session_id", "run_id", "seq", "ts", "message_id", "delta"}

    run.started  (message.started  assistant.delta*  message.completed  tool.*)*
    assistant.completed  run.completed | error  done

`assistant.completed` comes once and holds the final answer. `assistant.reset`
voids the deltas of the message it names.
"""

from collections.abc import Callable

import msgspec

from hermes.domain.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallDelta,
    MessageCompleted,
    Notice,
    ReasoningDelta,
    SteerTaken,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
    UsageReported,
)
from hermes.domain.messages import AssistantMessage, ToolOutcome
from hermes.domain.runs import LoggedEvent
from hermes.domain.turn import TurnState
from hermes.streaming.view import Completed, Piece, Said, Thought, ToolDone, TurnView
from hermes.streaming.wire.frames import (
    Fields,
    Named,
    aside_fields,
    error_fields,
    frame,
    handed_fields,
    usage_fields,
)

_encode = msgspec.json.Encoder().encode


def run_frame(run_id: str, logged: LoggedEvent, redact: Callable[[str], str]) -> bytes:
    name, fields = _told(logged.event, redact)
    head = {"event": name, "run_id": run_id, "timestamp": logged.at}
    return frame(_encode(head | fields), id=str(logged.seq))


def _told(event: TurnEvent, redact: Callable[[str], str]) -> Named:
    match event:
        case TextDelta(text=text) | ReasoningDelta(text=text):
            said = isinstance(event, TextDelta)
            return "message.delta" if said else "reasoning.delta", {"delta": text}
        case TextReset() | TurnStarted() | MessageCompleted():
            return _message(event)
        case ToolStarted():
            return "tool.started", _tool(event, "tool")
        case ToolFinished(outcome=outcome):
            failed = {"error": outcome is not ToolOutcome.OK}
            return "tool.completed", _tool(event, "tool") | failed
        case Notice(code=code, text=text, level=level):
            return "notice", {"code": code, "text": text, "level": level.value}
        case UsageReported(context_tokens=tokens, context_window=window):
            context = {"context_tokens": tokens, "context_window": window}
            return "usage", usage_fields(event) | context
        case TurnFinished():
            return _finished(event)
        case _:
            return aside_fields(event, redact)


def _message(event: TextReset | TurnStarted | MessageCompleted) -> Named:
    match event:
        case TextReset():
            return "message.reset", {"reason": "retry"}
        case TurnStarted(resumes=0):
            return "run.started", {"session_id": event.session_id, "turn_id": event.turn_id}
        case TurnStarted():
            said = [_said(message) for message in event.earlier]
            return "message.reset", {"reason": "resume", "messages": said}
        case MessageCompleted(message_id=message_id, message=message):
            return "message.completed", {"message_id": message_id, **_said(message)}


def _said(message: AssistantMessage) -> Fields:
    said: Fields = {"text": message.text, "finish_reason": message.finish.value}
    if message.reasoning is not None and message.reasoning.text:
        said["reasoning"] = message.reasoning.text
    if message.tool_calls:
        said["tool_calls"] = [{"id": c.id, "name": c.name} for c in message.tool_calls]
    return said


def _tool(event: ToolStarted | ToolFinished, named: str) -> Fields:
    """Return what is told of a call; `named` is the field that holds the tool's name."""
    call: Fields = {"call_id": event.call_id, named: event.name}
    if isinstance(event, ToolStarted):
        return call | {"preview": event.label, "emoji": event.emoji}
    call |= {"outcome": event.outcome.value, "duration": round(event.seconds, 3)}
    return call | {"preview": event.preview}


def _finished(event: TurnFinished) -> Named:
    usage = {"usage": usage_fields(event)}
    if event.outcome is TurnState.FAILED:
        return "run.failed", {"error": error_fields(event.error), **usage}
    if event.outcome is TurnState.INTERRUPTED:
        return "run.cancelled", usage
    return "run.completed", {"output": event.text, **handed_fields(event.handed), **usage}


class SessionStream:
    """Makes frames of the events of one turn; one for each stream."""

    def __init__(
        self,
        session_id: str,
        run_id: str,
        *,
        now: Callable[[], float],
        redact: Callable[[str], str],
    ) -> None:
        self._head = _encode({"session_id": session_id, "run_id": run_id})[:-1]
        self._run_id = run_id
        self._now = now
        self._redact = redact
        self._view = TurnView()
        self._seq = 0
        self._message = 0
        self._open = False
        """A message is being told."""

    def feed(self, event: TurnEvent) -> bytes:
        return b"".join(
            self._frame(name, fields)
            for piece in self._view.feed(event)
            for name, fields in self._told(piece)
        )

    def _frame(self, name: str, fields: Fields) -> bytes:
        self._seq += 1
        told = _encode({"seq": self._seq, "ts": self._now(), **fields})
        return frame(b"%b,%b" % (self._head, told[1:]), event=name)

    def _told(self, piece: Piece) -> list[Named]:
        match piece:
            case Said(text=text, again=again):
                return self._say(text, again=again)
            case Completed():
                return self._complete(piece)
            case TurnFinished():
                return self._finish(piece)
            case CallDelta() | ToolProgress() | ApprovalAsked() | ApprovalAnswered() | SteerTaken():
                return [aside_fields(piece, self._redact)]
            case _:
                return [_about(piece)]

    @property
    def _message_id(self) -> str:
        return f"{self._run_id}.{self._message}"

    def _say(self, text: str, *, again: bool) -> list[Named]:
        told: list[Named] = []
        if not self._open:
            self._open = True
            self._message += 1
            message = {"id": self._message_id, "role": "assistant"}
            told.append(("message.started", {"message": message}))
        if again:
            told.append(("assistant.reset", {"message_id": self._message_id}))
        delta = {"message_id": self._message_id, "delta": text}
        return [*told, ("assistant.delta", delta)] if text else told

    def _complete(self, completed: Completed) -> list[Named]:
        text = completed.message.text
        told = self._say(text, again=True) if completed.differs else []
        if not self._open:
            return told
        self._open = False
        ended = {"message_id": self._message_id, "content": text}
        return [*told, ("message.completed", ended)]

    def _finish(self, event: TurnFinished) -> list[Named]:
        if event.outcome is TurnState.FAILED or event.error is not None:
            return [("error", error_fields(event.error)), ("done", {"completed": False})]
        done = event.outcome is TurnState.DONE
        last = self._view.last.text if self._view.last else ""
        ending = {"completed": done, "interrupted": not done}
        answer = {"message_id": self._message_id, "content": event.text if done else last}
        usage = {"usage": usage_fields(event), **handed_fields(event.handed)}
        return [
            ("assistant.completed", answer | ending),
            ("run.completed", ending | usage),
            ("done", {"completed": done}),
        ]


def _about(
    piece: Thought | ToolStarted | ToolDone | TurnStarted | Notice | UsageReported,
) -> Named:
    match piece:
        case Thought(text=text):
            return "reasoning.delta", {"delta": text}
        case ToolStarted():
            return "tool.started", _tool(piece, "tool_name")
        case ToolDone(finished=ended):
            failed = ended.outcome is not ToolOutcome.OK
            return "tool.failed" if failed else "tool.completed", _tool(ended, "tool_name")
        case TurnStarted(resumes=resumes):
            return "run.started", {"resumes": resumes}
        case Notice(code=code, text=text):
            return "notice", {"code": code, "text": text}
        case UsageReported():
            return "usage", usage_fields(piece)
