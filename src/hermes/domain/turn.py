"""Turn: one run of one agent over one session.

    queued -> running <-> waiting -> done | failed | interrupted

At most one turn of a session is open at a time, whichever process runs it;
the ledger enforces this.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes.domain.messages import Content, UserMessage

if TYPE_CHECKING:
    from hermes.domain.events import TurnFinished
    from hermes.domain.runs import RunEnding


class ClientTool(Struct, frozen=True, kw_only=True):
    """A tool that the program which asks carries out itself."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON Schema of the arguments."""
    strict: bool | None = None
    """Whether the provider has to keep the arguments to the schema; None: as it likes."""


class ClientResult(Struct, frozen=True, kw_only=True):
    call_id: str
    content: Content


_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the model is to answer, under the names that OpenAI gave these fields.

    They are the same from the request to the model call; None leaves a field to the provider.
    What the protocols take of them is a table in `models.providers`.
    """

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: str | Annotated[tuple[str, ...], Meta(max_length=16)] | None = None
    """Texts at which the answer ends."""
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Tokens less probable than this share of the most probable one are left out."""
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    """Only so many tokens are looked at; 0 and -1: all."""
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    """More than 1: less repetition; 1 changes nothing."""
    prediction: dict[str, Any] | None = None
    """What the answer will mostly be; it comes sooner then, and is the same."""
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    logit_bias: Annotated[dict[str, float], Meta(max_length=1024)] | None = None
    logprobs: bool | None = None
    """Tell how probable the tokens of the answer were."""
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    service_tier: Literal["auto", "default", "flex", "priority", "scale"] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    parallel_tool_calls: bool | None = None
    """False: one call at a time, which the turn loop sees to."""


SAMPLING = Sampling.__struct_fields__
JSON_OBJECT = "json_object"
JSON_SCHEMA = "json_schema"
ASKABLE = frozenset((*SAMPLING, JSON_OBJECT, JSON_SCHEMA))
"""What may be asked of a model; not every protocol has all of it."""


class TurnOptions(Sampling, frozen=True, kw_only=True, omit_defaults=True):
    """Options of one turn; None uses the configuration."""

    instructions: str = ""
    """Further instructions for this turn only; never stored in the session."""
    client_tools: tuple[ClientTool, ...] = ()
    own_tools: tuple[str, ...] | None = None
    """Tools and toolsets of the agent that it may use; None: all that it has. A name that both
    have is the tool's."""
    stream_calls: bool = False
    """Arguments for client tools are told as they come. Whoever hears them cannot take them back:
    a model call that breaks off then is not repeated."""
    tool_choice: str | None = None
    """`none`, `required`, or the name of a tool; for the first call of the turn."""
    max_tool_calls: int | None = None
    """After so many the model has to answer."""
    max_model_calls: int | None = None
    """Model calls that it may make, in place of `agent.max_turns`."""
    children: int = 0
    """For a child turn: how many generations of further ones may hang on it."""
    max_tokens: int | None = None
    """Bounds the final answer: it is not continued when it is cut off by this."""
    reasoning_effort: str | None = None
    response_schema: dict[str, Any] | None = None
    """JSON Schema that the final answer has to follow."""
    schema_name: str = "reply"
    schema_strict: bool | None = None
    schema_description: str = ""
    json_object: bool = False
    """The final answer has to be a JSON object, whichever."""
    title: bool = True
    """Whether the session gets a title; not if it exists for one request only."""


MAX_RESUMES = 2
"""How often a turn that has had effects is resumed before it fails."""
MAX_UNBEGUN_RESUMES = 10
"""The same for a turn that has not said or started anything: it cannot be the cause."""


class TurnState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """On a person's answer."""
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def open(self) -> bool:
        return self in (TurnState.QUEUED, TurnState.RUNNING, TurnState.WAITING)


class TurnError(Struct, frozen=True, kw_only=True):
    code: str
    message: str
    hint: str = ""
    public: str = ""
    """See `domain.errors.HermesError`."""


class NewTurn(Struct, frozen=True, kw_only=True):
    """What begins a turn: committed in one transaction with what it consumes."""

    id: str
    session_id: str
    owner: str
    """The process that runs it; see `state.ownership`."""
    inputs: tuple[UserMessage, ...]
    inbox_ids: tuple[int, ...] = ()
    results: tuple[ClientResult, ...] = ()
    """For calls that an earlier turn handed to its client; those that get none here are
    recorded as not answered."""
    at: float


class Turn(Struct, frozen=True, kw_only=True):
    id: str
    session_id: str
    agent_id: str
    owner: str
    state: TurnState
    started_at: float
    updated_at: float
    resumes: int = 0
    """How often it was resumed."""
    releases: int = 0
    """How often a process released it in an orderly stop; these resumes are not held against it."""
    finished_at: float | None = None
    error: TurnError | None = None


class TurnContext(Struct, frozen=True, kw_only=True):
    """What a door tells the model about the place of a turn."""

    lasting: str = ""
    """What holds for the session; counts in its first turn only, when the prompt is frozen."""
    passing: str = ""
    """What holds for this turn; never stored."""


class TurnBrief(Struct, frozen=True, kw_only=True):
    context: TurnContext = TurnContext()
    options: TurnOptions = TurnOptions()


class TurnControl:
    """The handle with which a lane controls the turn that it runs.

    Interrupting is cancellation of the turn's task with the intent recorded
    first. A cancellation without that intent means that the process ends: the
    turn then stays open and the next process resumes it.

    Steering is text that arrives while the turn runs. The lane puts admitted
    inbox entries in; the loop takes them between tool results and the next
    model call. Entries that the turn does not take stay in the inbox and
    become the next turn.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self.laid_down = False
        """The process stops in an orderly way: a cancellation is not a crash."""
        self.closing: Callable[[TurnFinished], RunEnding | None] | None = None
        """Returns what is owed for the turn if the commit that ends it can meet that too."""
        self._steering: list[tuple[int, UserMessage]] = []
        self._task: asyncio.Task[Any] | None = None

    def steer(self, inbox_id: int, message: UserMessage) -> None:
        self._steering.append((inbox_id, message))

    def take_steering(self) -> list[tuple[int, UserMessage]]:
        taken, self._steering = self._steering, []
        return taken

    def attach(self) -> None:
        self._task = asyncio.current_task()
        if self.interrupted and self._task is not None:
            self._task.cancel()

    def detach(self) -> None:
        """Make `interrupt` cancel nothing from now on: the turn is settling."""
        self._task = None

    def interrupt(self) -> None:
        """Stop the turn at its next await; its history stays valid."""
        self.interrupted = True
        if self._task is not None:
            self._task.cancel()
