"""What a door asks for, and the run it is committed as."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import HermesError
from hermes.domain.ids import new_id
from hermes.domain.inbound import Attachment, Chat, ChatKind, InboundMessage, Sender
from hermes.domain.messages import (
    AssistantMessage,
    Content,
    Message,
    TextPart,
)
from hermes.domain.runs import NewRun, Run, RunKind, SessionChoice
from hermes.domain.session import NewSession
from hermes.domain.turn import ClientResult, TurnOptions

PLATFORM = "api_server"


def owner_tag(key_id: str) -> str:
    """Return the `user_id` of sessions that an API key has opened."""
    return f"key:{key_id}"


class TooBusy(HermesError):
    """More runs are under way than may be."""

    code = "too_many_runs"


class Draining(HermesError):
    """The gateway is stopping and takes nothing new."""

    code = "draining"


class RunRequest(Struct, frozen=True, kw_only=True):
    """What a door asks for."""

    id: str
    """Chosen by the door in the form its clients know: `run_…`, `resp_…`, `chatcmpl-…`."""
    kind: RunKind
    key_id: str
    agent_id: str
    choice: SessionChoice = SessionChoice()
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    results: tuple[ClientResult, ...] = ()
    options: TurnOptions = TurnOptions()
    history: tuple[Message, ...] = ()
    """What was said before, if a new session is opened."""
    user: str | None = None
    """The person behind the request, as its program names them."""
    request: dict[str, object] = {}
    idempotency_key: str | None = None
    fingerprint: str = ""
    logged: bool = False


def new_run(
    request: RunRequest,
    session: NewSession,
    key_of: Callable[[InboundMessage], str],
    redact: Callable[[str], str],
) -> NewRun:
    """Return what is committed for a request; secrets do not get that far."""
    chosen = request.choice
    options = request.options
    message = InboundMessage(
        platform=PLATFORM,
        account=request.key_id,
        native_id=request.id,
        chat=Chat(kind=ChatKind.PRIVATE, id=chosen.session_id or session.id),
        sender=Sender(id=request.user or owner_tag(request.key_id)),
        text=redact(request.text),
        sent_at=session.started_at,
        attachments=request.attachments,
        options=replace(options, instructions=redact(options.instructions)),
        results=tuple(
            replace(each, content=_clean(each.content, redact)) for each in request.results
        ),
    )
    return NewRun(
        id=request.id,
        kind=request.kind,
        key_id=request.key_id,
        agent_id=request.agent_id,
        choice=chosen,
        session=session,
        history=tuple(_clean_message(each, redact) for each in request.history),
        message=message,
        session_key=chosen.key or key_of(message),
        request=request.request,
        idempotency_key=request.idempotency_key,
        fingerprint=request.fingerprint,
        logged=request.logged,
        at=session.started_at,
    )


def steer_message(run: Run, text: str, at: float) -> InboundMessage:
    """Return what is said to the running turn of a run."""
    return InboundMessage(
        platform=PLATFORM,
        account=run.key_id,
        native_id=new_id("steer"),
        chat=Chat(kind=ChatKind.PRIVATE, id=run.session_id),
        sender=Sender(id=owner_tag(run.key_id)),
        text=text,
        sent_at=at,
    )


def _clean_message(message: Message, redact: Callable[[str], str]) -> Message:
    if isinstance(message, AssistantMessage):
        return replace(message, text=redact(message.text))
    return replace(message, content=_clean(message.content, redact))


def _clean(content: Content, redact: Callable[[str], str]) -> Content:
    if isinstance(content, str):
        return redact(content)
    return tuple(
        TextPart(redact(part.text)) if isinstance(part, TextPart) else part for part in content
    )
